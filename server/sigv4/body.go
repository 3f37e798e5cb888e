package sigv4

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"hash"
	"io"

	"ringfence/server/s3err"
)

// maxEmptyReads is how many reads may give nothing before the source is given
// up on.
const maxEmptyReads = 100

// incomplete says that the body ended early, because of cause if not nil.
func incomplete(cause error) error {
	return s3err.New(s3err.IncompleteBody).Wrap(cause)
}

// sourceError translates an error of the connection: a body that was cut off is
// the client's to mend, all else is passed on.
func sourceError(err error) error {
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		return incomplete(err)
	}
	return err
}

// plainBody is a body without framing. It checks length and hash and holds the
// last bytes back until they are right.
type plainBody struct {
	source io.ReadCloser
	left   int64     // bytes to come; -1: until the source ends
	hash   hash.Hash // nil: there is none to check
	want   [sha256.Size]byte
	err    error // of all further reads; io.EOF: verified
}

// start verifies an empty body.
func (b *plainBody) start() error {
	if b.left != 0 {
		return nil
	}
	if b.err = b.finish(); b.err != io.EOF {
		return b.err
	}
	return nil
}

// finish gives io.EOF if the whole body is right.
func (b *plainBody) finish() error {
	if b.left > 0 {
		return incomplete(nil)
	}
	if b.hash == nil {
		return io.EOF
	}
	var sum [sha256.Size]byte
	if subtle.ConstantTimeCompare(b.hash.Sum(sum[:0]), b.want[:]) != 1 {
		return s3err.New(s3err.XAmzContentSHA256Mismatch)
	}
	return io.EOF
}

func (b *plainBody) Read(p []byte) (int, error) {
	if b.err != nil || len(p) == 0 {
		return 0, b.err
	}
	if b.left > 0 && int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := readSome(b.source, p)
	if b.hash != nil {
		b.hash.Write(p[:n]) //nolint:errcheck // hash.Hash never fails
	}
	if b.left > 0 {
		b.left -= int64(n)
	}
	switch {
	case err == io.EOF, err == nil && b.left == 0:
		if b.err = b.finish(); b.err != io.EOF {
			n = 0
		}
	case err != nil:
		b.err = sourceError(err)
	}
	return n, b.err
}

func (b *plainBody) Close() error {
	if b.err == nil {
		b.err = errClosed
	}
	return b.source.Close()
}

var errClosed = errors.New("sigv4: body is closed")

// readSome reads at least one byte into p unless there is an error.
func readSome(r io.Reader, p []byte) (n int, err error) {
	for range maxEmptyReads {
		if n, err = r.Read(p); n > 0 || err != nil {
			return n, err
		}
	}
	return 0, io.ErrNoProgress
}
