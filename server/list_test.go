package server

import (
	"encoding/xml"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
)

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func TestU044ObjectBesideItsFolder(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt", "file1", "file1/file2")
	same(t, "flat", h.list("/bkt?list-type=2").keys(), []string{"file1", "file1/file2"})
	l := h.list("/bkt?list-type=2&delimiter=/")
	same(t, "contents", l.keys(), []string{"file1"})
	same(t, "prefixes", l.prefixes(), []string{"file1/"})
	same(t, "below", h.list("/bkt?list-type=2&prefix=file1/").keys(), []string{"file1/file2"})
}

func TestU046SlashesAreBytes(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt", "https://example.org", "path//empty", "path/empty", "exa//mple")
	same(t, "flat", h.list("/bkt").keys(), []string{"exa//mple", "https://example.org", "path//empty", "path/empty"})
	same(t, "prefixes", h.list("/bkt?prefix=path/&delimiter=/").prefixes(), []string{"path//"})
}

func TestU054StartAfterBeforePrefix(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt", "root/r/a", "root/r/b")
	same(t, "keys", h.list("/bkt?list-type=2&prefix=root/r/&start-after=root").keys(), []string{"root/r/a", "root/r/b"})
}

func TestU056MaxKeysZero(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt", "a", "b")
	for _, target := range []string{"/bkt?max-keys=0", "/bkt?list-type=2&max-keys=0"} {
		l := h.list(target)
		if l.KeyCount != 0 || l.IsTruncated || l.NextContinuationToken != "" || len(l.Contents) != 0 || l.MaxKeys != 0 {
			t.Errorf("%s: %+v", target, l)
		}
	}
	h.refused(404, "NoSuchBucket", "GET", "/none?max-keys=0", nil, "")
}

func TestU057MaxKeysAtMostThousand(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt")
	b := h.store.buckets["bkt"]
	for i := range 1001 {
		key := fmt.Sprintf("k%04d", i)
		v := &fakeVersion{}
		v.info.Key = key
		b.objects[key] = v
	}
	for _, q := range []string{"", "&max-keys=5000", "&max-keys=2147483647"} {
		l := h.list("/bkt?list-type=2" + q)
		if len(l.Contents) != 1000 || !l.IsTruncated || l.KeyCount != 1000 || l.MaxKeys != 1000 {
			t.Errorf("%q: %d keys, truncated %v, KeyCount %d, MaxKeys %d", q, len(l.Contents), l.IsTruncated, l.KeyCount, l.MaxKeys)
		}
	}
	for _, bad := range []string{"-1", "2147483648", "blah", "1.5"} {
		h.refused(400, "InvalidArgument", "GET", "/bkt?max-keys="+bad, nil, "")
	}
}

// Pages of one key, both versions: each key and prefix once, in byte order.
func TestU058PagesInByteOrder(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt", "dir1/a.b/x", "dir1/a/x", "dir1/a/y", "dir1/a-/x", "dir1/z", "e")
	want := []string{"dir1/a-/", "dir1/a.b/", "dir1/a/", "dir1/z"}
	var got []string
	token := ""
	for page := 0; ; page++ {
		l := h.list("/bkt?list-type=2&prefix=dir1/&delimiter=/&max-keys=1" + token)
		got = append(got, append(l.keys(), l.prefixes()...)...)
		if l.KeyCount != 1 || page > 10 {
			t.Fatalf("page %d: %+v", page, l)
		}
		if !l.IsTruncated {
			break
		}
		token = "&continuation-token=" + url.QueryEscape(l.NextContinuationToken)
	}
	same(t, "v2", got, want)

	got, marker := nil, ""
	for page := 0; page < 10; page++ {
		l := h.list("/bkt?prefix=dir1/&delimiter=/&max-keys=1&marker=" + url.QueryEscape(marker))
		got = append(got, append(l.keys(), l.prefixes()...)...)
		if !l.IsTruncated {
			break
		}
		if marker = l.NextMarker; marker == "" {
			t.Fatal("no NextMarker with a delimiter")
		}
	}
	same(t, "v1", got, want)
	if l := h.list("/bkt?max-keys=1"); l.NextMarker != "" || !l.IsTruncated {
		t.Errorf("v1 without delimiter: %+v", l)
	}
}

func TestU061AnyDelimiter(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt", "bafmx", "x.json", "p%q", "s t", "n\nl", "plain")
	for delimiter, prefix := range map[string]string{"afm": "bafm", ".json": "x.json", "%": "p%", " ": "s ", "\n": "n\n"} {
		l := h.list("/bkt?list-type=2&delimiter=" + url.QueryEscape(delimiter))
		same(t, fmt.Sprintf("delimiter %q", delimiter), l.prefixes(), []string{prefix})
	}
}

func TestU062EncodingURL(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt", "foo+1/bar", "foo/bar/xyzzy", "quux ab/thud", "asdf+b")
	l := h.list("/bkt?delimiter=/&encoding-type=url")
	same(t, "keys", l.keys(), []string{"asdf%2Bb"})
	same(t, "prefixes", l.prefixes(), []string{"foo%2B1/", "foo/", "quux%20ab/"})
	if l.EncodingType != "url" {
		t.Errorf("EncodingType %q", l.EncodingType)
	}
	l = h.list("/bkt?list-type=2&encoding-type=url&prefix=q%20&delimiter=%20&start-after=a%2Bb")
	if l.Prefix != "q%20" || l.Delimiter != "%20" || l.StartAfter != "a%2Bb" {
		t.Errorf("not encoded: %+v", l)
	}
	l = h.list("/bkt?encoding-type=url&delimiter=/&max-keys=2&marker=a%2B")
	if l.Marker != "a%2B" || l.NextMarker != "foo%2B1/" {
		t.Errorf("markers not encoded: %+v", l)
	}
	h.refused(400, "InvalidArgument", "GET", "/bkt?encoding-type=html", nil, "")
}

