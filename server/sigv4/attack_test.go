package sigv4

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"ringfence/server/s3err"
)

// The tests here are named by the attack that they play.

const (
	target          = "http://" + docHost + "/photos/cat.jpg"
	wrongSignature  = "00000000000000000000000000000000000000000000000000000000deadbeef"
	unsignedTrailer = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
)

// TestA1UnsignedTrailerForged: an unsigned body does not make the request's own
// signature optional.
func TestA1UnsignedTrailerForged(t *testing.T) {
	for _, mode := range []string{unsignedTrailer, "STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER", payloadUnsigned, emptyHash} {
		r := newRequest(t, http.MethodPut, target, []byte("3\r\nabc\r\n0\r\n\r\n"))
		r.Header.Set("X-Amz-Decoded-Content-Length", "3")
		r.Header.Set("X-Amz-Content-Sha256", mode)
		s := docSigner()
		s.payload = mode
		signature := s.header(r)
		r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), signature, wrongSignature, 1))
		_, _, err := outcome(newDoc(t), received(t, r))
		refused(t, err, s3err.SignatureDoesNotMatch)
	}
}

// TestA2UnsignedTrailerForgedInQuery: nor do credentials in the query.
func TestA2UnsignedTrailerForgedInQuery(t *testing.T) {
	for _, mode := range []string{unsignedTrailer, "STREAMING-AWS4-HMAC-SHA256-PAYLOAD", ""} {
		r := newRequest(t, http.MethodPut, target, []byte("3\r\nabc\r\n0\r\n\r\n"))
		if mode != "" {
			r.Header.Set("X-Amz-Decoded-Content-Length", "3")
			r.Header.Set("X-Amz-Content-Sha256", mode)
		}
		signature := docSigner().presign(r, "60")
		r.URL.RawQuery = strings.Replace(r.URL.RawQuery, signature, wrongSignature, 1)
		_, _, err := outcome(newDoc(t), received(t, r))
		refused(t, err, s3err.SignatureDoesNotMatch)
	}
}

func TestA4BothMechanisms(t *testing.T) {
	for _, query := range []string{"X-Amz-Signature=" + wrongSignature, "X-Amz-Credential=x", "X-Amz-Algorithm=AWS4-HMAC-SHA256", "AWSAccessKeyId=x&Signature=y"} {
		r := newRequest(t, http.MethodGet, target+"?"+query, nil)
		docSigner().header(r)
		_, _, err := outcome(newDoc(t), received(t, r))
		refused(t, err, s3err.InvalidArgument)
	}
}

func TestA5RepeatedHeaders(t *testing.T) {
	for _, name := range once {
		for _, value := range []string{"", "other"} {
			r := newRequest(t, http.MethodGet, target, nil)
			docSigner().header(r)
			if r.Header.Get(name) == "" {
				r.Header.Set(name, "one")
			}
			r.Header.Add(name, value)
			_, _, err := outcome(newDoc(t), r.WithContext(t.Context()))
			refused(t, err, s3err.InvalidArgument)
		}
	}
}

func TestA6HostNotSigned(t *testing.T) {
	for _, presigned := range []bool{false, true} {
		r := newRequest(t, http.MethodGet, target, nil)
		s := docSigner()
		if presigned {
			s.payload, s.signed = payloadUnsigned, []string{"range"}
			s.presign(r, "60")
		} else {
			s.signed = []string{"x-amz-content-sha256", "x-amz-date"}
			s.header(r)
		}
		_, _, err := outcome(newDoc(t), received(t, r))
		if e := refused(t, err, s3err.AccessDenied); e.Field("HeadersNotSigned") != "host" {
			t.Errorf("fields %v", e.Fields)
		}
	}
}

