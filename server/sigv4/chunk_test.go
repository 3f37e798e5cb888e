package sigv4

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"ringfence/server/s3err"
)

const (
	signedChunks  = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
	signedTrailer = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
)

// upload is a chunked request under construction.
type upload struct {
	mode    string
	length  string // x-amz-decoded-content-length
	trailer string // x-amz-trailer
	// frame gives the body, from the seed signature.
	frame func(s *testSigner, seed string) []byte
}

// send authenticates the upload and reads its body.
func (u upload) send(t testing.TB) (*Result, []byte, error) {
	t.Helper()
	s := docSigner()
	s.payload = u.mode
	r := newRequest(t, http.MethodPut, target, nil)
	if u.length != "" {
		r.Header.Set("X-Amz-Decoded-Content-Length", u.length)
	}
	if u.trailer != "" {
		r.Header.Set("X-Amz-Trailer", u.trailer)
	}
	body := u.frame(s, s.header(r))
	r.Body, r.ContentLength = io.NopCloser(iotest.OneByteReader(bytes.NewReader(body))), int64(len(body))
	return outcome(newDoc(t), r)
}

func fixed(body string) func(*testSigner, string) []byte {
	return func(*testSigner, string) []byte { return []byte(body) }
}

// TestA13ChunkSignatures is also U023.
func TestA13ChunkSignatures(t *testing.T) {
	parts := [][]byte{[]byte("first chunk"), []byte("chunk two.."), []byte("the third..")}
	for n := range 4 {
		_, data, err := upload{mode: signedChunks, length: "33", frame: func(s *testSigner, seed string) []byte {
			framed, _ := s.chunks(seed, func(i int, signature string) string {
				if i == n {
					return wrongSignature
				}
				return signature
			}, parts...)
			return append(framed, "\r\n"...)
		}}.send(t)
		refused(t, err, s3err.SignatureDoesNotMatch)
		if len(data) >= 33 {
			t.Errorf("chunk %d is forged and all of %q is delivered", n, data)
		}
	}
	swap := func(a, b int) error {
		_, _, err := upload{mode: signedChunks, length: "33", frame: func(s *testSigner, seed string) []byte {
			framed, _ := s.chunks(seed, nil, parts...)
			const each = len("b;chunk-signature=") + 64 + 2 + 11 + 2
			swapped := bytes.Clone(framed)
			copy(swapped[a*each:], framed[b*each:(b+1)*each])
			copy(swapped[b*each:], framed[a*each:(a+1)*each])
			return append(swapped, "\r\n"...)
		}}.send(t)
		return err
	}
	refused(t, swap(0, 1), s3err.SignatureDoesNotMatch)
	refused(t, swap(1, 2), s3err.SignatureDoesNotMatch)
	if err := swap(1, 1); err != nil {
		t.Fatal(err)
	}
	// Chunks of another request: right key, wrong seed.
	_, _, err := upload{mode: signedChunks, length: "33", frame: func(s *testSigner, _ string) []byte {
		framed, _ := s.chunks(wrongSignature, nil, parts...)
		return append(framed, "\r\n"...)
	}}.send(t)
	refused(t, err, s3err.SignatureDoesNotMatch)
	// Data changed under its signature.
	_, _, err = upload{mode: signedChunks, length: "33", frame: func(s *testSigner, seed string) []byte {
		framed, _ := s.chunks(seed, nil, parts...)
		return append(bytes.Replace(framed, []byte("third"), []byte("thirD"), 1), "\r\n"...)
	}}.send(t)
	refused(t, err, s3err.SignatureDoesNotMatch)
}

