package server

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"ringfence/server/s3err"
	"ringfence/server/sigv4"
)

// serve is every request's way in.
func (s *Server) serve(rw http.ResponseWriter, hr *http.Request) {
	if strings.HasPrefix(hr.URL.Path, probePrefix) {
		if _, virtual := hostBucket(hr.Host, s.domains); !virtual {
			s.probes.ServeHTTP(rw, hr)
			return
		}
	}
	continueWithoutBody(rw, hr)
	start := time.Now()
	s.metrics.inflight.Inc()
	defer s.metrics.inflight.Dec()
	ctl := http.NewResponseController(rw)
	w := &response{rw: rw, ctl: ctl, idle: s.opt.Limits.BodyIdle}
	r := &request{ctx: hr.Context(), method: hr.Method, host: hr.Host, secure: hr.TLS != nil, header: hr.Header, length: hr.ContentLength}
	// A copy, since net/http looks at the body of its own request afterwards to
	// see whether it was read, or ever asked for with 100 Continue.
	hr = hr.WithContext(hr.Context())
	b := &body{from: hr.Body, ctl: ctl, idle: s.opt.Limits.BodyIdle, done: hr.Body == nil || hr.Body == http.NoBody}
	if !b.done {
		hr.Body = b
	}
	s.identify(w, r)
	defer func() {
		if p := recover(); p != nil {
			s.finish(w, r, b, start, fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
		}
	}()
	s.finish(w, r, b, start, s.attempt(w, r, hr))
}

// continueWithoutBody sends the 100 that a client waits for although it has no
// body to send. HTTP doesn't ask for it, and net/http sends none, but botocore
// takes a connection on which the 100 was left out for one that has answered
// already: it misreads the next answer there, and waits for more until it times
// out. aws-cli sends Expect with empty objects too.
func continueWithoutBody(rw http.ResponseWriter, hr *http.Request) {
	if hr.ContentLength == 0 && strings.EqualFold(hr.Header.Get("Expect"), "100-continue") && hr.ProtoAtLeast(1, 1) {
		rw.WriteHeader(http.StatusContinue)
	}
}

// attempt does all of a request but the answer to an error.
func (s *Server) attempt(w *response, r *request, hr *http.Request) error {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		return s3err.New(s3err.SlowDown)
	}
	defer func() { s.docs.Release(r.held) }()
	if err := s.prepare(r, hr); err != nil {
		return err
	}
	return r.op.handle(s, w, r)
}

// identify gives the request its id and the headers that every answer has.
func (s *Server) identify(w *response, r *request) {
	var id [8]byte
	s.opt.Env.Rand(id[:])
	var text [16]byte
	hex.Encode(text[:], id[:])
	r.id = strings.ToUpper(string(text[:]))
	h := w.Header()
	h["x-amz-request-id"] = []string{r.id}
	h["x-amz-id-2"] = []string{s.node}
	h["Server"] = serverHeader
}

// serverHeader is shared by all answers and never changed.
var serverHeader = []string{"Ringfence"}

func nodeID(random func([]byte)) string {
	var b [24]byte
	random(b[:])
	return base64.StdEncoding.EncodeToString(b[:])
}

// prepare finds out what a request wants and who sent it. Whether there is such
// an operation is known first, for the metrics, but said last: strangers learn
// nothing but that they are strangers.
func (s *Server) prepare(r *request, hr *http.Request) error {
	var err error
	if r.target, err = s.locate(hr); err != nil {
		return err
	}
	if hr.URL.RawQuery != "" {
		if r.query, err = sigv4.ParseQuery(hr.URL.RawQuery); err != nil {
			return err
		}
	}
	var unroutable error
	r.op, unroutable = s.routes.find(r.target.scope, r.method, r.query, r.header)
	if r.op != nil && r.op.open {
		return unroutable
	}
	if r.auth, err = s.opt.Auth.Authenticate(hr); err != nil {
		return err
	}
	if err = authorize(r); err != nil {
		return err
	}
	if unroutable != nil {
		return unroutable
	}
	if r.auth.Presigned {
		if err = hoist(r.query, r.header); err != nil {
			return err
		}
	}
	return s.checkOwner(r)
}

// authorize decides what a principal may do. There is one so far, the root
// user, and it may do everything.
func authorize(r *request) error {
	if r.auth.Principal.Anonymous {
		return s3err.New(s3err.AccessDenied)
	}
	return nil
}

// checkOwner compares the bucket owner that the client expects.
func (s *Server) checkOwner(r *request) error {
	for _, name := range []string{"X-Amz-Expected-Bucket-Owner", "X-Amz-Source-Expected-Bucket-Owner"} {
		if v := r.header[name]; len(v) > 0 && v[0] != s.opt.Owner.ID {
			return s3err.New(s3err.AccessDenied)
		}
	}
	return nil
}
