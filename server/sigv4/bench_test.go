package sigv4

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"ringfence/server/s3err"
)

func BenchmarkAuthenticate(b *testing.B) {
	a := newDoc(b)
	plain := newRequest(b, http.MethodGet, target, nil)
	docSigner().header(plain)
	plain = received(b, plain)
	query := newRequest(b, http.MethodGet, "http://"+docHost+"/?delimiter=%2F&list-type=2&max-keys=1000&prefix=photos%2F", nil)
	docSigner().header(query)
	query = received(b, query)
	presigned := newRequest(b, http.MethodGet, target, nil)
	s := docSigner()
	s.payload = payloadUnsigned
	s.presign(presigned, "60")
	presigned = received(b, presigned)
	wrong := received(b, plain)
	wrong.Header.Set("Authorization", strings.Replace(plain.Header.Get("Authorization"), "Signature=", "Signature=0", 1))
	unknown := received(b, plain)
	unknown.Header.Set("Authorization", strings.Replace(plain.Header.Get("Authorization"), docAccessKey, "AKIAIOSFODNN7EXAMPLF", 1))
	for _, c := range []struct {
		name string
		r    *http.Request
		code s3err.Code
	}{{"get", plain, ""}, {"list", query, ""}, {"presigned", presigned, ""}, {"wrong", wrong, s3err.SignatureDoesNotMatch}, {"unknown", unknown, s3err.InvalidAccessKeyID}} {
		b.Run("kind="+c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.r.Body = http.NoBody
				_, err := a.Authenticate(c.r)
				if (err == nil) != (c.code == "") {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestAuthenticateAllocates keeps the hot path of every request lean.
func TestAuthenticateAllocates(t *testing.T) {
	a := newDoc(t)
	r := newRequest(t, http.MethodGet, target, nil)
	docSigner().header(r)
	n := testing.AllocsPerRun(100, func() {
		r.Body = http.NoBody
		if _, err := a.Authenticate(r); err != nil {
			t.Fatal(err)
		}
	})
	if n > 5 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkChunkedBody(b *testing.B) {
	const chunk, chunks = 64 << 10, 64
	for _, mode := range []string{signedChunks, unsignedTrailer} {
		b.Run("mode="+mode, func(b *testing.B) {
			s := docSigner()
			s.payload = mode
			r := newRequest(b, http.MethodPut, target, nil)
			r.Header.Set("X-Amz-Decoded-Content-Length", fmt.Sprint(chunk*chunks))
			seed := s.header(r)
			data := make([][]byte, chunks)
			for i := range data {
				data[i] = make([]byte, chunk)
			}
			framed, _ := s.chunks(seed, nil, data...)
			framed = append(framed, "\r\n"...)
			if mode == unsignedTrailer {
				framed = nil
				for _, d := range append(data, nil) {
					framed = fmt.Appendf(framed, "%x\r\n", len(d))
					if len(d) > 0 {
						framed = append(append(framed, d...), "\r\n"...)
					}
				}
				framed = append(framed, "\r\n"...)
			}
			a, buffer := newDoc(b), make([]byte, 256<<10)
			b.SetBytes(chunk * chunks)
			b.ReportAllocs()
			for b.Loop() {
				r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(framed)), int64(len(framed))
				result, err := a.Authenticate(r)
				if err != nil {
					b.Fatal(err)
				}
				for err == nil {
					_, err = result.Body.Read(buffer)
				}
				if err := result.Verified(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
