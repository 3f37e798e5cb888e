package sigv4

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"sync"

	"ringfence/server/s3err"
)

// Authenticator authenticates requests. It is safe for concurrent use.
type Authenticator struct {
	opt   Options
	keys  *keyCache
	dummy string    // stands in for the secret of an unknown access key
	pool  sync.Pool // of *scratch
}

// New makes an Authenticator. It fails if Lookup is missing.
func New(opt Options) (*Authenticator, error) {
	if opt.Lookup == nil {
		return nil, errors.New("sigv4: Options.Lookup is missing")
	}
	opt = opt.withDefaults()
	a := &Authenticator{opt: opt, keys: newKeyCache(opt.KeyCache), dummy: rand.Text()}
	a.pool.New = func() any { return new(scratch) }
	return a, nil
}

// Authenticate decides who sent r and takes its body, whatever the outcome:
// afterwards r.Body gives only errors, and the payload is in Result.Body. Every
// error is a *s3err.Error. It does not read the body, so that a client that
// waits for 100 Continue is asked for it only once somebody reads Result.Body.
func (a *Authenticator) Authenticate(r *http.Request) (*Result, error) {
	body := r.Body
	r.Body = sealed{}
	if body == nil {
		body = http.NoBody
	}
	s, ok := a.pool.Get().(*scratch)
	if !ok {
		s = new(scratch)
	}
	defer func() {
		if cap(s.buf)+cap(s.encoded) <= maxScratch {
			a.pool.Put(s)
		}
	}()
	for _, name := range once {
		if _, err := single(r.Header, name); err != nil {
			return nil, err
		}
	}
	if err := s.parseQuery(r.URL.RawQuery); err != nil {
		return nil, err
	}
	var c claim
	if err := a.parseClaim(r, s, &c); err != nil {
		return nil, err
	}
	mode, err := modeOf(c.payload)
	if err != nil {
		return nil, err
	}
	result := &Result{
		Principal: Principal{AccessKey: c.accessKey, Anonymous: c.kind == Anonymous},
		Kind:      c.kind, Presigned: c.kind == Query, Mode: mode,
	}
	var key signingKey
	if c.kind != Anonymous {
		if key, err = a.verify(r, s, &c); err != nil {
			return nil, err
		}
	}
	if err := result.open(r, body, &c, &key); err != nil {
		return nil, err
	}
	return result, nil
}

// parseClaim finds out how the request says who sent it, and what it says.
func (a *Authenticator) parseClaim(r *http.Request, s *scratch, c *claim) error {
	_, header := r.Header[headerAuthorization]
	presigned, legacy := s.queryKind()
	switch {
	case header && (presigned || legacy):
		return s3err.New(s3err.InvalidArgument).
			WithMessage("Only one auth mechanism allowed; only the X-Amz-Algorithm query parameter, Signature query string parameter or the Authorization header should be specified").
			With("ArgumentName", headerAuthorization)
	case header:
		c.kind = Header
		return c.parseAuthorization(r, &a.opt)
	case presigned:
		c.kind = Query
		return c.parsePresigned(s, value(r.Header, headerContent), &a.opt)
	case legacy:
		return s3err.New(s3err.InvalidRequest).WithMessage(errMechanism)
	}
	c.payload = value(r.Header, headerContent)
	return nil
}

// verify checks time and signature and gives the key that signs the chunks.
func (a *Authenticator) verify(r *http.Request, s *scratch, c *claim) (signingKey, error) {
	if err := c.checkTime(a.opt.Now(), a.opt.MaxSkew); err != nil {
		return signingKey{}, err
	}
	var err error
	if s.buf, err = s.appendRequest(s.buf[:0], r, c); err != nil {
		return signingKey{}, err
	}
	sum := sha256.Sum256(s.buf)
	s.buf = appendStringToSign(s.buf[:0], algorithm, c.stamp, c.scope)
	s.buf = hex.AppendEncode(s.buf, sum[:])
	key, err := a.check(r.Context(), c, s.buf)
	if e, ok := errors.AsType[*s3err.Error](err); ok {
		// A proxy that changes the host is the usual reason: say what came in.
		e.With("Host", r.Host)
	}
	return key, err
}

// check compares the claimed signature with that of message. An unknown access
// key costs as much as a wrong signature, so that time tells no names.
func (a *Authenticator) check(ctx context.Context, c *claim, message []byte) (signingKey, error) {
	var credential Credential
	var known bool
	if c.accessKey != "" && len(c.accessKey) <= maxAccessKey {
		credential, known = a.opt.Lookup(ctx, c.accessKey)
	}
	name := keyName{accessKey: c.accessKey, date: c.date}
	if known = known && credential.SecretKey != ""; !known {
		name.accessKey, credential.SecretKey = "", a.dummy
	}
	key := a.keys.get(name, credential.SecretKey, a.opt.Region, a.opt.Service)
	signature := key.sign(message)
	same := subtle.ConstantTimeCompare(signature[:], []byte(c.signature)) == 1
	switch {
	case !known:
		return signingKey{}, s3err.New(s3err.InvalidAccessKeyID)
	case !same:
		return signingKey{}, s3err.New(s3err.SignatureDoesNotMatch)
	case credential.SessionToken != "" && subtle.ConstantTimeCompare([]byte(credential.SessionToken), []byte(c.token)) != 1:
		return signingKey{}, s3err.New(s3err.InvalidToken)
	}
	return key, nil
}

// appendStringToSign appends the lines that every string to sign begins with.
func appendStringToSign(buf []byte, name, stamp, scope string) []byte {
	buf = append(buf, name...)
	buf = append(buf, '\n')
	buf = append(buf, stamp...)
	buf = append(buf, '\n')
	buf = append(buf, scope...)
	return append(buf, '\n')
}

// sealed is what is left of a request's body once Authenticate has taken it.
type sealed struct{}

var errSealed = errors.New("sigv4: the body is in Result.Body")

func (sealed) Read([]byte) (int, error) { return 0, errSealed }
func (sealed) Close() error             { return nil }

var _ io.ReadCloser = sealed{}
