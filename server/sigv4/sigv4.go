// Package sigv4 decides who sent a request and hands out its body.
//
// Both are one decision: a body whose signature covers its chunks cannot be
// read right without the key that verifies them, and a handler that could reach
// the raw body could forget to. So Authenticate takes the body out of the
// request, and what it gives back in Result is the only way to it. Every kind
// of payload is a row of one table (payload.go); a kind that is not in the
// table is refused, so that a new one cannot slip by a handler unverified.
//
// A body is not verified until it has been read to its end: the reader reports
// a wrong hash, chunk signature, length or trailer instead of io.EOF, and
// delivers the last bytes only once all of that is right. A caller may stage
// what it reads, but must not make it visible before Result.Verified says nil.
//
// Paths and queries are canonicalised from what url.URL holds after decoding
// exactly once; SplitPath and ParseQuery give handlers the very same view, so
// that signature, policy and storage cannot see different keys.
package sigv4

import (
	"context"
	"io"
	"time"
)

// Credential is a secret that the gateway knows.
type Credential struct {
	SecretKey string
	// SessionToken, if not empty, must come with every request.
	SessionToken string
}

// Options of New. Lookup is required.
type Options struct {
	Region  string // default "us-east-1"
	Service string // default "s3"
	// Lookup finds the credential of an access key. It must be fast, safe for
	// concurrent use, and take the same time whether or not the key is known.
	Lookup func(ctx context.Context, accessKey string) (Credential, bool)
	// Now is the clock; default time.Now.
	Now func() time.Time
	// MaxSkew is how far a request's date may be from Now; default 15 minutes.
	MaxSkew time.Duration
	// KeyCache bounds the number of derived signing keys kept; default 4096.
	KeyCache int
}

func (o Options) withDefaults() Options {
	if o.Region == "" {
		o.Region = "us-east-1"
	}
	if o.Service == "" {
		o.Service = "s3"
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.MaxSkew <= 0 {
		o.MaxSkew = 15 * time.Minute
	}
	if o.KeyCache <= 0 {
		o.KeyCache = 4096
	}
	return o
}

// Kind is how a request says who sent it.
type Kind uint8

// Kinds of authentication.
const (
	Anonymous Kind = iota // no credentials at all: the server decides what that may do
	Header                // Authorization: AWS4-HMAC-SHA256
	Query                 // a presigned URL
)

// Principal is who sent a request.
type Principal struct {
	AccessKey string // "" when Anonymous
	Anonymous bool
}

// Result is an authenticated request. It belongs to the goroutine that serves
// the request.
type Result struct {
	Principal Principal
	Kind      Kind
	Presigned bool // Kind == Query
	Mode      Mode
	// Body is the payload without framing, never nil. Its errors are
	// *s3err.Error, or come from the connection. The caller closes it.
	Body io.ReadCloser
	// DecodedLength is the exact number of bytes that Body will give, -1 if the
	// request does not say. A Body of another length ends in IncompleteBody.
	DecodedLength int64
	// TrailerName is the lower-case name of the trailer that the request
	// announced, "" for none: the header of a checksum.
	TrailerName string

	plain   plainBody    // Body, unless chunked
	chunked *chunkedBody // Body, if chunked
}

// Trailer gives name (lower case) and value of the trailing header, once Body
// has been read to io.EOF; false before that or if there is none. The value is
// well-formed; comparing it with the body is the caller's work.
func (r *Result) Trailer() (name, value string, ok bool) {
	if r.chunked == nil || r.chunked.err != io.EOF || r.TrailerName == "" {
		return "", "", false
	}
	return r.TrailerName, r.chunked.trailer.value, true
}

// Verified says whether the body was read to its end and everything that
// vouches for it was right: nil, or the error that Body gave, or IncompleteBody
// if it was not read to the end. Call it before making a body visible, after
// whoever read Body has finished.
func (r *Result) Verified() error {
	err := r.plain.err
	if r.chunked != nil {
		err = r.chunked.err
	}
	switch err {
	case io.EOF:
		return nil
	case nil:
		return incomplete(nil)
	}
	return err
}
