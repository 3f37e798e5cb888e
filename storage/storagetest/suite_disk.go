package storagetest

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"ringfence/storage"
)

// Damage is a way to spoil the file of a sealed shard.
type Damage int

// The damages. OpenShard must answer each with ErrCorrupt.
const (
	DamageTruncate Damage = iota // the last byte is gone
	DamageHalf                   // the second half is gone
	DamageEmpty                  // nothing is left
	DamageGarbage                // the length is right, the bytes are random
)

// DiskHarness is what TestDisk needs to know of an implementation. Only Open is
// required; tests that need more are skipped without it.
type DiskHarness struct {
	// Open makes a blank disk. The suite closes it.
	Open func(t *testing.T) storage.Disk
	// Reopen opens the medium of a disk that was closed.
	Reopen func(t *testing.T, closed storage.Disk) storage.Disk
	// Damage spoils the file of a shard behind the disk's back; no reader is
	// open.
	Damage func(t *testing.T, d storage.Disk, id storage.ShardID, how Damage)
	// FailApply makes the next Apply of d's store fail after it was begun, as
	// an I/O error in its log would.
	FailApply func(t *testing.T, d storage.Disk)
}

// TestDisk checks that a Disk keeps the contract of storage.Disk, its shards'
// and its KV's.
func TestDisk(t *testing.T, h DiskHarness) {
	for _, c := range []struct {
		name string
		test func(*testing.T, *diskCase)
	}{
		{"shard round trip", testShardRoundTrip},
		{"shards are exclusive", testShardExclusive},
		{"abort", testShardAbort},
		{"unsealed shards do not open", testShardUnsealed},
		{"writer refuses misuse", testShardMisuse},
		{"reads out of range", testShardRange},
		{"remove", testShardRemove},
		{"list", testShardList},
		{"damage", testShardDamage},
		{"concurrent shards", testShardConcurrent},
		{"cancelled reads", testShardCancelled},
		{"kv reads and writes", testKVBasics},
		{"kv order and bounds", testKVOrder},
		{"kv snapshot", testKVSnapshot},
		{"kv random batches", testKVRandom},
		{"kv atomic", testKVAtomic},
		{"kv dead after a failed apply", testKVDead},
		{"kv reset", testKVReset},
		{"reopen", testReopen},
		{"ended contexts", testDiskContexts},
		{"closed", testDiskClosed},
	} {
		t.Run(c.name, func(t *testing.T) {
			pool, err := storage.NewPool(storage.PoolOptions{BudgetBytes: 64 << 20})
			if err != nil {
				t.Fatal(err)
			}
			d := &diskCase{Disk: h.Open(t), h: h, pool: pool, rng: rand.New(rand.NewPCG(1, 9))}
			c.test(t, d)
			if err := d.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			if n := pool.InUse(); n != 0 {
				t.Errorf("%d bytes of buffers are still in use", n)
			}
			if err := pool.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

type diskCase struct {
	storage.Disk
	h    DiskHarness
	pool *storage.Pool
	rng  *rand.Rand
}

func (d *diskCase) id() storage.ShardID { return newID(d.rng) }

func newID(rng *rand.Rand) storage.ShardID {
	var id storage.ShardID
	for i := range id.UUID {
		id.UUID[i] = byte(rng.Uint32())
	}
	return id
}

// shard is what was written.
type shard struct {
	id      storage.ShardID
	block   int
	content []byte
	owner   []byte
}

func (d *diskCase) shard(block, size int) shard {
	return shard{id: d.id(), block: block, content: pattern(size + 1)[1:], owner: pattern(d.rng.IntN(2000))}
}

// sumOf is a checksum that tells blocks apart; a Disk does not look into it.
func sumOf(id storage.ShardID, n int, block []byte) (s storage.Sum) {
	copy(s[:], id.UUID[:8])
	s[8], s[9], s[10] = byte(n), byte(n>>8), block[0]
	return s
}

// write creates the shard and appends all blocks.
func (s shard) write(ctx context.Context, d storage.Disk) (storage.ShardWriter, error) {
	w, err := d.CreateShard(ctx, s.id, storage.ShardInfo{BlockSize: s.block, Size: int64(len(s.content)), Owner: s.owner})
	if err != nil {
		return nil, err
	}
	n := 0
	scratch := make([]byte, s.block)
	for b := range slices.Chunk(s.content, s.block) {
		used := scratch[:copy(scratch, b)]
		if err := w.Append(ctx, used, sumOf(s.id, n, b)); err != nil {
			return nil, errors.Join(err, w.Abort())
		}
		for i := range used {
			used[i] = 0xee // the caller may reuse it at once
		}
		n++
	}
	return w, nil
}

func (s shard) seal(t *testing.T, d storage.Disk) {
	t.Helper()
	w, err := s.write(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// verify opens the shard and reads all of it, batch blocks in a call.
func (s shard) verify(t *testing.T, d *diskCase, batch int) {
	t.Helper()
	r, err := d.OpenShard(t.Context(), s.id)
	if err != nil {
		t.Fatal(err)
	}
	s.verifyReader(t, d, r, batch)
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

func (s shard) verifyReader(t *testing.T, d *diskCase, r storage.ShardReader, batch int) {
	t.Helper()
	info := r.Info()
	if info.BlockSize != s.block || info.Size != int64(len(s.content)) || !bytes.Equal(info.Owner, s.owner) {
		t.Fatalf("info: block %d, size %d, owner of %d bytes; want %d, %d, %d", info.BlockSize, info.Size, len(info.Owner), s.block, len(s.content), len(s.owner))
	}
	for first := 0; first < info.Blocks(); first += batch {
		n := min(batch, info.Blocks()-first)
		bufs := d.bufs(t, n, s.block)
		if err := r.ReadBlocks(t.Context(), first, bufs); err != nil {
			t.Fatalf("blocks %d to %d: %v", first, first+n, err)
		}
		for i, b := range bufs {
			at := (first + i) * s.block
			want := s.content[at:min(at+s.block, len(s.content))]
			if !bytes.Equal(b.Bytes(), want) {
				t.Fatalf("block %d of %d bytes is not the %d bytes written", first+i, len(b.Bytes()), len(want))
			}
			if r.Sum(first+i) != sumOf(s.id, first+i, want) {
				t.Fatalf("block %d has another checksum", first+i)
			}
			b.Release()
		}
	}
}

func (d *diskCase) bufs(t *testing.T, n, size int) []*storage.Buf {
	t.Helper()
	bufs := make([]*storage.Buf, n)
	for i := range bufs {
		b, err := d.pool.Get(size)
		if err != nil {
			t.Fatal(err)
		}
		bufs[i] = b
	}
	return bufs
}

func release(bufs []*storage.Buf) {
	for _, b := range bufs {
		b.Release()
	}
}

// reopen closes the disk and opens its medium again.
func (d *diskCase) reopen(t *testing.T) {
	t.Helper()
	if d.h.Reopen == nil {
		t.Skip("needs Reopen")
	}
	if err := d.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	d.Disk = d.h.Reopen(t, d.Disk)
}

func testReopen(t *testing.T, d *diskCase) {
	identity := d.Identity()
	s, part := d.shard(8192, 50_000), d.shard(4096, 1)
	part.id = storage.ShardID{UUID: s.id.UUID, Part: 7}
	s.seal(t, d)
	part.seal(t, d)
	if err := setKV(t, d.KV(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	old := d.KV()
	d.reopen(t)
	if d.Identity() != identity {
		t.Error("the identity changed")
	}
	s.verify(t, d, 3)
	part.verify(t, d, 1)
	wantKV(t, d.KV(), map[string]string{"k": "v"})
	if _, err := old.Get(t.Context(), []byte("k")); err == nil {
		t.Error("the store of the closed instance still answers")
	}
	if h := d.Health(); h.State != storage.StateOK {
		t.Errorf("health: %+v", h)
	}
}

func testDiskContexts(t *testing.T, d *diskCase) {
	s := d.shard(4096, 5000)
	s.seal(t, d)
	r, err := d.OpenShard(t.Context(), s.id)
	if err != nil {
		t.Fatal(err)
	}
	if err := setKV(t, d.KV(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	bufs := d.bufs(t, 1, 4096)
	_, errCreate := d.CreateShard(ctx, d.id(), storage.ShardInfo{BlockSize: 4096})
	var b storage.Batch
	b.Set([]byte("k"), []byte("w"))
	for op, err := range map[string]error{
		"create": errCreate, "read": r.ReadBlocks(ctx, 0, bufs), "kv apply": d.KV().Apply(ctx, &b), "remove": d.RemoveShard(ctx, s.id),
	} {
		want(t, op, err, context.Canceled)
	}
	release(bufs)
	// What is answered from memory may be answered all the same.
	again, errOpen := d.OpenShard(ctx, s.id)
	_, errList := d.ListShards(ctx, storage.ShardID{}, 10)
	_, errGet := d.KV().Get(ctx, []byte("k"))
	for op, err := range map[string]error{"open": errOpen, "list": errList, "kv get": errGet} {
		if err != nil {
			want(t, op, err, context.Canceled)
		}
	}
	if errOpen == nil {
		if err := again.Close(); err != nil {
			t.Error(err)
		}
	}
	// Nothing of it happened, and nothing is broken.
	wantKV(t, d.KV(), map[string]string{"k": "v"})
	s.verifyReader(t, d, r, 1)
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	s.verify(t, d, 1)
}

func testDiskClosed(t *testing.T, d *diskCase) {
	s := d.shard(4096, 5000)
	s.seal(t, d)
	kv := d.KV()
	if err := d.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	open, err := d.shard(4096, 10).write(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	_, errCreate := d.CreateShard(t.Context(), d.id(), storage.ShardInfo{BlockSize: 4096})
	_, errOpen := d.OpenShard(t.Context(), s.id)
	_, errList := d.ListShards(t.Context(), storage.ShardID{}, 10)
	for op, err := range map[string]error{
		"create": errCreate, "open": errOpen, "list": errList,
		"remove": d.RemoveShard(t.Context(), s.id), "reset": d.ResetKV(t.Context()), "check": d.Check(t.Context()),
	} {
		want(t, op, err, storage.ErrOffline)
	}
	if open.Seal(t.Context()) == nil {
		t.Error("a shard is sealed on a closed disk")
	}
	for name, kv := range map[string]storage.KV{"old": kv, "new": d.KV()} {
		_, errGet := kv.Get(t.Context(), []byte("k"))
		_, errIter := kv.Iter(t.Context(), nil, nil)
		if errGet == nil || errors.Is(errGet, storage.ErrNotFound) || errIter == nil || setKV(t, kv, "k", "v") == nil {
			t.Errorf("%s store: get: %v, iter: %v", name, errGet, errIter)
		}
	}
	if h := d.Health(); h.State != storage.StateOffline {
		t.Errorf("health: %+v", h)
	}
}
