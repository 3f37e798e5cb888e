package storagetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"ringfence/storage"
)

func testShardRoundTrip(t *testing.T, d *diskCase) {
	for _, c := range []struct{ block, size int }{
		{4096, 0}, {4096, 1}, {4096, 4095}, {4096, 4096}, {4096, 4097}, {4096, 40_000}, {8192, 4096}, {8192, 8193},
		{64 << 10, 1 << 20}, {256 << 10, 100}, {256 << 10, 1<<20 + 1}, {1 << 20, 3<<20 - 1}, {4096, 3 << 20},
	} {
		t.Run(fmt.Sprintf("%d bytes in blocks of %d", c.size, c.block), func(t *testing.T) {
			s := d.shard(c.block, c.size)
			s.seal(t, d)
			for _, batch := range []int{1, 2, 5, 1000} {
				s.verify(t, d, batch)
			}
		})
	}
	s := d.shard(4096, 10)
	s.owner = pattern(storage.MaxOwner)
	s.seal(t, d)
	s.verify(t, d, 1)
}

func testShardExclusive(t *testing.T, d *diskCase) {
	s := d.shard(4096, 9000)
	open, err := s.write(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.CreateShard(t.Context(), s.id, storage.ShardInfo{BlockSize: 4096})
	want(t, "create while open", err, storage.ErrExists)
	if err := open.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err = d.CreateShard(t.Context(), s.id, storage.ShardInfo{BlockSize: 4096})
	want(t, "create when sealed", err, storage.ErrExists)
	s.verify(t, d, 1)
}

func testShardAbort(t *testing.T, d *diskCase) {
	s := d.shard(4096, 9000)
	w, err := s.write(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := w.Abort(); err != nil {
			t.Errorf("abort: %v", err)
		}
	}
	_, err = d.OpenShard(t.Context(), s.id)
	want(t, "open", err, storage.ErrNotFound)
	if ids := listAll(t, d, 10); len(ids) != 0 {
		t.Errorf("%v is left", ids)
	}
	if w.Seal(t.Context()) == nil {
		t.Error("an aborted shard can be sealed")
	}
	// Abort after Seal is how a deferred one ends: it must not touch the shard.
	s.id = d.id()
	w, err = s.write(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Seal(t.Context()), w.Abort()); err != nil {
		t.Error(err)
	}
	s.verify(t, d, 1)
}

func testShardUnsealed(t *testing.T, d *diskCase) {
	s := d.shard(4096, 9000)
	w, err := s.write(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.OpenShard(t.Context(), s.id)
	if !errors.Is(err, storage.ErrCorrupt) && !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("open: %v", err)
	}
	if ids := listAll(t, d, 10); !slices.Equal(ids, []storage.ShardID{s.id}) {
		t.Errorf("list: %v, want the unsealed one too", ids)
	}
	if err := w.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.verify(t, d, 1)
}

func testShardMisuse(t *testing.T, d *diskCase) {
	for name, info := range map[string]storage.ShardInfo{
		"block size 0":               {},
		"block size below the least": {BlockSize: 2048},
		"odd block size":             {BlockSize: 5000},
		"owner too long":             {BlockSize: 4096, Owner: make([]byte, storage.MaxOwner+1)},
	} {
		if _, err := d.CreateShard(t.Context(), d.id(), info); err == nil {
			t.Errorf("%s is allowed", name)
		}
	}
	w, err := d.CreateShard(t.Context(), d.id(), storage.ShardInfo{BlockSize: 4096})
	if err != nil {
		t.Fatal(err)
	}
	if w.Append(t.Context(), make([]byte, 4097), storage.Sum{}) == nil {
		t.Error("a block larger than the block size is allowed")
	}
	if err := w.Abort(); err != nil {
		t.Error(err)
	}
	if w, err = d.CreateShard(t.Context(), d.id(), storage.ShardInfo{BlockSize: 4096}); err != nil {
		t.Fatal(err)
	}
	if err := w.Append(t.Context(), make([]byte, 10), storage.Sum{}); err != nil {
		t.Fatal(err)
	}
	if w.Append(t.Context(), make([]byte, 4096), storage.Sum{}) == nil {
		t.Error("a block after a short one is allowed")
	}
	if err := w.Abort(); err != nil {
		t.Error(err)
	}
}

func testShardRange(t *testing.T, d *diskCase) {
	s := d.shard(4096, 9000)
	s.seal(t, d)
	r, err := d.OpenShard(t.Context(), s.id)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ first, count int }{{-1, 1}, {3, 1}, {2, 2}, {1000, 1}} {
		bufs := d.bufs(t, c.count, 4096)
		if r.ReadBlocks(t.Context(), c.first, bufs) == nil {
			t.Errorf("blocks %d to %d of 3 can be read", c.first, c.first+c.count)
		}
		release(bufs)
	}
	if err := r.ReadBlocks(t.Context(), 0, nil); err != nil {
		t.Errorf("no blocks: %v", err)
	}
	s.verifyReader(t, d, r, 3)
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

func testShardRemove(t *testing.T, d *diskCase) {
	s := d.shard(4096, 9000)
	s.seal(t, d)
	r, err := d.OpenShard(t.Context(), s.id)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := d.RemoveShard(t.Context(), s.id); err != nil {
			t.Errorf("remove: %v", err)
		}
	}
	_, err = d.OpenShard(t.Context(), s.id)
	want(t, "open after remove", err, storage.ErrNotFound)
	if ids := listAll(t, d, 10); len(ids) != 0 {
		t.Errorf("list after remove: %v", ids)
	}
	s.verifyReader(t, d, r, 2)
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// listAll reads the list page by page.
func listAll(t *testing.T, d storage.Disk, page int) []storage.ShardID {
	t.Helper()
	var all []storage.ShardID
	after := storage.ShardID{}
	for {
		ids, err := d.ListShards(t.Context(), after, page)
		if err != nil {
			t.Fatal(err)
		}
		if len(ids) > page {
			t.Fatalf("a page of %d, at most %d", len(ids), page)
		}
		if len(ids) == 0 {
			return all
		}
		all = append(all, ids...)
		after = ids[len(ids)-1]
	}
}

func testShardList(t *testing.T, d *diskCase) {
	if ids := listAll(t, d, 10); len(ids) != 0 {
		t.Fatalf("a blank disk lists %v", ids)
	}
	var made []storage.ShardID
	for i := range 40 {
		s := d.shard(4096, 10)
		if i%4 > 0 { // parts of one upload, in one folder
			s.id = storage.ShardID{UUID: made[len(made)-1].UUID, Part: made[len(made)-1].Part + uint16(i*i)}
		}
		s.seal(t, d)
		made = append(made, s.id)
	}
	slices.SortFunc(made, compareIDs)
	for _, page := range []int{1, 3, 39, 40, 41, 1000} {
		got := listAll(t, d, page)
		slices.SortFunc(got, compareIDs)
		if !slices.Equal(got, made) {
			t.Errorf("pages of %d: %d ids, want %d", page, len(got), len(made))
		}
	}
	// A page may start after an id that is gone.
	first, err := d.ListShards(t.Context(), storage.ShardID{}, 20)
	if err != nil || len(first) != 20 {
		t.Fatalf("%d ids: %v", len(first), err)
	}
	if err := d.RemoveShard(t.Context(), first[19]); err != nil {
		t.Fatal(err)
	}
	rest, err := d.ListShards(t.Context(), first[19], 100)
	if err != nil || len(rest) != 20 {
		t.Errorf("%d ids after one that was removed: %v", len(rest), err)
	}
}

func testShardDamage(t *testing.T, d *diskCase) {
	if d.h.Damage == nil {
		t.Skip("needs Damage")
	}
	for how := DamageTruncate; how <= DamageGarbage; how++ {
		s, other := d.shard(4096, 9000), d.shard(4096, 9000)
		s.seal(t, d)
		other.seal(t, d)
		d.h.Damage(t, d.Disk, s.id, how)
		_, err := d.OpenShard(t.Context(), s.id)
		want(t, fmt.Sprintf("open after damage %d", how), err, storage.ErrCorrupt)
		other.verify(t, d, 3)
		if ids := listAll(t, d, 10); !slices.Contains(ids, s.id) {
			t.Errorf("damage %d: the shard is not listed", how)
		}
		if err := d.RemoveShard(t.Context(), s.id); err != nil {
			t.Errorf("damage %d: remove: %v", how, err)
		}
	}
	if h := d.Health(); h.State != storage.StateOK {
		t.Errorf("damaged shards make the disk %v: %s", h.State, h.Reason)
	}
}

// testShardConcurrent writes, seals, reads, lists and removes at once.
func testShardConcurrent(t *testing.T, d *diskCase) {
	rounds := 20
	if testing.Short() {
		rounds = 5
	}
	keep := d.shard(8192, 100_000)
	keep.seal(t, d)
	var wg sync.WaitGroup
	for g := range 6 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 8))
			mine := &diskCase{Disk: d.Disk, pool: d.pool, rng: rng}
			for i := range rounds {
				s := mine.shard(4096, 1+rng.IntN(20_000))
				w, err := s.write(t.Context(), d)
				if err != nil {
					t.Error(err)
					return
				}
				if i%5 == 4 {
					if err := w.Abort(); err != nil {
						t.Error(err)
					}
					continue
				}
				if err := w.Seal(t.Context()); err != nil {
					t.Error(err)
					return
				}
				if err := readAgain(t.Context(), mine, s, keep); err != nil {
					t.Error(err)
					return
				}
				if i%5 > 0 {
					if err := d.RemoveShard(t.Context(), s.id); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	if got, want := len(listAll(t, d, 7)), 1+6*((rounds+4)/5); got != want {
		t.Errorf("%d shards are left, want %d", got, want)
	}
}

// readAgain reads a random block of each shard.
func readAgain(ctx context.Context, d *diskCase, shards ...shard) error {
	for _, s := range shards {
		r, err := d.OpenShard(ctx, s.id)
		if err != nil {
			return err
		}
		n := d.rng.IntN(r.Info().Blocks())
		b, err := d.pool.Get(s.block)
		if err != nil {
			return err
		}
		err = r.ReadBlocks(ctx, n, []*storage.Buf{b})
		if want := s.content[n*s.block : min((n+1)*s.block, len(s.content))]; err == nil && string(want) != string(b.Bytes()) {
			err = fmt.Errorf("block %d of %s: wrong bytes", n, s.id)
		}
		b.Release()
		if err := errors.Join(err, r.Close()); err != nil {
			return err
		}
	}
	return nil
}

// testShardCancelled cancels reads at any moment and gives the buffers away.
func testShardCancelled(t *testing.T, d *diskCase) {
	s := d.shard(64<<10, 2<<20)
	s.seal(t, d)
	r, err := d.OpenShard(t.Context(), s.id)
	if err != nil {
		t.Fatal(err)
	}
	for range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		n := 1 + d.rng.IntN(8)
		bufs := d.bufs(t, n, s.block)
		first := d.rng.IntN(r.Info().Blocks() - n)
		switch err := r.ReadBlocks(ctx, first, bufs); {
		case err != nil && !errors.Is(err, context.Canceled):
			t.Fatal(err)
		case err == nil && string(bufs[0].Bytes()) != string(s.content[first*s.block:][:s.block]):
			t.Fatal("wrong bytes")
		}
		release(bufs)
		cancel()
	}
	s.verifyReader(t, d, r, 8)
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
