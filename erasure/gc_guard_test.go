package erasure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"ringfence/erasure/meta"
	"ringfence/storage"
	"ringfence/storage/storagetest"
)

// hookEngine calls something around the calls of an engine.
type hookEngine struct {
	meta.Engine
	health func()
	cursor func(c meta.Cursor) meta.Cursor
}

func (h *hookEngine) Health() meta.Health {
	res := h.Engine.Health()
	if f := h.health; f != nil {
		h.health = nil
		f()
	}
	return res
}

func (h *hookEngine) Scan(ctx context.Context, lo, hi []byte) (meta.Cursor, error) {
	c, err := h.Engine.Scan(ctx, lo, hi)
	if err == nil && h.cursor != nil {
		c = h.cursor(c)
	}
	return c, err
}

// onEnd calls f at the end of a body.
type onEnd func()

func (f onEnd) Read([]byte) (int, error) { f(); return 0, io.EOF }

// The epoch moves between the look at it and its use: the shards of a write in
// progress are never taken for those of an earlier process.
func TestSweepSparesWritesInProgress(t *testing.T) {
	ts := small(t)
	set, eng := ts.sets[0], ts.engines[0]
	set.orphans = orphans{}
	set.claimed.Store(nil)
	hook := &hookEngine{Engine: eng}
	moved := false
	hook.health = func() {
		moved = true
		eng.mu.Lock()
		eng.epoch++
		eng.mu.Unlock()
	}
	set.engine = hook
	body := text(1, 100_000)
	in := input(body)
	swept := 0
	in.Body, in.Size = io.MultiReader(in.Body, onEnd(func() {
		swept++
		if err := ts.sweep(t.Context(), set); err != nil {
			t.Error(err)
		}
	})), -1
	if _, err := ts.Put(t.Context(), "b", "k", in); err != nil {
		t.Fatal(err)
	}
	if swept == 0 || !moved {
		t.Fatal("the test did not get in between")
	}
	ts.wantBody("b", "k", body)
}

// Nothing is swept, and no body is read, before a commit of this process: until
// then earlier ones may have left commits that are still undecided.
func TestSweepWaitsForACommit(t *testing.T) {
	ts := small(t)
	ts.restart(3)
	set, eng := ts.sets[0], ts.engines[0]
	lost := ts.orphan(set.claimed.Load().metadata, 3, true)
	eng.mu.Lock()
	eng.epoch = 4
	eng.fate = func(meta.Group, []meta.Op) fate { return fate{lost: true, err: meta.ErrUnavailable} }
	eng.mu.Unlock()
	set.orphans = orphans{}
	set.claimed.Store(nil)
	if err := ts.sweep(t.Context(), set); !errors.Is(err, ErrUnavailable) {
		t.Errorf("sweep of a set that does not commit: %v", err)
	}
	if n := ts.on(lost); n != 6 {
		t.Errorf("shards are left on %d disks, want 6", n)
	}
	body := &countBody{}
	in := PutInput{Body: body, Size: 1 << 20}
	if _, err := ts.Put(t.Context(), "b", "k", in); !errors.Is(err, ErrUnavailable) || body.n > 0 {
		t.Errorf("put: %v after %d bytes", err, body.n)
	}
	eng.mu.Lock()
	eng.fate = func(meta.Group, []meta.Op) fate { return fate{err: meta.ErrUnknown} } // it happens all the same
	eng.mu.Unlock()
	if _, err := ts.Put(t.Context(), "b", "k", input(text(1, 50_000))); !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUnknown) {
		t.Errorf("put that was not begun: %v", err)
	}
	eng.mu.Lock()
	eng.fate = nil
	eng.mu.Unlock()
	ts.clock.Add(orphanRetry.Milliseconds())
	if err := ts.sweep(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	if n := ts.on(lost); n != 0 {
		t.Errorf("shards are left on %d disks, want none", n)
	}
}

