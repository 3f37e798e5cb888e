package sigv4

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"ringfence/server/s3err"
)

// TestCanonicalQuery covers U001 and U003.
func TestCanonicalQuery(t *testing.T) {
	for raw, want := range map[string]string{
		"": "", "acl": "acl=", "acl=": "acl=", "&&": "", "=": "", "=x": "=x", "a=b=c": "a=b%3Dc",
		"list-type=2&prefix=dir1/*": "list-type=2&prefix=dir1%2F%2A",
		"prefix=~a b":               "prefix=~a%20b", "prefix=a+b": "prefix=a%20b", "prefix=a%2Bb": "prefix=a%2Bb", "prefix=a%20b": "prefix=a%20b",
		"b=2&a=1": "a=1&b=2", "a=2&a=1&a=": "a=&a=1&a=2",
		// Sorted by name before value: '-' and '.' are below '='.
		"a=1&a-b=2&a.b=0": "a=1&a-b=2&a.b=0",
		"a-b=1&a=2":       "a=2&a-b=1",
		"%61=%7e%2f%2F":   "a=~%2F%2F", "a;b=c;d": "a%3Bb=c%3Bd", "k=%C3%A9": "k=%C3%A9", "k=é": "k=%C3%A9", "k=%ff": "k=%FF",
		"k=%2541": "k=%2541", "k=!'()*": "k=%21%27%28%29%2A",
	} {
		var s scratch
		if err := s.parseQuery(raw); err != nil {
			t.Errorf("%q: %v", raw, err)
			continue
		}
		if got := string(s.appendQuery(nil, false)); got != want {
			t.Errorf("%q: got %q, want %q", raw, got, want)
		}
	}
	for _, raw := range []string{"%", "a=%", "a=%4", "a=%4g", "a=%g4", "%zz=a", "a&b=%%"} {
		var s scratch
		refused(t, s.parseQuery(raw), s3err.InvalidURI)
		_, err := ParseQuery(raw)
		refused(t, err, s3err.InvalidURI)
	}
}

func TestParseQuery(t *testing.T) {
	got, err := ParseQuery("acl&prefix=a+b%2B&x=1&x=2&v=a;b&&=&empty=")
	want := url.Values{"acl": {""}, "prefix": {"a b+"}, "x": {"1", "2"}, "v": {"a;b"}, "empty": {""}}
	if err != nil || len(got) != len(want) {
		t.Fatalf("%v %v", got, err)
	}
	for name, values := range want {
		if !slices.Equal(got[name], values) {
			t.Errorf("%s: %q", name, got[name])
		}
	}
}

// TestA26SplitPath: signature, policy and storage see the same key.
func TestA26SplitPath(t *testing.T) {
	for raw, want := range map[string][2]string{
		"/": {"", ""}, "/b": {"b", ""}, "/b/": {"b", ""}, "/b//": {"b", "/"}, "/b/k": {"b", "k"}, "/b//k": {"b", "/k"}, "/b/k/": {"b", "k/"},
		"/b/a/../c": {"b", "a/../c"}, "/b/./": {"b", "./"}, "/b/..": {"b", ".."}, "/b/%2e%2e%2fx": {"b", "../x"}, "/b/a%2Fb": {"b", "a/b"},
		"/b/%252e": {"b", "%2e"}, "/b/a+b": {"b", "a+b"}, "/b/a%20b": {"b", "a b"}, "/b/%C3%A9": {"b", "é"}, "/b/é": {"b", "é"}, "/b/%ff%c0%ae": {"b", "\xff\xc0\xae"},
		"/b/100%25": {"b", "100%"}, "/%62/k": {"b", "k"}, "//b/k": {"", "b/k"}, "/b/a;b": {"b", "a;b"}, `/b/a"b`: {"b", `a"b`}, "/b/\\..\\x": {"b", "\\..\\x"},
		"/b/%2F": {"b", "/"}, "/b/a:b@c": {"b", "a:b@c"},
	} {
		u, err := url.ParseRequestURI(raw)
		if err != nil {
			t.Fatal(err)
		}
		bucket, key, err := SplitPath(u)
		if err != nil || bucket != want[0] || key != want[1] {
			t.Errorf("%s: %q %q %v", raw, bucket, key, err)
		}
		if whole, err := Key(u); err != nil || want[0] != "" && whole != strings.TrimSuffix(want[0]+"/"+want[1], "/") && whole != want[0]+"/"+want[1] {
			t.Errorf("%s: %q %v", raw, whole, err)
		}
	}
	for raw, code := range map[string]s3err.Code{
		"/b%2Fk": s3err.InvalidBucketName, "/b%2fk/x": s3err.InvalidBucketName, "/%2Fb/k": s3err.InvalidBucketName,
		"/b/a%00b": s3err.InvalidURI, "/%00/x": s3err.InvalidURI, "*": s3err.InvalidURI,
	} {
		u, err := url.ParseRequestURI(raw)
		if err != nil {
			u = &url.URL{Path: raw}
		}
		_, _, err = SplitPath(u)
		refused(t, err, code)
	}
	if b, k, err := SplitPath(&url.URL{}); b+k != "" || err != nil {
		t.Errorf("%q %q %v", b, k, err)
	}
}

