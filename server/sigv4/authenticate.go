package sigv4

import (
	"errors"
	"net/http"

	"ringfence/server/s3err"
)

// Authenticator authenticates requests. It is safe for concurrent use.
type Authenticator struct {
	opt Options
}

// New makes an Authenticator. It fails if Lookup is missing.
func New(opt Options) (*Authenticator, error) {
	if opt.Lookup == nil {
		return nil, errors.New("sigv4: Options.Lookup is missing")
	}
	return &Authenticator{opt: opt.withDefaults()}, nil
}

// Authenticate decides who sent r and takes its body: afterwards r.Body gives
// only errors, and the payload is in Result.Body. Every error is a *s3err.Error.
func (a *Authenticator) Authenticate(r *http.Request) (*Result, error) {
	return nil, s3err.New(s3err.NotImplemented)
}
