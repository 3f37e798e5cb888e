package local_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"ringfence/storage"
)

func set(t testing.TB, kv storage.KV, pairs ...string) {
	t.Helper()
	var b storage.Batch
	for i := 0; i < len(pairs); i += 2 {
		b.Set([]byte(pairs[i]), []byte(pairs[i+1]))
	}
	if err := kv.Apply(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
}

func get(t testing.TB, kv storage.KV, key string) string {
	t.Helper()
	v, err := kv.Get(t.Context(), []byte(key))
	if errors.Is(err, storage.ErrNotFound) {
		return "<none>"
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(v)
}

func keys(t testing.TB, kv storage.KV, lo, hi []byte) []string {
	t.Helper()
	it := must[storage.Iter](t)(kv.Iter(t.Context(), lo, hi))
	var out []string
	for ok := it.SeekGE(nil); ok; ok = it.Next() {
		out = append(out, string(it.Key()))
	}
	if err := errors.Join(it.Err(), it.Close()); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestKVModel compares random operations with a map.
func TestKVModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	r := newRig(t, nil, "")
	model := map[string]string{}
	key := func() string { return fmt.Sprintf("k%03d", rng.IntN(200)) }
	for step := range 400 {
		kv := r.disk.KV()
		var b storage.Batch
		for range rng.IntN(8) {
			switch rng.IntN(6) {
			case 0:
				k := key()
				b.Delete([]byte(k))
				delete(model, k)
			case 1:
				lo, hi := key(), key()
				if lo > hi {
					lo, hi = hi, lo
				}
				b.DeleteRange([]byte(lo), []byte(hi))
				maps.DeleteFunc(model, func(k, _ string) bool { return k >= lo && k < hi })
			default:
				k, v := key(), strings.Repeat("v", rng.IntN(300))
				b.Set([]byte(k), []byte(v))
				model[k] = v
			}
		}
		if err := kv.Apply(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		lo, hi := key(), key()
		want := []string{}
		for k := range model {
			if k >= lo && k < hi {
				want = append(want, k)
			}
		}
		slices.Sort(want)
		if got := keys(t, kv, []byte(lo), []byte(hi)); !slices.Equal(got, want) {
			t.Fatalf("step %d: [%s, %s): %v, want %v", step, lo, hi, got, want)
		}
		k := key()
		if v, ok := model[k]; get(t, kv, k) != v && ok {
			t.Fatalf("step %d: %s differs", step, k)
		}
		if step%100 == 99 {
			r.reopen(t)
		}
	}
}

func TestIter(t *testing.T) {
	r := newRig(t, nil, "")
	kv := r.disk.KV()
	set(t, kv, "a", "1", "b", "2", "b/x", "3", "c", "4")
	it := must[storage.Iter](t)(kv.Iter(t.Context(), []byte("b"), []byte("c")))
	set(t, kv, "b/y", "5") // not to be seen by it
	if !it.SeekGE([]byte("a")) || string(it.Key()) != "b" {
		t.Fatal("seek before the bound")
	}
	if !it.Next() || string(it.Key()) != "b/x" {
		t.Fatal("next")
	}
	if v := must[[]byte](t)(it.Value()); string(v) != "3" {
		t.Fatalf("value %q", v)
	}
	for range 2 {
		if it.Next() || it.Err() != nil {
			t.Fatal("next at the end")
		}
	}
	if it.SeekGE([]byte("c")) || it.Err() != nil {
		t.Fatal("seek beyond the bound")
	}
	if err := errors.Join(it.Close(), it.Close()); err != nil {
		t.Fatal(err)
	}
	if it.SeekGE(nil) || it.Err() == nil {
		t.Fatal("a closed iterator moved")
	}
	if got := keys(t, kv, []byte("b"), nil); !slices.Equal(got, []string{"b", "b/x", "b/y", "c"}) {
		t.Fatalf("no upper bound: %v", got)
	}
	if got := keys(t, kv, []byte("c"), []byte("b")); len(got) != 0 {
		t.Fatalf("bounds the wrong way round: %v", got)
	}
	fresh := must[storage.Iter](t)(kv.Iter(t.Context(), nil, nil))
	if !fresh.Next() || string(fresh.Key()) != "a" {
		t.Fatal("next of an unpositioned iterator")
	}
	if err := fresh.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestRefusedBatch: what was never handed to Pebble doesn't end the store.
func TestRefusedBatch(t *testing.T) {
	r := newRig(t, nil, "")
	kv := r.disk.KV()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var b storage.Batch
	b.Set([]byte("k"), []byte("v"))
	if err := kv.Apply(ctx, &b); !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled: %v", err)
	}
	b.Ops[0].Kind = 77
	if err := kv.Apply(t.Context(), &b); err == nil {
		t.Fatal("unknown kind succeeded")
	}
	if get(t, kv, "k") != "<none>" {
		t.Fatal("a refused batch was applied")
	}
	if err := kv.Apply(t.Context(), &storage.Batch{}); err != nil {
		t.Fatalf("empty batch: %v", err)
	}
	set(t, kv, "k", "w")
	if h := r.disk.Health(); h.State != storage.StateOK {
		t.Fatalf("health %+v", h)
	}
}

// faultyFS fails operations of Pebble from the moment it is armed.
type faultyFS struct {
	armed atomic.Bool
	err   error
	match func(op errorfs.Op) bool
}

func (f *faultyFS) MaybeError(op errorfs.Op) error {
	if f.armed.Load() && f.match(op) {
		return f.err
	}
	return nil
}

func (f *faultyFS) String() string { return "faulty" }

func writes(suffix string) func(errorfs.Op) bool {
	return func(op errorfs.Op) bool {
		switch op.Kind {
		case errorfs.OpFileWrite, errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo, errorfs.OpCreate, errorfs.OpReuseForWrite:
			return strings.Contains(op.Path, "/meta/") && strings.HasSuffix(op.Path, suffix)
		}
		return false
	}
}

// TestWALError: an I/O error of the log ends the store, and nothing else.
func TestWALError(t *testing.T) {
	f := &faultyFS{err: syscall.EIO, match: writes(".log")}
	r := newRig(t, errorfs.Wrap(memWith(t, "/disk"), f), "/disk")
	kv := r.disk.KV()
	set(t, kv, "before", "1")
	it := must[storage.Iter](t)(kv.Iter(t.Context(), nil, nil))
	if !it.SeekGE(nil) {
		t.Fatal("no key")
	}
	f.armed.Store(true)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			var b storage.Batch
			b.Set(fmt.Appendf(nil, "lost%d", i), []byte("x"))
			if err := kv.Apply(t.Context(), &b); !errors.Is(err, storage.ErrFailed) {
				t.Errorf("apply: %v", err)
			}
		})
	}
	wg.Wait()
	f.armed.Store(false) // the error going away changes nothing
	for i := range 8 {
		if _, err := kv.Get(t.Context(), fmt.Appendf(nil, "lost%d", i)); !errors.Is(err, storage.ErrFailed) {
			t.Fatalf("get of a write that failed: %v", err)
		}
	}
	if it.Next() || !errors.Is(it.Err(), storage.ErrFailed) {
		t.Fatalf("iterator goes on: %v", it.Err())
	}
	if err := it.Close(); err != nil {
		t.Logf("close iterator: %v", err)
	}
	if _, err := kv.Iter(t.Context(), nil, nil); !errors.Is(err, storage.ErrFailed) {
		t.Fatalf("iter: %v", err)
	}
	if h := r.disk.Health(); h.State != storage.StateFailed {
		t.Fatalf("health %+v", h)
	}
	if err := r.disk.Check(t.Context()); err != nil {
		t.Fatalf("check: %v", err)
	}
	if err := writeShard(t, r.disk, shardID(1, 0), 100); err != nil {
		t.Fatalf("shards must go on: %v", err)
	}
	r.reopen(t) // as the operator does, with a new cable
	if got := get(t, r.disk.KV(), "before"); got != "1" {
		t.Fatalf("before: %s", got)
	}
}

