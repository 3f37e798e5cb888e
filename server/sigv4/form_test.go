package sigv4

import (
	"testing"
	"time"

	"github.com/minio/minio-go/v7/pkg/signer"

	"ringfence/server/s3err"
)

func TestForm(t *testing.T) {
	const policy = "eyAiZXhwaXJhdGlvbiI6ICIyMDE1LTEyLTMwVDEyOjAwOjAwLjAwMFoiIH0="
	good := Form{
		Algorithm: algorithm, Credential: docAccessKey + "/20130524/us-east-1/s3/aws4_request", Date: docStamp, Policy: policy,
		Signature: signer.PostPresignSignatureV4(policy, docTime(), docSecret, "us-east-1"),
	}
	// Age does not matter: the policy has its own end.
	a := newDoc(t, func(o *Options) { o.Now = func() time.Time { return docTime().Add(time.Hour) } })
	if p, err := a.AuthenticateForm(t.Context(), good); err != nil || p.AccessKey != docAccessKey || p.Anonymous {
		t.Fatalf("%+v %v", p, err)
	}
	for _, c := range []struct {
		change func(*Form)
		code   s3err.Code
	}{
		{func(f *Form) { f.Policy += "x" }, s3err.SignatureDoesNotMatch},
		{func(f *Form) { f.Policy = "" }, s3err.AccessDenied},
		{func(f *Form) { f.Signature = wrongSignature }, s3err.SignatureDoesNotMatch},
		{func(f *Form) { f.Signature = "" }, s3err.SignatureDoesNotMatch},
		{func(f *Form) { f.Credential = "x/20130524/us-east-1/s3/aws4_request" }, s3err.InvalidAccessKeyID},
		{func(f *Form) { f.Credential = docAccessKey }, s3err.AuthorizationQueryParametersError},
		{func(f *Form) { f.Credential = docAccessKey + "/20130524/us-west-1/s3/aws4_request" }, s3err.AuthorizationQueryParametersError},
		{func(f *Form) { f.Date = "20130525T000000Z" }, s3err.AuthorizationQueryParametersError},
		{func(f *Form) { f.Date = "" }, s3err.AuthorizationQueryParametersError},
		{func(f *Form) { f.Algorithm = "AWS" }, s3err.InvalidRequest},
	} {
		f := good
		c.change(&f)
		p, err := a.AuthenticateForm(t.Context(), f)
		refused(t, err, c.code)
		if p != (Principal{}) {
			t.Errorf("%+v", p)
		}
	}
}
