package sigv4

import (
	"context"

	"ringfence/server/s3err"
)

// Form is what a browser's POST form says of who made it. The fields are those
// of the form, by their names.
type Form struct {
	Algorithm  string // x-amz-algorithm
	Credential string // x-amz-credential
	Date       string // x-amz-date
	Signature  string // x-amz-signature
	Token      string // x-amz-security-token
	Policy     string // policy, in base64 as sent
}

// AuthenticateForm decides who signed a POST policy. The request itself is
// anonymous: Authenticate it first, and read the form from Result.Body.
// Whether the policy has expired and what it allows is for the caller to judge;
// without a valid policy the form is worth nothing.
func (a *Authenticator) AuthenticateForm(ctx context.Context, f Form) (Principal, error) {
	if f.Algorithm != algorithm {
		return Principal{}, s3err.New(s3err.InvalidRequest).WithMessage(errMechanism)
	}
	if f.Policy == "" {
		return Principal{}, s3err.New(s3err.AccessDenied)
	}
	// A form is presigned: its policy says how long it lives.
	c := claim{kind: Query, signature: f.Signature, token: f.Token}
	if err := c.setCredential(f.Credential, &a.opt); err != nil {
		return Principal{}, err
	}
	if err := c.setTime(f.Date); err != nil {
		return Principal{}, err
	}
	if _, err := a.check(ctx, &c, []byte(f.Policy)); err != nil {
		return Principal{}, err
	}
	return Principal{AccessKey: c.accessKey}, nil
}