func memWith(t testing.TB, dir string) *vfs.MemFS {
	t.Helper()
	m := vfs.NewMem()
	if err := m.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestBackgroundErrors: flushes that fail are not retried for ever, and no
// Apply hangs behind them.
func TestBackgroundErrors(t *testing.T) {
	for _, file := range []string{".sst", "MANIFEST"} {
		t.Run(file, func(t *testing.T) {
			match := writes(file)
			if file == "MANIFEST" {
				match = func(op errorfs.Op) bool { return strings.Contains(op.Path, "MANIFEST") && writes("")(op) }
			}
			f := &faultyFS{err: syscall.EIO, match: match}
			r := newRig(t, errorfs.Wrap(memWith(t, "/disk"), f), "/disk")
			f.armed.Store(true)
			value := bytes.Repeat([]byte("v"), 64<<10)
			var err error
			for i := 0; err == nil && i < 2000; i++ {
				var b storage.Batch
				b.Set(fmt.Appendf(nil, "k%d", i), value)
				err = r.disk.KV().Apply(t.Context(), &b)
			}
			if !errors.Is(err, storage.ErrFailed) {
				t.Fatalf("apply: %v", err)
			}
			if h := r.disk.Health(); h.State != storage.StateFailed {
				t.Fatalf("health %+v", h)
			}
			f.armed.Store(false)
			r.reopen(t)
			if n := len(keys(t, r.disk.KV(), nil, nil)); n == 0 {
				t.Fatal("nothing left after reopening")
			}
		})
	}
}

// TestFullAndBack: a store that ended because the disk was full comes back, with
// everything that was acknowledged, when there is space.
func TestFullAndBack(t *testing.T) {
	f := &faultyFS{err: syscall.ENOSPC, match: writes("")}
	r := newRig(t, errorfs.Wrap(memWith(t, "/disk"), f), "/disk")
	kv := r.disk.KV()
	set(t, kv, "a", "1")
	f.armed.Store(true)
	var b storage.Batch
	b.Set([]byte("b"), []byte("2"))
	if err := kv.Apply(t.Context(), &b); !errors.Is(err, storage.ErrFull) {
		t.Fatalf("apply: %v", err)
	}
	if h := r.disk.Health(); h.State != storage.StateFull {
		t.Fatalf("health %+v", h)
	}
	f.armed.Store(false)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for r.disk.KV() == kv { // the disk is tried again every second
		if err := r.disk.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-tick.C
	}
	if _, err := kv.Get(t.Context(), []byte("a")); err == nil {
		t.Fatal("the old store serves again")
	}
	if got := get(t, r.disk.KV(), "a"); got != "1" {
		t.Fatalf("a: %s", got)
	}
	set(t, r.disk.KV(), "c", "3")
}

func TestResetKV(t *testing.T) {
	r := newRig(t, vfs.Default, t.TempDir())
	if err := writeShard(t, r.disk, shardID(1, 0), 5000); err != nil {
		t.Fatal(err)
	}
	old := r.disk.KV()
	set(t, old, "a", "1")
	if err := r.disk.ResetKV(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := old.Get(t.Context(), []byte("a")); !errors.Is(err, storage.ErrFailed) {
		t.Fatalf("old store: %v", err)
	}
	kv := r.disk.KV()
	if got := keys(t, kv, nil, nil); len(got) != 0 {
		t.Fatalf("not blank: %v", got)
	}
	checkShard(t, r.disk, shardID(1, 0), 5000)
	set(t, kv, "b", "2")
	if h := r.disk.Health(); h.State != storage.StateOK {
		t.Fatalf("health %+v", h)
	}
	r.reopen(t)
	if got := keys(t, r.disk.KV(), nil, nil); !slices.Equal(got, []string{"b"}) {
		t.Fatalf("after reopen: %v", got)
	}
}

// TestResetWithIterator: an iterator that nobody closes delays a reset, bounded,
// and can't show the old store's keys afterwards.
func TestResetWithIterator(t *testing.T) {
	r := newRig(t, nil, "")
	set(t, r.disk.KV(), "a", "1", "b", "2")
	it := must[storage.Iter](t)(r.disk.KV().Iter(t.Context(), nil, nil))
	if !it.SeekGE(nil) {
		t.Fatal("no key")
	}
	if err := r.disk.ResetKV(t.Context()); err != nil {
		t.Fatal(err)
	}
	if it.Next() || !errors.Is(it.Err(), storage.ErrFailed) {
		t.Fatalf("old iterator: %v", it.Err())
	}
	set(t, r.disk.KV(), "c", "3")
	if got := keys(t, r.disk.KV(), nil, nil); !slices.Equal(got, []string{"c"}) {
		t.Fatalf("keys: %v", got)
	}
	if err := it.Close(); err != nil {
		t.Logf("close of the old iterator: %v", err)
	}
}
