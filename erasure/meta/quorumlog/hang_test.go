package quorumlog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ringfence/erasure/meta"
	"ringfence/storage"
	"ringfence/storage/storagetest"
)

// The tests here have disks hang in ways that they may, and run in fake time: a
// wait without an end is a deadlock, and what takes long is exact.

// patience is how long one request may take while no more disks are sick than a
// set survives.
const patience = 5 * time.Second

// bubble runs a test in fake time.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// gated holds all steps of some kinds on a disk, deaf to the caller's context as
// a system call is, and returns how to let them go on.
func gated(b *bay, kinds ...storagetest.OpKind) (release func()) {
	gate := make(chan struct{})
	b.sim.SetHook(func(op storagetest.Op) storagetest.Fault {
		for _, k := range kinds {
			if op.Kind == k {
				<-gate
			}
		}
		return storagetest.Fault{}
	})
	return sync.OnceFunc(func() {
		b.sim.SetHook(nil)
		close(gate)
	})
}

// restarted ends an orderly process and begins another, which is not yet
// recovered.
func restarted(t *testing.T, w *world, e *Engine) *Engine {
	t.Helper()
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	w.openAll(t)
	return unstarted(t, w, Options{})
}

// unstarted is an engine without Run.
func unstarted(t *testing.T, w *world, opts Options) *Engine {
	t.Helper()
	opts.Disks = w.disks()
	e, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestRecoverBesideHungDisks starts with as many hanging disks as a set of 4+2
// survives, in every pair of ways to hang.
func TestRecoverBesideHungDisks(t *testing.T) {
	ways := map[string][]storagetest.OpKind{
		"writes": {storagetest.OpApply},
		"reads":  {storagetest.OpGet},
		"all":    {storagetest.OpApply, storagetest.OpGet, storagetest.OpIter, storagetest.OpNext},
	}
	for a, first := range ways {
		for b, second := range ways {
			t.Run(a+" and "+b, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					w := newWorld(t, 6)
					e := unstarted(t, w, Options{})
					mustPut(t, e, "k", "1")
					e = restarted(t, w, e)
					defer gated(w.bays[0], first...)()
					defer gated(w.bays[1], second...)()
					began := time.Now()
					if err := e.Recover(t.Context()); err != nil {
						t.Errorf("recover: %v", err)
					}
					if d := time.Since(began); d > patience {
						t.Errorf("took %v", d)
					}
					mustPut(t, e, "k", "2")
					want(t, e, "k", "2")
				})
			})
		}
	}
}

// TestRecoverFromADiskThatHangsLater has the disks with the longest log answer
// who they are, and hang when their log is read.
func TestRecoverFromADiskThatHangsLater(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 6)
		e := unstarted(t, w, Options{})
		for i := range 10 {
			mustPut(t, e, fmt.Sprint(i), "v")
		}
		for _, b := range w.bays[4:] {
			b.sim.Vanish()
		}
		for i := range 10 {
			mustPut(t, e, fmt.Sprint(i), "w")
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		for _, b := range w.bays[4:] {
			b.sim.Return()
		}
		for _, b := range w.bays[2:4] {
			b.sim.Vanish()
		}
		for _, i := range []int{0, 1, 4, 5} {
			if err := w.bays[i].open(); err != nil {
				t.Fatal(err)
			}
		}
		// Four are there, the quorum: two that have it all, two to be brought.
		defer gated(w.bays[0], storagetest.OpIter, storagetest.OpNext)()
		e = unstarted(t, w, Options{})
		began := time.Now()
		if err := e.Recover(t.Context()); err != nil {
			t.Errorf("recover: %v", err)
		}
		if d := time.Since(began); d > patience {
			t.Errorf("took %v", d)
		}
		want(t, e, "9", "w")
	})
}

// TestRecoverWithoutALeaderThatHangs has the leader hang when the end of its log
// is read.
func TestRecoverWithoutALeaderThatHangs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 3)
		e := unstarted(t, w, Options{})
		mustPut(t, e, "k", "1")
		e = restarted(t, w, e)
		gate := make(chan struct{})
		var reads atomic.Int64
		w.bays[0].sim.SetHook(func(op storagetest.Op) storagetest.Fault {
			if op.Kind == storagetest.OpGet {
				if reads.Add(1) > 3 { // its cell, its promise, its last entry
					<-gate
				}
			}
			return storagetest.Fault{}
		})
		defer close(gate)
		began := time.Now()
		if err := e.Recover(t.Context()); err != nil {
			t.Errorf("recover: %v", err)
		}
		if d := time.Since(began); d > patience {
			t.Errorf("took %v", d)
		}
		if reads.Load() < 4 {
			t.Error("the leader was another one")
		}
		want(t, e, "k", "1")
	})
}

// TestHungSource has one disk of three come back, farther behind than the last
// step may bring, while another one hangs: one sick disk at a time.
func TestHungSource(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 3)
		e := start(t, w, Options{})
		release := gated(w.bays[2], storagetest.OpApply)
		defer release()
		mustPut(t, e, "k", "1")
		until(t, "disk 2 leaves", func() bool { return stateOf(e, 2) == "lagging" })
		for i := range 1200 {
			mustPut(t, e, fmt.Sprint("n", i), "v")
		}
		defer gated(w.bays[0], storagetest.OpApply, storagetest.OpGet, storagetest.OpIter, storagetest.OpNext)()
		release()
		began := time.Now()
		for {
			asked := time.Now()
			err := put(t, e, "x", "y")
			if d := time.Since(asked); d > patience {
				t.Errorf("a commit took %v", d)
			}
			if err == nil {
				break
			}
			if time.Since(began) > 20*time.Second {
				t.Fatalf("one hung disk of three stops the set: %v; %+v", err, e.Health())
			}
			<-time.After(100 * time.Millisecond)
		}
		until(t, "disk 2 is back", func() bool { return stateOf(e, 2) == "insync" })
		want(t, e, "x", "y")
	})
}

