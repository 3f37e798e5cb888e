package server

import (
	"encoding/xml"
	"fmt"
	"slices"
	"strings"
	"testing"

	"ringfence/server/checksum"
)

func TestBuckets(t *testing.T) {
	h := newHarness(t)
	r := h.ok(200, "PUT", "/bkt-a", nil, "")
	if r.Header.Get("Location") != "/bkt-a" {
		t.Errorf("Location %q", r.Header.Get("Location"))
	}
	h.ok(200, "PUT", "/bkt-a", nil, "") // as AWS in its first region
	h.refused(400, "InvalidLocationConstraint", "PUT", "/bkt-b", nil, `<CreateBucketConfiguration><LocationConstraint>eu-west-1</LocationConstraint></CreateBucketConfiguration>`)
	h.refused(400, "MalformedXML", "PUT", "/bkt-b", nil, `<CreateBucketConfiguration><Unknown/></CreateBucketConfiguration>`)
	h.refused(400, "MalformedXML", "PUT", "/bkt-b", nil, `nonsense`)
	h.ok(200, "PUT", "/bkt-b", nil, `<CreateBucketConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><LocationConstraint></LocationConstraint></CreateBucketConfiguration>`)
	h.refused(501, "NotImplemented", "PUT", "/bkt-c", headers("x-amz-bucket-object-lock-enabled", "true"), "")
	if r := h.ok(200, "HEAD", "/bkt-a", nil, ""); r.Header.Get("x-amz-bucket-region") != "us-east-1" {
		t.Errorf("%v", r.Header)
	}
	h.ok(404, "HEAD", "/bkt-c", nil, "")
	if r := h.ok(200, "GET", "/bkt-a?location", nil, ""); !strings.HasSuffix(string(r.body), `<LocationConstraint xmlns="http://s3.amazonaws.com/doc/2006-03-01/"></LocationConstraint>`) {
		t.Errorf("%s", r.body)
	}
	h.ok(200, "PUT", "/bkt-a/k", nil, "x")
	doc := h.refused(409, "BucketNotEmpty", "DELETE", "/bkt-a", nil, "")
	if doc.BucketName != "bkt-a" || doc.Resource != "/bkt-a" {
		t.Errorf("%+v", doc)
	}
	h.ok(204, "DELETE", "/bkt-b", nil, "")
	h.refused(404, "NoSuchBucket", "DELETE", "/bkt-b", nil, "")
}

func TestBucketExistsElsewhere(t *testing.T) {
	h := newHarness(t)
	h.srv.opt.Region = "eu-west-1"
	h.ok(200, "PUT", "/bkt", nil, "")
	h.refused(409, "BucketAlreadyOwnedByYou", "PUT", "/bkt", nil, "")
	if r := h.ok(200, "GET", "/bkt?location", nil, ""); !strings.Contains(string(r.body), ">eu-west-1</LocationConstraint>") {
		t.Errorf("%s", r.body)
	}
}

func TestListBuckets(t *testing.T) {
	h := newHarness(t)
	want := []string{}
	for i := range 5 {
		want = append(want, fmt.Sprintf("bkt-%d", i))
		h.bucket(want[i])
	}
	h.bucket("other")
	var got []string
	for target := "/?prefix=bkt-&max-buckets=2"; ; {
		var page struct {
			Owner             struct{ ID string }
			Prefix            string
			ContinuationToken string
			Buckets           struct {
				Bucket []struct{ Name, CreationDate, BucketRegion string }
			}
		}
		if err := xml.Unmarshal(h.ok(200, "GET", target, nil, "").body, &page); err != nil {
			t.Fatal(err)
		}
		if page.Owner.ID == "" || page.Prefix != "bkt-" || len(page.Buckets.Bucket) > 2 {
			t.Fatalf("%+v", page)
		}
		for _, b := range page.Buckets.Bucket {
			got = append(got, b.Name)
		}
		if page.ContinuationToken == "" {
			break
		}
		target = "/?prefix=bkt-&max-buckets=2&continuation-token=" + page.ContinuationToken
	}
	same(t, "buckets", got, want)
	h.refused(400, "InvalidArgument", "GET", "/?max-buckets=0", nil, "")
	h.refused(400, "InvalidArgument", "GET", "/?max-buckets=10001", nil, "")
	h.refused(400, "InvalidArgument", "GET", "/?continuation-token=!", nil, "")
}

func TestBucketProbes(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt", "k")
	for query, want := range map[string]string{
		"versioning": "VersioningConfiguration", "acl": "FULL_CONTROL", "requestPayment": "BucketOwner", "notification": "NotificationConfiguration",
		"accelerate": "AccelerateConfiguration", "logging": "BucketLoggingStatus", "metrics": "ListMetricsConfigurationsResult",
	} {
		r := h.ok(200, "GET", "/bkt?"+query, nil, "")
		if err := xml.Unmarshal(r.body, new(struct{})); err != nil || !strings.Contains(string(r.body), want) {
			t.Errorf("%s: %v %s", query, err, r.body)
		}
		h.refused(404, "NoSuchBucket", "GET", "/none?"+query, nil, "")
	}
	for query, code := range map[string]string{
		"policy": "NoSuchBucketPolicy", "cors": "NoSuchCORSConfiguration", "lifecycle": "NoSuchLifecycleConfiguration", "tagging": "NoSuchTagSet",
		"encryption": "ServerSideEncryptionConfigurationNotFoundError", "object-lock": "ObjectLockConfigurationNotFoundError",
		"publicAccessBlock": "NoSuchPublicAccessBlockConfiguration", "replication": "ReplicationConfigurationNotFoundError",
		"ownershipControls": "OwnershipControlsNotFoundError", "website": "NoSuchWebsiteConfiguration",
	} {
		h.refused(404, code, "GET", "/bkt?"+query, nil, "")
		h.refused(404, "NoSuchBucket", "GET", "/none?"+query, nil, "")
	}
	if r := h.ok(200, "GET", "/bkt/k?acl", nil, ""); !strings.Contains(string(r.body), "FULL_CONTROL") {
		t.Errorf("%s", r.body)
	}
}

