package server

import (
	"crypto/md5"
	"encoding/base64"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"ringfence/server/checksum"
	"ringfence/server/s3xml"
)

// smallParts lets tests make objects of small parts.
func smallParts(o *Options) { o.Limits.MinPartSize = 4 }

func (h *harness) create(target string, pairs ...string) string {
	h.t.Helper()
	r := h.ok(200, "POST", target+"?uploads", headers(pairs...), "")
	var doc struct{ Bucket, Key, UploadId string }
	if err := xml.Unmarshal(r.body, &doc); err != nil || doc.UploadId == "" {
		h.t.Fatalf("%v in %q", err, r.body)
	}
	return doc.UploadId
}

// part uploads a part and gives its ETag.
func (h *harness) part(target, id string, number int, body string, pairs ...string) string {
	h.t.Helper()
	r := h.ok(200, "PUT", fmt.Sprintf("%s?partNumber=%d&uploadId=%s", target, number, id), headers(pairs...), body)
	return r.Header.Get("ETag")
}

// manifest is the document of a completion: number, ETag, number, ETag.
func manifest(pairs ...any) string {
	var b strings.Builder
	b.WriteString(`<CompleteMultipartUpload xmlns="http://s3.amazonaws.com/doc/2006-03-01/">`)
	for i := 0; i < len(pairs); i += 2 {
		fmt.Fprintf(&b, "<Part><PartNumber>%v</PartNumber><ETag>%v</ETag></Part>", pairs[i], pairs[i+1])
	}
	return b.String() + "</CompleteMultipartUpload>"
}

func multiETag(parts ...string) string {
	var all []byte
	for _, p := range parts {
		sum := md5.Sum([]byte(p))
		all = append(all, sum[:]...)
	}
	sum := md5.Sum(all)
	return fmt.Sprintf(`"%s-%d"`, hex.EncodeToString(sum[:]), len(parts))
}

func TestMultipart(t *testing.T) {
	h := newHarness(t, smallParts)
	h.bucket("bkt")
	id := h.create("/bkt/k", "Content-Type", "a/b", "x-amz-meta-a", "1", "x-amz-storage-class", "STANDARD_IA")
	e2 := h.part("/bkt/k", id, 2, "world")
	h.part("/bkt/k", id, 1, "replaced")
	e1 := h.part("/bkt/k", id, 1, "hello ")
	r := h.ok(200, "POST", "/bkt/k?uploadId="+id, nil, manifest(1, e1, 2, strings.Trim(e2, `"`)))
	var doc struct{ Location, Bucket, Key, ETag, ChecksumCRC64NVME, ChecksumType string }
	if err := xml.Unmarshal(r.body, &doc); err != nil {
		t.Fatal(err)
	}
	// U083, U084.
	if doc.Location != h.http.URL+"/bkt/k" || doc.Bucket != "bkt" || doc.Key != "k" || doc.ETag != multiETag("hello ", "world") {
		t.Errorf("%+v", doc)
	}
	if doc.ChecksumCRC64NVME != sum(checksum.CRC64NVME, "hello world") || doc.ChecksumType != "FULL_OBJECT" {
		t.Errorf("%+v", doc)
	}
	get := h.ok(200, "GET", "/bkt/k", headers("x-amz-checksum-mode", "ENABLED"), "")
	if string(get.body) != "hello world" || get.Header.Get("ETag") != doc.ETag || get.Header.Get("Content-Type") != "a/b" ||
		get.Header.Get("x-amz-meta-a") != "1" || get.Header.Get("x-amz-checksum-crc64nvme") != doc.ChecksumCRC64NVME {
		t.Errorf("%q %v", get.body, get.Header)
	}
	h.refused(404, "NoSuchUpload", "GET", "/bkt/k?uploadId="+id, nil, "")
}

