package integration

import (
	"bufio"
	"bytes"
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
)

// TestNothingLeaks cuts uploads and downloads, and holds goroutines, open
// files and buffers against what they were.
func TestNothingLeaks(t *testing.T) {
	t.Parallel()
	g := startGateway(t, 6)
	tg := g.target()
	bucket := tg.bucket(t)
	big := noiseBytes(1, 8*mib)
	use := func(rounds int) {
		for range rounds {
			cutUpload(t, tg, bucket, big)
			cutDownload(t, tg, bucket)
		}
	}
	tg.want(t, http.StatusOK, request{method: http.MethodPut, bucket: bucket, key: "big", body: big})
	use(3) // pools and caches fill
	rawClient.CloseIdleConnections()
	eventually(t, 20*time.Second, "idle", func() bool { return g.metrics(t)["ringfence_buffer_bytes"] == 0 })
	before := g.metrics(t)
	rounds := 25
	if required("leaks") {
		rounds = 500 // of an upload and a download
	}
	use(rounds)
	rawClient.CloseIdleConnections()
	for _, series := range []struct {
		name  string
		slack float64
	}{{"go_goroutines", 10}, {"process_open_fds", 15}, {"ringfence_buffer_bytes", 0}} {
		if _, ok := before[series.name]; !ok {
			t.Fatalf("no series %s", series.name)
		}
		last := 0.0
		eventually(t, 20*time.Second, series.name+" is back", func() bool {
			last = g.metrics(t)[series.name]
			return last <= before[series.name]+series.slack
		})
		t.Logf("%s: %v before, %v after", series.name, before[series.name], last)
	}
	a := tg.want(t, http.StatusOK, request{method: http.MethodGet, bucket: bucket, key: "big"})
	if !bytes.Equal(a.body, big) {
		t.Error("a cut upload changed the object")
	}
	if got := listV2(t, tg, bucket, "", ""); len(got) != 1 {
		t.Errorf("listing %q", got)
	}
}

// cutUpload sends half of a body and cuts the connection.
func cutUpload(t *testing.T, tg target, bucket string, body []byte) {
	t.Helper()
	req, err := tg.signed(t.Context(), request{method: http.MethodPut, bucket: bucket, key: "big", body: body})
	if err != nil {
		t.Fatal(err)
	}
	req.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body[:len(body)/2]), brokenReader{}))
	if resp, err := rawClient.Do(req); err == nil {
		resp.Body.Close()
		t.Errorf("half an upload: %s", resp.Status)
	}
}

// cutDownload reads the beginning of a body and cuts the connection.
func cutDownload(t *testing.T, tg target, bucket string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := tg.signed(ctx, request{method: http.MethodGet, bucket: bucket, key: "big"})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := rawClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("download: %s", resp.Status)
	}
	if _, err := io.CopyN(io.Discard, resp.Body, 100_000); err != nil {
		t.Fatal(err)
	}
	cancel()
	resp.Body.Close()
}