type deleted struct {
	Deleted []struct{ Key string }
	Error   []struct{ Key, Code, Message string }
}

func (h *harness) deleteMany(body string) deleted {
	h.t.Helper()
	r := h.ok(200, "POST", "/bkt?delete", headers("Content-MD5", sum(checksum.MD5, body)), body)
	var d deleted
	if err := xml.Unmarshal(r.body, &d); err != nil {
		h.t.Fatal(err)
	}
	return d
}

func TestU152And153DeleteObjects(t *testing.T) {
	h := newHarness(t)
	keys := []string{"äöüÄÖÜ", "ΩΣβ", "a&b<c>", "😀", "dir1/", "dir2/", "dir2/7.jpg", "\x04bad"}
	h.bucket("bkt", keys...)
	h.ok(200, "PUT", "/bkt/stays", nil, "")
	var body strings.Builder
	body.WriteString(`<Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/">`)
	for _, key := range append(keys, "missing") {
		body.WriteString("<Object><Key>")
		if key == "\x04bad" {
			body.WriteString("&#x4;bad") // U063
		} else if err := xml.EscapeText(&body, []byte(key)); err != nil {
			t.Fatal(err)
		}
		body.WriteString("</Key></Object>")
	}
	body.WriteString("</Delete>")
	d := h.deleteMany(body.String())
	if len(d.Deleted) != len(keys)+1 || len(d.Error) != 0 || d.Deleted[0].Key != keys[0] || d.Deleted[len(keys)].Key != "missing" {
		t.Errorf("%+v", d)
	}
	same(t, "left", h.list("/bkt").keys(), []string{"stays"})
	// Quiet shows failures only.
	h.store.fail = func(op, key string) error {
		if op == "Delete" && key == "bad" {
			return errTest
		}
		return nil
	}
	long := strings.Repeat("x", 1025)
	d = h.deleteMany("<Delete><Quiet>true</Quiet><Object><Key>stays</Key></Object><Object><Key>bad</Key></Object><Object><Key>" + long + "</Key></Object></Delete>")
	if len(d.Deleted) != 0 || len(d.Error) != 2 || d.Error[0].Code != "InternalError" || d.Error[1].Code != "KeyTooLongError" {
		t.Errorf("%+v", d)
	}
}

func TestU154DeleteObjectsLimits(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt")
	object := "<Object><Key>k</Key></Object>"
	md5 := func(body string) []string { return []string{"Content-MD5", sum(checksum.MD5, body)} }
	h.deleteMany("<Delete>" + strings.Repeat(object, 1000) + "</Delete>")
	for _, body := range []string{
		"<Delete>" + strings.Repeat(object, 1001) + "</Delete>", "<Delete/>", "", "<Remove/>", "<Delete><Object/></Delete>",
		"<Delete><Object><Key>a</Key><Key>b</Key></Object></Delete>", "<Delete><Object><Key>a</Key><IfCurious/></Object></Delete>",
	} {
		h.refused(400, "MalformedXML", "POST", "/bkt?delete", headers(md5(body)...), body)
	}
	body := "<Delete>" + object + "</Delete>"
	h.refused(400, "InvalidRequest", "POST", "/bkt?delete", nil, body)
	h.refused(400, "BadDigest", "POST", "/bkt?delete", headers("x-amz-checksum-crc32", "AAAAAA=="), body)
	h.ok(200, "POST", "/bkt?delete", headers("x-amz-checksum-crc32", sum(checksum.CRC32, body)), body)
	h.refused(404, "NoSuchBucket", "POST", "/none?delete", headers(md5(body)...), body)
}

// U158, U114: deletions with conditions.
func TestConditionalDeletes(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt", "k")
	head := h.ok(200, "HEAD", "/bkt/k", nil, "")
	etag, mod := head.Header.Get("ETag"), head.Header.Get("Last-Modified")
	h.refused(412, "PreconditionFailed", "DELETE", "/bkt/k", headers("If-Match", "bad"), "")
	h.refused(412, "PreconditionFailed", "DELETE", "/bkt/k", headers("x-amz-if-match-size", "9"), "")
	h.refused(412, "PreconditionFailed", "DELETE", "/bkt/k", headers("x-amz-if-match-last-modified-time", "Thu, 01 Jan 2015 00:00:00 GMT"), "")
	h.refused(400, "InvalidArgument", "DELETE", "/bkt/k", headers("x-amz-if-match-size", "x"), "")
	d := h.deleteMany("<Delete><Object><Key>k</Key><ETag>bad</ETag></Object></Delete>")
	if len(d.Error) != 1 || d.Error[0].Code != "PreconditionFailed" {
		t.Errorf("%+v", d)
	}
	h.ok(204, "DELETE", "/bkt/k", headers("If-Match", strings.Trim(etag, `"`), "x-amz-if-match-size", "1", "x-amz-if-match-last-modified-time", mod), "")
	h.ok(204, "DELETE", "/bkt/k", headers("If-Match", "bad"), "")
	h.refused(404, "NoSuchBucket", "DELETE", "/none/k", nil, "")
	if !slices.Equal(h.list("/bkt").keys(), []string{}) {
		t.Error("not deleted")
	}
}
