package server

import (
	"bufio"
	"encoding/base64"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7/pkg/signer"

	"ringfence/server/checksum"
)

var errTest = errors.New("test")

// sum is a checksum as clients send it.
func sum(a checksum.Algorithm, body string) string {
	h := a.New()
	h.Write([]byte(body))
	return base64.StdEncoding.EncodeToString(h.Sum(nil))
}

var algorithms = []checksum.Algorithm{checksum.CRC32, checksum.CRC32C, checksum.CRC64NVME, checksum.SHA1, checksum.SHA256}

func TestChecksumHeaders(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt")
	for _, body := range []string{"", "some bytes"} { // U033: empty ones, too
		for _, a := range algorithms {
			put := h.ok(200, "PUT", "/bkt/k", headers(a.Header(), sum(a, body)), body)
			get := h.ok(200, "GET", "/bkt/k", headers("x-amz-checksum-mode", "ENABLED"), "")
			head := h.ok(200, "HEAD", "/bkt/k", headers("x-amz-checksum-mode", "enabled"), "")
			for _, r := range []reply{put, get, head} {
				if r.Header.Get(a.Header()) != sum(a, body) || r.Header.Get("x-amz-checksum-type") != "FULL_OBJECT" {
					t.Errorf("%s of %q: %v", a, body, r.Header)
				}
			}
			if r := h.ok(200, "GET", "/bkt/k", nil, ""); r.Header.Get(a.Header()) != "" {
				t.Errorf("%s unasked", a)
			}
			// U038: a wrong value stores nothing.
			doc := h.refused(400, "BadDigest", "PUT", "/bkt/k", headers(a.Header(), sum(a, "other")), "new")
			if !strings.Contains(doc.Message, a.String()) { // U032
				t.Errorf("message does not name %s: %s", a, doc.Message)
			}
			if r := h.ok(200, "GET", "/bkt/k", nil, ""); string(r.body) != body {
				t.Errorf("old object became %q", r.body)
			}
		}
	}
}

func TestU039DefaultChecksum(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt")
	put := h.ok(200, "PUT", "/bkt/k", nil, "x")
	if put.Header.Get("x-amz-checksum-crc64nvme") != sum(checksum.CRC64NVME, "x") || put.Header.Get("x-amz-checksum-type") != "FULL_OBJECT" {
		t.Errorf("%v", put.Header)
	}
	sums := h.store.buckets["bkt"].objects["k"].info.Digest.Checksums
	if len(sums) != 1 || sums[0].Algorithm != "CRC64NVME" {
		t.Errorf("stored %+v", sums)
	}
	h.ok(200, "PUT", "/bkt/k", headers("x-amz-checksum-sha1", sum(checksum.SHA1, "x")), "x")
	if sums := h.store.buckets["bkt"].objects["k"].info.Digest.Checksums; len(sums) != 2 || sums[0].Algorithm != "SHA1" || sums[1].Algorithm != "CRC64NVME" {
		t.Errorf("stored %+v", sums)
	}
}

func TestU042NoChecksumOnRange(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt", "some-key-of-length")
	r := h.ok(206, "GET", "/bkt/some-key-of-length", headers("Range", "bytes=0-9", "x-amz-checksum-mode", "ENABLED"), "")
	for _, a := range algorithms {
		if v := r.Header.Get(a.Header()); v != "" {
			t.Errorf("%s: %s", a.Header(), v)
		}
	}
}

