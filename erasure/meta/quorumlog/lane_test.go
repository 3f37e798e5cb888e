package quorumlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ringfence/erasure/meta"
	"ringfence/storage"
	"ringfence/storage/storagetest"
)

// hold makes steps of one kind on a disk wait until release is called.
func hold(b *bay, kind storagetest.OpKind) (release func()) {
	gate := make(chan struct{})
	b.sim.SetHook(func(op storagetest.Op) storagetest.Fault {
		if op.Kind == kind {
			return storagetest.Fault{Wait: gate}
		}
		return storagetest.Fault{}
	})
	return sync.OnceFunc(func() {
		b.sim.SetHook(nil)
		close(gate)
	})
}

func put(t *testing.T, e *Engine, key, val string) error {
	t.Helper()
	_, err := e.Commit(t.Context(), meta.Group{}, nil, []meta.Op{{Key: []byte(key), Val: []byte(val)}})
	return err
}

func mustPut(t *testing.T, e *Engine, key, val string) {
	t.Helper()
	if err := put(t, e, key, val); err != nil {
		t.Fatalf("put %s: %v", key, err)
	}
}

// want checks what is under key; "" for nothing.
func want(t *testing.T, e *Engine, key, val string) {
	t.Helper()
	item, err := e.Get(t.Context(), []byte(key))
	if val == "" && errors.Is(err, storage.ErrNotFound) {
		return
	}
	if err != nil || string(item.Val) != val {
		t.Fatalf("get %s: %q, %v; want %q", key, item.Val, err, val)
	}
}

func stateOf(e *Engine, slot int) string { return e.Health().Disks[slot].State }

// level reports whether all disks are in sync and have all that was
// acknowledged.
func level(e *Engine) bool {
	h := e.Health()
	return !slices.ContainsFunc(h.Disks, func(d meta.DiskHealth) bool {
		return d.State != stateInSync.String() || d.Applied != h.Head
	})
}

// same checks that all disks hold the same user keys.
func same(t *testing.T, w *world) {
	t.Helper()
	for _, b := range w.bays {
		if b.sim.KVDigest([]byte{userSpace}, []byte{userSpace + 1}) != w.bays[0].sim.KVDigest([]byte{userSpace}, []byte{userSpace + 1}) {
			t.Errorf("disk of slot %d differs from that of slot 0:\n%v", b.id.Slot, differences(t, w.bays[0].KV(), b.KV()))
		}
	}
}

func TestHungDiskDelaysNobody(t *testing.T) {
	w := newWorld(t, 6)
	e := start(t, w, Options{LagTime: 100 * time.Millisecond, TendEvery: 5 * time.Millisecond})
	release := hold(w.bays[2], storagetest.OpApply)
	defer release()
	began := time.Now()
	for i := range 100 {
		mustPut(t, e, fmt.Sprint(i), "v")
	}
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("100 commits took %v", d)
	}
	until(t, "the others have all", func() bool {
		h := e.Health()
		return !slices.ContainsFunc(h.Disks, func(d meta.DiskHealth) bool { return d.Slot != 2 && d.Applied != h.Head })
	})
	want(t, e, "99", "v")
	until(t, "the hung disk leaves", func() bool { return stateOf(e, 2) == "lagging" })
	release()
	until(t, "it comes back", func() bool { return inSync(e) == 6 })
	mustPut(t, e, "last", "v")
	until(t, "it has all", func() bool { return level(e) })
	same(t, w)
}

func TestQueueOfHungDiskIsBounded(t *testing.T) {
	w := newWorld(t, 3)
	e := start(t, w, Options{LagTime: time.Hour, LagBytes: 100_000, TendEvery: 5 * time.Millisecond})
	release := hold(w.bays[0], storagetest.OpApply)
	defer release()
	val := string(make([]byte, 10_000))
	for i := range 20 {
		mustPut(t, e, fmt.Sprint(i), val)
	}
	if got := stateOf(e, 0); got != "lagging" {
		t.Errorf("200 kB behind: %s", got)
	}
	release()
	until(t, "it comes back", func() bool { return inSync(e) == 3 })
}