// TestA7HeaderNotSigned is also U006.
func TestA7HeaderNotSigned(t *testing.T) {
	for _, name := range []string{"X-Amz-Acl", "X-Amz-Copy-Source", "X-Amz-Tagging", "x-amz-meta-a", "X-Amz-Security-Token", "X-Amz-Bypass-Governance-Retention"} {
		for _, presigned := range []bool{false, true} {
			r := newRequest(t, http.MethodPut, target, nil)
			s := docSigner()
			if presigned {
				s.payload = payloadUnsigned
				s.presign(r, "60")
			} else {
				s.header(r)
			}
			r.Header.Set(name, "other/secret")
			_, _, err := outcome(newDoc(t), received(t, r))
			if e := refused(t, err, s3err.AccessDenied); e.Field("HeadersNotSigned") != strings.ToLower(name) {
				t.Errorf("fields %v", e.Fields)
			}
		}
	}
	// A name that is signed but not sent does not stand in for one that is sent but not signed.
	r := newRequest(t, http.MethodPut, target, nil)
	s := docSigner()
	s.signed = []string{"host", "x-amz-absent", "x-amz-content-sha256", "x-amz-date"}
	s.header(r)
	r.Header.Set("X-Amz-Acl", "public-read")
	_, _, err := outcome(newDoc(t), received(t, r))
	refused(t, err, s3err.AccessDenied)
	// Nor may it be listed twice.
	r = newRequest(t, http.MethodPut, target, nil)
	s.signed = []string{"host", "x-amz-content-sha256", "x-amz-date", "x-amz-date"}
	s.header(r)
	r.Header.Set("X-Amz-Acl", "public-read")
	_, _, err = outcome(newDoc(t), received(t, r))
	refused(t, err, s3err.AuthorizationHeaderMalformed)
}

// TestA7AbsentHeaderSigned: signing a header that is not sent vouches for its absence.
func TestA7AbsentHeaderSigned(t *testing.T) {
	r := newRequest(t, http.MethodGet, target, nil)
	s := docSigner()
	s.signed = []string{"host", "x-amz-acl", "x-amz-content-sha256", "x-amz-date"}
	s.header(r)
	if _, _, err := outcome(newDoc(t), received(t, r)); err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Amz-Acl", "public-read")
	_, _, err := outcome(newDoc(t), received(t, r))
	refused(t, err, s3err.SignatureDoesNotMatch)
}

// TestA8Scope is also U007.
func TestA8Scope(t *testing.T) {
	for _, scope := range []string{
		"20130524/eu-west-1/s3/aws4_request", "20130524/us-east-1/s2/aws4_request", "20130524/us-east-1/s3/aws5_request",
		"20130523/us-east-1/s3/aws4_request", "2013524/us-east-1/s3/aws4_request", "20131340/us-east-1/s3/aws4_request",
		"/us-east-1/s3/aws4_request", "20130524//s3/aws4_request", "us-east-1/s3/aws4_request", "",
	} {
		s := docSigner()
		s.scope = scope
		r := newRequest(t, http.MethodGet, target, nil)
		s.header(r)
		_, _, err := outcome(newDoc(t), received(t, r))
		e := refused(t, err, s3err.AuthorizationHeaderMalformed)
		wrong := scope == "20130524/eu-west-1/s3/aws4_request" || scope == "20130524//s3/aws4_request"
		if expected := e.Field("Region"); wrong != (expected == "us-east-1") {
			t.Errorf("%s: region %q", scope, expected)
		}

		s.payload = payloadUnsigned
		r = newRequest(t, http.MethodGet, target, nil)
		s.presign(r, "60")
		_, _, err = outcome(newDoc(t), received(t, r))
		refused(t, err, s3err.AuthorizationQueryParametersError)
	}
	r := newRequest(t, http.MethodGet, target, nil)
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=Credentials, SignedHeaders=host, Signature=x")
	_, _, err := outcome(newDoc(t), received(t, r))
	refused(t, err, s3err.AuthorizationHeaderMalformed)
}

func TestA9SkewOfHeaders(t *testing.T) {
	for _, c := range []struct {
		offset time.Duration
		ok     bool
	}{
		{0, true}, {15 * time.Minute, true}, {-15 * time.Minute, true}, {15*time.Minute + time.Second, false}, {-15*time.Minute - time.Second, false},
		{16 * time.Minute, false}, {87600 * time.Hour, false},
	} {
		r := newRequest(t, http.MethodGet, target, nil)
		docSigner().header(r)
		a := newDoc(t, func(o *Options) { o.Now = func() time.Time { return docTime().Add(c.offset) } })
		_, _, err := outcome(a, received(t, r))
		if c.ok && err != nil {
			t.Errorf("%v: %v", c.offset, err)
		} else if !c.ok {
			refused(t, err, s3err.RequestTimeTooSkewed)
		}
	}
}