func TestU088PartNumber(t *testing.T) {
	h := newHarness(t, smallParts)
	h.bucket("bkt", "plain")
	id := h.create("/bkt/k")
	e1, e2 := h.part("/bkt/k", id, 1, "hello "), h.part("/bkt/k", id, 2, "world")
	h.ok(200, "POST", "/bkt/k?uploadId="+id, nil, manifest(1, e1, 2, e2))
	for _, method := range []string{"GET", "HEAD"} {
		r := h.ok(206, method, "/bkt/k?partNumber=2", nil, "")
		if r.ContentLength != 5 || r.Header.Get("x-amz-mp-parts-count") != "2" || r.Header.Get("ETag") != multiETag("hello ", "world") ||
			r.Header.Get("Content-Range") != "bytes 6-10/11" || method == "GET" && string(r.body) != "world" {
			t.Errorf("%s: %q %v", method, r.body, r.Header)
		}
	}
	h.ok(206, "GET", "/bkt/plain?partNumber=1", nil, "")
	h.refused(416, "InvalidPartNumber", "GET", "/bkt/plain?partNumber=2", nil, "")
	h.refused(416, "InvalidPartNumber", "GET", "/bkt/k?partNumber=3", nil, "")
	h.refused(400, "InvalidArgument", "GET", "/bkt/k?partNumber=0", nil, "")
	h.refused(400, "InvalidRequest", "GET", "/bkt/k?partNumber=1", headers("Range", "bytes=0-1"), "")
}

func TestCompleteRefusals(t *testing.T) {
	h := newHarness(t, smallParts)
	h.bucket("bkt")
	id := h.create("/bkt/k")
	e1, e2, e3 := h.part("/bkt/k", id, 1, "hello "), h.part("/bkt/k", id, 2, "w"), h.part("/bkt/k", id, 3, "end")
	target := "/bkt/k?uploadId=" + id
	doc := h.refused(400, "InvalidPart", "POST", target, nil, manifest(1, `"00000000000000000000000000000000"`)) // U070
	if doc.UploadID != id || doc.PartNumber != "1" || doc.ETag != strings.Repeat("0", 32) {
		t.Errorf("%+v", doc)
	}
	h.refused(400, "InvalidPart", "POST", target, nil, manifest(9, e1))
	h.refused(400, "MalformedXML", "POST", target, nil, "<CompleteMultipartUpload/>") // U071
	h.refused(400, "MalformedXML", "POST", target, nil, "")
	h.refused(400, "EntityTooSmall", "POST", target, nil, manifest(1, e1, 2, e2, 3, e3))         // U072
	h.refused(400, "InvalidPartOrder", "POST", target, nil, manifest(3, e3, 1, e1))              // U075
	h.refused(400, "InvalidPartOrder", "POST", target, nil, manifest(1, e1, 1, e1))              // A48
	h.refused(400, "InvalidArgument", "POST", target, nil, manifest(0, e1))                      // U074
	h.refused(404, "NoSuchUpload", "POST", "/bkt/k?uploadId=never-issued", nil, manifest(1, e1)) // U082
	h.refused(404, "NoSuchUpload", "POST", "/bkt/other?uploadId="+id, nil, manifest(1, e1))      // A32
	h.refused(412, "PreconditionFailed", "POST", target, headers("If-None-Match", "*"), func() string {
		h.ok(200, "PUT", "/bkt/k", nil, "there already")
		return manifest(1, e1)
	}())
	h.refused(400, "InvalidRequest", "POST", target, headers("x-amz-mp-object-size", "5"), manifest(1, e1))
	many := make([]any, 0, 20002)
	for i := range 10001 {
		many = append(many, i+1, e1)
	}
	h.refused(400, "MalformedXML", "POST", target, nil, manifest(many...)) // A48
	if r := h.ok(200, "GET", "/bkt/k", nil, ""); string(r.body) != "there already" {
		t.Errorf("a refused completion changed the object to %q", r.body)
	}
	h.ok(200, "POST", target, headers("x-amz-mp-object-size", "9"), manifest(1, e1, 3, e3))
	for _, bad := range []string{"0", "-1", "10001", "abc", ""} { // U074
		h.refused(400, "InvalidArgument", "PUT", "/bkt/k?uploadId="+id+"&partNumber="+bad, nil, "x")
	}
}

