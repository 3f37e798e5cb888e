package local_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"ringfence/storage"
	"ringfence/storage/local"
)

var faultRuns = flag.Int("fault.runs", 40, "failing calls of the metadata's file system to try")

// failingStore is a disk whose metadata's file system fails on demand. Its
// store is tuned to replace logs, tables and MANIFESTs all the time.
func failingStore(t *testing.T, hook func(op, name string) error) *rig {
	r := newRig(t, &hookFS{FS: memWith(t, "/disk"), hook: hook}, "/disk")
	if err := r.disk.Close(); err != nil {
		t.Fatal(err)
	}
	r.opts.MemTableBytes = 16 << 10
	r.opts.SetManifestBytes(1)
	return r
}

// fill writes until something fails, or n keys are acknowledged, by several
// writers, and returns those keys.
func fill(ctx context.Context, d *local.Disk, n int) (acked []string, err error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	value := []byte(strings.Repeat("v", 1<<10))
	for w := range 3 {
		wg.Go(func() {
			for i := range n / 3 {
				key := fmt.Sprintf("k%d-%05d", w, i)
				var b storage.Batch
				b.Set([]byte(key), value)
				aerr := d.KV().Apply(ctx, &b)
				mu.Lock()
				if aerr == nil {
					acked = append(acked, key)
				} else {
					err = aerr
				}
				mu.Unlock()
				if aerr != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return acked, err
}

// survives checks that a disk closes, and that a new instance has everything
// that was acknowledged.
func survives(t *testing.T, r *rig, d *local.Disk, acked []string) {
	t.Helper()
	if d != nil {
		if err := d.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	r.open(t)
	for _, key := range acked {
		if get(t, r.disk.KV(), key) == "<none>" {
			t.Fatalf("acknowledged, and lost: %s", key)
		}
	}
	set(t, r.disk.KV(), "after", "1")
	if err := r.disk.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestFailedWrites: a log or MANIFEST that can't be made, written, or closed, or
// a folder that can't be synced, ends the store of one disk, and not the process.
func TestFailedWrites(t *testing.T) {
	for _, at := range [][2]string{
		{"create", ".log"}, {"reuse", ".log"}, {"write", ".log"}, {"sync", ".log"}, {"close", ".log"}, {"stat file", ".log"},
		{"create", "MANIFEST-"}, {"write", "MANIFEST-"}, {"sync", "MANIFEST-"}, {"close", "MANIFEST-"},
		{"create", "marker."}, {"close", "marker."}, {"sync", "meta"},
	} {
		op, file := at[0], at[1]
		for _, cause := range []error{syscall.ENOSPC, syscall.EIO, syscall.ENOENT} {
			t.Run(fmt.Sprintf("%s %s: %v", op, file, cause), func(t *testing.T) {
				var armed atomic.Bool
				r := failingStore(t, func(o, name string) error {
					if armed.Load() && o == op && strings.Contains(name, file) {
						return cause
					}
					return nil
				})
				d := must[*local.Disk](t)(local.Open(t.Context(), r.opts))
				warm := 300 // then there are logs to be reused
				if at == [2]string{"create", ".log"} {
					warm = 3
				}
				acked, err := fill(t.Context(), d, warm)
				if err != nil {
					t.Fatal(err)
				}
				armed.Store(true)
				more, err := fill(t.Context(), d, 900)
				want := storage.ErrFailed
				if cause == syscall.ENOSPC {
					want = storage.ErrFull
				}
				if !errors.Is(err, want) {
					t.Errorf("apply: %v", err)
				}
				if _, err := d.KV().Get(t.Context(), []byte("x")); !errors.Is(err, want) {
					t.Errorf("get: %v", err)
				}
				armed.Store(false)
				survives(t, r, d, append(acked, more...))
			})
		}
	}
}

// anyCall is a store of which one call to the file system fails, or all from one
// on.
type anyCall struct {
	calls, from, until atomic.Int64
	cause              error
}

func (a *anyCall) hook(_, _ string) error {
	if n := a.calls.Add(1); n >= a.from.Load() && n < a.until.Load() {
		return a.cause
	}
	return nil
}

// work opens the store and does something of everything.
func (a *anyCall) work(t *testing.T, r *rig) (d *local.Disk, acked []string, err error) {
	a.calls.Store(0)
	d, err = local.Open(t.Context(), r.opts)
	if err != nil {
		return nil, nil, err
	}
	acked, err = fill(t.Context(), d, 120)
	if err == nil {
		_, err = d.KV().Get(t.Context(), []byte("k0-00001"))
	}
	return d, acked, err
}

// once runs it on a store with something in it, and reports whether it failed.
func (a *anyCall) once(t *testing.T, from, until int64) bool {
	r := failingStore(t, a.hook)
	before, acked, err := a.work(t, r)
	if err != nil {
		t.Fatal(err)
	}
	if err := before.Close(); err != nil {
		t.Fatal(err)
	}
	a.from.Store(from)
	a.until.Store(until)
	d, more, werr := a.work(t, r)
	if errors.Is(werr, storage.ErrCorrupt) {
		t.Errorf("called corrupt: %v", werr)
	}
	if d != nil {
		if err := d.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	a.until.Store(0)
	survives(t, r, nil, append(acked, more...))
	return werr != nil
}

// TestAnyCallFails lets a call fail wherever the store happens to be: opening,
// replacing its logs and MANIFESTs, flushing, compacting, closing. The process
// lives, the store is never called corrupt, and what was acknowledged is there.
func TestAnyCallFails(t *testing.T) {
	a := &anyCall{}
	a.once(t, 0, 0)
	total := int(a.calls.Load())
	seed := uint64(time.Now().UnixNano())
	t.Logf("%d calls, seed %d", total, seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	ended := 0
	for range *faultRuns {
		a.cause = []error{syscall.ENOSPC, syscall.EIO, syscall.EMFILE}[rng.IntN(3)]
		from := int64(1 + rng.IntN(total))
		if rng.IntN(2) == 0 {
			from = int64(1 + rng.IntN(100)) // while opening
		}
		until := []int64{from + 1, 1 << 40}[rng.IntN(2)]
		if a.once(t, from, until) {
			ended++
		}
		if t.Failed() {
			t.Fatalf("%v from call %d, before %d", a.cause, from, until)
		}
	}
	if ended < *faultRuns/10 {
		t.Errorf("only %d of %d failures ended a store", ended, *faultRuns)
	}
}