// TestA14Truncated cuts a body after every byte: no prefix of it is a body.
func TestA14Truncated(t *testing.T) {
	for _, mode := range []string{signedChunks, signedTrailer, unsignedTrailer} {
		var whole []byte
		build := func(s *testSigner, seed string) []byte {
			const crc = "x-amz-checksum-crc32"
			switch mode {
			case unsignedTrailer:
				return []byte("5\r\nhello\r\n3\r\nbye\r\n0\r\n" + crc + ":AAAAAA==\r\n\r\n")
			case signedChunks:
				framed, _ := s.chunks(seed, nil, []byte("hello"), []byte("bye"))
				return append(framed, "\r\n"...)
			}
			framed, last := s.chunks(seed, nil, []byte("hello"), []byte("bye"))
			return fmt.Appendf(framed, "%s:AAAAAA==\r\nx-amz-trailer-signature:%s\r\n\r\n", crc, s.trailer(last, crc, "AAAAAA=="))
		}
		u := upload{mode: mode, length: "8"}
		if mode != signedChunks {
			u.trailer = "x-amz-checksum-crc32"
		}
		u.frame = func(s *testSigner, seed string) []byte { whole = build(s, seed); return whole }
		if _, data, err := u.send(t); err != nil || string(data) != "hellobye" {
			t.Fatalf("%s: %q %v", mode, data, err)
		}
		// The empty lines that end a trailer are all that may be missing.
		end := len(bytes.TrimRight(whole, "\r\n"))
		if mode == signedChunks {
			end = len(whole)
		}
		for n := range end {
			u.frame = func(s *testSigner, seed string) []byte { return build(s, seed)[:n] }
			_, data, err := u.send(t)
			if len(data) >= 8 || err == nil {
				t.Fatalf("%s cut after %d bytes: %q %v", mode, n, data, err)
			}
			e := s3err.As(err)
			if e.Status != http.StatusBadRequest && e.Status != http.StatusForbidden {
				t.Fatalf("%s cut after %d bytes: %v", mode, n, err)
			}
		}
	}
}

// TestA14ConnectionCut: what net/http reports of a cut connection.
func TestA14ConnectionCut(t *testing.T) {
	for _, mode := range []string{payloadUnsigned, unsignedTrailer, testHash([]byte("hello"))} {
		s := docSigner()
		s.payload = mode
		r := newRequest(t, http.MethodPut, target, nil)
		r.Header.Set("X-Amz-Decoded-Content-Length", "10")
		s.header(r)
		r.ContentLength = 100
		r.Body = io.NopCloser(io.MultiReader(strings.NewReader("a\r\nhello"), iotest.ErrReader(io.ErrUnexpectedEOF)))
		_, _, err := outcome(newDoc(t), r)
		refused(t, err, s3err.IncompleteBody)
	}
	// Any other error of the connection is passed on.
	s := docSigner()
	s.payload = payloadUnsigned
	r := newRequest(t, http.MethodPut, target, nil)
	s.header(r)
	reset := errors.New("connection reset")
	r.ContentLength, r.Body = 100, io.NopCloser(iotest.ErrReader(reset))
	if _, _, err := outcome(newDoc(t), r); !errors.Is(err, reset) {
		t.Errorf("%v", err)
	}
}

func TestA15ChunkHeaders(t *testing.T) {
	for _, header := range []string{
		"ffffffffffffffff", "10000000000000000", "7fffffffffffffff", "8000000000000000", "-1", "-5", "+5", "0x5", " 5", "5 ", "5\t", "\t5", "5.0", "", "g",
		"5;", "5;x=y", "5;chunk-signature=" + wrongSignature, "5;" + strings.Repeat("x", 1<<20), strings.Repeat("0", 1<<20) + "5",
		strings.Repeat("0", 16) + "5", "5\r", "\r", "5\rx", "5\x00",
	} {
		for _, end := range []string{"\r\n", "\n", "\r"} {
			if header+end == "5\r\n" {
				continue
			}
			source := &counting{r: strings.NewReader(header + end + "hello\r\n0\r\n\r\n")}
			b := newChunkedBody(source, 5, "", true)
			_, err := io.ReadAll(b)
			e := s3err.As(err)
			if e == nil || e.Status != http.StatusBadRequest {
				t.Errorf("%.30q: %v", header+end, err)
			}
			if source.n > 64<<10 {
				t.Errorf("%.30q: %d bytes read", header+end, source.n)
			}
		}
	}
	for _, end := range []string{"\n", "\r", "  ", "xx", ""} {
		_, _, err := upload{mode: unsignedTrailer, length: "5", frame: fixed("5\r\nhello" + end + "0\r\n\r\n")}.send(t)
		if e := s3err.As(err); e == nil || e.Status != http.StatusBadRequest {
			t.Errorf("%q after a chunk: %v", end, err)
		}
	}
}