func TestU040CompositeChecksum(t *testing.T) {
	h := newHarness(t, smallParts)
	h.bucket("bkt")
	whole := sha([]byte(sha([]byte("hello ")) + sha([]byte("world"))))
	b64 := base64.StdEncoding.EncodeToString([]byte(whole))
	for i, sent := range []string{b64 + "-2", b64, ""} {
		key := fmt.Sprintf("/bkt/k%d", i)
		id := h.create(key, "x-amz-checksum-algorithm", "SHA256")
		// The second part comes without a checksum: the server computes it.
		e1 := h.part(key, id, 1, "hello ", "x-amz-checksum-sha256", sum(checksum.SHA256, "hello "))
		e2 := h.part(key, id, 2, "world")
		target := key + "?uploadId=" + id
		h.refused(400, "InvalidRequest", "PUT", target+"&partNumber=3", headers("x-amz-checksum-crc32", sum(checksum.CRC32, "x")), "x")
		h.refused(400, "BadDigest", "POST", target, headers("x-amz-checksum-sha256", sum(checksum.SHA256, "wrong")), manifest(1, e1, 2, e2))
		h.refused(400, "BadDigest", "POST", target, headers("x-amz-checksum-sha256", b64+"-3"), manifest(1, e1, 2, e2))
		h.refused(400, "InvalidRequest", "POST", target, headers("x-amz-checksum-sha256", "x"), manifest(1, e1, 2, e2))
		h.refused(400, "InvalidRequest", "POST", target, headers("x-amz-checksum-type", "FULL_OBJECT"), manifest(1, e1, 2, e2))
		var header []string
		if sent != "" {
			header = []string{"x-amz-checksum-sha256", sent}
		}
		r := h.ok(200, "POST", target, headers(header...), manifest(1, e1, 2, e2))
		if !strings.Contains(string(r.body), "<ChecksumSHA256>"+b64+"-2</ChecksumSHA256><ChecksumType>COMPOSITE</ChecksumType>") {
			t.Errorf("%s", r.body)
		}
		head := h.ok(200, "HEAD", key, headers("x-amz-checksum-mode", "ENABLED"), "")
		if head.Header.Get("x-amz-checksum-sha256") != b64+"-2" || head.Header.Get("x-amz-checksum-type") != "COMPOSITE" {
			t.Errorf("%v", head.Header)
		}
	}
}

func sha(b []byte) string {
	h := checksum.SHA256.New()
	h.Write(b)
	return string(h.Sum(nil))
}

func TestFullObjectChecksums(t *testing.T) {
	h := newHarness(t, smallParts)
	h.bucket("bkt")
	for _, a := range []checksum.Algorithm{checksum.CRC32, checksum.CRC32C, checksum.CRC64NVME} {
		id := h.create("/bkt/k", "x-amz-checksum-algorithm", a.String(), "x-amz-checksum-type", "FULL_OBJECT")
		e1 := h.part("/bkt/k", id, 1, "hello ", a.Header(), sum(a, "hello "))
		e2 := h.part("/bkt/k", id, 2, "world", a.Header(), sum(a, "world"))
		body := strings.ReplaceAll(manifest(1, e1, 2, e2), "</Part>", "<Checksum"+a.String()+">SUM</Checksum"+a.String()+"></Part>")
		h.refused(400, "InvalidPart", "POST", "/bkt/k?uploadId="+id, nil, body)
		body = strings.Replace(body, "SUM", sum(a, "hello "), 1)
		body = strings.Replace(body, "SUM", sum(a, "world"), 1)
		h.ok(200, "POST", "/bkt/k?uploadId="+id, headers(a.Header(), sum(a, "hello world"), "x-amz-checksum-type", "FULL_OBJECT"), body)
		r := h.ok(200, "HEAD", "/bkt/k", headers("x-amz-checksum-mode", "ENABLED"), "")
		if r.Header.Get(a.Header()) != sum(a, "hello world") || r.Header.Get("x-amz-checksum-type") != "FULL_OBJECT" {
			t.Errorf("%s: %v", a, r.Header)
		}
	}
	for _, bad := range [][]string{
		{"x-amz-checksum-algorithm", "SHA1", "x-amz-checksum-type", "FULL_OBJECT"},
		{"x-amz-checksum-algorithm", "CRC64NVME", "x-amz-checksum-type", "COMPOSITE"},
		{"x-amz-checksum-algorithm", "CRC32", "x-amz-checksum-type", "HALF"},
		{"x-amz-checksum-algorithm", "MD4"},
		{"x-amz-checksum-type", "COMPOSITE"},
	} {
		h.refused(400, "InvalidRequest", "POST", "/bkt/k?uploads", headers(bad...), "")
	}
}

