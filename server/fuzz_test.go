package server

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// Whatever a client asks for lies within the object.
func FuzzParseRange(f *testing.F) {
	for _, seed := range []string{"bytes=0-0", "bytes=-1", "bytes=5-", "bytes=10-5", "bytes=0-1,2-3", "bytes=99999999999999999999-", "bytes=-99999999999999999999", "x", "bytes=", "bytes=--1"} {
		f.Add(seed, int64(100))
	}
	f.Add("bytes=0-", int64(0))
	f.Fuzz(func(t *testing.T, header string, size int64) {
		size &= 1<<62 - 1
		sp, kind := parseRange(header, size)
		switch kind {
		case rangeOne:
			if sp.off < 0 || sp.n <= 0 || sp.off > size-sp.n {
				t.Fatalf("%q of %d: %+v", header, size, sp)
			}
		case rangeNone, rangeUnsatisfiable:
			if sp != (span{}) {
				t.Fatalf("%q of %d: %+v for kind %d", header, size, sp, kind)
			}
		}
		if sp, ok := parseCopyRange(header); ok && (sp.off < 0 || sp.n <= 0 || sp.off+sp.n < 0) {
			t.Fatalf("%q: %+v", header, sp)
		}
	})
}

// A source that is accepted names a bucket and a key that exist as such, and
// its encoding leads back to it.
func FuzzParseSource(f *testing.F) {
	for _, seed := range []string{"/bkt/k", "bkt/a%2Fb?versionId=x", "bkt/..%2Fx", "", "/", "bkt", "?versionId=", "bkt/k?versionId=%00", "%62kt/k", "bkt%2Fk"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		src, err := parseSource(header)
		if err != nil {
			return
		}
		if !validBucketName(src.bucket) || src.key == "" || checkKey(src.key) != nil {
			t.Fatalf("%q: %+v", header, src)
		}
		again := "/" + src.bucket + "/" + encode(src.key)
		if src.version != "" {
			again += "?versionId=" + url.PathEscape(src.version)
		}
		if got, err := parseSource(again); err != nil || got != src && !strings.Contains(src.version, "&") {
			t.Fatalf("%q is %+v, but %q is %+v, %v", header, src, again, got, err)
		}
	})
}

// No Host header makes a bucket of the name that it may not have.
func FuzzHost(f *testing.F) {
	for _, seed := range []string{"b.example.com", "example.com:80", "[::1]:9", "..example.com", "b.EXAMPLE.com.", ":", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, host string) {
		bucket, ok := hostBucket(host, []string{"example.com"})
		if ok != (bucket != "") || bucket != strings.ToLower(bucket) {
			t.Fatalf("%q: %q, %v", host, bucket, ok)
		}
	})
}

// Conditions never panic, and a tag that is listed alone is found.
func FuzzConditions(f *testing.F) {
	f.Add(`"abc", W/"d"`, "abc")
	f.Add("*", "x")
	f.Add(`"`, `"`)
	f.Fuzz(func(t *testing.T, list, etag string) {
		etagListed(list, etag)
		if etag != "" && !strings.ContainsAny(etag, "\", \t\r\n/*") && strings.TrimSpace(etag) == etag && !etagListed(`"other", "`+etag+`"`, etag) {
			t.Fatalf("%q is not found", etag)
		}
		h := http.Header{"If-Match": {list}, "If-Modified-Since": {etag}}
		c := readConditions(h, "")
		c.judge(etag, c.modified)
	})
}
