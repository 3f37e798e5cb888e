package server

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// Every row of the table can be reached, and by its own request only.
func TestEveryOperationIsReachable(t *testing.T) {
	rt := newRoutes(operations())
	if len(rt.all) < 100 {
		t.Errorf("%d operations: some are missing", len(rt.all))
	}
	type place struct {
		op string
		scope
	}
	seen := make(map[place]bool)
	for _, op := range rt.all {
		if p := (place{op.name, op.scope}); seen[p] {
			t.Errorf("%s is there twice", op.name)
		} else {
			seen[p] = true
		}
		query := url.Values{}
		for _, q := range op.query {
			name, value, _ := strings.Cut(q, "=")
			query.Set(name, value)
		}
		header := http.Header{}
		if op.header != "" {
			header.Set(op.header, "x")
		}
		got, err := rt.find(op.scope, op.method, query, header)
		if got != op {
			t.Errorf("%s %v %v finds %+v", op.method, op.query, op.header, got)
		}
		if (err == nil) != (op.handle != nil) {
			t.Errorf("%s: %v", op.name, err)
		}
		for _, p := range op.params {
			if !query.Has(p) {
				query.Set(p, "x")
			}
		}
		if got, _ := rt.find(op.scope, op.method, query, header); got != op {
			t.Errorf("%s with all its parameters finds %+v", op.name, got)
		}
		if op.open {
			continue
		}
		query.Set("unheard-of", "")
		if op, err := rt.find(op.scope, op.method, query, header); err == nil {
			t.Errorf("%s answers an unknown sub-resource", op.name)
		}
	}
}

// Nothing but the plain requests may reach the operations that read and write
// objects whole.
func TestUnknownSubresources(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt", "k")
	for _, q := range []string{"foo", "foo=bar", "acl&foo", "accelerate", "versionId", "uploadId", "partNumber=1", "legal-hold", "retention", "torrent", "Acl", "acl&policy"} {
		for _, method := range []string{"PUT", "DELETE", "POST"} {
			if q == "uploadId" && method != "PUT" || q == "versionId" && method == "DELETE" {
				continue
			}
			r := h.do(method, "/bkt/k?"+q, nil, "overwritten")
			if r.StatusCode != 501 {
				t.Errorf("%s ?%s: %d %s", method, q, r.StatusCode, r.body)
			}
		}
	}
	for _, q := range []string{"foo", "foo=bar", "legal-hold", "torrent", "versions", "restore", "Versionid=x"} {
		h.refused(501, "NotImplemented", "GET", "/bkt/k?"+q, nil, "")
	}
	for _, q := range []string{"policy", "versioning", "tagging", "cors", "lifecycle", "acl", "foo", "website", "object-lock", "versionId=x"} {
		h.refused(501, "NotImplemented", "PUT", "/bkt?"+q, nil, "<x/>")
		h.refused(501, "NotImplemented", "DELETE", "/bkt?"+q, nil, "")
	}
	h.refused(501, "NotImplemented", "GET", "/?foo", nil, "")
	h.refused(405, "MethodNotAllowed", "PUT", "/", nil, "")
	h.refused(405, "MethodNotAllowed", "PATCH", "/bkt/k", nil, "")
	h.refused(400, "InvalidArgument", "GET", "/bkt?prefix=a&prefix=b", nil, "")
	if r := h.ok(200, "GET", "/bkt/k?x-id=GetObject&x-amz-user-agent=y&X-Log=z", nil, ""); string(r.body) != "k" {
		t.Errorf("the object became %q", r.body)
	}
}

// forge puts another signature into a signed request.
func forge(req *http.Request) *http.Request {
	auth := req.Header.Get("Authorization")
	req.Header.Set("Authorization", auth[:len(auth)-64]+strings.Repeat("0", 64))
	return req
}

// A3: every operation of the table refuses strangers and forgers, whether it
// has a handler or not, and changes nothing.
func TestA3EveryOperationAuthenticates(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt", "k")
	before := len(h.store.calls)
	for _, op := range operations() {
		if op.open {
			continue
		}
		target := [...]string{"/", "/bkt", "/bkt/k"}[op.scope] + "?" + strings.Join(op.query, "&")
		var header []string
		if op.header != "" {
			header = []string{op.header, "/bkt/k"}
		}
		anonymous := h.request(op.method, target, headers(header...), []byte("x"))
		forged := forge(sign(h.request(op.method, target, headers(header...), []byte("x")), []byte("x")))
		// A1: a payload that isn't signed needs a signed header no less.
		stream := forge(sign(h.request(op.method, target, headers(append(header, "x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
			"x-amz-decoded-content-length", "1", "x-amz-trailer", "x-amz-checksum-crc32")...), []byte("x")), nil))
		// A2: the same with credentials in the query.
		query := h.presign(op.method, target, nil)
		query.URL.RawQuery = strings.Replace(query.URL.RawQuery, "X-Amz-Signature=", "X-Amz-Signature=0", 1)
		for _, c := range []struct {
			name string
			req  *http.Request
		}{{"anonymous", anonymous}, {"forged", forged}, {"streamed", stream}, {"presigned", query}} {
			if r := h.send(c.req); r.StatusCode != 403 {
				t.Errorf("%s %s: %d %s", c.name, op.name, r.StatusCode, r.body)
			}
		}
	}
	if len(h.store.calls) != before {
		t.Errorf("the store was called: %v", h.store.calls)
	}
}

