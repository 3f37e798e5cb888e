package quorumlog

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"ringfence/erasure/meta"
	"ringfence/storage"
	"ringfence/storage/storagetest"
)

// The tests here copy from a disk that has a group which nobody else has.

// halfDone is a set of six in which a blank disk, slot 5, waits for its copy,
// and then a group reaches disk 0 alone. Before that, copied may work on the
// copy.
func halfDone(t *testing.T, copied func(e *Engine, from joint, to *target)) (w *world, e *Engine, from joint, to *target) {
	t.Helper()
	w = newWorld(t, 6)
	e = unstarted(t, w, Options{})
	e.stepKeys = 4
	for i := range 20 {
		mustPut(t, e, fmt.Sprintf("k%02d", i), "old")
	}
	until(t, "level", func() bool { return level(e) })
	w.bays[5].sim.Wipe()
	w.bays[5].id = w.identity(5)
	if err := w.bays[5].open(); err != nil {
		t.Fatal(err)
	}
	mustPut(t, e, "x", "1")
	until(t, "the blank one is out", func() bool { return inSync(e) == 5 })
	to, err := e.admissible(t.Context(), e.members[5])
	if err != nil {
		t.Fatal(err)
	}
	from = joint{e.members[0], w.bays[0].KV()}
	copied(e, from, to)
	for _, b := range w.bays[1:5] {
		t.Cleanup(hold(b, storagetest.OpApply))
	}
	go func() {
		_, err := e.Commit(t.Context(), meta.Group{}, nil, []meta.Op{{Key: []byte("k03"), Delete: true}, {Key: []byte("k04"), Val: []byte("NEW")}})
		if !errors.Is(err, meta.ErrUnknown) {
			t.Errorf("a commit on one of six disks: %v", err)
		}
	}()
	until(t, "disk 0 has the group", func() bool { return e.members[0].applied.Load() > e.head.Load() })
	return w, e, from, to
}

// loseDisk0 ends the process, and disk 0 for good, and starts again.
func loseDisk0(t *testing.T, w *world) *Engine {
	t.Helper()
	w.steps.Cut()
	for _, b := range w.bays {
		b.sim.SetHook(nil)
		b.sim.Crash(nil)
	}
	w.steps.PowerOn()
	for _, b := range w.bays[1:] {
		if err := b.open(); err != nil {
			t.Fatal(err)
		}
	}
	w.bays[0].sim.Vanish()
	return unstarted(t, w, Options{})
}

// allBut0 tends the engine until all disks but the lost one are alike.
func allBut0(t *testing.T, w *world, e *Engine) {
	t.Helper()
	until(t, "the five others are level", func() bool {
		e.Tend(t.Context())
		h := e.Health()
		for _, d := range h.Disks[1:] {
			if d.State != "insync" || d.Applied != h.Head {
				return false
			}
		}
		return true
	})
	for _, b := range w.bays[2:] {
		if d := differences(t, w.bays[1].KV(), b.KV()); len(d) > 0 {
			t.Errorf("disk %d differs from disk 1: %v", b.id.Slot, d)
		}
	}
	want(t, e, "k03", "old")
	want(t, e, "k04", "old")
}

// TestCopyBeginsDecided has the copy of a blank disk begin while only its source
// has the last group: it must not, or the blank disk votes for that group.
func TestCopyBeginsDecided(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, e, from, to := halfDone(t, func(*Engine, joint, *target) {})
		if err := e.advance(t.Context(), from, to); err == nil {
			t.Error("a copy began with a group that is not decided")
		}
		if _, err := w.bays[5].KV().Get(t.Context(), appliedKey()); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("the cell of the blank disk: %v", err)
		}
		e = loseDisk0(t, w)
		if err := e.Recover(t.Context()); err != nil {
			t.Errorf("recover with five of six disks: %v", err)
		}
		synctest.Wait()
		allBut0(t, w, e)
	})
}

// TestCopyWaitsForTheDecision is the same with a group that is decided soon.
func TestCopyWaitsForTheDecision(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 6)
		e := unstarted(t, w, Options{})
		mustPut(t, e, "k", "1")
		until(t, "level", func() bool { return level(e) })
		w.bays[5].sim.Wipe()
		w.bays[5].id = w.identity(5)
		if err := w.bays[5].open(); err != nil {
			t.Fatal(err)
		}
		mustPut(t, e, "k", "2")
		until(t, "the blank one is out", func() bool { return inSync(e) == 5 })
		to, err := e.admissible(t.Context(), e.members[5])
		if err != nil {
			t.Fatal(err)
		}
		var releases []func()
		for _, b := range w.bays[1:5] {
			releases = append(releases, hold(b, storagetest.OpApply))
		}
		put3 := make(chan error, 1)
		go func() { put3 <- put(t, e, "k", "3") }()
		until(t, "disk 0 has the group", func() bool { return e.members[0].applied.Load() > e.head.Load() })
		done := make(chan error, 1)
		go func() { done <- e.advance(t.Context(), joint{e.members[0], w.bays[0].KV()}, to) }()
		synctest.Wait()
		for _, release := range releases {
			release()
		}
		if err := <-done; err != nil {
			t.Errorf("advance: %v", err)
		}
		if err := <-put3; err != nil {
			t.Errorf("put: %v", err)
		}
		if got := uint64(e.Health().Head); to.cell.phase != phaseCopying || to.cell.at.seq != got {
			t.Errorf("the copy is at phase %d of %d, want it to begin at %d", to.cell.phase, to.cell.at.seq, got)
		}
	})
}

