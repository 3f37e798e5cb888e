package server

import (
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"ringfence/server/s3err"
	"ringfence/server/s3xml"
)

// statusGone is the code under which requests are counted whose client left
// before the answer; it is never sent.
const statusGone = 499

// finish answers an error, counts the request and logs it: once, here.
func (s *Server) finish(w *response, r *request, b *body, start time.Time, err error) {
	b.abandon(w)
	status := s.answer(w, r, err)
	took := time.Since(start)
	s.metrics.observe(r.opName(), status, took, b.n, w.n)
	s.log(r, status, b.n, w.n, took, err)
}

// answer sends what err means, unless the header is out already; then it cuts
// the connection. It returns the status to count.
func (s *Server) answer(w *response, r *request, err error) int {
	if err == nil {
		if w.status == 0 {
			w.WriteHeader(http.StatusOK)
		}
		return w.status
	}
	if late, ok := errors.AsType[*lateError](err); ok {
		return late.status // it was told already
	}
	switch {
	case w.status != 0 && (r.ctx.Err() != nil || w.gone):
		w.cut()
		return statusGone
	case w.status != 0:
		w.cut()
		return http.StatusInternalServerError
	}
	e := s.translate(r, err)
	if r.ctx.Err() != nil && e.Status >= http.StatusInternalServerError {
		w.cut()
		return statusGone
	}
	s.writeError(w, r, e)
	return e.Status
}

// writeError sends an error document.
func (s *Server) writeError(w *response, r *request, e *s3err.Error) {
	h := w.Header()
	h.Del("Content-Length")
	switch e.Status {
	case http.StatusServiceUnavailable:
		h.Set("Retry-After", "1")
	case http.StatusInsufficientStorage:
		h.Set("Retry-After", "60")
	}
	if region := e.Field("Region"); region != "" {
		h[hdrRegion] = []string{region}
	}
	if r.method == http.MethodHead || e.Status == http.StatusNotModified {
		w.WriteHeader(e.Status)
		return
	}
	// If the client is gone, the error that is being sent is the one to log.
	_ = w.xml(e.Status, func(x *s3xml.Writer) { x.Error(s.fields(r, e)) })
}

// fields are the elements of an error document.
func (s *Server) fields(r *request, e *s3err.Error) *s3xml.ErrorFields {
	fields := s3xml.ErrorFields{
		Code: string(e.Code), Message: e.Message, Resource: resource(r), RequestID: r.id, HostID: s.node,
	}
	for _, f := range e.Fields {
		fields.Extra = append(fields.Extra, s3xml.Field(f))
	}
	return &fields
}

// resource names what the request was about.
func resource(r *request) string {
	if r.target.bucket == "" {
		return "/"
	}
	if r.target.key == "" {
		return "/" + r.target.bucket
	}
	return "/" + r.target.bucket + "/" + r.target.key
}

// log writes one line per request: failures of the gateway as errors, refusals
// for want of resources as warnings, all else for debugging. Queries and headers are left out, since they carry signatures.
func (s *Server) log(r *request, status int, in, out int64, took time.Duration, err error) {
	level := zerolog.DebugLevel
	switch {
	case status == http.StatusServiceUnavailable:
		level = zerolog.WarnLevel
	case status >= http.StatusInternalServerError && status != http.StatusNotImplemented:
		level = zerolog.ErrorLevel
	}
	e := s.opt.Log.WithLevel(level)
	if e == nil || level < s.opt.Log.GetLevel() {
		return
	}
	e.Str("op", r.opName()).Str("method", r.method).Str("bucket", r.target.bucket).Str("key", r.target.key).
		Str("request", r.id).Int("status", status).Int64("in", in).Int64("out", out).Dur("took", took)
	if r.auth != nil {
		e.Str("who", r.auth.Principal.AccessKey)
	}
	if err != nil {
		e.Err(err)
	}
	e.Msg("request")
}

// buffer is a document in the making.
type buffer struct {
	s3xml.Writer
}

// maxKept is the largest buffer that is kept for the next document.
const maxKept = 1 << 20

var buffers = sync.Pool{New: func() any { return new(buffer) }}

func takeBuffer() *buffer {
	b, ok := buffers.Get().(*buffer)
	if !ok {
		b = new(buffer)
	}
	b.Reset(b.Bytes())
	return b
}

func (b *buffer) release() {
	if cap(b.Bytes()) <= maxKept {
		buffers.Put(b)
	}
}

func setLength(h http.Header, n int64) {
	h["Content-Length"] = []string{strconv.FormatInt(n, 10)}
}