func TestU034And036ChecksumHeaderForms(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt")
	for _, c := range []struct {
		header  http.Header
		message string
	}{
		{headers("x-amz-checksum-sha256a", "dummy"), "The algorithm type you specified in x-amz-checksum- header is invalid."},
		{headers("x-amz-checksum-crc32", sum(checksum.CRC32, "x"), "x-amz-checksum-sha1", sum(checksum.SHA1, "x")), "Expecting a single x-amz-checksum- header"},
		{headers("x-amz-checksum-crc32", ""), "Value for x-amz-checksum-crc32 header is invalid."},
		{headers("x-amz-checksum-crc32", "!!!"), "Value for x-amz-checksum-crc32 header is invalid."},
		{headers("x-amz-checksum-sha256", sum(checksum.CRC32, "x")), "Value for x-amz-checksum-sha256 header is invalid."},
		{headers("x-amz-sdk-checksum-algorithm", "CRC32"), "no corresponding x-amz-checksum-* or x-amz-trailer headers"},
		{headers("x-amz-sdk-checksum-algorithm", "CRC99"), "Value for x-amz-sdk-checksum-algorithm header is invalid."},
	} {
		doc := h.refused(400, "InvalidRequest", "PUT", "/bkt/k", c.header, "x")
		if !strings.Contains(doc.Message, c.message) {
			t.Errorf("%v: message %q", c.header, doc.Message)
		}
	}
	if n := len(h.store.buckets["bkt"].objects); n != 0 {
		t.Errorf("%d objects stored", n)
	}
}

func TestU043ContentMD5(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt")
	h.ok(200, "PUT", "/bkt/k", headers("Content-MD5", sum(checksum.MD5, "x")), "x")
	for _, bad := range []string{"!", "", "YWJj", sum(checksum.SHA1, "x")} {
		h.refused(400, "InvalidDigest", "PUT", "/bkt/k", headers("Content-MD5", bad), "y")
	}
	doc := h.refused(400, "BadDigest", "PUT", "/bkt/k", headers("Content-MD5", sum(checksum.MD5, "x")), "y")
	if doc.CalculatedDigest != sum(checksum.MD5, "y") || doc.ExpectedDigest != sum(checksum.MD5, "x") {
		t.Errorf("%+v", doc)
	}
	if r := h.ok(200, "GET", "/bkt/k", nil, ""); string(r.body) != "x" {
		t.Errorf("old object became %q", r.body)
	}
}

// presign signs a URL and lets change alter the request afterwards.
func (h *harness) presign(method, target string, query url.Values) *http.Request {
	h.t.Helper()
	req := h.request(method, target, nil, nil)
	q := req.URL.Query()
	for name, values := range query {
		q[name] = values
	}
	req.URL.RawQuery = q.Encode()
	return signer.PreSignV4(*req, testKey, testSecret, "", "us-east-1", 3600)
}

func (h *harness) presigned(method, target string, query url.Values, body string) reply {
	h.t.Helper()
	url := h.presign(method, target, query).URL
	req := h.request(method, url.RequestURI(), nil, []byte(body))
	return h.send(req)
}

func TestU032HoistedChecksum(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt")
	empty := url.Values{"x-amz-checksum-crc32": {"AAAAAA=="}, "x-amz-sdk-checksum-algorithm": {"CRC32"}}
	doc := h.refusal(h.presigned("PUT", "/bkt/k", empty, "a real body"), 400, "BadDigest")
	if !strings.Contains(doc.Message, "CRC32") {
		t.Errorf("message %q", doc.Message)
	}
	right := url.Values{"x-amz-checksum-crc32": {sum(checksum.CRC32, "a real body")}, "x-amz-meta-a": {"b"}} // U030
	if r := h.presigned("PUT", "/bkt/k", right, "a real body"); r.StatusCode != 200 {
		t.Fatalf("%d %s", r.StatusCode, r.body)
	}
	r := h.ok(200, "GET", "/bkt/k", headers("x-amz-checksum-mode", "ENABLED"), "")
	if r.Header.Get("x-amz-checksum-crc32") != sum(checksum.CRC32, "a real body") || r.Header.Get("x-amz-meta-a") != "b" {
		t.Errorf("%v", r.Header)
	}
}

func TestU132MetadataLimit(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt")
	h.ok(200, "PUT", "/bkt/k", headers("x-amz-meta-abc", strings.Repeat("v", 2045)), "")
	h.refused(400, "MetadataTooLarge", "PUT", "/bkt/k", headers("x-amz-meta-abc", strings.Repeat("v", 2046)), "")
}