type counting struct {
	r io.Reader
	n int
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += n
	return n, err
}

func (c *counting) Close() error { return nil }

// TestA16DecodedLength is also U021.
func TestA16DecodedLength(t *testing.T) {
	for length, code := range map[string]s3err.Code{
		"5": "", "005": "", "4": s3err.IncompleteBody, "6": s3err.IncompleteBody, "0": s3err.IncompleteBody,
		"": s3err.MissingContentLength, "-5": s3err.InvalidArgument, "+5": s3err.InvalidArgument, "5.0": s3err.InvalidArgument,
		"0x5": s3err.InvalidArgument, "9223372036854775808": s3err.InvalidArgument, "9223372036854775807": s3err.IncompleteBody, "five": s3err.InvalidArgument,
	} {
		for _, mode := range []string{unsignedTrailer, signedChunks} {
			u := upload{mode: mode, length: length, frame: fixed("5\r\nhello\r\n0\r\n\r\n")}
			if mode == signedChunks {
				u.frame = func(s *testSigner, seed string) []byte {
					framed, _ := s.chunks(seed, nil, []byte("hel"), []byte("lo"))
					return append(framed, "\r\n"...)
				}
			}
			_, data, err := u.send(t)
			if code == "" {
				if err != nil || string(data) != "hello" {
					t.Errorf("%s %q: %q %v", mode, length, data, err)
				}
				continue
			}
			refused(t, err, code)
			if n, failed := strconv.Atoi(length); failed == nil && len(data) >= n && n > 0 {
				t.Errorf("%s %q: all of %q is delivered", mode, length, data)
			}
		}
	}
}

// TestA17Trailers is also U024 and U026.
func TestA17Trailers(t *testing.T) {
	const good = "x-amz-checksum-crc32"
	for _, c := range []struct {
		announced, sent string
		code            s3err.Code
	}{
		{good, good + ":AAAAAA==\r\n\r\n", ""},
		{"X-Amz-Checksum-CRC32", "X-AMZ-Checksum-Crc32: AAAAAA== \r\n\r\n", ""},
		{good, good + ":AAAAAA==\n\r\n\r\n", ""},
		{"", "\r\n", ""},
		{"", "", s3err.IncompleteBody},
		{good, good + ":AAAAAA==", s3err.IncompleteBody},
		{good, good + ":AAAAAA==\r", s3err.IncompleteBody},
		{good, "", s3err.MalformedTrailerError},
		{good, "\r\n", s3err.MalformedTrailerError},
		{good, "x-amz-checksum-sha1:AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n\r\n", s3err.MalformedTrailerError},
		{good, good + ":AAAAAA==\r\n" + good + ":AAAAAA==\r\n\r\n", s3err.MalformedTrailerError},
		{good, good + ":AAAAAA==\r\nx-amz-meta-a:b\r\n\r\n", s3err.MalformedTrailerError},
		{good, good + ":AAAAAA==\r\nx-amz-trailer-signature:" + wrongSignature + "\r\n\r\n", s3err.MalformedTrailerError},
		{"", good + ":AAAAAA==\r\n\r\n", s3err.MalformedTrailerError},
		{good, good + "\r\n\r\n", s3err.MalformedTrailerError},
		{good, good + ":AAAAAA==\r\n\r\n\r\n\r\n\r\n\r\n", s3err.MalformedTrailerError},
		{good, good + ":AAAAAA==\r\n\r\nGET / HTTP/1.1\r\n\r\n", s3err.MalformedTrailerError},
		{good, good + ":garbage\r\n\r\n", s3err.InvalidRequest},
		{good, good + ":AAAAAAA=\r\n\r\n", s3err.InvalidRequest},
		{good, good + ":\r\n\r\n", s3err.InvalidRequest},
		{good, good + ":" + strings.Repeat("A", 1<<20) + "\r\n\r\n", s3err.InvalidRequest},
		{good, strings.Repeat("\r\n", 1<<20), s3err.MalformedTrailerError},
		{"x-amz-meta-a", "x-amz-meta-a:b\r\n\r\n", s3err.InvalidRequest},
		{good + ",x-amz-checksum-sha1", "\r\n", s3err.InvalidRequest},
		{"x-amz-checksum-sha256a", "\r\n", s3err.InvalidRequest},
	} {
		result, _, err := upload{mode: unsignedTrailer, length: "5", trailer: c.announced, frame: fixed("5\r\nhello\r\n0\r\n" + c.sent)}.send(t)
		if c.code != "" {
			refused(t, err, c.code)
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", c.sent, err)
			continue
		}
		name, value, ok := result.Trailer()
		if ok != (c.announced != "") || ok && (name != good || value != "AAAAAA==") {
			t.Errorf("%q: %q %q %v", c.sent, name, value, ok)
		}
	}
}