// TestMemoryUnderLoad: 32 uploads and then 32 downloads of 256 MiB at once.
func TestMemoryUnderLoad(t *testing.T) {
	needRequired(t, "memory")
	const streams, size, limit = 32, 256 * mib, 600 * mib
	g := startGateway(t, 6)
	tg := g.target()
	bucket, c := tg.bucket(t), tg.client(t)
	all := func(do func(i int) error) {
		t.Helper()
		var wg sync.WaitGroup
		for i := range streams {
			wg.Go(func() {
				if err := do(i); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	sums := make([]string, streams)
	all(func(i int) error {
		sum, _, err := sumOf(noise(uint64(i), size))
		sums[i] = sum
		return err
	})
	all(func(i int) error {
		_, err := c.PutObject(t.Context(), bucket, fmt.Sprint(i), noise(uint64(i), size), size, minio.PutObjectOptions{DisableMultipart: true})
		return err
	})
	_, afterPut := g.rss(t)
	all(func(i int) error {
		o, err := c.GetObject(t.Context(), bucket, fmt.Sprint(i), minio.GetObjectOptions{})
		if err != nil {
			return err
		}
		defer o.Close()
		sum, n, err := sumOf(o)
		if err == nil && (n != size || sum != sums[i]) {
			err = fmt.Errorf("object %d: %d bytes, or others", i, n)
		}
		return err
	})
	now, peak := g.rss(t)
	t.Logf("peak RSS %d MiB after uploads, %d MiB after downloads, %d MiB now", afterPut/mib, peak/mib, now/mib)
	if peak > limit {
		t.Errorf("peak RSS %d MiB, at most %d", peak/mib, limit/mib)
	}
}

// TestIdleConnections holds many connections open and expects others to be
// served as before.
func TestIdleConnections(t *testing.T) {
	t.Parallel()
	n := 1000
	if required("connections") {
		n = 10_000
	}
	g := startGateway(t, 6)
	tg := g.target()
	bucket := tg.bucket(t)
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	for range n {
		c, err := net.Dial("tcp", g.address)
		if err != nil {
			t.Fatalf("after %d connections: %v", len(conns), err)
		}
		conns = append(conns, c)
		// One request each, so that they are idle and not merely new.
		if _, err := fmt.Fprintf(c, "GET /-/live HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	start := time.Now()
	putStock(t, tg, bucket, "meanwhile").check(t, tg, bucket)
	took := time.Since(start)
	now, _ := g.rss(t)
	t.Logf("%d idle connections: RSS %d MiB, a stock of objects in %v", n, now/mib, took)
	if now > 600*mib {
		t.Errorf("RSS %d MiB", now/mib)
	}
	if took > 10*time.Second {
		t.Errorf("the idle connections slow others: %v", took)
	}
}

// TestMillionKeys lists a million keys: all of them, in order, and the first
// page at once.
func TestMillionKeys(t *testing.T) {
	needRequired(t, "million")
	const total = 1_000_000
	g := startGateway(t, 6)
	tg := g.target()
	bucket := tg.bucket(t)
	key := func(i int64) string { return fmt.Sprintf("%02d/%07d", i%50, i) }
	var next atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for range 64 {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < total && !t.Failed(); i = next.Add(1) - 1 {
				a, err := tg.try(t.Context(), request{method: http.MethodPut, bucket: bucket, key: key(i), body: []byte("x")})
				if err != nil || a.status != http.StatusOK {
					t.Errorf("put %d: %d, %v", i, a.status, err)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d puts in %v", total, time.Since(start))
	start = time.Now()
	page, _ := listPage(t, tg, bucket, url.Values{"list-type": {"2"}})
	first := time.Since(start)
	if len(page.Contents) != 1000 || !page.IsTruncated || first > time.Second {
		t.Errorf("first page: %d keys in %v", len(page.Contents), first)
	}
	start = time.Now()
	n, last := 0, ""
	for token := ""; ; {
		query := url.Values{"list-type": {"2"}}
		if token != "" {
			query.Set("continuation-token", token)
		}
		a := tg.want(t, http.StatusOK, request{method: http.MethodGet, bucket: bucket, query: query})
		var l listing
		if err := xml.Unmarshal(a.body, &l); err != nil {
			t.Fatal(err)
		}
		for _, o := range l.Contents {
			if strings.Compare(o.Key, last) <= 0 {
				t.Fatalf("%q after %q", o.Key, last)
			}
			n, last = n+1, o.Key
		}
		if token = l.NextContinuationToken; !l.IsTruncated {
			break
		}
	}
	took := time.Since(start)
	t.Logf("listed %d keys in %v, %.0f/s with the client's decoding; first page %v", n, took, float64(n)/took.Seconds(), first)
	if n != total {
		t.Errorf("listed %d keys of %d", n, total)
	}
	start = time.Now()
	if names := listV2(t, tg, bucket, "", "/"); len(names) != 50 || time.Since(start) > time.Second {
		t.Errorf("%d prefixes of 50 in %v", len(names), time.Since(start))
	}
}

// TestSlowClientHoldsNothingUp sends a body a byte at a time beside others.
func TestSlowClientHoldsNothingUp(t *testing.T) {
	t.Parallel()
	g := startGateway(t, 6)
	tg := g.target()
	bucket := tg.bucket(t)
	body := noiseBytes(5, 20_000)
	req, err := tg.signed(t.Context(), request{method: http.MethodPut, bucket: bucket, key: "slow", body: body})
	if err != nil {
		t.Fatal(err)
	}
	drip, feed := io.Pipe()
	req.Body = drip
	answered := make(chan error, 1)
	go func() { // ends when the body was fed or cut
		resp, err := rawClient.Do(req)
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s", resp.Status)
		}
		answered <- err
	}()
	if _, err := feed.Write(body[:1000]); err != nil {
		t.Fatal(err)
	}
	// The same key, while the slow body is on its way.
	for i := range 20 {
		tg.want(t, http.StatusOK, request{method: http.MethodPut, bucket: bucket, key: "slow", body: fmt.Appendf(nil, "%d", i)})
	}
	a := tg.want(t, http.StatusOK, request{method: http.MethodGet, bucket: bucket, key: "slow"})
	if string(a.body) != "19" {
		t.Errorf("reads %q", a.body)
	}
	if _, err := feed.Write(body[1000:]); err != nil {
		t.Fatal(err)
	}
	if err := feed.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	a = tg.want(t, http.StatusOK, request{method: http.MethodGet, bucket: bucket, key: "slow"})
	if !bytes.Equal(a.body, body) {
		t.Error("the slow body did not arrive")
	}
}