func TestU111And113ConditionalWrites(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt")
	h.refused(404, "NoSuchKey", "PUT", "/bkt/k", headers("If-Match", `"etag"`), "x")
	h.refused(404, "NoSuchKey", "PUT", "/bkt/k", headers("If-Match", "*"), "x")
	var wg sync.WaitGroup
	codes := make([]int, 50)
	for i := range codes {
		wg.Go(func() {
			codes[i] = h.do("PUT", "/bkt/k", headers("If-None-Match", "*"), fmt.Sprint(i)).StatusCode
		})
	}
	wg.Wait()
	slices.Sort(codes)
	if codes[0] != 200 || codes[1] != 412 || codes[49] != 412 {
		t.Fatalf("statuses %v", codes)
	}
	etag := h.ok(200, "HEAD", "/bkt/k", nil, "").Header.Get("ETag")
	h.refused(412, "PreconditionFailed", "PUT", "/bkt/k", headers("If-Match", `"other"`), "x")
	h.refused(412, "PreconditionFailed", "PUT", "/bkt/k", headers("If-None-Match", etag), "x") // U112: not 304
	h.ok(200, "PUT", "/bkt/k", headers("If-Match", strings.Trim(etag, `"`)), "x")
	h.refused(501, "NotImplemented", "PUT", "/bkt/k", headers("If-Unmodified-Since", "Thu, 01 Dec 2050 16:00:00 GMT"), "x")
}

func TestRefusedWriteHeaders(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt")
	h.refused(501, "NotImplemented", "PUT", "/bkt/k", headers("x-amz-server-side-encryption", "AES256"), "x")
	h.refused(501, "NotImplemented", "PUT", "/bkt/k", headers("x-amz-server-side-encryption-customer-algorithm", "AES256"), "x")
	h.refused(501, "NotImplemented", "PUT", "/bkt/k", headers("x-amz-grant-read", "id=x"), "x")
	h.refused(400, "InvalidRequest", "PUT", "/bkt/k", headers("x-amz-object-lock-mode", "GOVERNANCE"), "x")
	h.refused(400, "InvalidStorageClass", "PUT", "/bkt/k", headers("x-amz-storage-class", "NONE"), "x")
	h.refused(400, "InvalidArgument", "PUT", "/bkt/k", headers("x-amz-website-redirect-location", "javascript:x"), "x")
	h.refused(400, "InvalidArgument", "PUT", "/bkt/k", headers("x-amz-acl", "everyone"), "x")
	h.refused(400, "InvalidTag", "PUT", "/bkt/k", headers("x-amz-tagging", "a=1&a=2"), "x")
	h.refused(403, "AccessDenied", "PUT", "/bkt/k", headers("x-amz-expected-bucket-owner", "123"), "x")
	h.refused(400, "EntityTooLarge", "PUT", "/bkt/k", headers("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
		"x-amz-trailer", "x-amz-checksum-crc32", "x-amz-decoded-content-length", "5368709121"), "x")
	h.ok(200, "PUT", "/bkt/k", headers("x-amz-acl", "public-read", "x-amz-tagging", "a=1&b=x%20y"), "x")
	if r := h.ok(200, "GET", "/bkt/k", nil, ""); r.Header.Get("x-amz-tagging-count") != "2" {
		t.Errorf("%v", r.Header)
	}
	if r := h.ok(200, "GET", "/bkt/k?tagging", nil, ""); !strings.Contains(string(r.body), "<Tag><Key>b</Key><Value>x y</Value></Tag>") {
		t.Errorf("%s", r.body)
	}
}

// raw sends bytes as they are and reads one answer.
func (h *harness) raw(text string) (*http.Response, net.Conn) {
	h.t.Helper()
	conn, err := net.Dial("tcp", h.http.Listener.Addr().String())
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		h.t.Fatal(err)
	}
	if _, err := conn.Write([]byte(text)); err != nil {
		h.t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		h.t.Fatal(err)
	}
	return res, conn
}

