package erasure

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

// realStore is a store with its real engine on six simulated disks.
func realStore(t testing.TB) *testStore {
	ts := newTestStore(t, storeShape{sets: 1, disks: 6, parity: 2, real: true})
	ts.mustBucket("b")
	return ts
}

// eventually tries until it works; it is for what a background heals.
func (ts *testStore) eventually(what string, f func() error) {
	ts.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			ts.t.Fatalf("%s: %v", what, err)
		}
	}
}

func (ts *testStore) try(key string, b []byte) func() error {
	return func() error {
		_, err := ts.Put(context.Background(), "b", key, input(b))
		return err
	}
}

// Any two of six disks may leave, and others after they came back.
func TestRealDisksComeAndGo(t *testing.T) {
	ts := realStore(t)
	bodies := map[string][]byte{}
	put := func(key string, size int) {
		t.Helper()
		bodies[key] = text(uint64(len(bodies)), size)
		ts.eventually("put "+key, ts.try(key, bodies[key]))
	}
	for i, size := range sizes {
		put(fmt.Sprint("before-", i), size)
	}
	for round, away := range [][2]int{{0, 1}, {2, 5}, {4, 3}} {
		ts.sims[away[0]].Vanish()
		ts.sims[away[1]].Vanish()
		for i, size := range sizes {
			put(fmt.Sprintf("round-%d-%d", round, i), size)
		}
		put("overwritten", 100_000+round)
		for key, body := range bodies {
			ts.wantBody("b", key, body)
		}
		page, err := ts.List(t.Context(), "b", ListInput{Max: 1000})
		if err != nil || len(page.Objects) != len(bodies) {
			t.Fatalf("round %d: %d objects listed, want %d, %v", round, len(page.Objects), len(bodies), err)
		}
		ts.sims[away[0]].Return()
		ts.sims[away[1]].Return()
		ts.eventually("all disks in sync", func() error {
			for _, d := range ts.sets[0].engine.Health().Disks {
				if d.State != "insync" {
					return fmt.Errorf("disk %d is %s", d.Slot, d.State)
				}
			}
			return nil
		})
	}
}

// Three disks gone: an error that says so, and everything back with them.
func TestRealTooFewDisks(t *testing.T) {
	ts := realStore(t)
	body := text(1, 100_000)
	ts.mustPut("b", "k", body)
	for i := range 4 {
		ts.sims[i].Vanish()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := ts.Put(ctx, "b", "k2", input(body)); !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrUnknown) {
		t.Errorf("put: %v", err)
	}
	if h := ts.Health(); h.Ready || len(h.Reasons) == 0 {
		t.Errorf("health: %+v", h)
	}
	for i := range 4 {
		ts.sims[i].Return()
	}
	ts.eventually("read", func() error { _, err := ts.read("b", "k"); return err })
	ts.wantBody("b", "k", body)
	ts.eventually("put", ts.try("k2", body))
	ts.eventually("ready", func() error {
		if h := ts.Health(); !h.Ready {
			return errors.New(fmt.Sprint(h.Reasons))
		}
		return nil
	})
}

func TestRealOneCreatorWins(t *testing.T) {
	ts := realStore(t)
	exists := errors.New("exists")
	for round := range 20 {
		var wg sync.WaitGroup
		wins := make(chan int, 64)
		for i := range 64 {
			wg.Go(func() {
				in := input(text(uint64(i), 20+i%2*20_000))
				in.Precond = func(cur *ObjectInfo) error {
					if cur != nil {
						return exists
					}
					return nil
				}
				switch _, err := ts.Put(context.Background(), "b", fmt.Sprint(round), in); {
				case err == nil:
					wins <- i
				case !errors.Is(err, exists):
					t.Errorf("creator %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		if len(wins) != 1 {
			t.Fatalf("round %d: %d creators won", round, len(wins))
		}
	}
}

func BenchmarkPut(b *testing.B) {
	for _, size := range []int{100, 16 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			ts := realStore(b)
			body := text(1, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := ts.Put(context.Background(), "b", "k"+fmt.Sprint(&pb), input(body)); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
