package local_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ringfence/storage"
)

func TestCachedOpen(t *testing.T) {
	r := newRig(t, nil, "")
	r.opts.FDCache = 3
	r.reopen(t)
	for i := range 5 {
		if err := writeShard(t, r.disk, shardID(byte(i), 0), 100); err != nil {
			t.Fatal(err)
		}
	}
	open := func(n byte) (opened bool) {
		before, _ := r.backend.counts()
		checkShard(t, r.disk, shardID(n, 0), 100)
		after, _ := r.backend.counts()
		return after > before
	}
	for i, c := range []struct {
		shard  byte
		opened bool
	}{{0, true}, {0, false}, {1, true}, {2, true}, {0, false}, {3, true}, {0, false}, {1, true}, {0, false}, {3, false}, {2, true}} {
		if open(c.shard) != c.opened {
			t.Fatalf("step %d: shard %d opened: %v, want %v", i, c.shard, !c.opened, c.opened)
		}
	}
	if n := r.disk.CachedShards(); n != 3 {
		t.Fatalf("%d cached", n)
	}
	// A reader outlives eviction.
	rd := must[storage.ShardReader](t)(r.disk.OpenShard(t.Context(), shardID(4, 0)))
	for i := range 4 {
		checkShard(t, r.disk, shardID(byte(i), 0), 100)
	}
	if err := rd.ReadBlocks(t.Context(), 0, getBufs(t, 1)); err != nil {
		t.Fatal(err)
	}
	if err := rd.Close(); err != nil {
		t.Fatal(err)
	}
	if err := rd.ReadBlocks(t.Context(), 0, getBufs(t, 1)); err == nil {
		t.Fatal("a closed reader read")
	}
}

// TestRewrittenShard: healing removes a damaged shard and writes it again under
// its name; nobody may see the old one then.
func TestRewrittenShard(t *testing.T) {
	r := newRig(t, nil, "")
	id := shardID(1, 0)
	for _, size := range []int{100, 5000, 0, 9000} {
		if err := writeShard(t, r.disk, id, size); err != nil {
			t.Fatal(err)
		}
		checkShard(t, r.disk, id, size)
		if err := r.disk.RemoveShard(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRemoveDuringOpen removes a shard while its open is under way: the open
// may win, but what it opened must not be found again.
func TestRemoveDuringOpen(t *testing.T) {
	r := newRig(t, nil, "")
	id := shardID(1, 0)
	if err := writeShard(t, r.disk, id, 100); err != nil {
		t.Fatal(err)
	}
	reached, proceed := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r.backend.fail = func(op, _ string) error {
		if op == "read" {
			once.Do(func() { // the trailer: the file is open
				close(reached)
				<-proceed
			})
		}
		return nil
	}
	result := make(chan error, 1)
	go func() {
		rd, err := r.disk.OpenShard(context.WithoutCancel(t.Context()), id)
		if err == nil {
			err = rd.Close()
		}
		result <- err
	}()
	<-reached
	if err := r.disk.RemoveShard(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	close(proceed)
	if err := <-result; err != nil {
		t.Fatalf("the open that was first: %v", err)
	}
	if _, err := r.disk.OpenShard(t.Context(), id); !errors.Is(err, storage.ErrNotFound) {
		t.Fatalf("open after remove: %v", err)
	}
	if n := r.disk.CachedShards(); n != 0 {
		t.Fatalf("%d cached", n)
	}
}

// TestConcurrentShards writes, reads and removes from many goroutines.
func TestConcurrentShards(t *testing.T) {
	r := newRig(t, nil, "")
	r.opts.FDCache = 4
	r.reopen(t)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 40 {
				id := shardID(byte(g*31+i%5), uint16(g)) // each goroutine has its own
				if err := writeShard(t, r.disk, id, 1+i*100); err != nil {
					t.Error(err)
					return
				}
				for range 3 {
					if err := readShard(t, r.disk, id, 1+i*100); err != nil {
						t.Error(err)
						return
					}
				}
				if err := r.disk.RemoveShard(t.Context(), id); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if n := r.disk.CachedShards(); n != 0 {
		t.Fatalf("%d cached after all were removed", n)
	}
}

// TestSharedDirSync: seals that wait for one folder share its syncs, and each
// waits for one that began after its own entry was made.
func TestSharedDirSync(t *testing.T) {
	r := newRig(t, nil, "")
	hold, first := make(chan struct{}), make(chan struct{})
	var syncs, waiting atomic.Int32
	r.backend.fail = func(op, _ string) error {
		switch op {
		case "syncdir":
			if syncs.Add(1) == 1 {
				close(first)
				<-hold
			}
		case "sync":
			waiting.Add(1)
		}
		return nil
	}
	var wg sync.WaitGroup
	seal := func(part uint16) {
		wg.Go(func() {
			if err := writeShard(t, r.disk, shardID(1, part), 100); err != nil { // one folder
				t.Error(err)
			}
		})
	}
	seal(0)
	<-first
	const more = 20
	for i := range more {
		seal(uint16(i + 1))
	}
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for waiting.Load() <= more { // until all are past their own sync, on their way to the folder's
		<-poll.C
	}
	close(hold)
	wg.Wait()
	// The first, one for those who waited, and stragglers that came too late.
	if n := syncs.Load(); n > more {
		t.Fatalf("%d syncs of the folder for %d seals", n, more+1)
	}
	for i := range more + 1 {
		checkShard(t, r.disk, shardID(1, uint16(i)), 100)
	}
}

func TestLongTrailer(t *testing.T) {
	r := newRig(t, nil, "")
	id := shardID(1, 0)
	const size = 3000*blockSize + 1 // 48 KiB of sums: more than one read of the tail
	if err := writeShard(t, r.disk, id, size); err != nil {
		t.Fatal(err)
	}
	rd := must[storage.ShardReader](t)(r.disk.OpenShard(t.Context(), id))
	_, sums := blocksOf(id, size)
	for i, s := range sums {
		if rd.Sum(i) != s {
			t.Fatalf("sum %d differs", i)
		}
	}
	if err := rd.Close(); err != nil {
		t.Fatal(err)
	}
}