// head is a signed request's header as it stands on the wire.
func (h *harness) head(req *http.Request) string {
	h.t.Helper()
	b, err := httputil.DumpRequestOut(req, false)
	if err != nil {
		h.t.Fatal(err)
	}
	return string(b)
}

func TestContentLength(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt")
	req := sign(h.request("PUT", "/bkt/k", nil, []byte("x")), []byte("x"))
	wire := h.head(req)
	// U144: neither Content-Length nor Transfer-Encoding is an empty body.
	empty := sign(h.request("PUT", "/bkt/empty", nil, nil), nil)
	res, _ := h.raw(strings.Replace(h.head(empty), "Content-Length: 0\r\n", "", 1))
	if res.StatusCode != 200 {
		t.Errorf("empty PUT: %s", res.Status)
	}
	chunked := strings.Replace(wire, "Content-Length: 1", "Transfer-Encoding: chunked", 1)
	if res, _ := h.raw(chunked + "1\r\nx\r\n0\r\n\r\n"); res.StatusCode != 411 {
		t.Errorf("unknown length: %s", res.Status)
	}
	// A body that ends early stores nothing.
	short := sign(h.request("PUT", "/bkt/short", headers("x-amz-content-sha256", "UNSIGNED-PAYLOAD"), []byte("xyz")), nil)
	conn, err := net.Dial("tcp", h.http.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte(h.head(short) + "x")); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	res, err = http.ReadResponse(bufio.NewReader(conn), nil)
	if err == nil && res.StatusCode != 400 {
		t.Errorf("short body: %s", res.Status)
	}
	conn.Close()
	if h.store.buckets["bkt"].objects["short"] != nil {
		t.Error("a short body was stored")
	}
}

// Nobody is asked for a body before it is known who asks.
func TestU230ExpectContinue(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt")
	good := sign(h.request("PUT", "/bkt/k", headers("Expect", "100-continue"), []byte("x")), []byte("x"))
	if res, _ := h.raw(h.head(good)); res.StatusCode != 100 {
		t.Errorf("good: %s", res.Status)
	}
	bad := h.request("PUT", "/bkt/k", headers("Expect", "100-continue"), []byte("x"))
	if res, _ := h.raw(h.head(bad)); res.StatusCode != 403 {
		t.Errorf("anonymous: %s", res.Status)
	}
}

func TestStreamingTrailer(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt")
	body := "17 bytes of text."
	crc := crc32.ChecksumIEEE([]byte(body))
	value := base64.StdEncoding.EncodeToString([]byte{byte(crc >> 24), byte(crc >> 16), byte(crc >> 8), byte(crc)})
	send := func(trailer string) reply {
		wire := fmt.Sprintf("%x\r\n%s\r\n0\r\n%s\r\n\r\n", len(body), body, trailer)
		return h.do("PUT", "/bkt/k", headers("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER", "content-encoding", "aws-chunked",
			"x-amz-trailer", "X-Amz-Checksum-CRC32", "x-amz-decoded-content-length", fmt.Sprint(len(body))), wire)
	}
	if r := send("x-amz-checksum-crc32:" + value); r.StatusCode != 200 || r.Header.Get("x-amz-checksum-crc32") != value {
		t.Fatalf("%d %s", r.StatusCode, r.body)
	}
	if r := h.ok(200, "GET", "/bkt/k", nil, ""); string(r.body) != body || r.Header.Get("Content-Encoding") != "" { // U016, U018
		t.Errorf("stored %q with %v", r.body, r.Header)
	}
	h.refusal(send("x-amz-checksum-crc32:AAAAAA=="), 400, "BadDigest")
	if doc := h.refusal(send("x-amz-checksum-crc32:garbage"), 400, "InvalidRequest"); doc.Message != "Value for x-amz-checksum-crc32 trailing header is invalid." { // U024
		t.Errorf("message %q", doc.Message)
	}
}
