package server

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

var hundred = strings.Repeat("0123456789", 10)

func TestU105Ranges(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt")
	h.ok(200, "PUT", "/bkt/k", nil, hundred)
	for _, c := range []struct {
		spec   string
		status int
		rng    string
		from   int
		to     int
	}{
		{"bytes=-1", 206, "bytes 99-99/100", 99, 100},
		{"bytes=-100", 206, "bytes 0-99/100", 0, 100},
		{"bytes=-101", 206, "bytes 0-99/100", 0, 100},
		{"bytes=0-999999", 206, "bytes 0-99/100", 0, 100},
		{"bytes=50-", 206, "bytes 50-99/100", 50, 100},
		{"bytes=00-01", 206, "bytes 0-1/100", 0, 2},
		{"bytes=-99999999999999999999999", 206, "bytes 0-99/100", 0, 100},
		{"bytes=0-99999999999999999999999", 206, "bytes 0-99/100", 0, 100},
		// U108: bad or several ranges are ignored.
		{"bytes=0-0,1-2", 200, "", 0, 100},
		{"bytes=10-5", 200, "", 0, 100},
		{"bytes=abc", 200, "", 0, 100},
		{"bytes= -1", 200, "", 0, 100},
		{"foo=0-1", 200, "", 0, 100},
		{"bytes=-", 200, "", 0, 100},
		{"bytes=+1-2", 200, "", 0, 100},
		// U106: nothing in common with the object.
		{"bytes=100-", 416, "bytes */100", 0, 0},
		{"bytes=100-110", 416, "bytes */100", 0, 0},
		{"bytes=-0", 416, "bytes */100", 0, 0},
		{"bytes=99999999999999999999999-", 416, "bytes */100", 0, 0},
	} {
		r := h.do("GET", "/bkt/k", headers("Range", c.spec), "")
		if r.StatusCode != c.status || r.Header.Get("Content-Range") != c.rng {
			t.Errorf("%s: status %d, Content-Range %q", c.spec, r.StatusCode, r.Header.Get("Content-Range"))
		}
		if c.status == 416 {
			h.refusal(r, 416, "InvalidRange")
		} else if string(r.body) != hundred[c.from:c.to] {
			t.Errorf("%s: body %q", c.spec, r.body)
		}
		if r := h.do("HEAD", "/bkt/k", headers("Range", c.spec), ""); r.StatusCode != c.status || c.status < 300 && r.ContentLength != int64(c.to-c.from) {
			t.Errorf("HEAD %s: status %d, length %d", c.spec, r.StatusCode, r.ContentLength)
		}
	}
	h.ok(200, "PUT", "/bkt/empty", nil, "")
	h.refused(416, "InvalidRange", "GET", "/bkt/empty", headers("Range", "bytes=0-1"), "")
	h.refused(416, "InvalidRange", "GET", "/bkt/empty", headers("Range", "bytes=-1"), "")
}

func TestConditionalReads(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt")
	put := h.ok(200, "PUT", "/bkt/k", nil, "x")
	etag := put.Header.Get("ETag")
	mod, err := http.ParseTime(h.ok(200, "HEAD", "/bkt/k", nil, "").Header.Get("Last-Modified"))
	if err != nil {
		t.Fatal(err)
	}
	at := func(d time.Duration) string { return mod.Add(d).Format(http.TimeFormat) }
	bare := strings.Trim(etag, `"`)
	for _, c := range []struct {
		header http.Header
		status int
	}{
		{headers("If-Match", etag), 200},
		{headers("If-Match", bare), 200}, // U114
		{headers("If-Match", "*"), 200},
		{headers("If-Match", `"a", `+etag), 200},
		{headers("If-Match", `"other"`), 412},
		{headers("If-None-Match", etag), 304},
		{headers("If-None-Match", "W/"+etag), 304},
		{headers("If-None-Match", bare), 304},
		{headers("If-None-Match", "*"), 304},
		{headers("If-None-Match", `"other"`), 200},
		{headers("If-Modified-Since", at(0)), 304},
		{headers("If-Modified-Since", at(-time.Second)), 200},
		{headers("If-Modified-Since", "yesterday"), 200},
		{headers("If-Unmodified-Since", at(0)), 200},
		{headers("If-Unmodified-Since", at(-time.Second)), 412},
		// Precedence: the tag decides where there is one.
		{headers("If-Match", etag, "If-Unmodified-Since", at(-time.Hour)), 200},
		{headers("If-None-Match", `"other"`, "If-Modified-Since", at(time.Hour)), 200},
		{headers("If-Match", `"other"`, "If-None-Match", etag), 412},
		// A range of something that changed is no range.
		{headers("If-None-Match", etag, "Range", "bytes=0-0"), 304},
		{headers("If-Range", etag, "Range", "bytes=0-0"), 206},
		{headers("If-Range", at(0), "Range", "bytes=0-0"), 206},
		{headers("If-Range", `"other"`, "Range", "bytes=0-0"), 200},
		{headers("If-Range", at(-time.Second), "Range", "bytes=0-0"), 200},
	} {
		for _, method := range []string{"GET", "HEAD"} {
			r := h.do(method, "/bkt/k", c.header, "")
			if r.StatusCode != c.status || r.Header.Get("ETag") != etag {
				t.Errorf("%s %v: status %d, want %d; ETag %q", method, c.header, r.StatusCode, c.status, r.Header.Get("ETag"))
			}
			if c.status == 304 && len(r.body) != 0 {
				t.Errorf("304 with a body: %q", r.body)
			}
		}
	}
	if d := h.refused(412, "PreconditionFailed", "GET", "/bkt/k", headers("If-Match", "no"), ""); d.Condition != "If-Match" {
		t.Errorf("condition %q", d.Condition)
	}
}

