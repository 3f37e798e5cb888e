package server

import (
	"encoding/xml"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"ringfence/erasure"
	"ringfence/server/checksum"
)

func TestCopy(t *testing.T) {
	h := newHarness(t)
	h.bucket("src")
	h.bucket("dst")
	put := h.ok(200, "PUT", "/src/k", headers("Content-Type", "a/b", "x-amz-meta-a", "1", "Cache-Control", "no-cache", "x-amz-storage-class", "GLACIER", "x-amz-tagging", "t=1"), "x")
	etag := put.Header.Get("ETag")
	r := h.ok(200, "PUT", "/dst/k", headers("x-amz-copy-source", "/src/k"), "")
	var doc struct{ ETag, LastModified, ChecksumCRC64NVME string }
	if err := xml.Unmarshal(r.body, &doc); err != nil || doc.ETag != etag || doc.ChecksumCRC64NVME == "" {
		t.Errorf("%v %+v", err, doc)
	}
	if _, err := time.Parse(time.RFC3339, doc.LastModified); err != nil {
		t.Error(err)
	}
	got := h.ok(200, "GET", "/dst/k", nil, "")
	if string(got.body) != "x" || got.Header.Get("Content-Type") != "a/b" || got.Header.Get("x-amz-meta-a") != "1" ||
		got.Header.Get("x-amz-storage-class") != "" || got.Header.Get("x-amz-tagging-count") != "1" {
		t.Errorf("%q %v", got.body, got.Header)
	}
	// U121: with REPLACE, what isn't given is cleared.
	h.ok(200, "PUT", "/dst/k", headers("x-amz-copy-source", "src/k", "x-amz-metadata-directive", "REPLACE", "Content-Type", "c/d", "x-amz-meta-b", "2"), "")
	got = h.ok(200, "GET", "/dst/k", nil, "")
	if got.Header.Get("Content-Type") != "c/d" || got.Header.Get("x-amz-meta-b") != "2" || got.Header.Get("x-amz-meta-a") != "" || got.Header.Get("Cache-Control") != "" {
		t.Errorf("%v", got.Header)
	}
	// Another checksum than the source's.
	h.ok(200, "PUT", "/dst/sum", headers("x-amz-copy-source", "/src/k", "x-amz-checksum-algorithm", "SHA256"), "")
	if got := h.ok(200, "HEAD", "/dst/sum", headers("x-amz-checksum-mode", "ENABLED"), ""); got.Header.Get("x-amz-checksum-sha256") != sum(checksum.SHA256, "x") {
		t.Errorf("%v", got.Header)
	}
}

func TestU119SelfCopy(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt", "k")
	h.refused(400, "InvalidRequest", "PUT", "/bkt/k", headers("x-amz-copy-source", "/bkt/k"), "")
	h.ok(200, "PUT", "/bkt/k", headers("x-amz-copy-source", "/bkt/k", "x-amz-metadata-directive", "REPLACE", "x-amz-meta-mtime", "1"), "")
	if r := h.ok(200, "GET", "/bkt/k", nil, ""); string(r.body) != "k" || r.Header.Get("x-amz-meta-mtime") != "1" {
		t.Errorf("%q %v", r.body, r.Header)
	}
	h.ok(200, "PUT", "/bkt/k", headers("x-amz-copy-source", "/bkt/k", "x-amz-storage-class", "STANDARD_IA"), "")
	// U131: a name with a slash at its end is another name.
	h.ok(200, "PUT", "/bkt/k/", headers("x-amz-copy-source", "/bkt/k"), "")
	h.ok(200, "PUT", "/bkt/k", headers("x-amz-copy-source", "/bkt/k/"), "")
}

func TestU123SourceIsDecodedOnce(t *testing.T) {
	h := newHarness(t)
	for _, key := range []string{"a b{1}.txt", "ü/é", "100%.txt", "a%2Fb", "a+b", "q?versionId=x", "../x"} {
		src, err := parseSource("/bkt/" + encode(key))
		if err != nil || src != (source{bucket: "bkt", key: key}) {
			t.Errorf("%q: %+v, %v", key, src, err)
		}
	}
	if src, err := parseSource("bkt/k?versionId=a%2Fb"); err != nil || src != (source{"bkt", "k", "a/b"}) {
		t.Errorf("%+v, %v", src, err)
	}
	h.bucket("bkt", "k")
	// A30, U126: nothing here may panic, or find what it shouldn't.
	for _, c := range []struct {
		source, code string
		status       int
	}{
		{"", "InvalidArgument", 400},
		{"/", "InvalidArgument", 400},
		{"bkt", "InvalidArgument", 400},
		{"bkt/", "InvalidArgument", 400},
		{"/bkt/%zz", "InvalidArgument", 400},
		{"bkt/k?versionId=", "InvalidArgument", 400},
		{"bkt/k?versionId=a&b", "InvalidArgument", 400},
		{"bkt/k?x=y", "InvalidArgument", 400},
		{"arn:aws:s3:us-west-2:123456789012:accesspoint/a/object/k", "InvalidArgument", 400},
		{"../etc/passwd", "InvalidBucketName", 400},
		{"bkt/..%2F..%2Fetc%2Fpasswd%3FversionId=x", "NoSuchKey", 404},
		{"bkt/none", "NoSuchKey", 404},
		{"none/k", "NoSuchBucket", 404},
		{"bkt/k?versionId=abc", "NoSuchVersion", 404},
	} {
		h.refused(c.status, c.code, "PUT", "/bkt/copy", http.Header{"X-Amz-Copy-Source": {c.source}}, "")
	}
	h.refused(400, "InvalidArgument", "PUT", "/bkt/copy", headers("x-amz-copy-source", "/bkt/k", "x-amz-metadata-directive", "MOVE"), "")
	h.refused(404, "NoSuchBucket", "PUT", "/none/copy", headers("x-amz-copy-source", "/bkt/k"), "")
}

