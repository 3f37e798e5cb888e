package erasure

import (
	"context"
	"sync/atomic"

	"ringfence/storage"
	"ringfence/storage/storagetest"
)

// simBay is the place of a disk in a simulated machine. What is in it can be
// exchanged under the store.
type simBay struct {
	sim  *storagetest.Sim
	id   storage.Identity
	disk atomic.Pointer[storagetest.SimDisk]
	// sealLate, a mutant, reports shards as sealed before they are: they are
	// sealed when the next batch of metadata is durable.
	sealLate bool
	late     []storage.ShardWriter
}

var _ storage.Disk = (*simBay)(nil)

func (b *simBay) open() error {
	d, err := b.sim.Open(b.id)
	if err == nil {
		b.disk.Store(d)
		b.late = nil
	}
	return err
}

func (b *simBay) in() *storagetest.SimDisk { return b.disk.Load() }

func (b *simBay) Identity() storage.Identity { return b.id }

func (b *simBay) CreateShard(ctx context.Context, id storage.ShardID, info storage.ShardInfo) (storage.ShardWriter, error) {
	w, err := b.in().CreateShard(ctx, id, info)
	if err == nil && b.sealLate {
		return &lateWriter{w, b}, nil
	}
	return w, err
}

func (b *simBay) OpenShard(ctx context.Context, id storage.ShardID) (storage.ShardReader, error) {
	return b.in().OpenShard(ctx, id)
}

func (b *simBay) RemoveShard(ctx context.Context, id storage.ShardID) error {
	return b.in().RemoveShard(ctx, id)
}

func (b *simBay) ListShards(ctx context.Context, after storage.ShardID, n int) ([]storage.ShardID, error) {
	return b.in().ListShards(ctx, after, n)
}

func (b *simBay) KV() storage.KV {
	if b.sealLate {
		return &lateKV{b.in().KV(), b}
	}
	return b.in().KV()
}

func (b *simBay) ResetKV(ctx context.Context) error { return b.in().ResetKV(ctx) }
func (b *simBay) Health() storage.Health            { return b.in().Health() }
func (b *simBay) Check(ctx context.Context) error   { return b.in().Check(ctx) }
func (b *simBay) Close() error                      { return b.in().Close() }

// lateWriter is the writer of a bay with sealLate.
type lateWriter struct {
	storage.ShardWriter
	b *simBay
}

func (w *lateWriter) Seal(context.Context) error {
	w.b.late = append(w.b.late, w.ShardWriter)
	return nil
}

type lateKV struct {
	storage.KV
	b *simBay
}

func (kv *lateKV) Apply(ctx context.Context, batch *storage.Batch) error {
	if err := kv.KV.Apply(ctx, batch); err != nil {
		return err
	}
	for _, w := range kv.b.late {
		if err := w.Seal(ctx); err != nil {
			return err
		}
	}
	kv.b.late = nil
	return nil
}