type partsList struct {
	PartNumberMarker, NextPartNumberMarker, MaxParts *int
	IsTruncated                                      *bool
	StorageClass, ChecksumAlgorithm, ChecksumType    string
	Initiator, Owner                                 struct{ ID, DisplayName string }
	Part                                             []struct {
		PartNumber, Size            int
		LastModified, ETag          string
		ChecksumSHA1, ChecksumCRC32 string
	}
}

func TestU076And080ListParts(t *testing.T) {
	h := newHarness(t, smallParts)
	h.bucket("bkt")
	id := h.create("/bkt/k", "x-amz-checksum-algorithm", "SHA1")
	list := func(query string) partsList {
		t.Helper()
		r := h.ok(200, "GET", "/bkt/k?uploadId="+id+query, nil, "")
		var l partsList
		if err := xml.Unmarshal(r.body, &l); err != nil {
			t.Fatal(err)
		}
		if l.PartNumberMarker == nil || l.NextPartNumberMarker == nil || l.MaxParts == nil || l.IsTruncated == nil ||
			l.Owner.ID == "" || l.Initiator.ID == "" || l.StorageClass != "STANDARD" || l.ChecksumAlgorithm != "SHA1" || l.ChecksumType != "COMPOSITE" {
			t.Fatalf("something is missing: %s", r.body)
		}
		return l
	}
	if l := list(""); len(l.Part) != 0 || *l.IsTruncated {
		t.Errorf("empty upload: %+v", l)
	}
	e1, e2 := h.part("/bkt/k", id, 1, "hello "), h.part("/bkt/k", id, 7, "world")
	l := list("&max-parts=1")
	if len(l.Part) != 1 || !*l.IsTruncated || *l.NextPartNumberMarker != 1 || l.Part[0].ETag != e1 || l.Part[0].Size != 6 || l.Part[0].ChecksumSHA1 != sum(checksum.SHA1, "hello ") {
		t.Errorf("first page: %+v", l)
	}
	l = list("&part-number-marker=1&max-parts=1")
	if len(l.Part) != 1 || *l.IsTruncated || l.Part[0].PartNumber != 7 || l.Part[0].ETag != e2 {
		t.Errorf("second page: %+v", l)
	}
	if l := list("&max-parts=0"); len(l.Part) != 0 || *l.IsTruncated {
		t.Errorf("no page: %+v", l)
	}
	h.ok(204, "DELETE", "/bkt/k?uploadId="+id, nil, "")
	h.refused(404, "NoSuchUpload", "DELETE", "/bkt/k?uploadId="+id, nil, "")
	h.refused(404, "NoSuchUpload", "PUT", "/bkt/k?partNumber=1&uploadId="+id, nil, "x")
}

