package sigv4

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"ringfence/server/s3err"
)

// FuzzChunkReader: a body is delivered whole only if it is the framing of
// exactly that, and what is read ahead is bounded.
func FuzzChunkReader(f *testing.F) {
	f.Add([]byte("5\r\nhello\r\n0\r\n\r\n"), int64(5), "", true)
	f.Add([]byte("5\r\nhello\r\n0\r\n\r\n"), int64(5), "", false)
	f.Add([]byte("3\r\nhel\r\n2\r\nlo\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\n\r\n\r\n"), int64(5), "x-amz-checksum-crc32", true)
	f.Add([]byte("ffffffffffffffff\r\n"), int64(1<<62), "", false)
	f.Add([]byte(strings.Repeat("1\r\na\r\n", 50)+"0\r\n\r\n"), int64(50), "", false)
	f.Fuzz(func(t *testing.T, framed []byte, length int64, announced string, mayTrail bool) {
		name, err := trailerName(announced)
		if err != nil || length < 0 || name != "" && !mayTrail {
			return
		}
		b := newChunkedBody(io.NopCloser(bytes.NewReader(framed)), length, name, mayTrail)
		data, err := io.ReadAll(b)
		if err != nil {
			if e, ok := errors.AsType[*s3err.Error](err); !ok || e.Status < 400 || e.Status > 499 {
				t.Fatalf("%v", err)
			}
			if length > 0 && int64(len(data)) >= length {
				t.Fatalf("all of a bad body: %v", err)
			}
			return
		}
		if int64(len(data)) != length {
			t.Fatalf("%d bytes of %d", len(data), length)
		}
		// What was accepted is the framing of the data: strip it the plain way.
		var plain []byte
		for rest := framed; ; {
			line, after, ok := bytes.Cut(rest, []byte("\r\n"))
			size, good := parseSize(line)
			if !ok || !good {
				t.Fatalf("%q is accepted", framed)
			}
			if size == 0 {
				break
			}
			plain = append(plain, after[:size]...)
			rest = after[size+2:]
		}
		if !bytes.Equal(plain, data) {
			t.Fatalf("%q gives %q", framed, data)
		}
	})
}

// FuzzAuthHeader: no header gets in, crashes, or is sent back.
func FuzzAuthHeader(f *testing.F) {
	f.Add("AWS4-HMAC-SHA256 Credential="+docAccessKey+"/20130524/us-east-1/s3/aws4_request,SignedHeaders=host;x-amz-content-sha256;x-amz-date,Signature="+wrongSignature, docStamp, emptyHash)
	f.Add("AWS4-HMAC-SHA256 Credential=a/b/c/d/e,SignedHeaders=,Signature=", "", "")
	f.Add("AWS a:b", docStamp, payloadUnsigned)
	f.Add("AWS4-HMAC-SHA256 ,,,===", docStamp, signedChunks)
	a := newDoc(f)
	f.Fuzz(func(t *testing.T, authorization, stamp, payload string) {
		r := newRequest(t, http.MethodGet, target, nil)
		r.Header["Authorization"] = []string{authorization}
		r.Header["X-Amz-Date"] = []string{stamp}
		r.Header["X-Amz-Content-Sha256"] = []string{payload}
		_, err := a.Authenticate(r)
		e, ok := errors.AsType[*s3err.Error](err)
		if !ok {
			t.Fatalf("%v: %q", err, authorization)
		}
		if e.Status < 400 || e.Status > 499 {
			t.Fatalf("%v", e)
		}
	})
}

// FuzzCanonicalQuery: the canonical form is a fixed point, and says the same as
// ParseQuery.
func FuzzCanonicalQuery(f *testing.F) {
	for _, raw := range []string{"", "acl", "a=b&a=c", "prefix=dir1/*", "a=%2B+%20", "a;b=c", "%zz", "=&&=", "k=\xff"} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		var s, again scratch
		values, failed := ParseQuery(raw)
		if err := s.parseQuery(raw); (err == nil) != (failed == nil) {
			t.Fatalf("%q: %v, but %v", raw, err, failed)
		} else if err != nil {
			return
		}
		canonical := string(s.appendQuery(nil, false))
		if err := again.parseQuery(canonical); err != nil {
			t.Fatal(err)
		}
		if twice := string(again.appendQuery(nil, false)); twice != canonical {
			t.Fatalf("%q, then %q", canonical, twice)
		}
		reparsed, err := url.ParseQuery(canonical)
		if err != nil {
			t.Fatal(err)
		}
		if len(reparsed) != len(values) {
			t.Fatalf("%q: %v, but %v", raw, values, reparsed)
		}
		for name, v := range values {
			if len(reparsed[name]) != len(v) {
				t.Fatalf("%q: %v, but %v", raw, values, reparsed)
			}
		}
	})
}

// FuzzSplitPath: what is split is put together again, and the signature sees
// the same bytes.
func FuzzSplitPath(f *testing.F) {
	for _, raw := range []string{"/", "/b/k", "/b//", "/b/%2F", "/b%2Fk", "/b/%00", "/b/%25", "/b/é", "/%ff"} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := url.ParseRequestURI(raw)
		if err != nil || u.Host != "" || u.Path == "" {
			return
		}
		bucket, key, err := SplitPath(u)
		if err != nil {
			return
		}
		if whole := "/" + bucket; u.Path != whole && u.Path != whole+"/"+key {
			t.Fatalf("%q: %q %q", raw, bucket, key)
		}
		back, err := url.PathUnescape(string(appendPath(nil, u.Path)))
		if err != nil || back != u.Path {
			t.Fatalf("%q: signed as %q", raw, back)
		}
	})
}
