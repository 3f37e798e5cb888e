package integration

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/signer"
)

const region = "us-east-1"

// target is where requests go and who sends them.
type target struct{ url, user, password string }

// client is minio-go with nothing changed.
func (tg target) client(t *testing.T) *minio.Client {
	t.Helper()
	return tg.clientWith(t, &minio.Options{})
}

func (tg target) clientWith(t *testing.T, opts *minio.Options) *minio.Client {
	t.Helper()
	u, err := url.Parse(tg.url)
	if err != nil {
		t.Fatal(err)
	}
	opts.Creds = credentials.NewStaticV4(tg.user, tg.password, "")
	opts.Secure = u.Scheme == "https"
	opts.Region = region
	c, err := minio.New(u.Host, opts)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// answer is a response that was read to its end.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// code is the S3 error code in the body, "" without one.
func (a answer) code() string {
	var e struct{ Code string }
	if err := xml.Unmarshal(a.body, &e); err != nil {
		return ""
	}
	return e.Code
}

// request is one raw S3 request. Nothing about the key is cleaned on the way.
type request struct {
	method, bucket, key string
	query               url.Values
	header              http.Header
	body                []byte
}

func (tg target) signed(ctx context.Context, r request) (*http.Request, error) {
	u, err := url.Parse(tg.url)
	if err != nil {
		return nil, err
	}
	u.Path, u.RawPath = "/", "/"
	if r.bucket != "" {
		u.Path, u.RawPath = "/"+r.bucket, "/"+r.bucket
	}
	if r.key != "" {
		u.Path += "/" + r.key
		u.RawPath += "/" + escapeKey(r.key)
	}
	u.RawQuery = strings.ReplaceAll(r.query.Encode(), "+", "%20")
	req, err := http.NewRequestWithContext(ctx, r.method, u.String(), bytes.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	req.URL = u // not parsed again: the path goes out as it is
	for name, values := range r.header {
		req.Header[name] = values
	}
	sum := sha256.Sum256(r.body)
	req.Header.Set("X-Amz-Content-Sha256", hex.EncodeToString(sum[:]))
	return signer.SignV4(*req, tg.user, tg.password, "", region), nil
}

// escapeKey escapes everything but what S3 leaves alone in a path.
func escapeKey(key string) string {
	const plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~/"
	var b strings.Builder
	for i := range len(key) {
		if strings.IndexByte(plain, key[i]) >= 0 {
			b.WriteByte(key[i])
		} else {
			fmt.Fprintf(&b, "%%%02X", key[i])
		}
	}
	return b.String()
}

// try sends a request and reads the whole answer.
func (tg target) try(ctx context.Context, r request) (answer, error) {
	req, err := tg.signed(ctx, r)
	if err != nil {
		return answer{}, err
	}
	resp, err := rawClient.Do(req)
	if err != nil {
		return answer{}, err
	}
	body, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return answer{}, err
	}
	return answer{resp.StatusCode, resp.Header, body}, nil
}

// rawClient never follows redirects and keeps connections for many workers.
var rawClient = &http.Client{
	Transport:     &http.Transport{MaxIdleConnsPerHost: 128, DisableCompression: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	Timeout:       5 * time.Minute,
}

func (tg target) do(t *testing.T, r request) answer {
	t.Helper()
	a, err := tg.try(t.Context(), r)
	if err != nil {
		t.Fatalf("%s %s/%s: %v", r.method, r.bucket, r.key, err)
	}
	return a
}

// want sends a request and fails unless the status is right.
func (tg target) want(t *testing.T, status int, r request) answer {
	t.Helper()
	a := tg.do(t, r)
	if a.status != status {
		t.Fatalf("%s %s/%q: %d, want %d: %s", r.method, r.bucket, r.key, a.status, status, a.body)
	}
	return a
}

// bucket makes a bucket of its own for t. Against somebody else's gateway it
// is emptied and removed afterwards.
func (tg target) bucket(t *testing.T) string {
	t.Helper()
	name := fmt.Sprintf("t%x-%s", rand.Uint32(), strings.Trim(strings.Map(bucketRune, strings.ToLower(t.Name())), "-"))
	name = strings.TrimRight(name[:min(len(name), 40)], "-")
	tg.want(t, http.StatusOK, request{method: http.MethodPut, bucket: name})
	if suite.remote != nil {
		t.Cleanup(func() { tg.removeBucket(t, name) })
	}
	return name
}

func bucketRune(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
		return r
	}
	return '-'
}

func (tg target) removeBucket(t *testing.T, bucket string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := tg.client(t)
	for o := range c.ListObjectsIter(ctx, bucket, minio.ListObjectsOptions{Recursive: true}) {
		if o.Err != nil {
			t.Errorf("empty %s: %v", bucket, o.Err)
			return
		}
		if a, err := tg.try(ctx, request{method: http.MethodDelete, bucket: bucket, key: o.Key}); err != nil || a.status != http.StatusNoContent {
			t.Errorf("delete %q: %d, %v", o.Key, a.status, err)
		}
	}
	for u := range c.ListIncompleteUploads(ctx, bucket, "", true) {
		if err := c.RemoveIncompleteUpload(ctx, bucket, u.Key); err != nil {
			t.Errorf("abort %q: %v", u.Key, err)
		}
	}
	if err := c.RemoveBucket(ctx, bucket); err != nil {
		t.Errorf("remove %s: %v", bucket, err)
	}
}

// seed is that of random load, printed so that a run can be repeated.
func seed(t *testing.T) uint64 {
	t.Helper()
	s := rand.Uint64()
	if text := os.Getenv("RINGFENCE_TEST_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("RINGFENCE_TEST_SEED: %v", err)
		}
		s = n
	}
	t.Logf("seed %d: repeat with RINGFENCE_TEST_SEED=%d", s, s)
	return s
}

// noise is size random bytes as a stream that can be read again from a seed.
func noise(seed uint64, size int64) io.Reader {
	return io.LimitReader(rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), byte(seed >> 24), byte(seed >> 32), 1}), size)
}

func noiseBytes(seed uint64, size int64) []byte {
	b := make([]byte, size)
	if _, err := io.ReadFull(noise(seed, size), b); err != nil {
		return nil // an endless source never ends early
	}
	return b
}

func sumOf(r io.Reader) (string, int64, error) {
	h := sha256.New()
	n, err := io.Copy(h, r)
	return hex.EncodeToString(h.Sum(nil)), n, err
}
