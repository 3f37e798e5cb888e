package server

import (
	"crypto/md5"
	"encoding/hex"
	"strings"
	"testing"
)

func TestPutGetHeadDelete(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt")
	const body = "hello, world"
	sum := md5.Sum([]byte(body))
	etag := `"` + hex.EncodeToString(sum[:]) + `"`

	put := h.ok(200, "PUT", "/bkt/a/b.txt", headers("Content-Type", "text/plain", "x-amz-meta-FooBar", "1"), body)
	if put.Header.Get("ETag") != etag {
		t.Errorf("ETag %q, want %q", put.Header.Get("ETag"), etag)
	}
	for _, method := range []string{"GET", "HEAD"} {
		r := h.ok(200, method, "/bkt/a/b.txt", nil, "")
		want := map[string]string{
			"ETag": etag, "Content-Type": "text/plain", "Content-Length": "12", "Accept-Ranges": "bytes",
			"x-amz-meta-foobar": "1", "Server": "Ringfence",
		}
		for name, value := range want {
			if got := r.Header.Get(name); got != value {
				t.Errorf("%s: %s is %q, want %q", method, name, got, value)
			}
		}
		if r.Header.Get("Last-Modified") == "" || r.Header.Get("Date") == "" {
			t.Errorf("%s: no Last-Modified or Date", method)
		}
		if got := string(r.body); method == "GET" && got != body || method == "HEAD" && got != "" {
			t.Errorf("%s: body %q", method, got)
		}
	}
	h.ok(204, "DELETE", "/bkt/a/b.txt", nil, "")
	h.refused(404, "NoSuchKey", "GET", "/bkt/a/b.txt", nil, "")
	r := h.ok(404, "HEAD", "/bkt/a/b.txt", nil, "")
	if len(r.body) != 0 {
		t.Errorf("HEAD of nothing has a body: %q", r.body)
	}
	h.ok(204, "DELETE", "/bkt", nil, "")
	h.refused(404, "NoSuchBucket", "GET", "/bkt/a/b.txt", nil, "")
}

// Keys are bytes: each of these is its own object and reads back as itself.
func TestKeysAreOpaque(t *testing.T) {
	h := newHarness(t)
	keys := []string{
		"a", "a/", "a/b", "//", "/a", "a//b", ".", "..", "../other", "a/./b", "a/../b", "a/..", "%2F", "%252e", "a b",
		"foo+1/bar", "a%20f+/b/c", "100%", "100%25", "%test", "path/*sUt*mykey", "ü/é", "Net & Works <x>\"'", "?x=y", "#frag",
		"https://example.org", strings.Repeat("x", 1024), strings.Repeat("x", 256) + "/y", "\x04bad", "tab\tnew\nline", "a\\b", "-/live",
	}
	h.bucket("bkt", keys...)
	if got := len(h.store.buckets["bkt"].objects); got != len(keys) {
		t.Fatalf("%d objects of %d keys", got, len(keys))
	}
	for _, key := range keys {
		if r := h.ok(200, "GET", "/bkt/"+encode(key), nil, ""); string(r.body) != key {
			t.Errorf("key %q gave %q", key, r.body)
		}
	}
	h.refused(400, "KeyTooLongError", "PUT", "/bkt/"+strings.Repeat("x", 1025), nil, "")
	h.refused(400, "InvalidURI", "PUT", "/bkt/%ff", nil, "")
}
