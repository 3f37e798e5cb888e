package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"ringfence/server/s3err"
	"ringfence/server/s3xml"
	"ringfence/server/sigv4"
)

// request is what a handler knows of a request. It has no way to the raw body:
// auth.Body is the one that verifies itself. It belongs to one goroutine.
type request struct {
	ctx    context.Context
	id     string
	method string
	host   string
	secure bool // TLS
	header http.Header
	query  url.Values
	length int64 // Content-Length, -1 if not given
	target target
	op     *operation // nil if none was found
	auth   *sigv4.Result
	held   int64 // bytes of Server.docs
}

// opName is the operation for logs and metrics.
func (r *request) opName() string {
	if r.op == nil {
		return "Unknown"
	}
	return r.op.name
}

// param is a query parameter, "" if it is missing.
func (r *request) param(name string) string {
	if v := r.query[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// size is the number of bytes of the body without framing, -1 if unknown.
func (r *request) size() int64 {
	if r.auth.DecodedLength >= 0 {
		return r.auth.DecodedLength
	}
	return r.length
}

// hoist turns the x-amz-* parameters of a presigned URL into headers, as which
// they were meant: signers that can't count on a client to send headers put
// them there, and the signature covers them. A header that was sent, too, must
// say the same.
func hoist(query url.Values, header http.Header) error {
	for name, values := range query {
		if len(name) < 6 || !strings.EqualFold(name[:6], "x-amz-") || signing(name) {
			continue
		}
		key := http.CanonicalHeaderKey(name)
		if got, ok := header[key]; ok && (len(got) != 1 || len(values) != 1 || got[0] != values[0]) {
			return s3err.New(s3err.InvalidArgument).
				WithMessage("A parameter differs between query and header.").With("ArgumentName", name)
		}
		if strings.ContainsAny(values[0], "\r\n\x00") {
			return s3err.New(s3err.InvalidArgument).WithMessage("A parameter has an invalid character.").With("ArgumentName", name)
		}
		header[key] = values
	}
	return nil
}

// signing reports the parameters that are about the signature itself.
func signing(name string) bool {
	switch strings.ToLower(name) {
	case "x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-expires", "x-amz-signedheaders",
		"x-amz-signature", "x-amz-security-token", "x-amz-content-sha256":
		return true
	}
	return false
}

// body is a raw request body that gives up on clients that stand still, and
// says in the protocol's words why it ended. It belongs to one goroutine.
type body struct {
	from  io.ReadCloser
	ctl   *http.ResponseController
	idle  time.Duration
	renew time.Time // when to move the deadline again
	n     int64
	done  bool // nothing is left to read
}

func (b *body) Read(p []byte) (int, error) {
	if now := time.Now(); now.After(b.renew) {
		// A writer without deadlines is a recorder in a test.
		_ = b.ctl.SetReadDeadline(now.Add(b.idle))
		b.renew = now.Add(b.idle / 8)
	}
	n, err := b.from.Read(p)
	b.n += int64(n)
	switch {
	case err == nil:
		return n, nil
	case err == io.EOF: //nolint:errorlint // io.EOF itself is the contract of Read
		// From here on net/http watches the connection for the client's leaving;
		// a deadline left behind would look like one.
		_ = b.ctl.SetReadDeadline(time.Time{})
		b.done = true
		return n, err
	case errors.Is(err, os.ErrDeadlineExceeded):
		b.done = true // and the deadline stays in the past
		return n, s3err.New(s3err.RequestTimeout).Wrap(err)
	default:
		return n, s3err.New(s3err.IncompleteBody).Wrap(err)
	}
}

func (b *body) Close() error { return b.from.Close() }

// drainTime is how long a client may take to send the rest of a small body
// that nobody wants; net/http reads it before it sends the answer.
const drainTime = 5 * time.Second

// abandon bounds the time that net/http may wait for what is left of the body,
// and gives the answer that much more.
func (b *body) abandon(w *response) {
	if b.done {
		return
	}
	wait := min(b.idle, drainTime)
	_ = b.ctl.SetReadDeadline(time.Now().Add(wait))
	w.idle += wait
	w.renew = time.Time{}
}

// response is where a handler writes its answer. It belongs to one goroutine.
type response struct {
	rw     http.ResponseWriter
	ctl    *http.ResponseController
	idle   time.Duration
	renew  time.Time
	status int // 0 until the header is written
	n      int64
	gone   bool // a write failed: the client is away or asleep
}

func (w *response) Header() http.Header { return w.rw.Header() }

// Unwrap is for http.ResponseController.
func (w *response) Unwrap() http.ResponseWriter { return w.rw }

func (w *response) WriteHeader(status int) {
	w.extend(0)
	w.status = status
	w.rw.WriteHeader(status)
}

// piece is how many bytes a client must take within the idle time.
const piece = 1 << 20

// extend gives the client more time to take n bytes.
func (w *response) extend(n int64) {
	now := time.Now()
	if n <= piece && now.Before(w.renew) {
		return
	}
	_ = w.ctl.SetWriteDeadline(now.Add(w.idle * time.Duration(1+n/piece)))
	w.renew = now.Add(w.idle / 8)
}

func (w *response) Write(p []byte) (n int, err error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	for err == nil && n < len(p) {
		w.extend(0)
		var m int
		m, err = w.rw.Write(p[n:min(n+piece, len(p))])
		n += m
	}
	w.n += int64(n)
	w.gone = w.gone || err != nil
	return n, err
}

// ReadFrom lets net/http use sendfile or splice where src allows it.
func (w *response) ReadFrom(src io.Reader) (int64, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	size := int64(piece)
	if l, ok := src.(*io.LimitedReader); ok {
		size = l.N
	}
	w.extend(size)
	n, err := io.Copy(w.rw, src)
	w.n += n
	return n, err
}

// cut ends the connection so that the client cannot take what it got for a
// whole answer.
func (w *response) cut() {
	conn, _, err := w.ctl.Hijack()
	if err != nil { // HTTP/2 or a recorder: let every further byte fail
		_ = w.ctl.SetWriteDeadline(time.Unix(1, 0))
		return
	}
	type lingerer interface{ SetLinger(sec int) error }
	if l, ok := conn.(lingerer); ok {
		_ = l.SetLinger(0) // a reset, not an end
	}
	_ = conn.Close() // nobody is left to tell
}

// document writes a whole XML document with status 200.
func (w *response) document(write func(x *s3xml.Writer)) error {
	return w.xml(http.StatusOK, write)
}

func (w *response) xml(status int, write func(x *s3xml.Writer)) error {
	buf := takeBuffer()
	defer buf.release()
	write(&buf.Writer)
	doc := buf.Bytes()
	h := w.Header()
	h.Set("Content-Type", "application/xml")
	setLength(h, int64(len(doc)))
	w.WriteHeader(status)
	if _, err := w.Write(doc); err != nil {
		return fmt.Errorf("send answer: %w", err)
	}
	return nil
}
