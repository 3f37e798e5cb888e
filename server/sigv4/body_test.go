package sigv4

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"ringfence/server/s3err"
)

// TestLastBytesAreHeldBack: who reads exactly the announced length, and does
// not wait for io.EOF, gets it only if it is right.
func TestLastBytesAreHeldBack(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789"), 1000)
	build := func(mode string, good bool) *http.Request {
		s := docSigner()
		s.payload = mode
		if mode == "hash" {
			s.payload = testHash(data)
		}
		r := newRequest(t, http.MethodPut, target, nil)
		r.Header.Set("X-Amz-Decoded-Content-Length", "10000")
		seed := s.header(r)
		var body []byte
		switch mode {
		case "hash":
			body = bytes.Clone(data)
			if !good {
				body[77] ^= 1
			}
		case signedChunks:
			body, _ = s.chunks(seed, func(n int, signature string) string {
				if n == 3 && !good {
					return wrongSignature
				}
				return signature
			}, data[:5000], data[5000:5001], data[5001:])
			body = append(body, "\r\n"...)
		case unsignedTrailer:
			body = fmt.Appendf(nil, "%x\r\n%s\r\n0\r\n\r\n", len(data), data)
			if !good {
				body = append(body, "trailing garbage"...)
			}
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		return r
	}
	for _, mode := range []string{"hash", signedChunks, unsignedTrailer} {
		for _, good := range []bool{true, false} {
			result, err := newDoc(t).Authenticate(build(mode, good))
			if err != nil {
				t.Fatal(err)
			}
			refused(t, result.Verified(), s3err.IncompleteBody) // not read yet
			got := make([]byte, len(data))
			n, err := io.ReadFull(result.Body, got)
			if good && (err != nil || !bytes.Equal(got, data) || result.Verified() != nil) {
				t.Errorf("%s: %d bytes, %v, %v", mode, n, err, result.Verified())
			}
			if !good && (err == nil || result.Verified() == nil) {
				t.Errorf("%s: all %d bytes of a bad body", mode, n)
			}
			if n, err := result.Body.Read(got); n != 0 || err == nil || good != (err == io.EOF) {
				t.Errorf("%s: %d %v after the end", mode, n, err)
			}
			if err := result.Body.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestReadersMatch reads good bodies in all manners.
func TestReadersMatch(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<12)
	framed := fmt.Appendf(nil, "%x\r\n%s\r\n%X\r\n%s\r\n0\r\n\r\n", 1000, data[:1000], len(data)-1000, data[1000:])
	for what, wrap := range map[string]func(io.Reader) io.Reader{
		"whole": func(r io.Reader) io.Reader { return r }, "one byte": iotest.OneByteReader, "half": iotest.HalfReader, "early EOF": iotest.DataErrReader,
	} {
		for _, outer := range []func(io.Reader) io.Reader{func(r io.Reader) io.Reader { return r }, iotest.OneByteReader, iotest.HalfReader} {
			b := newChunkedBody(io.NopCloser(wrap(bytes.NewReader(framed))), int64(len(data)), "", true)
			if got, err := io.ReadAll(outer(b)); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%s: chunked: %d bytes, %v", what, len(got), err)
			}
			p := &plainBody{source: io.NopCloser(wrap(bytes.NewReader(data))), left: int64(len(data))}
			if got, err := io.ReadAll(outer(p)); err != nil || !bytes.Equal(got, data) || p.err != io.EOF {
				t.Errorf("%s: plain: %d bytes, %v", what, len(got), err)
			}
			p = &plainBody{source: io.NopCloser(wrap(bytes.NewReader(data))), left: -1}
			if got, err := io.ReadAll(outer(p)); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%s: unknown length: %d bytes, %v", what, len(got), err)
			}
		}
	}
	short := &plainBody{source: io.NopCloser(strings.NewReader("abc")), left: 5}
	_, err := io.ReadAll(short)
	refused(t, err, s3err.IncompleteBody)
	stuck := &plainBody{source: io.NopCloser(stalled{}), left: 5}
	if _, err := io.ReadAll(stuck); err == nil {
		t.Error("a source that gives nothing is read for ever")
	}
	closed := newChunkedBody(io.NopCloser(bytes.NewReader(framed)), int64(len(data)), "", true)
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := closed.Read(make([]byte, 5)); err == nil || err == io.EOF {
		t.Errorf("read after close: %v", err)
	}
}

type stalled struct{}

func (stalled) Read([]byte) (int, error) { return 0, nil }

// TestU029Anonymous: without credentials there is no signature to check, but
// framing, length and hash are as for everybody.
func TestU029Anonymous(t *testing.T) {
	for _, c := range []struct {
		payload, body, want string
		code                s3err.Code
	}{
		{"", "hello", "hello", ""},
		{payloadUnsigned, "hello", "hello", ""},
		{testHash([]byte("hello")), "hello", "hello", ""},
		{testHash([]byte("hello")), "hellO", "", s3err.XAmzContentSHA256Mismatch},
		{unsignedTrailer, "5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n", "hello", ""},
		{unsignedTrailer, "5\r\nhello\r\n", "", s3err.IncompleteBody},
		{signedChunks, "5\r\nhello\r\n0\r\n\r\n", "", s3err.AccessDenied},
		{signedTrailer, "5\r\nhello\r\n0\r\n\r\n", "", s3err.AccessDenied},
		{"nonsense", "hello", "", s3err.InvalidArgument},
	} {
		r := newRequest(t, http.MethodPut, target, []byte(c.body))
		r.Header.Set("X-Amz-Acl", "private")
		if c.payload != "" {
			r.Header.Set("X-Amz-Content-Sha256", c.payload)
		}
		if c.payload == unsignedTrailer {
			r.Header.Set("X-Amz-Trailer", "x-amz-checksum-crc32")
			r.Header.Set("X-Amz-Decoded-Content-Length", "5")
		}
		result, body, err := outcome(newDoc(t), received(t, r))
		if c.code != "" {
			refused(t, err, c.code)
			continue
		}
		if err != nil || string(body) != c.want || !result.Principal.Anonymous || result.Kind != Anonymous || result.Principal.AccessKey != "" {
			t.Errorf("%q: %q %v %+v", c.payload, body, err, result)
		}
	}
	// A trailer cannot come without framing.
	r := newRequest(t, http.MethodPut, target, []byte("hello"))
	r.Header.Set("X-Amz-Trailer", "x-amz-checksum-crc32")
	_, _, err := outcome(newDoc(t), received(t, r))
	refused(t, err, s3err.InvalidRequest)
}

// TestEmptyBodyIsVerifiedAtOnce: nobody reads the body of a GET.
func TestEmptyBodyIsVerifiedAtOnce(t *testing.T) {
	r := newRequest(t, http.MethodGet, target, nil)
	docSigner().header(r)
	result, err := newDoc(t).Authenticate(received(t, r))
	if err != nil || result.Verified() != nil || result.DecodedLength != 0 {
		t.Fatalf("%v %v", err, result)
	}
	r = newRequest(t, http.MethodGet, target, nil)
	s := docSigner()
	s.payload = testHash([]byte("x"))
	s.header(r)
	_, err = newDoc(t).Authenticate(received(t, r))
	refused(t, err, s3err.XAmzContentSHA256Mismatch)
}

// TestBodyIsTaken: after a refusal too.
func TestBodyIsTaken(t *testing.T) {
	r := newRequest(t, http.MethodPut, target, []byte("hello"))
	r.Header.Set("Authorization", "nonsense")
	if _, err := newDoc(t).Authenticate(r); err == nil {
		t.Fatal("accepted")
	}
	if data, err := io.ReadAll(r.Body); err == nil || len(data) > 0 {
		t.Errorf("read %q %v", data, err)
	}
	if err := r.Body.Close(); err != nil {
		t.Error(err)
	}
	r = newRequest(t, http.MethodGet, target, nil)
	r.Body = nil
	docSigner().header(r)
	if _, body, err := outcome(newDoc(t), r); err != nil || len(body) > 0 {
		t.Errorf("%q %v", body, err)
	}
}

// TestExpectContinue: authenticating does not read, so that a client that waits
// for 100 Continue isn't asked for a body that is then refused.
func TestExpectContinue(t *testing.T) {
	read := false
	r := newRequest(t, http.MethodPut, target, []byte("hello"))
	r.Header.Set("Expect", "100-continue")
	s := docSigner()
	s.payload = payloadUnsigned
	s.signed = []string{"expect", "host", "x-amz-content-sha256", "x-amz-date"}
	s.header(r)
	r.Body = io.NopCloser(readerFunc(func([]byte) (int, error) { read = true; return 0, io.EOF }))
	if _, err := newDoc(t).Authenticate(r); err != nil || read {
		t.Fatalf("read %v, %v", read, err)
	}
	// A proxy may have answered for us and dropped the header.
	r.Header.Del("Expect")
	if _, err := newDoc(t).Authenticate(r); err != nil {
		t.Fatal(err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestSessionToken(t *testing.T) {
	a := newDoc(t, func(o *Options) {
		o.Lookup = func(context.Context, string) (Credential, bool) {
			return Credential{SecretKey: docSecret, SessionToken: "the token"}, true
		}
	})
	for _, token := range []string{"the token", "the tokeN", ""} {
		for _, presigned := range []bool{false, true} {
			s := docSigner()
			r := newRequest(t, http.MethodHead, target, nil)
			if presigned {
				s.payload = payloadUnsigned
				if token != "" {
					r.URL.RawQuery = "X-Amz-Security-Token=" + strings.ReplaceAll(token, " ", "%20")
				}
				s.presign(r, "60")
			} else {
				if token != "" {
					r.Header.Set("X-Amz-Security-Token", token)
				}
				s.header(r)
			}
			_, _, err := outcome(a, received(t, r))
			if token == "the token" {
				if err != nil {
					t.Errorf("presigned %v: %v", presigned, err)
				}
				continue
			}
			refused(t, err, s3err.InvalidToken)
		}
	}
}

// TestTrailerComesLast: before the end there is none.
func TestTrailerComesLast(t *testing.T) {
	r := newRequest(t, http.MethodPut, target, []byte("5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n"))
	r.Header.Set("X-Amz-Content-Sha256", unsignedTrailer)
	r.Header.Set("X-Amz-Trailer", "x-amz-checksum-crc32")
	r.Header.Set("X-Amz-Decoded-Content-Length", "5")
	result, err := newDoc(t).Authenticate(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"hel", "lo"} {
		if _, _, ok := result.Trailer(); ok {
			t.Fatal("a trailer before the end")
		}
		got := make([]byte, len(want))
		if _, err := io.ReadFull(result.Body, got); err != nil || string(got) != want {
			t.Fatalf("%q %v", got, err)
		}
	}
	if name, value, ok := result.Trailer(); name != result.TrailerName || value != "NhCmhg==" || !ok {
		t.Errorf("%q %q %v", name, value, ok)
	}
}

// TestNothingFollowsTheBody: what is behind the final chunk is no body, nor the
// next request.
func TestNothingFollowsTheBody(t *testing.T) {
	for _, end := range []string{"\r\nx", "\r\n\r\n", "x\r\n", "xx", "\r\n0;chunk-signature=" + wrongSignature + "\r\n\r\n", "\n", "\r", ""} {
		_, data, err := upload{mode: signedChunks, length: "5", frame: func(s *testSigner, seed string) []byte {
			framed, _ := s.chunks(seed, nil, []byte("hello"))
			return append(framed, end...)
		}}.send(t)
		if e := s3err.As(err); e == nil || e.Status != http.StatusBadRequest || len(data) >= 5 {
			t.Errorf("%q: %q %v", end, data, err)
		}
	}
}

// TestPresignedPayload: a presigned URL may say what its body is, too.
func TestPresignedPayload(t *testing.T) {
	for _, c := range []struct {
		parameter, header, signed string
		body                      string
		code                      s3err.Code
	}{
		{"", "", payloadUnsigned, "hello", ""},
		{payloadUnsigned, "", payloadUnsigned, "hello", ""},
		{testHash([]byte("hello")), "", testHash([]byte("hello")), "hello", ""},
		{testHash([]byte("hello")), "", testHash([]byte("hello")), "other", s3err.XAmzContentSHA256Mismatch},
		{testHash([]byte("hello")), "", payloadUnsigned, "hello", s3err.SignatureDoesNotMatch},
		{"", testHash([]byte("hello")), testHash([]byte("hello")), "hello", ""},
		{"", testHash([]byte("hello")), testHash([]byte("hello")), "other", s3err.XAmzContentSHA256Mismatch},
		{payloadUnsigned, payloadUnsigned, payloadUnsigned, "hello", ""},
		{testHash([]byte("hello")), payloadUnsigned, payloadUnsigned, "hello", s3err.InvalidArgument},
		{testHash([]byte("hello")), payloadUnsigned, testHash([]byte("hello")), "hello", s3err.InvalidArgument},
		{"nonsense", "", "nonsense", "hello", s3err.InvalidArgument},
	} {
		r := newRequest(t, http.MethodPut, target, []byte(c.body))
		if c.parameter != "" {
			r.URL.RawQuery = "X-Amz-Content-Sha256=" + c.parameter
		}
		if c.header != "" {
			r.Header.Set("X-Amz-Content-Sha256", c.header)
		}
		s := docSigner()
		s.payload = c.signed
		s.presign(r, "60")
		_, body, err := outcome(newDoc(t), received(t, r))
		if c.code != "" {
			refused(t, err, c.code)
		} else if err != nil || string(body) != c.body {
			t.Errorf("%+v: %q %v", c, body, err)
		}
	}
}