// A set that lost its metadata is no set full of orphans, whichever it is, and
// whatever the others still know.
func TestSweepSparesSetsWithoutMetadata(t *testing.T) {
	for lost := range 2 {
		ts := newTestStore(t, storeShape{sets: 2, disks: 6, parity: 2})
		ts.mustBucket("b")
		ts.restart(1)
		for i := range 20 {
			ts.mustPut("b", fmt.Sprint(i), text(uint64(i), 30_000))
		}
		set := ts.sets[lost]
		cut := ts.orphanIn(set, set.claimed.Load().metadata, 1, false)
		before := ts.shards()
		eng := ts.engines[lost]
		eng.mu.Lock()
		eng.items = nil
		eng.mu.Unlock()
		for epoch := range uint64(3) { // this start, and later ones
			ts.restart(2 + epoch)
			for range 2 {
				ts.clock.Add(orphanRetry.Milliseconds())
				if err := ts.sweep(t.Context(), set); err != nil {
					t.Fatal(err)
				}
			}
		}
		if n := ts.shards(); n != before {
			t.Errorf("set %d lost its metadata: %d of %d shards are left", lost, n, before)
		}
		if n := ts.on(cut); n != 6 {
			t.Errorf("a shard that cannot be read is left on %d disks beside strange ones, want 6", n)
		}
	}
}

// A record that cannot be walked to its end may name anything.
func TestSweepStopsAtARecordItCannotRead(t *testing.T) {
	newer := &encoder{}
	newer.uint(fieldFormat, recordFormat+1)
	cutShort := (&record{Key: "k", Size: goldenBlob.Size, Run: run{Blob: &goldenBlob}}).encode()
	for name, val := range map[string][]byte{
		"newer": newer.b, "cut short": cutShort[:len(cutShort)-3], "garbage": {0xff},
		"bad blob": append(newEncoder().b, 0x62, 0x02, 0x08, 0x01),
	} {
		ts := small(t)
		ts.restart(1)
		ts.mustPut("b", "k", text(1, 30_000))
		lost := ts.orphan(ts.sets[0].claimed.Load().metadata, 1, true)
		okey := []byte("p/odd")
		if _, err := ts.engines[0].Commit(t.Context(), meta.Group{}, nil, []meta.Op{{Key: okey, Val: val}}); err != nil {
			t.Fatal(err)
		}
		ts.restart(2)
		if err := ts.sweep(t.Context(), ts.sets[0]); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s record: sweep: %v", name, err)
		}
		if n := ts.on(lost); n != 6 {
			t.Errorf("%s record: shards are left on %d disks, want 6", name, n)
		}
	}
}