// TestA9LifeOfPresigned is also U170, U171 and U173.
func TestA9LifeOfPresigned(t *testing.T) {
	const week = 604800 * time.Second
	for _, c := range []struct {
		expires string
		offset  time.Duration
		code    s3err.Code
		message string
	}{
		{"604800", 16 * time.Minute, "", ""}, {"604800", week, "", ""}, {"604800", week + time.Second, s3err.AccessDenied, "Request has expired"},
		{"1", 3 * time.Second, s3err.AccessDenied, "Request has expired"}, {"1", time.Second, "", ""},
		{"60", -5 * time.Minute, "", ""}, {"60", -16 * time.Minute, s3err.AccessDenied, "Request is not valid yet"},
		{"0", 0, s3err.AuthorizationQueryParametersError, ""}, {"-1", 0, s3err.AuthorizationQueryParametersError, "X-Amz-Expires must be non-negative"},
		{"604801", 0, s3err.AuthorizationQueryParametersError, ""}, {"9223372036854775807", 0, s3err.AuthorizationQueryParametersError, ""},
		{"99999999999999999999999", 0, s3err.AuthorizationQueryParametersError, ""}, {"+60", 0, s3err.AuthorizationQueryParametersError, ""},
		{"6e1", 0, s3err.AuthorizationQueryParametersError, "X-Amz-Expires should be a number"}, {"", 0, s3err.AuthorizationQueryParametersError, ""},
		{" 60", 0, s3err.AuthorizationQueryParametersError, ""}, {"60.0", 0, s3err.AuthorizationQueryParametersError, ""},
	} {
		r := newRequest(t, http.MethodGet, target, nil)
		s := docSigner()
		s.payload = payloadUnsigned
		s.presign(r, c.expires)
		a := newDoc(t, func(o *Options) { o.Now = func() time.Time { return docTime().Add(c.offset) } })
		_, _, err := outcome(a, received(t, r))
		if c.code == "" {
			if err != nil {
				t.Errorf("%s after %v: %v", c.expires, c.offset, err)
			}
			continue
		}
		e := refused(t, err, c.code)
		if c.message != "" && e.Message != c.message {
			t.Errorf("%s: %q", c.expires, e.Message)
		}
		if c.message == "Request has expired" && (e.Field("X-Amz-Expires") != c.expires || e.Field("Expires") == "" || e.Field("ServerTime") == "") {
			t.Errorf("fields %v", e.Fields)
		}
	}
}

func TestA10PresignedForOtherMethod(t *testing.T) {
	r := newRequest(t, http.MethodGet, target, nil)
	s := docSigner()
	s.payload = payloadUnsigned
	s.presign(r, "60")
	for _, method := range []string{"PUT", "DELETE", "HEAD", "POST", "get"} {
		again := received(t, r)
		again.Method = method
		_, _, err := outcome(newDoc(t), again)
		refused(t, err, s3err.SignatureDoesNotMatch)
	}
}

func TestA11PresignedWithMore(t *testing.T) {
	r := newRequest(t, http.MethodGet, target, nil)
	s := docSigner()
	s.payload = payloadUnsigned
	s.presign(r, "60")
	query := r.URL.RawQuery
	for more, code := range map[string]s3err.Code{
		"&acl": s3err.SignatureDoesNotMatch, "&versionId=1": s3err.SignatureDoesNotMatch, "&uploads": s3err.SignatureDoesNotMatch,
		"&x-amz-acl=public-read": s3err.SignatureDoesNotMatch, "&response-content-type=text/html": s3err.SignatureDoesNotMatch,
		// A second signature, also in disguise, or a second life time.
		"&X-Amz-Signature=" + wrongSignature:             s3err.AuthorizationQueryParametersError,
		"&X%2dAmz%2DSignature=" + wrongSignature:         s3err.AuthorizationQueryParametersError,
		"&X-Amz-Expires=600":                             s3err.AuthorizationQueryParametersError,
		"&X-Amz-Content-Sha256=a&X-Amz-Content-Sha256=b": s3err.AuthorizationQueryParametersError,
		"&X-Amz-Content-Sha256=":                         s3err.SignatureDoesNotMatch,
		"&%zz":                                           s3err.InvalidURI, "&a=%": s3err.InvalidURI, "&a=%4": s3err.InvalidURI,
	} {
		again := received(t, r)
		again.URL.RawQuery = query + more
		_, _, err := outcome(newDoc(t), again)
		refused(t, err, code)
	}
	// Left out.
	for _, name := range []string{queryAlgorithm, queryCredential, queryDate, queryExpires, querySignedHeaders, querySignature} {
		again := received(t, r)
		q := again.URL.Query()
		q.Del(name)
		again.URL.RawQuery = q.Encode()
		_, _, err := outcome(newDoc(t), again)
		refused(t, err, s3err.AuthorizationQueryParametersError)
	}
}