// TestCopyForgetsDroppedGroup goes on with a copy over keys of a group that only
// the source has and that is lost with it: nothing of it may stay.
func TestCopyForgetsDroppedGroup(t *testing.T) {
	bubble(t, func(t *testing.T) {
		step := func(e *Engine, from joint, to *target) {
			if err := e.advance(t.Context(), from, to); err != nil {
				t.Fatal(err)
			}
		}
		w, e, from, to := halfDone(t, step)
		for range 8 {
			step(e, from, to)
		}
		if to.cell.phase != phaseCopying && to.cell.phase != phasePartial {
			t.Fatalf("phase %d", to.cell.phase)
		}
		e = loseDisk0(t, w)
		if err := e.Recover(t.Context()); err != nil {
			t.Errorf("recover with five of six disks: %v", err)
		}
		allBut0(t, w, e)
	})
}

// TestFloorBeyondTheLog has a half-copied disk that knows of a longer log than
// all that have theirs whole.
func TestFloorBeyondTheLog(t *testing.T) {
	for clean, recovers := range []bool{false, false, false, false, true, true} {
		t.Run(fmt.Sprintf("%d whole logs of six", clean), func(t *testing.T) {
			reports := make([]report, 6)
			for i := range clean {
				reports[i] = report{stand: standClean, cell: cell{phase: phaseClean, at: point{1, 9, [16]byte{9}}, witness: make([]mark, 6)}}
			}
			reports[5] = report{stand: standPartial, cell: cell{phase: phaseCopying, at: point{1, 10, [16]byte{10}}, witness: make([]mark, 6)}}
			p, err := decide(reports, make([]mark, 6), 4, false, rules{})
			if (err == nil) != recovers {
				t.Fatalf("%+v, %v; want it to recover: %v", p, err, recovers)
			}
			if err == nil && (p.leader != 0 || p.voters != clean || p.epoch != 2) {
				t.Errorf("%+v", p)
			}
			if err != nil && !errors.Is(err, meta.ErrUnavailable) {
				t.Errorf("%v, want ErrUnavailable", err)
			}
		})
	}
}

// TestAbandonedJoin has the wait for the last step end before its turn comes: it
// must not happen later, when the disk may be at something else.
func TestAbandonedJoin(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 3)
		e := unstarted(t, w, Options{})
		mustPut(t, e, "k", "1")
		until(t, "level", func() bool { return level(e) })
		w.bays[2].sim.Vanish()
		mustPut(t, e, "k", "2")
		until(t, "disk 2 is out", func() bool { return inSync(e) == 2 })
		w.bays[2].sim.Return()
		if err := w.bays[2].open(); err != nil {
			t.Fatal(err)
		}
		to, err := e.admissible(t.Context(), e.members[2])
		if err != nil {
			t.Fatal(err)
		}
		release := hold(w.bays[1], storagetest.OpApply)
		outcome := make(chan error, 1)
		go func() { outcome <- put(t, e, "k", "3") }()
		synctest.Wait() // it has the lead until disk 1 answers
		if joined, err := e.joinSet(t.Context(), to); joined || err == nil {
			t.Errorf("joined %v, %v", joined, err)
		}
		release()
		if err := <-outcome; err != nil {
			t.Errorf("put: %v", err)
		}
		synctest.Wait()
		if got := stateOf(e, 2); got == "insync" {
			t.Errorf("disk 2 joined after its wait was over")
		}
		// Next time it does.
		until(t, "level", func() bool {
			e.Tend(t.Context())
			return level(e)
		})
		same(t, w)
	})
}

// TestStopEndsAJoin has the engine stop while a disk waits for its last step.
func TestStopEndsAJoin(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 3)
		e := unstarted(t, w, Options{})
		mustPut(t, e, "k", "1")
		until(t, "level", func() bool { return level(e) })
		w.bays[2].sim.Vanish()
		mustPut(t, e, "k", "2")
		until(t, "disk 2 is out", func() bool { return inSync(e) == 2 })
		w.bays[2].sim.Return()
		if err := w.bays[2].open(); err != nil {
			t.Fatal(err)
		}
		release := hold(w.bays[1], storagetest.OpApply)
		defer release()
		go func() {
			if err := put(t, e, "k", "3"); !errors.Is(err, meta.ErrUnknown) {
				t.Errorf("put: %v", err)
			}
		}()
		synctest.Wait()
		tended := make(chan struct{})
		go func() {
			defer close(tended)
			if _, err := e.tendAlone(t.Context(), e.members[2]); err == nil {
				t.Error("tend while the engine stops: no error")
			}
		}()
		synctest.Wait() // it waits for the group
		e.mu.Lock()
		e.expelLocked(e.members[1], stateLagging, errors.New("test"))
		e.mu.Unlock()
		synctest.Wait()
		select {
		case <-tended:
		default:
			t.Error("the catch-up goes on waiting")
			<-tended
		}
	})
}