// A power failure brings back what the sweep removed: the next process looks
// again.
func TestSweepOutlivesAPowerFailure(t *testing.T) {
	ts := small(t)
	ts.restart(1)
	set := ts.sets[0]
	lost := ts.orphan(set.claimed.Load().metadata, 1, true)
	ts.restart(2)
	if err := ts.sweep(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	if n := ts.on(lost); n != 0 {
		t.Fatalf("shards are left on %d disks", n)
	}
	if ts.powerFailure() == 0 {
		t.Fatal("the power failure undid nothing")
	}
	ts.restart(3)
	if err := ts.sweep(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	if n := ts.shards(); n != 0 {
		t.Errorf("%d shards came back for good", n)
	}
}

// A power failure brings back what the collector removed: its entries are still
// there.
func TestRemovalsOutliveAPowerFailure(t *testing.T) {
	ts := small(t)
	for i := range 10 {
		key := fmt.Sprint(i)
		ts.mustPut("b", key, text(uint64(i), 30_000))
		if _, err := ts.Delete(t.Context(), "b", key, DeleteInput{}); err != nil {
			t.Fatal(err)
		}
	}
	up := ts.mustUpload("m")
	for n := 1; n <= 40; n++ {
		ts.mustPart(up, n, text(uint64(n), 20_000))
	}
	if err := ts.AbortUpload(t.Context(), "b", "m", up.UploadID); err != nil {
		t.Fatal(err)
	}
	ts.collectAll()
	if n := ts.shards(); n != 0 {
		t.Fatalf("%d shards are left", n)
	}
	before := len(ts.engines[0].keys("g/"))
	for epoch := range uint64(3) { // each time it is the first removal that is undone
		if ts.powerFailure() < 10 {
			t.Fatal("the power failure undid nothing")
		}
		ts.restart(10 + epoch)
		ts.clock.Add(garbageAfter.Milliseconds())
		ts.collectAll()
		if n := ts.shards(); n != 0 {
			t.Fatalf("%d shards are left", n)
		}
	}
	ts.wantClean()
	if keys := ts.engines[0].keys("g/"); before == 0 || len(keys) > 0 {
		t.Errorf("%d entries waited, and %q are left", before, keys)
	}
}

// The largest entry there may be fits into a commit, and so do many in a row.
func TestGarbageOfManyBlobs(t *testing.T) {
	ts := small(t)
	if settleOps > meta.MaxOps || 3*partBatch+1 > meta.MaxOps {
		t.Errorf("an entry takes %d operations, parts %d, a commit %d", settleOps, 3*partBatch+1, meta.MaxOps)
	}
	ts.sims[0].SetHook(func(op storagetest.Op) storagetest.Fault { // so that there is an index of damage
		if op.Kind == storagetest.OpSealData {
			return storagetest.Fault{Kind: storagetest.FaultFail, Err: storage.ErrNoBuffer}
		}
		return storagetest.Fault{}
	})
	g := garbageRecord{Kind: garbageBlobs}
	for i := range 3 * maxBlobs {
		key := fmt.Sprint(i)
		ts.mustPut("b", key, text(uint64(i), 17_000))
		tgt, err := ts.target(t.Context(), "b", key)
		if err != nil {
			t.Fatal(err)
		}
		rec, rev, err := tgt.current(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ops := []meta.Op{{Key: tgt.okey, Delete: true}}
		if g.Blobs = append(g.Blobs, *rec.Run.Blob); len(g.Blobs) == maxBlobs {
			ops = append(ops, g.op(ts.now()))
			g.Blobs = nil
		}
		if _, err := tgt.set.commit(t.Context(), meta.Group{}, []meta.Cond{{Key: tgt.okey, Rev: rev}}, ops); err != nil {
			t.Fatal(err)
		}
	}
	ts.wantClean()
	if keys := ts.engines[0].keys("g/"); len(keys) > 0 {
		t.Errorf("entries %q are left", keys)
	}
}

// powerFailure cuts the power until some removals were undone, and returns how
// many shards there are.
func (ts *testStore) powerFailure() int {
	ts.t.Helper()
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range ts.sims {
		ts.sims[i].Crash(rng)
		ts.returnDisk(i)
	}
	return ts.shards()
}

// A disk that fails or hangs while it is swept is swept later; the others are
// not held up.
func TestSweepPassesSickDisks(t *testing.T) {
	for _, kind := range []storagetest.OpKind{storagetest.OpList, storagetest.OpOpenShard, storagetest.OpRemove} {
		for _, hang := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				ts := small(t)
				ts.restart(1)
				lost := ts.orphan(ts.sets[0].claimed.Load().metadata, 1, true)
				ts.restart(2)
				gate := make(chan struct{})
				ts.sims[2].SetHook(func(op storagetest.Op) storagetest.Fault {
					switch {
					case op.Kind != kind:
						return storagetest.Fault{}
					case hang:
						return storagetest.Fault{Wait: gate}
					}
					return storagetest.Fault{Kind: storagetest.FaultFail}
				})
				if err := ts.sweep(t.Context(), ts.sets[0]); err != nil {
					t.Fatal(err)
				}
				if n := ts.on(lost); n != 1 {
					t.Errorf("%v, hangs %v: shards are left on %d disks, want 1", kind, hang, n)
				}
				close(gate)
				ts.sims[2].SetHook(nil)
				ts.clock.Add(orphanRetry.Milliseconds())
				if err := ts.sweep(t.Context(), ts.sets[0]); err != nil {
					t.Fatal(err)
				}
				if n := ts.on(lost); n != 0 {
					t.Errorf("%v, hangs %v: shards are left on %d disks after it is well", kind, hang, n)
				}
			})
		}
	}
}

// A slot that nobody knew at the first sweep is swept when its disk shows up.
func TestSweepOfASlotThatWasEmpty(t *testing.T) {
	ts := small(t)
	ts.restart(1)
	set := ts.sets[0]
	lost := ts.orphan(set.claimed.Load().metadata, 1, true)
	ts.restart(2)
	disk := set.disks[4]
	set.disks[4] = anonymous{disk}
	if err := ts.sweep(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	set.disks[4] = disk
	if n := ts.on(lost); n != 1 {
		t.Errorf("shards are left on %d disks, want 1", n)
	}
	ts.clock.Add(orphanRetry.Milliseconds())
	if err := ts.sweep(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	if n := ts.on(lost); n != 0 {
		t.Errorf("shards are left on %d disks, want none", n)
	}
}

type anonymous struct{ storage.Disk }

func (anonymous) Identity() storage.Identity { return storage.Identity{} }