// TestU001Paths: keys that clients and servers have escaped differently.
func TestU001Paths(t *testing.T) {
	for _, key := range []string{"foo+1/bar", "a b", "~user", "x*y", "%test.file.txt", "a%20f+/b/c", "100%25", "path//empty", "https://example.org", "a/../b", "ü/é", "(1)", "$", "a=b&c"} {
		// The canonical form, written down once more.
		var canonical strings.Builder
		for _, c := range []byte("/bucket/" + key) {
			if strings.IndexByte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/", c) >= 0 {
				canonical.WriteByte(c)
			} else {
				fmt.Fprintf(&canonical, "%%%02X", c)
			}
		}
		if got := string(appendPath(nil, "/bucket/"+key)); got != canonical.String() {
			t.Errorf("%q: %q, want %q", key, got, canonical.String())
		}
	}
}

func TestFolding(t *testing.T) {
	for value, want := range map[string]string{"": "", "  ": "", " a ": "a", "a  b": "a b", "\ta\t \tb\t": "a b", "a": "a", `"a  b"`: `"a b"`, "a , b": "a , b"} {
		if got := string(appendFolded([]byte("x"), value)); got != "x"+want {
			t.Errorf("%q: %q", value, got)
		}
	}
}

// TestSignedHeaders covers U010, U012 and headers that net/http moves about.
func TestSignedHeaders(t *testing.T) {
	for _, c := range []struct {
		signed []string
		add    map[string]string
		length int
	}{
		{[]string{"accept-encoding", "host", "x-amz-content-sha256", "x-amz-date"}, map[string]string{"Accept-Encoding": "identity"}, 0},
		{[]string{"accept-encoding", "host", "x-amz-content-sha256", "x-amz-date"}, map[string]string{"Accept-Encoding": "gzip"}, 0},
		{nil, map[string]string{"Content-Type": "text/plain"}, 0},
		{[]string{"content-length", "host", "x-amz-content-sha256", "x-amz-date"}, map[string]string{"Content-Length": "5"}, 5},
		{[]string{"content-md5", "host", "user-agent", "x-amz-content-sha256", "x-amz-date"}, map[string]string{"Content-Md5": "x", "User-Agent": "y"}, 0},
	} {
		r := newRequest(t, http.MethodPut, "http://"+docHost+":9000/b/k", make([]byte, c.length))
		s := docSigner()
		s.signed, s.payload = c.signed, payloadUnsigned
		for name, value := range c.add {
			r.Header.Set(name, value)
		}
		s.header(r)
		if _, _, err := outcome(newDoc(t), received(t, r)); err != nil {
			t.Errorf("%v: %v", c.signed, err)
		}
	}
	// What net/http has taken out of the header.
	for name, value := range map[string]string{"content-length": "5", "transfer-encoding": "chunked"} {
		r := newRequest(t, http.MethodPut, target, []byte("hello"))
		s := docSigner()
		s.signed, s.payload = []string{name, "host", "x-amz-content-sha256", "x-amz-date"}, payloadUnsigned
		slices.Sort(s.signed)
		r.Header.Set(name, value)
		s.header(r)
		r.Header.Del(name)
		r.TransferEncoding = []string{"chunked"}
		if _, _, err := outcome(newDoc(t), r); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, list := range []string{"", ";", "host;", ";host", "Host", "host;host", "x-amz-date;host", "host;x amz", "host;x\nz", "host;;x-amz-date"} {
		r := newRequest(t, http.MethodGet, target, nil)
		docSigner().header(r)
		r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+docAccessKey+"/20130524/us-east-1/s3/aws4_request, SignedHeaders="+list+", Signature="+wrongSignature)
		_, _, err := outcome(newDoc(t), r)
		refused(t, err, s3err.AuthorizationHeaderMalformed)
	}
}

