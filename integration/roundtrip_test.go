package integration

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"
)

const mib = 1 << 20

// roundTripSizes are the borders: nothing, inline, one block, a part and one
// byte less, many stripes.
func roundTripSizes() []int64 {
	sizes := []int64{0, 1, 4 << 10, 16 << 10, 16<<10 + 1, 5*mib - 1, 5 * mib, 64 * mib}
	if required("large") {
		sizes = append(sizes, 1<<30)
	}
	return sizes
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	tg := anyGateway(t)
	bucket, c := tg.bucket(t), tg.client(t)
	for i, size := range roundTripSizes() {
		for _, way := range []struct {
			name string
			opts minio.PutObjectOptions
		}{
			{"single", minio.PutObjectOptions{DisableMultipart: true}},
			{"multipart", minio.PutObjectOptions{PartSize: 5 * mib}},
		} {
			t.Run(fmt.Sprintf("%s/%d", way.name, size), func(t *testing.T) {
				key := fmt.Sprintf("%s-%d", way.name, size)
				want, _, err := sumOf(noise(uint64(i), size))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := c.PutObject(t.Context(), bucket, key, noise(uint64(i), size), size, way.opts); err != nil {
					t.Fatal(err)
				}
				o, err := c.GetObject(t.Context(), bucket, key, minio.GetObjectOptions{})
				if err != nil {
					t.Fatal(err)
				}
				defer o.Close()
				got, n, err := sumOf(o)
				if err != nil || n != size || got != want {
					t.Errorf("read %d bytes, same %v, %v", n, got == want, err)
				}
				info, err := c.StatObject(t.Context(), bucket, key, minio.StatObjectOptions{})
				if err != nil || info.Size != size {
					t.Errorf("stat: size %d, %v", info.Size, err)
				}
			})
		}
	}
}

func TestRanges(t *testing.T) {
	t.Parallel()
	tg := anyGateway(t)
	bucket := tg.bucket(t)
	for _, size := range []int{1, 5000, 3*mib + 17} {
		body := noiseBytes(uint64(size), int64(size))
		key := fmt.Sprintf("range-%d", size)
		tg.want(t, http.StatusOK, request{method: http.MethodPut, bucket: bucket, key: key, body: body})
		for _, r := range []struct {
			header   string
			from, to int // to is exclusive; from -1: not satisfiable
		}{
			{"bytes=0-0", 0, 1},
			{fmt.Sprintf("bytes=%d-%d", size/2, size/2+1000), size / 2, min(size, size/2+1001)},
			{"bytes=-1", size - 1, size},
			{fmt.Sprintf("bytes=-%d", size+10), 0, size},
			{fmt.Sprintf("bytes=%d-", size-1), size - 1, size},
			{fmt.Sprintf("bytes=%d-", size), -1, 0},
		} {
			a := tg.do(t, request{method: http.MethodGet, bucket: bucket, key: key, header: http.Header{"Range": {r.header}}})
			if r.from < 0 {
				if a.status != http.StatusRequestedRangeNotSatisfiable || a.code() != "InvalidRange" {
					t.Errorf("%d bytes, %s: %d %s", size, r.header, a.status, a.code())
				}
				continue
			}
			if a.status != http.StatusPartialContent || !bytes.Equal(a.body, body[r.from:r.to]) {
				t.Errorf("%d bytes, %s: %d with %d bytes, want %d", size, r.header, a.status, len(a.body), r.to-r.from)
			}
		}
	}
}