func TestA17SignedTrailers(t *testing.T) {
	const name, value = "x-amz-checksum-sha1", "qvTGHdzF6KLavt4PO0gs2a6pQ00="
	for what, c := range map[string]struct {
		sent func(good string) string
		code s3err.Code
	}{
		"right": {func(s string) string { return name + ":" + value + "\r\nx-amz-trailer-signature:" + s + "\r\n\r\n" }, ""},
		"mixed case": {func(s string) string {
			return "X-Amz-Checksum-SHA1: " + value + "\r\nX-Amz-Trailer-Signature: " + s + "\r\n"
		}, ""},
		"wrong signature": {func(string) string {
			return name + ":" + value + "\r\nx-amz-trailer-signature:" + wrongSignature + "\r\n\r\n"
		}, s3err.SignatureDoesNotMatch},
		"no signature":    {func(string) string { return name + ":" + value + "\r\n\r\n" }, s3err.SignatureDoesNotMatch},
		"empty signature": {func(string) string { return name + ":" + value + "\r\nx-amz-trailer-signature:\r\n\r\n" }, s3err.SignatureDoesNotMatch},
		"other value": {func(s string) string {
			return name + ":" + "AAAAAAAAAAAAAAAAAAAAAAAAAAA=" + "\r\nx-amz-trailer-signature:" + s + "\r\n\r\n"
		}, s3err.SignatureDoesNotMatch},
		"signature first": {func(s string) string {
			return "x-amz-trailer-signature:" + s + "\r\n" + name + ":" + value + "\r\n\r\n"
		}, s3err.MalformedTrailerError},
		"two signatures": {func(s string) string {
			return name + ":" + value + "\r\nx-amz-trailer-signature:" + s + "\r\nx-amz-trailer-signature:" + s + "\r\n\r\n"
		}, s3err.MalformedTrailerError},
	} {
		_, data, err := upload{mode: signedTrailer, length: "5", trailer: name, frame: func(s *testSigner, seed string) []byte {
			framed, last := s.chunks(seed, nil, []byte("hello"))
			return append(framed, c.sent(s.trailer(last, name, value))...)
		}}.send(t)
		if c.code == "" {
			if err != nil || string(data) != "hello" {
				t.Errorf("%s: %q %v", what, data, err)
			}
			continue
		}
		if e := s3err.As(err); e == nil || e.Code != c.code || len(data) >= 5 {
			t.Errorf("%s: %q %v", what, data, err)
		}
	}
	// A value that is signed, but none.
	_, _, err := upload{mode: signedTrailer, length: "5", trailer: name, frame: func(s *testSigner, seed string) []byte {
		framed, last := s.chunks(seed, nil, []byte("hello"))
		return fmt.Appendf(framed, "%s:garbage\r\nx-amz-trailer-signature:%s\r\n\r\n", name, s.trailer(last, name, "garbage"))
	}}.send(t)
	if e := refused(t, err, s3err.InvalidRequest); e.Message != "Value for x-amz-checksum-sha1 trailing header is invalid." {
		t.Errorf("%q", e.Message)
	}
}
