package integration

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"
)

// abortsOf is how many downloads are cut.
func abortsOf() int {
	switch {
	case testing.Short():
		return 300
	case required("leaks"):
		return 20_000
	}
	return 2000
}

// TestAbortedReadsAreReclaimed cuts downloads wherever chance wants it: at
// every moment each ring accounts for all of its reads, and in the end none is
// left and all memory is back.
func TestAbortedReadsAreReclaimed(t *testing.T) {
	t.Parallel()
	for _, leg := range []struct {
		name    string
		environ []string
		aborts  int
	}{
		{"inline first", []string{ringsOn, reclaimOn, reclaimSoon}, abortsOf() / 4},
		{"rings only", []string{ringsOn, inlineOff}, abortsOf()},
		{"past the page cache", []string{ringsOn, inlineOff, "RINGFENCE_O_DIRECT_READ_ENABLE=on", "RINGFENCE_O_DIRECT_READ_THRESHOLD=4096"}, abortsOf() / 4},
	} {
		t.Run(leg.name, func(t *testing.T) {
			g := startRings(t, 6, leg.environ...)
			abortAll(t, g, leg.aborts)
			g.stop(t)
		})
	}
}

func abortAll(t *testing.T, g *gateway, aborts int) {
	tg := g.target()
	tg.wantTier(t, "ring")
	bucket := tg.bucket(t)
	sizes := []int64{100_000, mib + 1, 8 * mib}
	for _, size := range sizes {
		tg.want(t, http.StatusOK, request{method: http.MethodPut, bucket: bucket, key: fmt.Sprint(size), body: noiseBytes(uint64(size), size)})
	}
	eventually(t, 20*time.Second, "idle", func() bool { return g.metrics(t)["ringfence_buffer_bytes"] == 0 })
	before := g.metrics(t)
	rng := rand.New(rand.NewPCG(seed(t), 3))
	work := make(chan uint64)
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for s := range work {
				abort(t, tg, bucket, sizes, rand.New(rand.NewPCG(s, 4)))
			}
		})
	}
	for i := range aborts {
		work <- rng.Uint64()
		if i%50 == 0 {
			conserve(t, g.metrics(t))
		}
	}
	close(work)
	clients.Wait()
	rawClient.CloseIdleConnections()
	eventually(t, 20*time.Second, "no read is in flight and all buffers are back", func() bool {
		page := g.metrics(t)
		return conserve(t, page).inFlight == 0 && page["ringfence_buffer_bytes"] <= before["ringfence_buffer_bytes"]
	})
	sum := conserve(t, g.metrics(t))
	if sum.submitted == 0 {
		t.Error("no ring read anything")
	}
	t.Logf("%d downloads cut: %v reads of rings, %v of them for nobody", aborts, sum.submitted, sum.orphans)
	for _, size := range sizes {
		a := tg.want(t, http.StatusOK, request{method: http.MethodGet, bucket: bucket, key: fmt.Sprint(size)})
		if sumBytes(a.body) != sumBytes(noiseBytes(uint64(size), size)) {
			t.Errorf("%d bytes: wrong ones", size)
		}
	}
}

// abort asks for an object, or a range, and leaves: before the answer, after a
// while, or after some bytes.
func abort(t *testing.T, tg target, bucket string, sizes []int64, rng *rand.Rand) {
	size := sizes[rng.IntN(len(sizes))]
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r := request{method: http.MethodGet, bucket: bucket, key: fmt.Sprint(size), header: http.Header{}}
	if rng.IntN(2) == 0 {
		r.header.Set("Range", fmt.Sprintf("bytes=%d-", rng.Int64N(size)))
	}
	req, err := tg.signed(ctx, r)
	if err != nil {
		t.Error(err)
		return
	}
	if rng.IntN(3) > 0 {
		timer := time.AfterFunc(time.Duration(rng.IntN(8000))*time.Microsecond, cancel)
		defer timer.Stop()
	}
	resp, err := rawClient.Do(req)
	if err != nil {
		if ctx.Err() == nil {
			t.Errorf("download: %v", err)
		}
		return
	}
	_, err = io.CopyN(io.Discard, resp.Body, rng.Int64N(size))
	if err != nil && err != io.EOF && ctx.Err() == nil {
		t.Errorf("download: %v", err)
	}
	cancel()
	_ = resp.Body.Close() // the connection is cut
}