func TestHungQuorumEndsUnknown(t *testing.T) {
	w := newWorld(t, 6)
	e := start(t, w, Options{LagTime: 50 * time.Millisecond, TendEvery: 5 * time.Millisecond, CallWait: 50 * time.Millisecond, RecoverWait: 50 * time.Millisecond})
	mustPut(t, e, "k", "1")
	var releases []func()
	for _, b := range w.bays[:3] {
		release := hold(b, storagetest.OpApply)
		defer release()
		releases = append(releases, release)
	}
	if err := put(t, e, "k", "2"); !errors.Is(err, meta.ErrUnknown) {
		t.Fatalf("commit on three of six disks: %v", err)
	}
	if err := put(t, e, "k", "3"); !errors.Is(err, meta.ErrUnavailable) {
		t.Fatalf("commit afterwards: %v", err)
	}
	if _, err := e.Get(t.Context(), []byte("k")); !errors.Is(err, meta.ErrUnavailable) {
		t.Errorf("get of an undecided key: %v", err)
	}
	want(t, e, "other", "")
	for _, release := range releases {
		release()
	}
	until(t, "it serves again", func() bool { return e.Health().Writable })
	want(t, e, "k", "2") // the disks that had it all take part
	mustPut(t, e, "k", "4")
	until(t, "all are back", func() bool { return level(e) })
	same(t, w)
}

func TestReadsLeaveAHungDisk(t *testing.T) {
	w := newWorld(t, 3)
	e := start(t, w, Options{HedgeAfter: 5 * time.Millisecond})
	for i := range 20 {
		mustPut(t, e, fmt.Sprint(i), "v")
	}
	until(t, "all have all", func() bool { return level(e) })
	release := hold(w.bays[1], storagetest.OpGet)
	defer release()
	began := time.Now()
	for range 10 {
		for i := range 20 {
			want(t, e, fmt.Sprint(i), "v")
		}
	}
	if d := time.Since(began); d > time.Second {
		t.Errorf("200 reads beside a hung disk took %v", d)
	}
}