func TestVirtualHosts(t *testing.T) {
	domains := []string{"s3.miniotest.com", "miniotest.com"}
	for host, want := range map[string]string{
		"mybucket.miniotest.com": "mybucket", "mybucket.miniotest.com:9000": "mybucket", "MyBucket.MinioTest.com": "mybucket",
		"a.b.miniotest.com": "a.b", "x.s3.miniotest.com": "x", "miniotest.com": "", "s3.miniotest.com": "", "s3.miniotest.com:80": "",
		"localhost:9000": "", "127.0.0.1": "", "[::1]:9000": "", "notminiotest.com": "", "b.miniotest.com.": "b", ".miniotest.com": "", "": "",
	} {
		if got, ok := hostBucket(host, domains); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v; want %q", host, got, ok, want)
		}
	}
	h := newHarness(t, func(o *Options) { o.Domains = []string{"miniotest.com"} })
	h.bucket("my.bucket", "k") // path style at the same time
	r := h.ok(200, "GET", "/k", headers("Host", "my.bucket.miniotest.com"), "")
	if string(r.body) != "k" {
		t.Errorf("%q", r.body)
	}
	doc := h.refused(404, "NoSuchKey", "GET", "/my.bucket/k", headers("Host", "my.bucket.miniotest.com:9000"), "") // U236
	if doc.Resource != "/my.bucket/my.bucket/k" || doc.Key != "my.bucket/k" {
		t.Errorf("%+v", doc)
	}
	h.ok(200, "PUT", "//x", headers("Host", "my.bucket.miniotest.com"), "slash")
	h.ok(200, "PUT", "/-/live", headers("Host", "my.bucket.miniotest.com"), "a key")
	same(t, "keys", h.list("/my.bucket").keys(), []string{"-/live", "/x", "k"})
	h.ok(200, "GET", "/", headers("Host", "miniotest.com"), "")
	h.refused(400, "InvalidBucketName", "GET", "/k", headers("Host", "b_d.miniotest.com"), "")
}

// A28.
func TestA28BucketNames(t *testing.T) {
	for name, want := range map[string]bool{
		"abc": true, "a-b": true, "a.b": true, "123": true, "my.bucket-1": true, strings.Repeat("x", 63): true, "1.2.3": true,
		"": false, "ab": false, strings.Repeat("x", 64): false, ".gateway": false, ".minio.sys": false, "..": false, "Abc": false,
		"a_b": false, "-ab": false, "ab-": false, "a..b": false, "a.-b": false, "a-.b": false, "192.168.1.1": false, "999.999.1.1": false,
		"xn--abc": false, "abc-s3alias": false, "abc--ol-s3": false, "a b": false, "a/b": false, "ä-bc": false, "abc\x00": false, "::1": false,
	} {
		if got := validBucketName(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
	h := newHarness(t)
	for _, target := range []string{"/ab", "/.minio.sys", "/..", "/UPPER", "/a%2Fb", "//k", "/xn--abc", "/192.168.0.1"} {
		h.refused(400, "InvalidBucketName", "PUT", target, nil, "")
		h.refused(400, "InvalidBucketName", "GET", target+"/k", nil, "")
	}
}

func TestPreflight(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt", "k")
	for _, target := range []string{"/", "/bkt", "/bkt/k?X-Amz-Signature=x&uploads&foo"} {
		h.refusal(h.send(h.request("OPTIONS", target, nil, nil)), 400, "BadRequest")
		r := h.send(h.request("OPTIONS", target, headers("Origin", "https://a.example", "Access-Control-Request-Method", "PUT"), nil))
		h.refusal(r, 403, "AccessForbidden")
		if _, ok := r.Header["Access-Control-Allow-Origin"]; ok {
			t.Error("an origin was allowed")
		}
	}
}

func TestU014SlashAfterBucket(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt", "k")
	for _, target := range []string{"/bkt?list-type=2", "/bkt/?list-type=2", "/bkt/?list-type=2&metadata=true&marker=x"} {
		same(t, target, h.list(target).keys(), []string{"k"})
	}
	h.ok(200, "HEAD", "/bkt/", nil, "")
	h.ok(200, "GET", "/bkt/?location", nil, "")
}
