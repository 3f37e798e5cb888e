package sigv4

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"hash"
	"io"

	"ringfence/server/s3err"
)

const (
	// lineBytes bounds a line of the framing, and so the memory that a body
	// takes. Reads of at least as much go past the buffer.
	lineBytes = 4 << 10
	// maxSizeDigits bounds the size of a chunk, which is then bounded by what is
	// left of the announced length.
	maxSizeDigits = 16

	chunkExtension = ";chunk-signature="

	// emptyHash is the SHA-256 of nothing.
	emptyHash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

// chunkedBody takes the aws-chunked framing off a body:
//
//	size;chunk-signature=64 hex CRLF  data CRLF    for each chunk
//	0;chunk-signature=64 hex CRLF                  at the end
//	name:value CRLF  x-amz-trailer-signature:64 hex CRLF
//	CRLF
//
// without signatures if signer is nil. Data is streamed before the signature of
// its chunk has been checked, but the bytes that complete the announced length
// are given only together with io.EOF, when the final chunk and the trailer have
// been checked: a reader that stops at the announced length cannot be deceived
// either. Chunks may be of any size: AWS refuses small ones, but clients that
// stream make them, and each costs its sender more than the gateway.
type chunkedBody struct {
	source *bufio.Reader
	closer io.Closer
	signer *chunkSigner // nil: unsigned
	claim  []byte       // signature that the current chunk claims
	chunk  int64        // bytes left of the current chunk
	left   int64        // bytes left of the announced length

	trailer      trailer
	mayTrail     bool
	err          error // of all further reads; io.EOF: verified
	claimStorage [signatureBytes]byte
	end          [3]byte // what follows data; here so that it isn't allocated per chunk
}

func newChunkedBody(source io.ReadCloser, length int64, trailerName string, mayTrail bool) *chunkedBody {
	return &chunkedBody{
		source:   bufio.NewReaderSize(source, lineBytes),
		closer:   source,
		left:     length,
		trailer:  trailer{name: trailerName},
		mayTrail: mayTrail,
	}
}

func (b *chunkedBody) Read(p []byte) (int, error) {
	if b.err != nil || len(p) == 0 {
		return 0, b.err
	}
	n, err := b.read(p)
	if b.err = err; err != nil && err != io.EOF {
		n = 0
	}
	return n, err
}

func (b *chunkedBody) Close() error {
	if b.err == nil {
		b.err = errClosed
	}
	return b.closer.Close()
}

func (b *chunkedBody) read(p []byte) (int, error) {
	if b.chunk == 0 {
		if err := b.nextChunk(); err != nil {
			return 0, err
		}
		if b.chunk == 0 {
			return 0, b.finish()
		}
	}
	n, err := readSome(b.source, p[:min(int64(len(p)), b.chunk)])
	if b.signer != nil {
		b.signer.hash.Write(p[:n]) //nolint:errcheck // hash.Hash never fails
	}
	b.chunk -= int64(n)
	b.left -= int64(n)
	if err != nil {
		return n, sourceError(err)
	}
	if b.chunk > 0 {
		return n, nil
	}
	if err := b.endChunk(); err != nil || b.left > 0 {
		return n, err
	}
	if err := b.nextChunk(); err != nil {
		return n, err
	}
	return n, b.finish() // the chunk is empty: there is nothing left to announce
}

// nextChunk reads the header of a chunk.
func (b *chunkedBody) nextChunk() error {
	line, err := b.line()
	if err != nil {
		return err
	}
	line, ok := bytes.CutSuffix(line, []byte("\r\n"))
	if !ok {
		return malformedChunk("a chunk header does not end in CRLF")
	}
	digits := line
	if b.signer != nil {
		var claim []byte
		if digits, claim, ok = bytes.Cut(line, []byte(chunkExtension)); !ok || len(claim) != signatureBytes {
			return malformedChunk("a chunk has no signature")
		}
		b.claim = append(b.claimStorage[:0], claim...)
	}
	size, ok := parseSize(digits)
	if !ok {
		return malformedChunk("a chunk has no proper size")
	}
	if size > b.left {
		return incomplete(errors.New("the chunks hold more than x-amz-decoded-content-length says"))
	}
	if size == 0 && b.left > 0 {
		return incomplete(errors.New("the chunks hold less than x-amz-decoded-content-length says"))
	}
	b.chunk = size
	return nil
}

// parseSize parses the hex size of a chunk.
func parseSize(digits []byte) (int64, bool) {
	if len(digits) == 0 || len(digits) > maxSizeDigits {
		return 0, false
	}
	var size uint64
	for _, c := range digits {
		d := unhex(c)
		if d > 15 {
			return 0, false
		}
		size = size<<4 | uint64(d)
	}
	return int64(size), int64(size) >= 0
}

// endChunk reads the end of a chunk that has data, and checks its signature.
func (b *chunkedBody) endChunk() error {
	end := b.end[:2]
	if _, err := io.ReadFull(b.source, end); err != nil {
		return sourceError(err)
	}
	if string(end) != "\r\n" {
		return malformedChunk("a chunk is longer than its size says")
	}
	return b.checkChunk()
}

func (b *chunkedBody) checkChunk() error {
	if b.signer == nil {
		return nil
	}
	return b.signer.checkChunk(b.claim)
}

// finish reads what follows the header of the final chunk, to the end of the
// body. It gives io.EOF if everything was right.
func (b *chunkedBody) finish() error {
	if err := b.checkChunk(); err != nil {
		return err
	}
	if b.mayTrail {
		if err := b.readTrailer(); err != nil {
			return err
		}
		return io.EOF
	}
	end := b.end[:]
	switch n, err := io.ReadFull(b.source, end); {
	case n == 3:
		return malformedChunk("data follows the final chunk")
	case err != io.ErrUnexpectedEOF && err != io.EOF:
		return sourceError(err)
	case n < 2:
		return incomplete(err)
	case string(end[:2]) != "\r\n":
		return malformedChunk("data follows the final chunk")
	}
	return io.EOF
}

// line reads a line of the framing, its end included. It is valid until the
// next read.
func (b *chunkedBody) line() ([]byte, error) {
	line, err := b.source.ReadSlice('\n')
	switch {
	case err == nil:
		return line, nil
	case err == bufio.ErrBufferFull:
		return nil, malformedChunk("a line of the framing is too long")
	}
	return line, sourceError(err)
}

func malformedChunk(why string) error {
	return s3err.New(s3err.InvalidRequest).WithMessage("The aws-chunked body is malformed: " + why)
}

// chunkSigner checks the chain of signatures, each of which covers the one
// before it, back to that of the request: chunks cannot be swapped, left out or
// taken from another request.
type chunkSigner struct {
	key      signingKey
	stamp    string
	scope    string
	previous [signatureBytes]byte
	hash     hash.Hash // of the current chunk
	sum      [sha256.Size]byte
	buf      []byte
}

func newChunkSigner(c *claim, key *signingKey) *chunkSigner {
	s := &chunkSigner{key: *key, stamp: c.stamp, scope: c.scope, hash: sha256.New(), buf: make([]byte, 0, 512)}
	copy(s.previous[:], c.signature) // verified, so it has the right length
	return s
}

// checkChunk checks the signature of the data written to hash.
func (s *chunkSigner) checkChunk(claim []byte) error {
	s.buf = appendStringToSign(s.buf[:0], "AWS4-HMAC-SHA256-PAYLOAD", s.stamp, s.scope)
	s.buf = append(append(s.buf, s.previous[:]...), '\n')
	s.buf = append(append(s.buf, emptyHash...), '\n')
	return s.check(claim)
}

// checkTrailer checks the signature of the canonical trailer written to hash.
func (s *chunkSigner) checkTrailer(claim []byte) error {
	s.buf = appendStringToSign(s.buf[:0], "AWS4-HMAC-SHA256-TRAILER", s.stamp, s.scope)
	s.buf = append(append(s.buf, s.previous[:]...), '\n')
	return s.check(claim)
}

func (s *chunkSigner) check(claim []byte) error {
	s.buf = hex.AppendEncode(s.buf, s.hash.Sum(s.sum[:0]))
	s.hash.Reset()
	s.previous = s.key.sign(s.buf)
	if subtle.ConstantTimeCompare(s.previous[:], claim) != 1 {
		return s3err.New(s3err.SignatureDoesNotMatch)
	}
	return nil
}
