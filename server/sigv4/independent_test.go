package sigv4

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	md5simd "github.com/minio/md5-simd"
	"github.com/minio/minio-go/v7/pkg/s3utils"
	"github.com/minio/minio-go/v7/pkg/signer"
)

// This file checks that requests of an independent signer are accepted, whatever
// they hold, and that each is refused once anything of it is changed.

const region = "eu-somewhere-7"

func newNow(t testing.TB, key, secret string) *Authenticator {
	t.Helper()
	a, err := New(Options{Region: region, Lookup: func(_ context.Context, accessKey string) (Credential, bool) {
		return Credential{SecretKey: secret}, accessKey == key
	}})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// source makes random text of all that keys, queries and headers may hold.
type source struct{ *rand.Rand }

func newSource(t testing.TB) source {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return source{rand.New(rand.NewPCG(seed, 0))}
}

var alphabet = []string{
	"a", "Z", "7", "-", "_", ".", "~", "/", "//", " ", "  ", "+", "*", "%", "%2F", "%41", "!", "'", "(", ")", "$", "&", "=", ",",
	":", ";", "@", "?", "#", "[", "]", "{", "}", "|", "\\", "^", "`", "\"", "<", ">", "é", "ü", "日", "🎉", "..", "./", "../", "\x01", "\x7f",
}

func (s source) text(n int) string {
	var b strings.Builder
	for range s.IntN(n) + 1 {
		b.WriteString(alphabet[s.IntN(len(alphabet))])
	}
	return b.String()
}

func (s source) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(s.Uint32())
	}
	return b
}

// request makes a random request without a body.
func (s source) request(t testing.TB) *http.Request {
	t.Helper()
	path := "/bucket/" + s.text(30)
	u := &url.URL{Scheme: "http", Host: []string{"localhost:9000", "s3.example.org", "bucket.s3.example.org:8443"}[s.IntN(3)], Path: path}
	if s.IntN(2) == 0 {
		u.RawPath = s3utils.EncodePath(path) // otherwise net/url's own, laxer encoding
	}
	q := url.Values{}
	for range s.IntN(4) {
		// Names of letters, each once: on others signers disagree about the order.
		q.Set([]string{"prefix", "marker", "delimiter", "versionId", "acl", "max-keys"}[s.IntN(6)], s.text(8))
	}
	u.RawQuery = q.Encode()
	r := &http.Request{
		Method: []string{"GET", "PUT", "HEAD", "DELETE", "POST"}[s.IntN(5)], URL: u, Host: u.Host, Header: http.Header{},
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	for i := range s.IntN(4) {
		clean := strings.Map(func(c rune) rune {
			if c < ' ' || c == 0x7f {
				return ' '
			}
			return c
		}, s.text(10))
		r.Header.Add(fmt.Sprintf("X-Amz-Meta-N%d", i), "  "+clean+" \t ")
		if s.IntN(4) == 0 {
			r.Header.Add(fmt.Sprintf("X-Amz-Meta-N%d", i), clean)
		}
	}
	if s.IntN(2) == 0 {
		r.Header.Set("Content-Type", "text/plain;  charset=utf-8")
	}
	return r.WithContext(t.Context())
}

func TestIndependentHeaderSignature(t *testing.T) {
	s := newSource(t)
	for range 400 {
		key, secret := s.text(12), s.text(40)
		key = strings.Map(func(c rune) rune {
			if c < '!' || c > '~' || c == ',' || c == '=' {
				return 'k'
			}
			return c
		}, key)
		a := newNow(t, key, secret)
		r := s.request(t)
		body := s.bytes(s.IntN(2000))
		sum := sha256.Sum256(body)
		payload := hex.EncodeToString(sum[:])
		if s.IntN(3) == 0 {
			payload = payloadUnsigned
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		r.Header.Set("X-Amz-Content-Sha256", payload)
		r = signer.SignV4(*r, key, secret, "", region)
		sent := received(t, r)
		result, got, err := outcome(a, sent)
		if err != nil {
			t.Fatalf("%s %s %q: %v", r.Method, r.URL, r.Header, err)
		}
		if !bytes.Equal(got, body) || result.Principal.AccessKey != key {
			t.Fatalf("%d bytes from %q", len(got), result.Principal.AccessKey)
		}
		_, objectKey, err := SplitPath(sent.URL)
		if "/bucket/"+objectKey != r.URL.Path || err != nil {
			t.Fatalf("key %q of path %q: %v", objectKey, r.URL.Path, err)
		}
	}
}

func TestIndependentPresigned(t *testing.T) {
	s := newSource(t)
	for range 400 {
		a := newNow(t, docAccessKey, docSecret)
		r := s.request(t)
		expires := 1 + s.Int64N(604800)
		r = signer.PreSignV4(*r, docAccessKey, docSecret, "", region, expires)
		sent := received(t, r)
		result, _, err := outcome(a, sent)
		if err != nil {
			t.Fatalf("%s %s %q: %v", r.Method, r.URL, r.Header, err)
		}
		if !result.Presigned || result.Mode != ModeUnsigned {
			t.Fatalf("%+v", result)
		}
		// Whatever is changed breaks it.
		for i, change := range []func(*http.Request){
			func(r *http.Request) { r.Method += "X" },
			func(r *http.Request) { r.URL.Path += "x" },
			func(r *http.Request) { r.URL.RawQuery += "&acl=" },
			func(r *http.Request) { r.URL.RawQuery += "&versionId=7" },
			func(r *http.Request) { r.Host = "elsewhere" },
			func(r *http.Request) { r.Header.Set("X-Amz-Acl", "public-read") },
		} {
			again := received(t, r)
			change(again)
			if _, _, err := outcome(a, again); err == nil {
				t.Fatalf("change %d of %s is accepted", i, r.URL)
			}
		}
	}
}

// simd wraps SHA-256 as the independent signer wants it.
type simd struct{ hash.Hash }

func (simd) Close() {}

var _ md5simd.Hasher = simd{}

// serve runs one real exchange with a handler that authenticates and reads the
// body, and gives what it found.
func serve(t *testing.T, a *Authenticator, send func(target string) (*http.Request, error)) (result *Result, body []byte, err error) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		result, body, err = outcome(a, r)
		w.WriteHeader(http.StatusNoContent)
	}))
	defer server.Close()
	r, failed := send(server.URL)
	if failed != nil {
		t.Fatal(failed)
	}
	answer, failed := server.Client().Do(r)
	if failed != nil {
		t.Fatal(failed)
	}
	if err := answer.Body.Close(); err != nil {
		t.Fatal(err)
	}
	return result, body, err
}

