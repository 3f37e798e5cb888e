package quorumlog

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"ringfence/erasure/meta"
	"ringfence/storage"
	"ringfence/storage/storagetest"
)

// TestReturningDisk has a disk miss commits and deletions, within the log and
// beyond it, and come back: nothing that was deleted may be there.
func TestReturningDisk(t *testing.T) {
	for _, missed := range []int{1, 10, 300, 5000} {
		for _, keep := range []uint64{100, 100_000} {
			t.Run(fmt.Sprintf("missed=%d/keep=%d", missed, keep), func(t *testing.T) {
				w := newWorld(t, 4)
				e := start(t, w, Options{LogKeep: keep, LogMax: keep, TendEvery: 5 * time.Millisecond})
				for i := range 500 {
					mustPut(t, e, fmt.Sprintf("key%04d", i), "old")
				}
				w.bays[1].sim.Vanish()
				for i := range missed {
					op := meta.Op{Key: fmt.Appendf(nil, "key%04d", i%700), Delete: i%3 == 0, Val: fmt.Append(nil, i)}
					if _, err := e.Commit(t.Context(), meta.Group{}, nil, []meta.Op{op}); err != nil {
						t.Fatal(err)
					}
				}
				w.bays[1].sim.Return()
				if err := w.bays[1].open(); err != nil {
					t.Fatal(err)
				}
				e.Kick()
				until(t, "it is back", func() bool { return level(e) })
				same(t, w)
				if t.Failed() {
					return
				}
				res, err := e.Scrub(t.Context())
				if err != nil || len(res.Damaged) > 0 {
					t.Errorf("scrub: %+v, %v", res, err)
				}
			})
		}
	}
}

// TestCatchUpWhileWriting brings a blank disk and a returned one up to a store
// that goes on changing.
func TestCatchUpWhileWriting(t *testing.T) {
	w := newWorld(t, 6)
	e := start(t, w, Options{TendEvery: 5 * time.Millisecond})
	for i := range 3000 {
		mustPut(t, e, fmt.Sprintf("key%04d", i), "old")
	}
	w.bays[0].sim.Vanish()
	w.bays[1].sim.Wipe()
	w.bays[1].id = w.identity(1)
	if err := w.bays[1].open(); err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if err := put(t, e, fmt.Sprintf("key%04d", i%4000), fmt.Sprint(i)); err != nil {
				t.Errorf("put while disks are caught up: %v", err)
				return
			}
		}
	}()
	until(t, "they notice", func() bool { return inSync(e) < 6 })
	w.bays[0].sim.Return()
	if err := w.bays[0].open(); err != nil {
		t.Fatal(err)
	}
	e.Kick()
	until(t, "all in sync", func() bool { return inSync(e) == 6 })
	close(stop)
	<-stopped
	until(t, "all have all", func() bool { return level(e) })
	same(t, w)
}

// TestReadsWithoutAQuorum starts with two of four disks: what was decided can be
// read, what perhaps was not cannot, and nothing can be written.
func TestReadsWithoutAQuorum(t *testing.T) {
	w := newWorld(t, 4)
	e, err := New(Options{Disks: w.disks()})
	if err != nil {
		t.Fatal(err)
	}
	mustPut(t, e, "a", "1")
	mustPut(t, e, "b", "1")
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	w.bays[0].sim.Vanish()
	w.bays[3].sim.Vanish()
	for _, b := range w.bays[1:3] {
		if err := b.open(); err != nil {
			t.Fatal(err)
		}
	}
	e = begin(t, w)
	want(t, e, "a", "1")
	if _, err := e.Get(t.Context(), []byte("b")); !errors.Is(err, meta.ErrUnavailable) {
		t.Errorf("get of the last commit: %v", err)
	}
	if err := put(t, e, "a", "2"); !errors.Is(err, meta.ErrUnavailable) {
		t.Errorf("put: %v", err)
	}
	if h := e.Health(); !h.Readable || h.Writable || h.Reason == "" {
		t.Errorf("health: %+v", h)
	}
	for _, i := range []int{0, 3} {
		w.bays[i].sim.Return()
		if err := w.bays[i].open(); err != nil {
			t.Fatal(err)
		}
	}
	e.Kick()
	until(t, "it serves", func() bool { return e.Health().Writable })
	want(t, e, "b", "1")
}

