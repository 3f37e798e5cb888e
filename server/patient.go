package server

import (
	"bytes"
	"fmt"
	"net/http"
	"runtime/debug"
	"time"

	"ringfence/server/s3xml"
)

// patiently runs work and answers with the document that write makes.
//
// A copy within the store can take minutes in which there is nothing to say,
// and clients and proxies take a silent server for a dead one. So when work
// takes long, the answer begins before its outcome is known: status 200, the
// XML declaration, then white space now and then. The document follows, and it
// may be an error: SDKs look for one in the answers to these operations.
//
// work runs in a goroutine that ends before patiently does. Headers that it
// sets are sent only if it is quick.
func (s *Server) patiently(w *response, r *request, work func(h http.Header) error, write func(x *s3xml.Writer)) error {
	header := make(http.Header)
	done := make(chan error, 1)
	go func() { done <- safely(func() error { return work(header) }) }()
	tick := time.NewTicker(s.opt.Limits.KeepAliveAfter)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			switch {
			case w.status != 0:
				return s.late(w, r, err, write)
			case err != nil:
				return err
			}
			for name, values := range header {
				w.Header()[name] = values
			}
			return w.document(write)
		case <-tick.C:
			if w.status == 0 {
				w.Header().Set("Content-Type", "application/xml")
				w.WriteHeader(http.StatusOK)
				_, _ = w.Write([]byte(s3xml.Declaration))
			}
			// When the client is gone, the request's context ends the work.
			_, _ = w.Write([]byte(" "))
			_ = w.ctl.Flush()
		}
	}
}

// lateError is an error that the client was told in an answer that had begun
// with status 200.
type lateError struct {
	err    error
	status int // that it would have had
}

func (e *lateError) Error() string { return "after the answer began: " + e.err.Error() }
func (e *lateError) Unwrap() error { return e.err }

// late ends an answer that began before its outcome was known.
func (s *Server) late(w *response, r *request, err error, write func(x *s3xml.Writer)) error {
	buf := takeBuffer()
	defer buf.release()
	var told error
	if err != nil {
		e := s.translate(r, err)
		told = &lateError{err, e.Status}
		write = func(x *s3xml.Writer) { x.Error(s.fields(r, e)) }
	}
	write(&buf.Writer)
	if _, err := w.Write(bytes.TrimPrefix(buf.Bytes(), []byte(s3xml.Declaration))); err != nil {
		return fmt.Errorf("send answer: %w", err)
	}
	return told
}

// safely turns a panic of f into an error, for goroutines, where it would end
// the process.
func safely(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}