func TestU145And146SystemHeadersAndOverrides(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt")
	set := headers("Content-Disposition", "attachment", "Cache-Control", "no-cache", "Content-Language", "de",
		"Expires", "Thu, 01 Dec 2050 16:00:00 GMT", "Content-Encoding", "aws-chunked,gzip", "x-amz-storage-class", "STANDARD_IA")
	h.ok(200, "PUT", "/bkt/k", set, "x")
	for _, method := range []string{"GET", "HEAD"} {
		r := h.ok(200, method, "/bkt/k", nil, "")
		set.Set("Content-Encoding", "gzip") // U018
		for name := range set {
			if r.Header.Get(name) != set.Get(name) {
				t.Errorf("%s: %s is %q", method, name, r.Header.Get(name))
			}
		}
	}
	r := h.ok(200, "GET", "/bkt/k?response-content-disposition=inline&response-content-type=a%2Fb&response-cache-control=private"+
		"&response-content-language=fr&response-content-encoding=x&response-expires=never&x-id=GetObject", nil, "")
	for name, want := range map[string]string{
		"Content-Disposition": "inline", "Content-Type": "a/b", "Cache-Control": "private",
		"Content-Language": "fr", "Content-Encoding": "x", "Expires": "never",
	} {
		if got := r.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	// A35: no line ends in headers.
	h.refused(400, "InvalidArgument", "GET", "/bkt/k?response-content-type=a%0d%0aSet-Cookie:x", nil, "")
	for given, kept := range map[string]string{"deflate, aws-chunked,gzip": "deflate, gzip", "gzip,br": "gzip,br", "AWS-Chunked": ""} {
		if got := storedEncoding(headers("Content-Encoding", given)); got != kept {
			t.Errorf("%q became %q", given, got)
		}
	}
	h.ok(200, "PUT", "/bkt/chunked", headers("Content-Encoding", "aws-chunked"), "x")
	if enc, ok := h.ok(200, "HEAD", "/bkt/chunked", nil, "").Header["Content-Encoding"]; ok {
		t.Errorf("Content-Encoding %q", enc)
	}
}

// A70: an answer that fails after its header is cut, never ended.
func TestA70FailureInTheMiddleOfABody(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt")
	h.ok(200, "PUT", "/bkt/k", nil, strings.Repeat("x", 1<<20))
	h.store.readErr = 1
	res, err := transport.RoundTrip(sign(h.request("GET", "/bkt/k", nil, nil), nil))
	if err != nil {
		return // the reset came before the header was read
	}
	defer res.Body.Close()
	if n, err := io.Copy(io.Discard, res.Body); err == nil {
		t.Fatalf("a clean end after %d bytes", n)
	}
	eventually(t, "a log that says why", func() bool { return strings.Contains(h.log.String(), "object damaged beyond repair") })
}

func TestPrefetchFailsBeforeTheHeader(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt", "k")
	h.store.fail = func(op, _ string) error {
		if op == "Prefetch" {
			return fmt.Errorf("prefetch: %w", errTest)
		}
		return nil
	}
	h.refused(500, "InternalError", "GET", "/bkt/k", nil, "")
}

func TestVersionIDs(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt", "k")
	h.ok(200, "GET", "/bkt/k?versionId=null", nil, "")
	h.refused(404, "NoSuchVersion", "GET", "/bkt/k?versionId=abc", nil, "")
	h.ok(204, "DELETE", "/bkt/k?versionId=null", nil, "")
	h.ok(204, "DELETE", "/bkt/k?versionId=null", nil, "")
}