func TestU063ControlCharacters(t *testing.T) {
	h := newHarness(t)
	keys := []string{"\x01", "\x04bad/object.txt", "&#x8;", "a\rb"}
	h.bucket("bkt", keys...)
	l := h.list("/bkt?list-type=2&encoding-type=url") // parses, or list fails the test
	var decoded []string
	for _, key := range l.keys() {
		k, err := url.PathUnescape(key)
		if err != nil {
			t.Fatal(err)
		}
		decoded = append(decoded, k)
	}
	slices.Sort(keys)
	same(t, "encoded", decoded, keys)
	plain := string(h.ok(200, "GET", "/bkt?list-type=2", nil, "").body)
	for _, key := range []string{"&#x1;", "&#x4;bad/object.txt", "&amp;#x8;", "a&#xD;b"} {
		if !strings.Contains(plain, "<Key>"+key+"</Key>") {
			t.Errorf("%s is not in the plain listing:\n%s", key, plain)
		}
	}
	for _, key := range keys {
		h.ok(204, "DELETE", "/bkt/"+encode(key), nil, "")
	}
	if n := len(h.store.buckets["bkt"].objects); n != 0 {
		t.Errorf("%d objects left", n)
	}
}

func TestU064EscapedText(t *testing.T) {
	h := newHarness(t)
	key := `Net & Works <x>"'`
	h.bucket("bkt", key)
	same(t, "keys", h.list("/bkt").keys(), []string{key})
}

func TestU066EmptyToken(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt", "a")
	same(t, "keys", h.list("/bkt?list-type=2&continuation-token=").keys(), []string{"a"})
	for _, forged := range []string{"x", "====", "%00", sealToken(strings.Repeat("x", 1025)), "MmE"} {
		if r := h.do("GET", "/bkt?list-type=2&continuation-token="+forged, nil, ""); r.StatusCode != 400 {
			t.Errorf("token %q: status %d", forged, r.StatusCode)
		}
	}
}

// A54: a token made up by a client gives no key outside of the prefix.
func TestA54ForgedTokenKeepsToPrefix(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt", "a/1", "b/1", "b/2", "c/1")
	l := h.list("/bkt?list-type=2&prefix=b/&continuation-token=" + sealToken("a"))
	same(t, "keys", l.keys(), []string{"b/1", "b/2"})
	h.refused(400, "KeyTooLongError", "GET", "/bkt?prefix="+strings.Repeat("p", 4000), nil, "")
}

func TestU067KeyCountCountsPrefixes(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt", "a", "b", "c/", "d/x", "e/y", "e/z")
	if l := h.list("/bkt?list-type=2&delimiter=/"); l.KeyCount != 5 || len(l.CommonPrefixes) != 3 {
		t.Errorf("KeyCount %d, prefixes %q", l.KeyCount, l.prefixes())
	}
}

func TestListOwner(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt", "a")
	if l := h.list("/bkt?list-type=2"); l.Contents[0].Owner != nil {
		t.Error("V2 shows an owner unasked")
	}
	if l := h.list("/bkt?list-type=2&fetch-owner=true"); l.Contents[0].Owner == nil || l.Contents[0].Owner.ID == "" {
		t.Error("V2 hides the owner that was asked for")
	}
	l := h.list("/bkt")
	if c := l.Contents[0]; c.Owner == nil || c.StorageClass != "STANDARD" || c.Size != 1 || !strings.HasPrefix(c.ETag, `"`) || !strings.HasSuffix(c.LastModified, ".678Z") {
		t.Errorf("V1: %+v", c)
	}
	h.refused(400, "InvalidArgument", "GET", "/bkt?list-type=3", nil, "")
}

func TestListVersionsOfUnversioned(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt", "a", "b/1", "b/2", "c")
	type page struct {
		Version []struct {
			Key, VersionId, ETag string
			IsLatest             bool
		}
		CommonPrefixes                     []struct{ Prefix string }
		IsTruncated                        bool
		NextKeyMarker, NextVersionIdMarker string
	}
	var got []string
	for query := "&max-keys=1&delimiter=/"; ; {
		var p page
		if err := xml.Unmarshal(h.ok(200, "GET", "/bkt?versions"+query, nil, "").body, &p); err != nil {
			t.Fatal(err)
		}
		for _, v := range p.Version {
			if v.VersionId != "null" || !v.IsLatest || v.ETag == "" {
				t.Errorf("%+v", v)
			}
			got = append(got, v.Key)
		}
		for _, c := range p.CommonPrefixes {
			got = append(got, c.Prefix)
		}
		if !p.IsTruncated {
			break
		}
		query = "&max-keys=1&delimiter=/&key-marker=" + p.NextKeyMarker + "&version-id-marker=" + p.NextVersionIdMarker
	}
	same(t, "versions", got, []string{"a", "b/", "c"})
	h.refused(400, "InvalidArgument", "GET", "/bkt?versions&version-id-marker=x", nil, "")
}