// TestHungDiskWhileAnotherReturns has one disk of three hang just when another
// one comes back.
func TestHungDiskWhileAnotherReturns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 3)
		e := start(t, w, Options{})
		release := gated(w.bays[2], storagetest.OpApply)
		defer release()
		for i := range 5 {
			mustPut(t, e, fmt.Sprint(i), "v")
		}
		until(t, "disk 2 leaves", func() bool { return stateOf(e, 2) == "lagging" })
		defer gated(w.bays[0], storagetest.OpApply)()
		outcome := make(chan error, 1)
		began := time.Now()
		go func() { outcome <- put(t, e, "x", "y") }()
		synctest.Wait()
		release()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if item, err := e.Get(ctx, []byte("x")); err == nil && string(item.Val) != "y" {
			t.Errorf("get: %q", item.Val)
		}
		if d := time.Since(began); d > patience {
			t.Errorf("a read took %v", d)
		}
		if err := <-outcome; err != nil && !errors.Is(err, meta.ErrUnknown) {
			t.Errorf("put: %v", err)
		}
		until(t, "it can be written", func() bool { return e.Health().Writable })
		if d := time.Since(began); d > patience {
			t.Errorf("could not be written for %v", d)
		}
		mustPut(t, e, "x", "z")
		want(t, e, "x", "z")
	})
}

// TestTargetHangs has a disk that left the common log hang when its own log is
// read. The others must be caught up nevertheless.
func TestTargetHangs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 6)
		e := start(t, w, Options{})
		mustPut(t, e, "k", "1")
		until(t, "level", func() bool { return level(e) })
		for _, i := range []int{4, 5} {
			w.bays[i].sim.Vanish()
		}
		mustPut(t, e, "k", "2")
		until(t, "they are out", func() bool { return inSync(e) == 4 })
		for _, i := range []int{4, 5} {
			w.bays[i].sim.Return()
			if err := w.bays[i].open(); err != nil {
				t.Fatal(err)
			}
			raw, err := w.bays[i].KV().Get(t.Context(), appliedKey())
			if err != nil {
				t.Fatal(err)
			}
			stray(t, w.bays[i], raw)
		}
		release := gated(w.bays[4], storagetest.OpIter)
		defer release()
		began := time.Now()
		e.Kick()
		until(t, "the other one is back", func() bool { return stateOf(e, 5) == "insync" })
		if d := time.Since(began); d > patience {
			t.Errorf("took %v", d)
		}
		if got := stateOf(e, 4); got != "divergent" {
			t.Errorf("disk 4 is %s", got)
		}
		release()
		until(t, "all are back", func() bool { return level(e) })
		same(t, w)
	})
}

// stray appends a group to a disk's log that no other disk has.
func stray(t *testing.T, b *bay, raw []byte) {
	t.Helper()
	c, err := decodeCell(raw)
	if err != nil {
		t.Fatal(err)
	}
	ops := []meta.Op{{Key: []byte("stray"), Val: []byte("v")}}
	at := link(c.at, c.at.epoch, c.at.seq+1, c.at.seq+1, ops)
	c.at = at
	batch := &storage.Batch{}
	batch.Set(logKey(at.seq), entry{at: at, first: at.seq, keys: [][]byte{ops[0].Key}}.encode())
	batch.Set(userKey(ops[0].Key), encodeValue(ops[0].Key, at.seq, ops[0].Val))
	batch.Set(appliedKey(), c.encode())
	if err := b.KV().Apply(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
}

// TestLeadingIsNotLagging has the lane that decided a group lead the next one,
// which takes long to form. Its disk has nothing to write meanwhile.
func TestLeadingIsNotLagging(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 3)
		e := start(t, w, Options{LagTime: time.Second, TendEvery: 50 * time.Millisecond})
		mustPut(t, e, "k", "1")
		until(t, "level", func() bool { return level(e) })
		applies, gets := make(chan struct{}), make(chan struct{})
		for i, b := range w.bays {
			b.sim.SetHook(func(op storagetest.Op) storagetest.Fault {
				if op.Kind == storagetest.OpGet {
					<-gets
				}
				if op.Kind == storagetest.OpApply && i > 0 {
					<-applies
				}
				return storagetest.Fault{}
			})
		}
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { first <- put(t, e, "k", "2") }()
		synctest.Wait()
		go func() {
			_, err := e.Commit(t.Context(), meta.Group{}, []meta.Cond{{Key: []byte("k"), Rev: meta.AnyRev}}, []meta.Op{{Key: []byte("k"), Val: []byte("3")}})
			second <- err
		}()
		synctest.Wait()
		close(applies)
		if err := <-first; err != nil {
			t.Errorf("first: %v", err)
		}
		if err := <-second; !errors.Is(err, meta.ErrUnavailable) {
			t.Errorf("second: %v", err)
		}
		if n := inSync(e); n != 3 {
			t.Errorf("%d disks in sync: %+v", n, e.Health().Disks)
		}
		close(gets)
		mustPut(t, e, "k", "4")
		want(t, e, "k", "4")
		until(t, "all have it", func() bool { return level(e) })
	})
}
