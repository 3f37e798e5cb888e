package storagetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"ringfence/storage"
)

// simKV is the metadata store of one instance between two resets.
type simKV struct {
	disk *SimDisk
	dead atomic.Pointer[error]
}

func (s *Sim) newKVLocked(d *SimDisk) *simKV {
	kv := &simKV{disk: d}
	if s.rotten {
		kv.fail(storage.ErrCorrupt)
	}
	return kv
}

// fail ends the store; the first reason stays.
func (kv *simKV) fail(reason error) { kv.dead.CompareAndSwap(nil, &reason) }

func (kv *simKV) begin(ctx context.Context, kind OpKind) (step, error) {
	if reason := kv.dead.Load(); reason != nil {
		return step{}, kv.disk.wrap(kind, *reason)
	}
	return kv.disk.begin(ctx, kind, storage.ShardID{}, 0)
}

// Get implements storage.KV.
func (kv *simKV) Get(ctx context.Context, key []byte) ([]byte, error) {
	st, err := kv.begin(ctx, OpGet)
	if err != nil {
		return nil, err
	}
	kv.disk.sim.mu.Lock()
	t := kv.disk.sim.kv
	kv.disk.sim.mu.Unlock()
	value, ok := t.get(key)
	if !ok {
		return nil, kv.disk.end(&st, storage.ErrNotFound)
	}
	if err := kv.disk.end(&st, nil); err != nil {
		return nil, err
	}
	return append(make([]byte, 0, len(value)), value...), nil
}

// Apply implements storage.KV.
func (kv *simKV) Apply(ctx context.Context, b *storage.Batch) error {
	st, err := kv.begin(ctx, OpApply)
	if err == nil {
		err = kv.disk.end(&st, kv.write(&st, b))
	} else if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return err // nothing was tried
	}
	if err != nil {
		kv.fail(storage.ErrFailed)
		kv.disk.breaks(fmt.Errorf("%w: %w", storage.ErrFailed, err))
	}
	return err
}

func (kv *simKV) write(st *step, b *storage.Batch) error {
	d, s := kv.disk, kv.disk.sim
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.down.Load() {
		return storage.ErrOffline
	}
	if reason := kv.dead.Load(); reason != nil {
		return *reason
	}
	s.edit++
	s.kv = s.kv.apply(b, s.edit)
	if st.lies() {
		s.pending = append(s.pending, s.kv)
	} else {
		s.syncKVLocked()
	}
	return nil
}

// Iter implements storage.KV.
func (kv *simKV) Iter(ctx context.Context, lo, hi []byte) (storage.Iter, error) {
	st, err := kv.begin(ctx, OpIter)
	if err != nil {
		return nil, err
	}
	kv.disk.sim.mu.Lock()
	t := kv.disk.sim.kv
	kv.disk.sim.mu.Unlock()
	if err := kv.disk.end(&st, nil); err != nil {
		return nil, err
	}
	it := &simIter{kv: kv, ctx: ctx, walk: walk{tree: t, lo: slices.Clone(lo)}}
	if hi != nil {
		it.walk.hi = append([]byte{}, hi...)
	}
	return it, nil
}

// simIter keeps the context it was made with, because its moves carry none.
type simIter struct {
	kv   *simKV
	ctx  context.Context
	walk walk
	err  error
}

// move asks whether the iterator may move.
func (it *simIter) move() bool {
	if it.err == nil {
		st, err := it.kv.begin(it.ctx, OpNext)
		if err == nil {
			err = it.kv.disk.end(&st, nil)
		}
		it.err = err
	}
	if it.err != nil {
		it.walk.stack = it.walk.stack[:0]
	}
	return it.err == nil
}

// SeekGE implements storage.Iter.
func (it *simIter) SeekGE(key []byte) bool { return it.move() && it.walk.seek(key) }

// Next implements storage.Iter.
func (it *simIter) Next() bool { return it.move() && it.walk.next() }

// Key implements storage.Iter.
func (it *simIter) Key() []byte { return it.walk.at().key }

// Value implements storage.Iter.
func (it *simIter) Value() ([]byte, error) {
	if it.err != nil {
		return nil, it.err
	}
	return it.walk.at().value, nil
}

// Err implements storage.Iter.
func (it *simIter) Err() error { return it.err }

// Close implements storage.Iter.
func (it *simIter) Close() error {
	it.walk = walk{}
	return nil
}
