package quorumlog

import (
	"context"
	"fmt"
	"testing"
	"time"

	"ringfence/erasure/meta/enginetest"
)

// start runs an engine over w until the test ends.
func start(t *testing.T, w *world, opts Options) *Engine {
	t.Helper()
	opts.Disks = w.disks()
	e, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Recover(t.Context()); err != nil {
		t.Fatalf("recover: %v", err)
	}
	run(t, e)
	return e
}

// run runs the engine until the test ends, then closes it.
func run(t *testing.T, e *Engine) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := e.Run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		if err := e.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
}

// until polls for something that other goroutines bring about.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	limit := time.After(10 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("timed out: %s", what)
		}
	}
}

// inSync reports how many disks are.
func inSync(e *Engine) (n int) {
	for _, d := range e.Health().Disks {
		if d.State == stateInSync.String() {
			n++
		}
	}
	return n
}

func TestConformance(t *testing.T) {
	for _, n := range []int{1, 2, 3, 6, 16} {
		if testing.Short() && n != 6 {
			continue
		}
		t.Run(fmt.Sprintf("disks=%d", n), func(t *testing.T) {
			enginetest.Run(t, func(t *testing.T) enginetest.Harness {
				w := newWorld(t, n)
				e := start(t, w, Options{TendEvery: 5 * time.Millisecond, CallWait: 200 * time.Millisecond})
				return enginetest.Harness{Engine: e, Outage: func() func() { return outage(t, w, e) }}
			})
		})
	}
}

// outage takes away so many disks that no quorum is left.
func outage(t *testing.T, w *world, e *Engine) (end func()) {
	t.Helper()
	n := len(w.bays)
	away := w.bays[n/2:] // at least n-quorum+1 of them
	for _, b := range away {
		b.sim.Vanish()
	}
	return func() {
		for _, b := range away {
			b.sim.Return()
			if err := b.open(); err != nil {
				t.Errorf("open: %v", err)
			}
		}
		e.Kick()
		until(t, "all disks back", func() bool { return inSync(e) == n && e.Health().Writable })
	}
}
