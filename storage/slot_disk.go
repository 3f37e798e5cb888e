package storage

import (
	"context"
	"errors"
	"fmt"
)

// This file passes calls on to the instance in a Slot.

func (s *Slot) wrap(op string, err error) error {
	return &DiskError{Op: op, Disk: s.opts.Name, Err: err}
}

// instance is the one that is open now.
func (s *Slot) instance(op string) (*instance, error) {
	inst := s.cur.Load()
	if inst == nil {
		return nil, s.wrap(op, fmt.Errorf("%w: %s", ErrOffline, *s.reason.Load()))
	}
	return inst, nil
}

// note asks for an early look at a disk that a call found sick.
func (s *Slot) note(err error) error {
	if err != nil && (errors.Is(err, ErrOffline) || errors.Is(err, ErrFailed)) {
		s.Kick()
	}
	return err
}

// Identity implements Disk: the expected one, whatever is there.
func (s *Slot) Identity() Identity { return s.opts.Expect }

// Health implements Disk.
func (s *Slot) Health() Health {
	if inst := s.cur.Load(); inst != nil {
		return inst.disk.Health()
	}
	return Health{State: StateOffline, Reason: *s.reason.Load()}
}

// CreateShard implements Disk.
func (s *Slot) CreateShard(ctx context.Context, id ShardID, info ShardInfo) (ShardWriter, error) {
	inst, err := s.instance("create shard")
	if err != nil {
		return nil, err
	}
	w, err := inst.disk.CreateShard(ctx, id, info)
	if err != nil {
		return nil, s.note(err)
	}
	return &slotWriter{w, s}, nil
}

// OpenShard implements Disk. The reader is the instance's own; its failures are
// found by the next look at the disk.
func (s *Slot) OpenShard(ctx context.Context, id ShardID) (ShardReader, error) {
	inst, err := s.instance("open shard")
	if err != nil {
		return nil, err
	}
	r, err := inst.disk.OpenShard(ctx, id)
	return r, s.note(err)
}

// RemoveShard implements Disk.
func (s *Slot) RemoveShard(ctx context.Context, id ShardID) error {
	inst, err := s.instance("remove shard")
	if err != nil {
		return err
	}
	return s.note(inst.disk.RemoveShard(ctx, id))
}

// ListShards implements Disk.
func (s *Slot) ListShards(ctx context.Context, after ShardID, n int) ([]ShardID, error) {
	inst, err := s.instance("list shards")
	if err != nil {
		return nil, err
	}
	ids, err := inst.disk.ListShards(ctx, after, n)
	return ids, s.note(err)
}

// ResetKV implements Disk.
func (s *Slot) ResetKV(ctx context.Context) error {
	inst, err := s.instance("kv reset")
	if err != nil {
		return err
	}
	return s.note(inst.disk.ResetKV(ctx))
}

// Check implements Disk.
func (s *Slot) Check(ctx context.Context) error {
	inst, err := s.instance("check")
	if err != nil {
		return err
	}
	return s.note(inst.disk.Check(ctx))
}

// KV implements Disk. It gives the same value for as long as the instance has
// the same store, so that values may be compared.
func (s *Slot) KV() KV {
	inst := s.cur.Load()
	if inst == nil {
		return noKV{s}
	}
	inner := inst.disk.KV()
	for {
		kv := inst.kv.Load()
		if kv != nil && kv.inner == inner {
			return kv
		}
		if fresh := (&slotKV{s, inst, inner}); inst.kv.CompareAndSwap(kv, fresh) {
			return fresh
		}
	}
}

// slotWriter tells the Slot what it meets.
type slotWriter struct {
	ShardWriter
	slot *Slot
}

func (w *slotWriter) Append(ctx context.Context, block []byte, sum Sum) error {
	return w.slot.note(w.ShardWriter.Append(ctx, block, sum))
}

func (w *slotWriter) Seal(ctx context.Context) error {
	return w.slot.note(w.ShardWriter.Seal(ctx))
}

// slotKV is an instance's store. It fails for ever once the instance is taken
// out, even if that one does not close.
type slotKV struct {
	slot  *Slot
	inst  *instance
	inner KV
}

func (kv *slotKV) gone(op string) error {
	if kv.inst.retired.Load() {
		return kv.slot.wrap(op, fmt.Errorf("%w: the disk was taken out", ErrOffline))
	}
	return nil
}

func (kv *slotKV) Get(ctx context.Context, key []byte) ([]byte, error) {
	if err := kv.gone("kv get"); err != nil {
		return nil, err
	}
	value, err := kv.inner.Get(ctx, key)
	return value, kv.slot.note(err)
}

// Apply fails if the instance was taken out meanwhile: the batch may be on a
// disk that is not the one in this place any more.
func (kv *slotKV) Apply(ctx context.Context, b *Batch) error {
	if err := kv.gone("kv apply"); err != nil {
		return err
	}
	if err := kv.inner.Apply(ctx, b); err != nil {
		return kv.slot.note(err)
	}
	return kv.gone("kv apply")
}

func (kv *slotKV) Iter(ctx context.Context, lo, hi []byte) (Iter, error) {
	if err := kv.gone("kv iter"); err != nil {
		return nil, err
	}
	it, err := kv.inner.Iter(ctx, lo, hi)
	if err != nil {
		return nil, kv.slot.note(err)
	}
	return it, nil
}

// noKV is the store of a Slot without an instance. It fails for ever.
type noKV struct{ slot *Slot }

func (kv noKV) fail(op string) error {
	return kv.slot.wrap(op, fmt.Errorf("%w: no disk when the store was asked for", ErrOffline))
}

func (kv noKV) Get(context.Context, []byte) ([]byte, error) { return nil, kv.fail("kv get") }

func (kv noKV) Apply(context.Context, *Batch) error { return kv.fail("kv apply") }

func (kv noKV) Iter(context.Context, []byte, []byte) (Iter, error) { return nil, kv.fail("kv iter") }
