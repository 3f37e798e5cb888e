package erasure

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"ringfence/erasure/meta"
	"ringfence/storage"
	"ringfence/storage/storagetest"
)

// While a disk is away its garbage waits, and nobody else's does.
func TestGarbageOfAnAbsentDiskWaits(t *testing.T) {
	ts := small(t)
	up := ts.mustUpload("m")
	for n := 1; n <= 40; n++ {
		ts.mustPart(up, n, text(uint64(n), 20_000))
	}
	ts.mustPut("b", "k", text(1, 50_000))
	ts.sims[3].Vanish()
	if _, err := ts.Delete(t.Context(), "b", "k", DeleteInput{}); err != nil {
		t.Fatal(err)
	}
	if err := ts.AbortUpload(t.Context(), "b", "m", up.UploadID); err != nil {
		t.Fatal(err)
	}
	ts.collectAll()
	for i, sim := range ts.sims {
		if n := len(sim.Shards()); (i == 3) != (n == 41) || i != 3 && n != 0 {
			t.Errorf("disk %d: %d shards are left", i, n)
		}
	}
	if n := len(ts.engines[0].keys("g/")); n != 2 {
		t.Errorf("%d entries wait, want 2", n)
	}
	ts.returnDisk(3)
	ts.collectAll()
	if n := ts.shards(); n != 41 {
		t.Errorf("%d shards: an entry that was put off came up at once", n)
	}
	ts.clock.Add(garbageFirst.Milliseconds())
	ts.wantClean()
	if keys := ts.engines[0].keys("g/"); len(keys) > 0 {
		t.Errorf("entries %q are left", keys)
	}
}

// returnDisk brings a disk back and opens it again, as a slot would.
func (ts *testStore) returnDisk(i int) {
	ts.t.Helper()
	ts.sims[i].Return()
	d, err := ts.sims[i].Open(ts.sims[i].Identity())
	if err != nil {
		ts.t.Fatal(err)
	}
	set := ts.sets[0]
	set.disks[i] = d
	sh, ok := set.data.(shards)
	if !ok {
		ts.t.Fatal("not the real data path")
	}
	sh.opts.Disks[i] = d
}

func TestPauseOfGarbageGrows(t *testing.T) {
	ts := small(t)
	ts.mustPut("b", "k", text(1, 50_000))
	ts.sims[0].Vanish()
	if _, err := ts.Delete(t.Context(), "b", "k", DeleteInput{}); err != nil {
		t.Fatal(err)
	}
	last := int64(0)
	for range 12 {
		ts.collectAll()
		keys := ts.engines[0].keys("g/")
		if len(keys) != 1 {
			t.Fatalf("%d entries", len(keys))
		}
		due, _, ok := meta.ParseGarbageKey([]byte(keys[0]))
		pause := int64(due) - ts.clock.Load()
		if !ok || pause < last-100 || pause > garbageMost.Milliseconds()+100 {
			t.Fatalf("pause of %d ms after %d ms", pause, last)
		}
		last = pause
		ts.clock.Add(pause + 1)
	}
	if last < garbageMost.Milliseconds()-100 {
		t.Errorf("the pause ends at %d ms", last)
	}
}

// What was written while the clock was far ahead does not wait for that time.
func TestGarbageOfAWrongClock(t *testing.T) {
	ts := small(t)
	ts.mustPut("b", "k", text(1, 50_000))
	year := (365 * 24 * time.Hour).Milliseconds()
	ts.clock.Add(year)
	if _, err := ts.Delete(t.Context(), "b", "k", DeleteInput{}); err != nil {
		t.Fatal(err)
	}
	ts.clock.Add(-year)
	ts.wantClean()
}