// TestReadsAfterAGoodEnd is the same after an orderly end: everything can be
// read.
func TestReadsAfterAGoodEnd(t *testing.T) {
	w := newWorld(t, 4)
	t.Run("before", func(t *testing.T) {
		e := start(t, w, Options{})
		mustPut(t, e, "a", "1")
		until(t, "level", func() bool { return level(e) })
	})
	w.bays[0].sim.Vanish()
	w.bays[3].sim.Vanish()
	e := begin(t, w)
	want(t, e, "a", "1")
	if err := put(t, e, "b", "1"); !errors.Is(err, meta.ErrUnavailable) {
		t.Errorf("put: %v", err)
	}
}

// TestLostMetadataIsNotNone wipes the metadata of all disks, but not the shards.
func TestLostMetadataIsNotNone(t *testing.T) {
	w := newWorld(t, 3)
	e, err := New(Options{Disks: w.disks()})
	if err != nil {
		t.Fatal(err)
	}
	mustPut(t, e, "k", "v")
	id := storage.ShardID{UUID: storage.UUID{1}}
	sw, err := w.bays[1].disk.Load().CreateShard(t.Context(), id, storage.ShardInfo{BlockSize: storage.BlockAlign})
	if err != nil {
		t.Fatal(err)
	}
	if err := sw.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, b := range w.bays {
		if err := b.ResetKV(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if e, err = New(Options{Disks: w.disks()}); err != nil {
		t.Fatal(err)
	}
	if err := e.Recover(t.Context()); !errors.Is(err, meta.ErrUnavailable) {
		t.Fatalf("recover: %v", err)
	}
	if e, err = New(Options{Disks: w.disks(), Fresh: true}); err != nil {
		t.Fatal(err)
	}
	if err := e.Recover(t.Context()); err != nil {
		t.Fatalf("recover a store that is said to be fresh: %v", err)
	}
}

// begin is start for an engine that can't serve yet.
func begin(t *testing.T, w *world) *Engine {
	t.Helper()
	e, err := New(Options{Disks: w.disks(), TendEvery: 5 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	run(t, e)
	return e
}

// TestBadValues damages values at rest, one on each disk but one, and reads
// everything: never a wrong value, and in the end no damage.
func TestBadValues(t *testing.T) {
	w := newWorld(t, 6)
	e := start(t, w, Options{TendEvery: 5 * time.Millisecond})
	for i := range 60 {
		mustPut(t, e, fmt.Sprintf("key%02d", i), fmt.Sprint(i))
	}
	s := &sim{t: t, world: w}
	for i, b := range w.bays[:5] {
		s.flip(b, fmt.Appendf(nil, "key%02d", 10*i))
	}
	for i := range 60 {
		want(t, e, fmt.Sprintf("key%02d", i), fmt.Sprint(i))
	}
	until(t, "rebuilt", func() bool {
		res, err := e.Scrub(t.Context())
		return err == nil && len(res.Damaged) == 0 && level(e) && res.Values == 6*60
	})
	same(t, w)
}

// TestFailingDisk fails one batch of a disk; its store is dead then, until
// somebody opens it again.
func TestFailingDisk(t *testing.T) {
	w := newWorld(t, 3)
	e := start(t, w, Options{TendEvery: 5 * time.Millisecond})
	w.bays[2].sim.SetHook(func(op storagetest.Op) storagetest.Fault {
		if op.Kind == storagetest.OpApply {
			return storagetest.Fault{Kind: storagetest.FaultUnknown}
		}
		return storagetest.Fault{}
	})
	mustPut(t, e, "k", "1")
	until(t, "it is out", func() bool { return stateOf(e, 2) == "offline" })
	mustPut(t, e, "k", "2")
	w.bays[2].sim.SetHook(nil)
	if err := w.bays[2].open(); err != nil {
		t.Fatal(err)
	}
	until(t, "it is back", func() bool { return inSync(e) == 3 })
	mustPut(t, e, "k", "3")
	want(t, e, "k", "3")
}
