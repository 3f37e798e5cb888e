package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// threads counts those of the process, descriptors its open files.
func (g *gateway) threads(t *testing.T) (threads, descriptors int) {
	t.Helper()
	for dir, n := range map[string]*int{"task": &threads, "fd": &descriptors} {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/%s", g.cmd.Process.Pid, dir))
		if err != nil {
			t.Fatal(err)
		}
		*n = len(entries)
	}
	return threads, descriptors
}

// turnAll gives all knobs values by chance.
func turnAll(t *testing.T, tg target, rng *rand.Rand) {
	t.Helper()
	for _, k := range []struct {
		name   string
		values []string
	}{
		{"io-uring-read-enable", []string{"on", "off", "on"}},
		{"io-uring-shards", []string{"1", "2", "4", "3"}},
		{"io-uring-buffer-mode", []string{"non-fixed", "legacy", "dynamic", "static"}},
		{"io-uring-inline", []string{"on", "off"}},
		{"io-uring-entries", []string{"4", "64", "128"}},
		{"o-direct-read-enable", []string{"on", "off"}},
		{"o-direct-read-threshold", []string{"4KiB", "4MiB"}},
		{"io-uring-shadow-share", []string{"0", "1", "0.1"}},
		{"io-uring-fd-cache", []string{"on", "off"}},
		{"page-cache-reclaim-enable", []string{"on", "off"}},
		{"page-cache-reclaim-threshold", []string{"4KiB", "4MiB"}},
	} {
		tg.turn(t, k.name, k.values[rng.IntN(len(k.values))])
	}
}

// TestTogglesUnderLoad turns the knobs of the read engines while clients read
// and write: no request fails, no byte is wrong, no ring loses a read, and
// nothing of all the rings that came and went is left.
func TestTogglesUnderLoad(t *testing.T) {
	t.Parallel()
	g := startRings(t, 6, inlineOff)
	tg := g.target()
	bucket := tg.bucket(t)
	objects := putStock(t, tg, bucket, "x")
	settle := func() {
		for name, value := range map[string]string{"io-uring-read-enable": "on", "io-uring-shards": "1", "io-uring-buffer-mode": "non-fixed", "io-uring-entries": "128", "io-uring-fd-cache": "on"} {
			tg.turn(t, name, value)
		}
		tg.wantTier(t, "ring")
		tg.turn(t, "io-uring-read-enable", "off")
		tg.wantTier(t, "std")
		objects.check(t, tg, bucket)
		eventually(t, 30*time.Second, "nothing is in flight", func() bool {
			page := g.metrics(t)
			return conserve(t, page).inFlight == 0 && page["ringfence_buffer_bytes"] == 0
		})
	}
	rng := rand.New(rand.NewPCG(seed(t), 5))
	turnAll(t, tg, rng)
	settle()
	rawClient.CloseIdleConnections()
	threads, descriptors := g.threads(t)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var clients sync.WaitGroup
	var served atomic.Int64
	for c := range 6 {
		clients.Go(func() { serve(ctx, t, tg, bucket, objects, rand.New(rand.NewPCG(uint64(c), 6)), &served) })
	}
	for turns := 0; turns < 100 && !t.Failed(); turns += 11 {
		since := served.Load()
		turnAll(t, tg, rng)
		conserve(t, g.metrics(t))
		eventually(t, 30*time.Second, "requests are served", func() bool { return served.Load() > since+20 || t.Failed() })
	}
	cancel()
	clients.Wait()
	settle()
	rawClient.CloseIdleConnections()
	var nowThreads, nowDescriptors int
	eventually(t, 30*time.Second, "threads and descriptors are back", func() bool {
		nowThreads, nowDescriptors = g.threads(t)
		// The runtime keeps threads that calls had blocked.
		return nowThreads <= threads+40 && nowDescriptors <= descriptors+20
	})
	sum := conserve(t, g.metrics(t))
	if sum.submitted == 0 {
		t.Error("no ring read anything")
	}
	t.Logf("%d requests, %v reads of rings; threads %d, then %d; descriptors %d, then %d", served.Load(), sum.submitted, threads, nowThreads, descriptors, nowDescriptors)
	g.stop(t)
}

// serve reads the stock, and writes now and then, until ctx ends.
func serve(ctx context.Context, t *testing.T, tg target, bucket string, objects stock, rng *rand.Rand, served *atomic.Int64) {
	keys := objects.keys()
	for ctx.Err() == nil {
		key := keys[rng.IntN(len(keys))]
		want := objects[key]
		r := request{method: http.MethodGet, bucket: bucket, key: key, header: http.Header{}}
		status := http.StatusOK
		switch rng.IntN(4) {
		case 0:
			if len(want) > 0 {
				off := rng.IntN(len(want))
				r.header.Set("Range", fmt.Sprintf("bytes=%d-", off))
				want, status = want[off:], http.StatusPartialContent
			}
		case 1:
			r.method, r.body = http.MethodPut, want
			want = nil
		}
		a, err := tg.try(context.WithoutCancel(ctx), r)
		if err != nil || a.status != status || sumBytes(a.body) != sumBytes(want) {
			t.Errorf("%s %s %v: %d, %d bytes, %v", r.method, key, r.header, a.status, len(a.body), err)
			return
		}
		served.Add(1)
	}
}