func TestA12BodyDiffers(t *testing.T) {
	good := []byte("hello world")
	for _, body := range []string{"hello worlD", "", "hello world!"} {
		s := docSigner()
		s.payload = testHash(good)
		r := newRequest(t, http.MethodPut, target, []byte(body))
		s.header(r)
		_, data, err := outcome(newDoc(t), received(t, r))
		refused(t, err, s3err.XAmzContentSHA256Mismatch)
		if len(data) == len(body) && body != "" {
			t.Errorf("all of a wrong body is delivered")
		}
	}
	for _, mode := range []string{"UNSIGNED", "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD", "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD-TRAILER", "STREAMING-SOMETHING-NEW", strings.Repeat("g", 64), emptyHash + "00"} {
		s := docSigner()
		s.payload = mode
		r := newRequest(t, http.MethodPut, target, good)
		s.header(r)
		_, _, err := outcome(newDoc(t), received(t, r))
		refused(t, err, s3err.InvalidArgument)
	}
	r := newRequest(t, http.MethodPut, target, good)
	docSigner().header(r)
	r.Header.Del("X-Amz-Content-Sha256")
	_, _, err := outcome(newDoc(t), received(t, r))
	refused(t, err, s3err.InvalidRequest)
}

// TestA19StrangeCredentials: nothing of a claimed identity is sent back, and all
// of these are refused alike.
func TestA19StrangeCredentials(t *testing.T) {
	asked := map[string]bool{}
	a := newDoc(t, func(o *Options) {
		o.Lookup = func(_ context.Context, accessKey string) (Credential, bool) {
			asked[accessKey] = true
			return Credential{SecretKey: docSecret}, accessKey == docAccessKey
		}
	})
	for _, key := range []string{"", "nobody", "a/b", "a\x00b", "../../root", strings.Repeat("k", 1<<20), "<script>", docAccessKey + "/"} {
		s := docSigner()
		s.accessKey = key
		r := newRequest(t, http.MethodGet, target, nil)
		s.header(r)
		_, _, err := outcome(a, r)
		e := refused(t, err, s3err.InvalidAccessKeyID)
		if e.Status != http.StatusForbidden || len(key) > 1 && strings.Contains(err.Error(), key) || len(e.Fields) != 1 || e.Field("Host") != docHost {
			t.Errorf("%.20q: %v", key, err)
		}
		if len(key) > maxAccessKey && asked[key] {
			t.Error("a name of 1 MiB is looked up")
		}
	}
	for _, signature := range []string{"", "0", wrongSignature, strings.Repeat("0", 1000)} {
		r := newRequest(t, http.MethodGet, target, nil)
		right := docSigner().header(r)
		r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), right, signature, 1))
		_, _, err := outcome(a, r)
		if e := refused(t, err, s3err.SignatureDoesNotMatch); e.Status != http.StatusForbidden || len(e.Fields) != 1 || e.Field("Host") != docHost {
			t.Errorf("%v", e)
		}
	}
	r := newRequest(t, http.MethodGet, target, nil)
	r.Header["Authorization"] = []string{""}
	_, _, err := outcome(a, r)
	refused(t, err, s3err.AccessDenied)
	// A known name without a secret is nobody.
	none := newDoc(t, func(o *Options) {
		o.Lookup = func(context.Context, string) (Credential, bool) { return Credential{}, true }
	})
	s := docSigner()
	s.secret = ""
	r = newRequest(t, http.MethodGet, target, nil)
	s.header(r)
	_, _, err = outcome(none, r)
	refused(t, err, s3err.InvalidAccessKeyID)
}

func TestA22SignatureVersion2(t *testing.T) {
	for _, authorization := range []string{"AWS AKID:frJIUN8DYpKDtOLCwo//yllqDzg=", "AWS4-ECDSA-P256-SHA256 Credential=x", "AWS"} {
		r := newRequest(t, http.MethodGet, target, nil)
		r.Header.Set("Authorization", authorization)
		_, _, err := outcome(newDoc(t), received(t, r))
		if e := refused(t, err, s3err.InvalidRequest); e.Message != errMechanism {
			t.Errorf("%q", e.Message)
		}
	}
	r := newRequest(t, http.MethodGet, target+"?AWSAccessKeyId=AKID&Expires=1141889120&Signature=x", nil)
	_, _, err := outcome(newDoc(t), received(t, r))
	refused(t, err, s3err.InvalidRequest)
	for _, authorization := range []string{"Basic YTpi", "Bearer x", "aws4-hmac-sha256 x", "AWS4-HMAC-SHA256,Credential=x"} {
		r := newRequest(t, http.MethodGet, target, nil)
		r.Header.Set("Authorization", authorization)
		if _, _, err := outcome(newDoc(t), received(t, r)); err == nil {
			t.Errorf("%q is accepted", authorization)
		}
	}
}