// TestIndependentStreaming sends bodies in the framing of an independent client
// over a real connection.
func TestIndependentStreaming(t *testing.T) {
	s := newSource(t)
	a := newNow(t, docAccessKey, docSecret)
	for _, size := range []int{0, 1, 17, 65535, 65536, 65537, 200000} {
		for _, kind := range []string{"signed", "signed trailer", "unsigned trailer", "anonymous trailer"} {
			t.Run(fmt.Sprintf("%s/size=%d", kind, size), func(t *testing.T) {
				data := s.bytes(size)
				sum := crc32.ChecksumIEEE(data)
				crc := base64.StdEncoding.EncodeToString([]byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)})
				trailer := http.Header{"X-Amz-Checksum-Crc32": {crc}}
				result, body, err := serve(t, a, func(target string) (*http.Request, error) {
					r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, target+"/b/some%20key", bytes.NewReader(data))
					if err != nil {
						return nil, err
					}
					now := time.Now().UTC()
					r.ContentLength = int64(size)
					switch kind {
					case "signed":
						return signer.StreamingSignV4(r, docAccessKey, docSecret, "", region, int64(size), now, simd{sha256.New()}), nil
					case "signed trailer":
						r.Trailer = trailer
						return signer.StreamingSignV4(r, docAccessKey, docSecret, "", region, int64(size), now, simd{sha256.New()}), nil
					}
					r.Header.Set("X-Amz-Content-Sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER")
					if kind == "unsigned trailer" {
						return signer.SignV4Trailer(*r, docAccessKey, docSecret, "", region, trailer), nil
					}
					return signer.UnsignedTrailer(*r, trailer), nil
				})
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(body, data) || result.DecodedLength != int64(size) {
					t.Fatalf("%d bytes, announced %d, sent %d", len(body), result.DecodedLength, size)
				}
				if result.Principal.Anonymous != (kind == "anonymous trailer") {
					t.Errorf("anonymous: %v", result.Principal.Anonymous)
				}
				_, value, ok := result.Trailer()
				if ok != (kind != "signed") || ok && value != crc {
					t.Errorf("trailer %q %v, want %q", value, ok, crc)
				}
			})
		}
	}
}
