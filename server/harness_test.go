package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7/pkg/signer"
	"github.com/rs/zerolog"

	"ringfence/server/s3xml"
	"ringfence/server/sigv4"
)

const (
	testKey    = "AKIATEST"
	testSecret = "canary-secret-8f1c"
)

// harness is a server over a fake store behind a real listener, and a client
// that signs.
type harness struct {
	t     *testing.T
	store *fakeStore
	srv   *Server
	http  *httptest.Server
	log   *logBuffer
}

func newHarness(t *testing.T, change ...func(*Options)) *harness {
	t.Helper()
	h := &harness{t: t, store: newFakeStore(), log: new(logBuffer)}
	auth, err := sigv4.New(sigv4.Options{Lookup: func(_ context.Context, key string) (sigv4.Credential, bool) {
		return sigv4.Credential{SecretKey: testSecret}, key == testKey
	}})
	if err != nil {
		t.Fatal(err)
	}
	opt := Options{
		Buckets: h.store, Objects: Adapt(h.store), Uploads: h.store, Auth: auth,
		Log: zerolog.New(h.log),
	}
	for _, f := range change {
		f(&opt)
	}
	if h.srv, err = New(opt); err != nil {
		t.Fatal(err)
	}
	h.http = httptest.NewServer(h.srv.Handler())
	t.Cleanup(h.http.Close)
	return h
}

// logBuffer keeps what was logged.
type logBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// eventually waits until ok, which somebody else makes true soon.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range 5000 {
		if ok() {
			return
		}
		<-tick.C
	}
	t.Fatalf("never happened: %s", what)
}

// transport does nothing behind our back.
var transport = &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}

// reply is an answer with its body read.
type reply struct {
	*http.Response
	body []byte
}

// headers is a short way to write headers: name, value, name, value.
func headers(pairs ...string) http.Header {
	h := make(http.Header)
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

// request makes an unsigned request to a path and query as they stand on the
// wire.
func (h *harness) request(method, target string, header http.Header, body []byte) *http.Request {
	h.t.Helper()
	u, err := url.ParseRequestURI(target)
	if err != nil {
		h.t.Fatal(err)
	}
	base, err := url.Parse(h.http.URL)
	if err != nil {
		h.t.Fatal(err)
	}
	u.Scheme, u.Host = base.Scheme, base.Host
	req, err := http.NewRequestWithContext(h.t.Context(), method, h.http.URL, bytes.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	req.URL = u
	for name, values := range header {
		req.Header[name] = values
	}
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
		req.Header.Del("Host")
	}
	return req
}

// sign signs a request that carries body.
func sign(req *http.Request, body []byte) *http.Request {
	if req.Header.Get("X-Amz-Content-Sha256") == "" {
		sum := sha256.Sum256(body)
		req.Header.Set("X-Amz-Content-Sha256", hex.EncodeToString(sum[:]))
	}
	return signer.SignV4(*req, testKey, testSecret, "", "us-east-1")
}

// send sends a request as it is.
func (h *harness) send(req *http.Request) reply {
	h.t.Helper()
	res, err := transport.RoundTrip(req)
	if err != nil {
		h.t.Fatalf("%s %s: %v", req.Method, req.URL, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		h.t.Fatalf("%s %s: read answer: %v", req.Method, req.URL, err)
	}
	return reply{res, body}
}

// do signs and sends. target is path and query as they stand on the wire.
func (h *harness) do(method, target string, header http.Header, body string) reply {
	h.t.Helper()
	return h.send(sign(h.request(method, target, header, []byte(body)), []byte(body)))
}

// ok is do, and the status must be the one given.
func (h *harness) ok(status int, method, target string, header http.Header, body string) reply {
	h.t.Helper()
	r := h.do(method, target, header, body)
	if r.StatusCode != status {
		h.t.Fatalf("%s %s: status %d, want %d: %s", method, target, r.StatusCode, status, r.body)
	}
	return r
}

// document is an error as clients parse it.
type document struct {
	XMLName                    xml.Name
	Code, Message, Resource    string
	RequestID                  string `xml:"RequestId"`
	HostID                     string `xml:"HostId"`
	BucketName, Key, Condition string
	UploadID                   string `xml:"UploadId"`
	PartNumber, ETag, Region   string
	CalculatedDigest           string
	ExpectedDigest             string
}

// refused is do, and the answer must be an error with the status and code given.
func (h *harness) refused(status int, code, method, target string, header http.Header, body string) document {
	h.t.Helper()
	return h.refusal(h.do(method, target, header, body), status, code)
}

func (h *harness) refusal(r reply, status int, code string) document {
	h.t.Helper()
	if r.StatusCode != status {
		h.t.Fatalf("%s %s: status %d, want %d %s: %s", r.Request.Method, r.Request.URL, r.StatusCode, status, code, r.body)
	}
	var doc document
	if err := xml.Unmarshal(r.body, &doc); err != nil {
		h.t.Fatalf("%s %s: %v in %q", r.Request.Method, r.Request.URL, err, r.body)
	}
	if doc.XMLName.Local != "Error" || doc.Code != code || doc.Message == "" {
		h.t.Fatalf("%s %s: got %+v, want code %s", r.Request.Method, r.Request.URL, doc, code)
	}
	if id := r.Header.Get("x-amz-request-id"); id == "" || id != doc.RequestID || r.Header.Get("x-amz-id-2") != doc.HostID {
		h.t.Fatalf("ids differ: header %q, document %+v", id, doc)
	}
	return doc
}

// bucket makes a bucket and puts keys, each with its own name as its body.
func (h *harness) bucket(name string, keys ...string) {
	h.t.Helper()
	h.ok(200, "PUT", "/"+name, nil, "")
	for _, key := range keys {
		h.ok(200, "PUT", "/"+name+"/"+encode(key), nil, key)
	}
}

// encode is a key as clients write it into a path.
func encode(key string) string {
	return strings.ReplaceAll(string(s3xml.AppendURL(nil, key)), "*", "%2A")
}

// listing is what clients see of a listing.
type listing struct {
	Name, Prefix, Delimiter, Marker, NextMarker, StartAfter string
	ContinuationToken, NextContinuationToken, EncodingType  string
	MaxKeys, KeyCount                                       int
	IsTruncated                                             bool
	Contents                                                []struct {
		Key, LastModified, ETag, StorageClass string
		Size                                  int64
		Owner                                 *struct{ ID, DisplayName string }
	}
	CommonPrefixes []struct{ Prefix string }
}

func (l listing) keys() []string {
	keys := []string{}
	for _, c := range l.Contents {
		keys = append(keys, c.Key)
	}
	return keys
}

func (l listing) prefixes() []string {
	prefixes := []string{}
	for _, p := range l.CommonPrefixes {
		prefixes = append(prefixes, p.Prefix)
	}
	return prefixes
}

func (h *harness) list(target string) listing {
	h.t.Helper()
	r := h.ok(200, "GET", target, nil, "")
	var l listing
	if err := xml.Unmarshal(r.body, &l); err != nil {
		h.t.Fatalf("GET %s: %v in %q", target, err, r.body)
	}
	return l
}