// TestReadersWaitForTheDecision holds a commit back one acknowledgement short
// of its quorum. Nobody may see it, nor wait for it without need.
func TestReadersWaitForTheDecision(t *testing.T) {
	w := newWorld(t, 3)
	e := start(t, w, Options{LagTime: time.Hour, TendEvery: time.Hour})
	mustPut(t, e, "k", "old")
	mustPut(t, e, "other", "old")
	release1, release2 := hold(w.bays[1], storagetest.OpApply), hold(w.bays[2], storagetest.OpApply)
	defer release2()
	defer release1()
	var wg sync.WaitGroup
	wg.Go(func() { mustPut(t, e, "k", "new") })
	until(t, "disk 0 has it", func() bool { return e.Health().Disks[0].Applied == 4 })
	want(t, e, "other", "old")
	read, scanned := make(chan string, 1), make(chan string, 1)
	wg.Go(func() {
		item, err := e.Get(t.Context(), []byte("k"))
		read <- fmt.Sprintf("%s %v", item.Val, err)
	})
	wg.Go(func() {
		c, err := e.Scan(t.Context(), nil, nil)
		if err != nil {
			t.Error(err)
			return
		}
		c.Next()
		scanned <- string(c.Item().Val)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	select {
	case got := <-read:
		t.Errorf("get before the decision: %s", got)
	case got := <-scanned:
		t.Errorf("scan before the decision: %s", got)
	case <-time.After(30 * time.Millisecond):
	}
	release1()
	for _, c := range []chan string{read, scanned} {
		if got := <-c; got[:3] != "new" && got[:3] != "old" {
			t.Errorf("after the decision: %s", got)
		}
	}
	wg.Wait()
	want(t, e, "k", "new")
}

func TestCallerGivesUp(t *testing.T) {
	w := newWorld(t, 3)
	e := start(t, w, Options{LagTime: time.Hour, TendEvery: time.Hour})
	release1, release2 := hold(w.bays[1], storagetest.OpApply), hold(w.bays[2], storagetest.OpApply)
	defer release2()
	defer release1()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	results := make(chan error, 2)
	commit := func(key string) {
		_, err := e.Commit(ctx, meta.Group{}, nil, []meta.Op{{Key: []byte(key), Val: []byte("v")}})
		results <- err
	}
	go commit("inflight")
	until(t, "it is in flight", func() bool { return e.inflight.Load() != nil })
	go commit("queued")
	until(t, "the other is queued", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return len(e.queue) == 1
	})
	cancel()
	unknown := 0
	for range 2 {
		switch err := <-results; {
		case errors.Is(err, meta.ErrUnknown):
			unknown++
		case !errors.Is(err, context.Canceled):
			t.Errorf("commit: %v", err)
		}
	}
	if unknown != 1 {
		t.Errorf("%d outcomes unknown, want that of the commit in flight", unknown)
	}
	release1()
	release2()
	want(t, e, "queued", "")
	until(t, "the first is done", func() bool {
		_, err := e.Get(t.Context(), []byte("inflight"))
		return err == nil
	})
}

// TestCommitsShareSyncs counts batches: what arrives while one is written goes
// out together.
func TestCommitsShareSyncs(t *testing.T) {
	w := newWorld(t, 3)
	var applies atomic.Int64
	e := start(t, w, Options{TendEvery: time.Hour})
	release := hold(w.bays[0], storagetest.OpApply) // and the two others decide
	defer release()
	release1 := hold(w.bays[1], storagetest.OpApply)
	const commits = 500
	var wg sync.WaitGroup
	for i := range commits {
		wg.Go(func() {
			if err := put(t, e, fmt.Sprint(i), "v"); err != nil {
				t.Error(err)
			}
		})
	}
	until(t, "all but the first group wait", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return len(e.queue) > commits*9/10 || e.last.seq > commits
	})
	w.bays[2].sim.SetHook(func(op storagetest.Op) storagetest.Fault {
		if op.Kind == storagetest.OpApply {
			applies.Add(1)
		}
		return storagetest.Fault{}
	})
	release1()
	wg.Wait()
	if n := applies.Load(); n > commits/10 {
		t.Errorf("%d batches for %d commits", n, commits)
	}
}

func TestCloseBesideAHungDisk(t *testing.T) {
	w := newWorld(t, 3)
	e, err := New(Options{Disks: w.disks(), CallWait: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	mustPut(t, e, "k", "v")
	release := hold(w.bays[0], storagetest.OpApply)
	mustPut(t, e, "k", "w")
	if err := e.Close(); !errors.Is(err, storage.ErrOffline) {
		t.Errorf("close: %v", err)
	}
	release()
	e.work.Wait()
}

// differences lists some user keys that two stores hold differently.
func differences(t *testing.T, a, b storage.KV) (all []string) {
	t.Helper()
	dump := func(kv storage.KV) map[string]string {
		it, err := kv.Iter(t.Context(), []byte{userSpace}, []byte{userSpace + 1})
		if err != nil {
			t.Fatal(err)
		}
		items := map[string]string{}
		for ok := it.SeekGE(nil); ok; ok = it.Next() {
			raw, err := it.Value()
			if err != nil {
				t.Fatal(err)
			}
			rev, val, err := decodeValue(it.Key()[1:], raw)
			items[string(it.Key()[1:])] = fmt.Sprint(rev, " ", len(val), " ", err)
		}
		if err := errors.Join(it.Err(), it.Close()); err != nil {
			t.Fatal(err)
		}
		return items
	}
	x, y := dump(a), dump(b)
	for k := range x {
		if x[k] != y[k] {
			all = append(all, fmt.Sprintf("%s: %s, %s", k, x[k], y[k]))
		}
	}
	for k := range y {
		if _, ok := x[k]; !ok {
			all = append(all, fmt.Sprintf("%s: not there, %s", k, y[k]))
		}
	}
	return all[:min(len(all), 10)]
}