func TestU078And090ListUploads(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt")
	want := []string{}
	for _, key := range []string{"a", "dir/a", "dir/a", "dir/b b", "dir/sub/c", "e"} {
		want = append(want, key+" "+h.create("/bkt/"+encode(key)))
	}
	type page struct {
		Upload                                []struct{ Key, UploadId, Initiated string }
		CommonPrefixes                        []struct{ Prefix string }
		NextKeyMarker, NextUploadIdMarker     string
		KeyMarker, UploadIdMarker, MaxUploads string
		IsTruncated                           bool
	}
	list := func(query string) page {
		t.Helper()
		var p page
		if err := xml.Unmarshal(h.ok(200, "GET", "/bkt?uploads"+query, nil, "").body, &p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	var got []string
	for next := "&max-uploads=1"; ; {
		p := list(next)
		if len(p.Upload) != 1 {
			t.Fatalf("%d uploads on a page of one", len(p.Upload))
		}
		got = append(got, p.Upload[0].Key+" "+p.Upload[0].UploadId)
		if !p.IsTruncated {
			break
		}
		next = "&max-uploads=1&key-marker=" + url.QueryEscape(p.NextKeyMarker) + "&upload-id-marker=" + p.NextUploadIdMarker
	}
	same(t, "pages", got, want)
	p := list("&prefix=dir/&delimiter=/&encoding-type=url")
	if len(p.Upload) != 3 || p.Upload[2].Key != "dir/b%20b" || len(p.CommonPrefixes) != 1 || p.CommonPrefixes[0].Prefix != "dir/sub/" {
		t.Errorf("%+v", p)
	}
	h.refused(404, "NoSuchBucket", "GET", "/none?uploads", nil, "")
}

func TestObjectAttributes(t *testing.T) {
	h := newHarness(t, smallParts)
	h.bucket("bkt", "plain")
	id := h.create("/bkt/k")
	e1, e2 := h.part("/bkt/k", id, 1, "hello "), h.part("/bkt/k", id, 2, "world")
	h.ok(200, "POST", "/bkt/k?uploadId="+id, nil, manifest(1, e1, 2, e2))
	get := func(key string, pairs ...string) string {
		t.Helper()
		r := h.ok(200, "GET", "/bkt/"+key+"?attributes", headers(pairs...), "")
		_, doc, _ := strings.Cut(string(r.body), s3xml.Namespace+`">`)
		return doc
	}
	if got := get("plain", "x-amz-object-attributes", "ETag,ObjectSize, StorageClass,ObjectParts"); got != "<ETag>"+hex.EncodeToString(md5of("plain"))+
		"</ETag><StorageClass>STANDARD</StorageClass><ObjectSize>5</ObjectSize></GetObjectAttributesResponse>" {
		t.Error(got)
	}
	if got := get("k", "x-amz-object-attributes", "ObjectParts", "x-amz-max-parts", "1", "x-amz-part-number-marker", "1"); got !=
		"<ObjectParts><PartsCount>2</PartsCount><PartNumberMarker>1</PartNumberMarker><NextPartNumberMarker>2</NextPartNumberMarker><MaxParts>1</MaxParts>"+
			"<IsTruncated>false</IsTruncated><Part><PartNumber>2</PartNumber><Size>5</Size></Part></ObjectParts></GetObjectAttributesResponse>" {
		t.Error(got)
	}
	if got := get("plain", "x-amz-object-attributes", "Checksum"); !strings.HasPrefix(got, "<Checksum><ChecksumCRC64NVME>"+sum(checksum.CRC64NVME, "plain")) {
		t.Error(got)
	}
	h.refused(400, "InvalidRequest", "GET", "/bkt/k?attributes", nil, "")
	h.refused(400, "InvalidArgument", "GET", "/bkt/k?attributes", headers("x-amz-object-attributes", "Colour"), "")
	h.refused(404, "NoSuchKey", "GET", "/bkt/none?attributes", headers("x-amz-object-attributes", "ETag"), "")
}

func md5of(s string) []byte {
	sum := md5.Sum([]byte(s))
	return sum[:]
}