// TestInterruptedUploadStoresNothing: a body that ends early, or was damaged,
// leaves what was there before.
func TestInterruptedUploadStoresNothing(t *testing.T) {
	t.Parallel()
	tg := anyGateway(t)
	bucket := tg.bucket(t)
	for _, size := range []int64{1000, 3 * mib} {
		key := fmt.Sprintf("kept-%d", size)
		old := noiseBytes(1, size)
		tg.want(t, http.StatusOK, request{method: http.MethodPut, bucket: bucket, key: key, body: old})

		req, err := tg.signed(t.Context(), request{method: http.MethodPut, bucket: bucket, key: key, body: noiseBytes(2, size)})
		if err != nil {
			t.Fatal(err)
		}
		req.Body = io.NopCloser(io.MultiReader(bytes.NewReader(noiseBytes(2, size/2)), brokenReader{}))
		if resp, err := rawClient.Do(req); err == nil {
			resp.Body.Close()
			t.Errorf("half a body was answered %s", resp.Status)
		}

		req, err = tg.signed(t.Context(), request{method: http.MethodPut, bucket: bucket, key: key, body: noiseBytes(2, size)})
		if err != nil {
			t.Fatal(err)
		}
		req.Body = io.NopCloser(bytes.NewReader(noiseBytes(3, size))) // not what was signed
		resp, err := rawClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("a body that was not signed: %s", resp.Status)
		}

		a := tg.want(t, http.StatusOK, request{method: http.MethodGet, bucket: bucket, key: key})
		if !bytes.Equal(a.body, old) {
			t.Errorf("%d bytes: the old object is gone", size)
		}
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestUploadsAndTheirAbort(t *testing.T) {
	t.Parallel()
	tg := anyGateway(t)
	bucket := tg.bucket(t)
	core := minio.Core{Client: tg.client(t)}
	id, err := core.NewMultipartUpload(t.Context(), bucket, "k", minio.PutObjectOptions{ContentType: "text/x-test"})
	if err != nil {
		t.Fatal(err)
	}
	var parts []minio.CompletePart
	var want []byte
	for n, size := range []int64{5 * mib, 5*mib + 1, 7} {
		body := noiseBytes(uint64(n), size)
		want = append(want, body...)
		p, err := core.PutObjectPart(t.Context(), bucket, "k", id, n+1, bytes.NewReader(body), size, minio.PutObjectPartOptions{})
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, minio.CompletePart{PartNumber: n + 1, ETag: p.ETag})
	}
	if a := tg.do(t, request{method: http.MethodGet, bucket: bucket, key: "k"}); a.status != http.StatusNotFound {
		t.Errorf("an upload in progress is visible: %d", a.status)
	}
	done, err := core.CompleteMultipartUpload(t.Context(), bucket, "k", id, parts, minio.PutObjectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(done.ETag, "-3") {
		t.Errorf("etag %s, want one of three parts", done.ETag)
	}
	a := tg.want(t, http.StatusOK, request{method: http.MethodGet, bucket: bucket, key: "k"})
	if !bytes.Equal(a.body, want) || a.header.Get("Content-Type") != "text/x-test" {
		t.Errorf("%d bytes of %d, type %s", len(a.body), len(want), a.header.Get("Content-Type"))
	}
	// Across the border of two parts.
	a = tg.want(t, http.StatusPartialContent, request{method: http.MethodGet, bucket: bucket, key: "k",
		header: http.Header{"Range": {fmt.Sprintf("bytes=%d-%d", 5*mib-10, 5*mib+10)}}})
	if !bytes.Equal(a.body, want[5*mib-10:5*mib+11]) {
		t.Error("a range over two parts is wrong")
	}

	id, err = core.NewMultipartUpload(t.Context(), bucket, "gone", minio.PutObjectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := core.AbortMultipartUpload(t.Context(), bucket, "gone", id); err != nil {
		t.Fatal(err)
	}
	_, err = core.PutObjectPart(t.Context(), bucket, "gone", id, 1, strings.NewReader("x"), 1, minio.PutObjectPartOptions{})
	if code := minio.ToErrorResponse(err).Code; code != minio.NoSuchUpload {
		t.Errorf("a part of an aborted upload: %v", err)
	}
}

func TestBucketLife(t *testing.T) {
	t.Parallel()
	tg := anyGateway(t)
	bucket := tg.bucket(t)
	tg.want(t, http.StatusOK, request{method: http.MethodHead, bucket: bucket})
	tg.want(t, http.StatusOK, request{method: http.MethodPut, bucket: bucket, key: "x", body: []byte("x")})
	if a := tg.do(t, request{method: http.MethodDelete, bucket: bucket}); a.code() != "BucketNotEmpty" {
		t.Errorf("delete a bucket with an object: %d %s", a.status, a.code())
	}
	tg.want(t, http.StatusNoContent, request{method: http.MethodDelete, bucket: bucket, key: "x"})
	tg.want(t, http.StatusNoContent, request{method: http.MethodDelete, bucket: bucket})
	tg.want(t, http.StatusNotFound, request{method: http.MethodHead, bucket: bucket})
	if a := tg.do(t, request{method: http.MethodGet, bucket: bucket, key: "x"}); a.code() != "NoSuchBucket" {
		t.Errorf("read from a bucket that is gone: %s", a.code())
	}
	tg.want(t, http.StatusOK, request{method: http.MethodPut, bucket: bucket}) // for the clean-up, and blank again
	if keys := listV2(t, tg, bucket, "", ""); len(keys) != 0 {
		t.Errorf("a new bucket holds %q", keys)
	}
}

func TestAnonymousAndWrongSecretAreRefused(t *testing.T) {
	t.Parallel()
	tg := anyGateway(t)
	bucket := tg.bucket(t)
	for _, path := range []string{"/", "/" + bucket, "/" + bucket + "/k"} {
		resp, err := http.Get(tg.url + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("anonymous GET %s: %s", path, resp.Status)
		}
	}
	wrong := tg
	wrong.password += "x"
	if a := wrong.do(t, request{method: http.MethodPut, bucket: bucket, key: "k", body: []byte("x")}); a.code() != "SignatureDoesNotMatch" {
		t.Errorf("wrong secret: %d %s", a.status, a.code())
	}
	unknown := tg
	unknown.user = "nobody"
	if a := unknown.do(t, request{method: http.MethodGet, bucket: bucket}); a.code() != "InvalidAccessKeyId" {
		t.Errorf("unknown user: %d %s", a.status, a.code())
	}
}

// listing is what the list tests read of an answer.
type listing struct {
	IsTruncated           bool
	NextContinuationToken string
	NextMarker            string
	Contents              []struct{ Key string }
	CommonPrefixes        []struct{ Prefix string }
}

// listPage fetches one page with encoding-type=url and decodes it.
func listPage(t *testing.T, tg target, bucket string, query url.Values) (listing, []string) {
	t.Helper()
	query.Set("encoding-type", "url")
	a := tg.want(t, http.StatusOK, request{method: http.MethodGet, bucket: bucket, query: query})
	var l listing
	if err := xml.Unmarshal(a.body, &l); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, o := range l.Contents {
		names = append(names, unescape(t, o.Key))
	}
	for _, p := range l.CommonPrefixes {
		names = append(names, "prefix:"+unescape(t, p.Prefix))
	}
	return l, names
}

func unescape(t *testing.T, s string) string {
	t.Helper()
	out, err := url.QueryUnescape(s)
	if err != nil {
		t.Fatalf("key %q in a listing: %v", s, err)
	}
	return out
}

// listV2 lists everything, page by page.
func listV2(t *testing.T, tg target, bucket, prefix, delimiter string) []string {
	t.Helper()
	var all []string
	query := url.Values{"list-type": {"2"}}
	if prefix != "" {
		query.Set("prefix", prefix)
	}
	if delimiter != "" {
		query.Set("delimiter", delimiter)
	}
	for {
		l, names := listPage(t, tg, bucket, query)
		all = append(all, names...)
		if !l.IsTruncated {
			return all
		}
		query.Set("continuation-token", l.NextContinuationToken)
	}
}