func TestCopyConditions(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt", "k")
	etag := h.ok(200, "HEAD", "/bkt/k", nil, "").Header.Get("ETag")
	for _, c := range []struct {
		name, value string
		status      int
	}{
		{"if-match", etag, 200},
		{"if-match", `"other"`, 412},
		{"if-none-match", etag, 412},
		{"if-none-match", `"other"`, 200},
		{"if-modified-since", "Thu, 01 Jan 2037 00:00:00 GMT", 412},
		{"if-unmodified-since", "Thu, 01 Jan 2004 00:00:00 GMT", 412},
	} {
		header := headers("x-amz-copy-source", "/bkt/k", "x-amz-copy-source-"+c.name, c.value)
		if r := h.do("PUT", "/bkt/copy", header, ""); r.StatusCode != c.status {
			t.Errorf("%s %s: %d %s", c.name, c.value, r.StatusCode, r.body)
		}
		id := h.create("/bkt/part")
		if r := h.do("PUT", "/bkt/part?partNumber=1&uploadId="+id, header, ""); r.StatusCode != c.status {
			t.Errorf("part %s %s: %d %s", c.name, c.value, r.StatusCode, r.body)
		}
	}
	h.refused(412, "PreconditionFailed", "PUT", "/bkt/copy", headers("x-amz-copy-source", "/bkt/k", "If-None-Match", "*"), "")
}

func TestU129And130UploadPartCopy(t *testing.T) {
	h := newHarness(t, smallParts)
	h.bucket("bkt")
	h.ok(200, "PUT", "/bkt/src", nil, hundred)
	id := h.create("/bkt/k", "x-amz-checksum-algorithm", "CRC32C")
	target := "/bkt/k?uploadId=" + id + "&partNumber="
	for _, bad := range []string{"bytes=abc", "0-1024", "bytes=0-", "bytes=-5", "bytes=5-2", "bytes=0-1,3-4", "bytes=0-99999999999999999999", "bytes=+0-1"} {
		doc := h.refused(400, "InvalidArgument", "PUT", target+"1", headers("x-amz-copy-source", "/bkt/src", "x-amz-copy-source-range", bad), "")
		if !strings.Contains(doc.Message, "must be of the form bytes=first-last") {
			t.Errorf("%s: %s", bad, doc.Message)
		}
	}
	doc := h.refused(400, "InvalidArgument", "PUT", target+"1", headers("x-amz-copy-source", "/bkt/src", "x-amz-copy-source-range", "bytes=50-100"), "")
	if doc.Message != "Range specified is not valid for source object of size: 100" {
		t.Errorf("%s", doc.Message)
	}
	h.refused(404, "NoSuchUpload", "PUT", "/bkt/k?partNumber=1&uploadId=x", headers("x-amz-copy-source", "/bkt/src"), "")
	h.refused(404, "NoSuchKey", "PUT", target+"1", headers("x-amz-copy-source", "/bkt/none"), "")
	var etags []string
	for i, rng := range []string{"", "bytes=10-19"} {
		header := headers("x-amz-copy-source", "/bkt/src")
		if rng != "" {
			header.Set("x-amz-copy-source-range", rng)
		}
		r := h.ok(200, "PUT", target+string(rune('1'+i)), header, "")
		var doc struct{ ETag, ChecksumCRC32C string }
		if err := xml.Unmarshal(r.body, &doc); err != nil || doc.ChecksumCRC32C == "" {
			t.Fatalf("%v %s", err, r.body)
		}
		etags = append(etags, doc.ETag)
	}
	h.ok(200, "POST", "/bkt/k?uploadId="+id, nil, manifest(1, etags[0], 2, etags[1])) // U087
	if r := h.ok(200, "GET", "/bkt/k", nil, ""); string(r.body) != hundred+"0123456789" {
		t.Errorf("%q", r.body)
	}
	// A source that fails half-way makes no part, and the request ends.
	id = h.create("/bkt/k")
	h.store.readErr = 1
	h.refused(500, "InternalError", "PUT", "/bkt/k?partNumber=1&uploadId="+id, headers("x-amz-copy-source", "/bkt/src"), "")
}

// A long copy keeps its connection alive and says late what became of it.
func TestLongCopy(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.Limits.KeepAliveAfter = time.Millisecond })
	h.bucket("bkt", "src")
	slow := make(chan struct{})
	for _, outcome := range []error{nil, erasure.ErrCorrupt} {
		h.store.fail = func(op, _ string) error {
			if op == "Copy" {
				<-slow
				return outcome
			}
			return nil
		}
		res, err := transport.RoundTrip(sign(h.request("PUT", "/bkt/dst", headers("x-amz-copy-source", "/bkt/src"), nil), nil))
		if err != nil || res.StatusCode != 200 {
			t.Fatal(res, err) // the header came while the copy was held up
		}
		slow <- struct{}{}
		doc, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		var result struct {
			XMLName    xml.Name
			Code, ETag string
		}
		if err := xml.Unmarshal(doc, &result); err != nil {
			t.Fatalf("%v in %q", err, doc)
		}
		if outcome == nil && (result.XMLName.Local != "CopyObjectResult" || result.ETag == "") || outcome != nil && (result.XMLName.Local != "Error" || result.Code != "InternalError") {
			t.Errorf("%v: %s", outcome, doc)
		}
	}
	eventually(t, "the late failure counts", func() bool { return strings.Contains(h.log.String(), `"status":500`) })
}