// An entry that this program cannot read waits, and does not block the others.
func TestUnknownGarbageWaits(t *testing.T) {
	ts := small(t)
	odd := storage.ShardID{UUID: storage.UUID{1}}
	bad := storage.ShardID{UUID: storage.UUID{2}}
	newer := &encoder{}
	newer.uint(fieldFormat, recordFormat+1)
	_, err := ts.engines[0].Commit(t.Context(), meta.Group{}, nil, []meta.Op{
		{Key: meta.GarbageKey(1, odd), Val: newer.b},
		{Key: meta.GarbageKey(1, bad), Val: []byte{0xff}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ts.mustPut("b", "k", text(1, 50_000))
	if _, err := ts.Delete(t.Context(), "b", "k", DeleteInput{}); err != nil {
		t.Fatal(err)
	}
	ts.wantClean()
	if n := len(ts.engines[0].keys("g/")); n != 2 {
		t.Errorf("%d entries, want the two that nobody can read", n)
	}
}

func TestPinsBarrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pins
		id := storage.UUID{9}
		early := p.enter()
		done := make(chan error, 1)
		go func() { done <- p.barrier(t.Context()) }()
		synctest.Wait()
		late := p.enter()
		if len(done) != 0 {
			t.Fatal("the barrier did not wait for who was inside")
		}
		p.pin(&early, id)
		if err := <-done; err != nil { // although late is inside
			t.Fatal(err)
		}
		if !p.busy(id) {
			t.Error("a pinned id is not busy")
		}
		p.unpin(&early)
		p.unpin(&early)
		if p.busy(id) {
			t.Error("an id is busy after unpin")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.barrier(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("barrier: %v", err)
		}
		if err := p.barrier(t.Context()); !errors.Is(err, errBusy) {
			t.Errorf("barrier after one that gave up: %v", err)
		}
		p.leave(late)
		if err := p.barrier(t.Context()); err != nil {
			t.Errorf("barrier: %v", err)
		}
		if len(p.held) != 0 || p.inside != [2]int{} {
			t.Errorf("left over: %v", &p)
		}
	})
}

// Run collects what is due without being asked, and ends with its context.
func TestRunCollects(t *testing.T) {
	ts := small(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- ts.Run(ctx) }()
	for i := range 20 {
		key := fmt.Sprint(i % 3)
		ts.mustPut("b", key, text(uint64(i), 30_000))
		if _, err := ts.Delete(t.Context(), "b", key, DeleteInput{}); err != nil {
			t.Fatal(err)
		}
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for ts.shards() > 0 {
		<-tick.C
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("run: %v", err)
	}
	ts.wantClean()
}

// What a write could not store on every disk, and what a reader found damaged,
// is in the index of what is to be healed, until the bytes are gone.
func TestUnhealedIndex(t *testing.T) {
	ts := small(t)
	eng := ts.engines[0]
	ts.sims[2].SetHook(func(op storagetest.Op) storagetest.Fault {
		if op.Kind == storagetest.OpSealData {
			return storagetest.Fault{Kind: storagetest.FaultFail}
		}
		return storagetest.Fault{}
	})
	body := text(1, 200_000)
	info := ts.mustPut("b", "k", body)
	ts.sims[2].SetHook(nil)
	if info.Redundancy != (Redundancy{Disks: 5, Target: 6}) {
		t.Errorf("redundancy %+v", info.Redundancy)
	}
	keys := eng.keys("h/")
	if len(keys) != 1 {
		t.Fatalf("index holds %q", keys)
	}
	item, err := eng.Get(t.Context(), []byte(keys[0]))
	if err != nil {
		t.Fatal(err)
	}
	h, err := decodeHome(item.Val)
	if err != nil || h.Key != "k" || h.Blob == nil || len(h.Blob.Missing) != 1 || h.Blob.Layout.Slots[h.Blob.Missing[0]] != 2 {
		t.Errorf("index says %+v, %v", h, err)
	}
	ts.wantBody("b", "k", body)

	ts.mustPut("b", "k2", body)
	tgt, err := ts.target(t.Context(), "b", "k2")
	if err != nil {
		t.Fatal(err)
	}
	rec, _, err := tgt.current(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !ts.sims[rec.Run.Blob.Layout.Slots[0]].FlipBit(rec.Run.Blob.id(), 0, 77) {
		t.Fatal("no shard to damage")
	}
	ts.wantBody("b", "k2", body)
	if err := ts.indexDamage(t.Context(), ts.sets[0]); err != nil {
		t.Fatal(err)
	}
	if n := len(eng.keys("h/")); n != 2 {
		t.Errorf("index holds %d blobs, want 2", n)
	}
	for _, key := range []string{"k", "k2"} {
		if _, err := ts.Delete(t.Context(), "b", key, DeleteInput{}); err != nil {
			t.Fatal(err)
		}
	}
	ts.wantClean()
}