func TestAuthorizationHeaders(t *testing.T) {
	const c, h, s = "Credential=" + docAccessKey + "/20130524/us-east-1/s3/aws4_request", "SignedHeaders=host;x-amz-content-sha256;x-amz-date", "Signature="
	r := newRequest(t, http.MethodGet, target, nil)
	signature := docSigner().header(r)
	for _, good := range []string{c + "," + h + "," + s + signature, c + " , " + h + ",\t" + s + signature + " ", s + signature + "," + h + "," + c} {
		r.Header.Set("Authorization", "AWS4-HMAC-SHA256 "+good)
		if _, _, err := outcome(newDoc(t), received(t, r)); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"", c, c + "," + h, c + "," + s + signature, h + "," + s + signature, c + "," + c + "," + h + "," + s + signature,
		c + "," + h + "," + s + signature + ",Extra=1", c + "," + h + "," + s + signature + ",", c + ";" + h + ";" + s + signature, "credential=x," + h + "," + s + signature} {
		r.Header.Set("Authorization", "AWS4-HMAC-SHA256 "+bad)
		_, _, err := outcome(newDoc(t), received(t, r))
		refused(t, err, s3err.AuthorizationHeaderMalformed)
	}
}

// TestDates: Date stands in for x-amz-date, and neither may be nonsense.
func TestDates(t *testing.T) {
	for date, ok := range map[string]bool{
		"Fri, 24 May 2013 00:00:00 GMT": true, "Fri, 24 May 2013 02:00:00 +0200": true, "Fri, 24 May 2013 00:00:00 -0000": true, docStamp: true, "": false, "bad date": false, "2013-05-24T00:00:00Z": false, "20130524": false, "20130524T000000Z ": false,
	} {
		r := newRequest(t, http.MethodGet, target, nil)
		s := docSigner()
		s.signed = []string{"date", "host", "x-amz-content-sha256"}
		r.Header.Set("Date", date)
		s.header(r)
		r.Header.Del("X-Amz-Date")
		_, _, err := outcome(newDoc(t), r)
		if ok && err != nil {
			t.Errorf("%q: %v", date, err)
		} else if !ok {
			refused(t, err, s3err.AccessDenied)
		}
	}
}

func TestKeyCache(t *testing.T) {
	cache := newKeyCache(100)
	for round := range 3 {
		for i := range 1000 {
			name := keyName{fmt.Sprint("key", i%700), "20130524"}
			secret := fmt.Sprint("secret", i%700, round) // replaced in each round
			if got := cache.get(name, secret, "r", "s"); got != deriveKey(secret, "20130524", "r", "s") {
				t.Fatalf("round %d: the key of %v is wrong", round, name)
			}
			if n := len(cache.young) + len(cache.old); n > 100 {
				t.Fatalf("%d keys kept", n)
			}
		}
	}
	same := keyName{"same", "20130524"}
	for _, secret := range []string{"old", "old", "new", "new", "old"} {
		if got := cache.get(same, secret, "r", "s"); got != deriveKey(secret, "20130524", "r", "s") {
			t.Errorf("the key is not that of the %s secret", secret)
		}
	}
	name := keyName{"hot", "20130524"}
	cache.get(name, "s", "r", "s")
	for i := range 49 {
		cache.get(keyName{fmt.Sprint("cold", i), "20130524"}, "s", "r", "s")
		cache.get(name, "s", "r", "s")
	}
	if _, ok := cache.young[name]; !ok {
		t.Error("a key in use is forgotten")
	}
}

// TestConcurrentUse shares one Authenticator, for the race detector.
func TestConcurrentUse(t *testing.T) {
	a := newDoc(t, func(o *Options) {
		o.KeyCache = 4
		o.Lookup = func(_ context.Context, key string) (Credential, bool) {
			return Credential{SecretKey: "secret of " + key}, true
		}
	})
	var wait sync.WaitGroup
	for n := range 8 {
		wait.Go(func() {
			for i := range 50 {
				s := docSigner()
				s.accessKey = fmt.Sprint("user", (n+i)%9)
				s.secret = "secret of " + s.accessKey
				r := newRequest(t, http.MethodGet, target+fmt.Sprint("?a=", i, "&b=", n), nil)
				s.header(r)
				if result, err := a.Authenticate(r); err != nil || result.Principal.AccessKey != s.accessKey {
					t.Errorf("%s: %v", s.accessKey, err)
				}
			}
		})
	}
	wait.Wait()
}

func TestNewWantsLookup(t *testing.T) {
	if _, err := New(Options{}); err == nil {
		t.Error("no Lookup, no error")
	}
}
