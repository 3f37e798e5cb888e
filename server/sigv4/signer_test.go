package sigv4

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"ringfence/server/s3err"
)

// The credentials of AWS's public documentation.
const (
	docAccessKey = "AKIAIOSFODNN7EXAMPLE"
	docSecret    = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
	docStamp     = "20130524T000000Z"
	docHost      = "examplebucket.s3.amazonaws.com"
)

// docTime is the time of the documented examples.
func docTime() time.Time { return time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC) }

// newDoc gives an Authenticator that knows the documented credentials.
func newDoc(t testing.TB, change ...func(*Options)) *Authenticator {
	t.Helper()
	opt := Options{
		Now: docTime,
		Lookup: func(_ context.Context, accessKey string) (Credential, bool) {
			return Credential{SecretKey: docSecret}, accessKey == docAccessKey
		},
	}
	for _, f := range change {
		f(&opt)
	}
	a, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// received sends r through the wire format, so that it looks as a server sees it.
func received(t testing.TB, r *http.Request) *http.Request {
	t.Helper()
	var wire bytes.Buffer
	if err := r.Write(&wire); err != nil {
		t.Fatal(err)
	}
	got, err := http.ReadRequest(bufio.NewReader(&wire))
	if err != nil {
		t.Fatal(err)
	}
	return got.WithContext(t.Context())
}

// parsed reads a request from its text; lines may end in LF.
func parsed(t testing.TB, text, body string) *http.Request {
	t.Helper()
	head := strings.ReplaceAll(strings.TrimSpace(text), "\n", "\r\n") + "\r\n\r\n"
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(head + body)))
	if err != nil {
		t.Fatal(err)
	}
	return r.WithContext(t.Context())
}

// testSigner signs by the letter of the public specification and shares no
// code with what it tests. Its fields can be bent.
type testSigner struct {
	accessKey, secret string
	stamp             string
	scope             string // date/region/service/aws4_request
	signed            []string
	payload           string
}

func docSigner() *testSigner {
	return &testSigner{
		accessKey: docAccessKey, secret: docSecret, stamp: docStamp,
		scope: "20130524/us-east-1/s3/aws4_request", payload: emptyHash,
	}
}

func testMAC(key []byte, message string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(message))
	return h.Sum(nil)
}

func testHash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func (s *testSigner) key() []byte {
	k := []byte("AWS4" + s.secret)
	for part := range strings.SplitSeq(s.scope, "/") {
		k = testMAC(k, part)
	}
	return k
}

// names gives the headers to sign: those asked for, or host, range and x-amz-*.
func (s *testSigner) names(r *http.Request) []string {
	if s.signed != nil {
		return s.signed
	}
	names := []string{"host"}
	for name := range r.Header {
		if lower := strings.ToLower(name); strings.HasPrefix(lower, "x-amz-") || lower == "range" {
			names = append(names, lower)
		}
	}
	slices.Sort(names)
	return names
}

func (s *testSigner) signature(r *http.Request, query string, names []string) string {
	var headers strings.Builder
	for _, name := range names {
		v := strings.Join(r.Header.Values(name), ",")
		if name == "host" {
			v = r.Host
		}
		headers.WriteString(name + ":" + strings.TrimSpace(v) + "\n")
	}
	path := (&url.URL{Path: r.URL.Path}).EscapedPath()
	canonical := strings.Join([]string{r.Method, path, query, headers.String(), strings.Join(names, ";"), s.payload}, "\n")
	text := strings.Join([]string{"AWS4-HMAC-SHA256", s.stamp, s.scope, testHash([]byte(canonical))}, "\n")
	return hex.EncodeToString(testMAC(s.key(), text))
}

// header signs r in the Authorization header and gives the signature. The query
// must be canonical already.
func (s *testSigner) header(r *http.Request) string {
	if r.Header.Get(headerDate) == "" {
		r.Header.Set(headerDate, s.stamp)
	}
	if r.Header.Get(headerContent) == "" {
		r.Header.Set(headerContent, s.payload)
	}
	names := s.names(r)
	signature := s.signature(r, r.URL.RawQuery, names)
	r.Header.Set("Authorization", fmt.Sprintf("AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%s",
		s.accessKey, s.scope, strings.Join(names, ";"), signature))
	return signature
}

// presign signs r in its query and gives the signature.
func (s *testSigner) presign(r *http.Request, expires string) string {
	names := s.names(r)
	q := r.URL.Query()
	q.Set(queryAlgorithm, "AWS4-HMAC-SHA256")
	q.Set(queryCredential, s.accessKey+"/"+s.scope)
	q.Set(queryDate, s.stamp)
	q.Set(queryExpires, expires)
	q.Set(querySignedHeaders, strings.Join(names, ";"))
	query := strings.ReplaceAll(q.Encode(), "+", "%20")
	signature := s.signature(r, query, names)
	r.URL.RawQuery = query + "&X-Amz-Signature=" + signature
	return signature
}

// chunks frames data in signed chunks of the sizes given. seed is the signature
// of the request. edit may change the signature of a chunk by its number.
func (s *testSigner) chunks(seed string, edit func(n int, signature string) string, data ...[]byte) (framed []byte, last string) {
	key, previous := s.key(), seed
	for n, d := range append(data, nil) {
		text := strings.Join([]string{"AWS4-HMAC-SHA256-PAYLOAD", s.stamp, s.scope, previous, testHash(nil), testHash(d)}, "\n")
		previous = hex.EncodeToString(testMAC(key, text))
		shown := previous
		if edit != nil {
			shown = edit(n, previous)
		}
		framed = fmt.Appendf(framed, "%x;chunk-signature=%s\r\n", len(d), shown)
		if len(d) > 0 {
			framed = append(append(framed, d...), "\r\n"...)
		}
	}
	return framed, previous
}

// trailer signs a trailer after the final chunk.
func (s *testSigner) trailer(previous, name, value string) string {
	text := strings.Join([]string{"AWS4-HMAC-SHA256-TRAILER", s.stamp, s.scope, previous, testHash([]byte(name + ":" + value + "\n"))}, "\n")
	return hex.EncodeToString(testMAC(s.key(), text))
}

// newRequest makes a request with a body whose length is known.
func newRequest(t testing.TB, method, target string, body []byte) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, target, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// refused checks that err is a refusal with that code and a fitting status.
func refused(t *testing.T, err error, code s3err.Code) *s3err.Error {
	t.Helper()
	e, ok := errors.AsType[*s3err.Error](err)
	if !ok || e.Code != code {
		t.Fatalf("error %v, want %s", err, code)
	}
	if e.Status < 400 || e.Status > 499 {
		t.Fatalf("status %d for %s", e.Status, code)
	}
	if strings.Contains(err.Error(), docSecret) {
		t.Fatalf("the secret is in the error: %v", err)
	}
	return e
}

// outcome authenticates r and reads all of its body.
func outcome(a *Authenticator, r *http.Request) (*Result, []byte, error) {
	result, err := a.Authenticate(r)
	if err != nil {
		return nil, nil, err
	}
	data, err := io.ReadAll(result.Body)
	if err == nil {
		err = result.Verified()
	} else if result.Verified() == nil {
		return result, data, errors.New("the body failed, yet it is verified")
	}
	return result, data, err
}
