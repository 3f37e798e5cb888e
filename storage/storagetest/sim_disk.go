package storagetest

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync/atomic"

	"ringfence/storage"
)

// SimDisk is a simulated storage.Disk: an instance open on a Sim. Once it is
// closed, crashed, replaced by another instance or its medium went away, every
// call fails with ErrOffline, for ever.
type SimDisk struct {
	sim      *Sim
	identity storage.Identity
	kv       atomic.Pointer[simKV]
	down     atomic.Bool
	broken   atomic.Pointer[string] // why Health is StateFailed
	reads    atomic.Int64
}

var _ storage.Disk = (*SimDisk)(nil)

// gone says why the instance cannot be used, if it cannot.
func (d *SimDisk) gone() error {
	if d.down.Load() || d.sim.opts.Steps.Dark() {
		return storage.ErrOffline
	}
	return nil
}

// breaks makes the disk's health that of a failed one if err says so.
func (d *SimDisk) breaks(err error) {
	if errors.Is(err, storage.ErrFailed) {
		reason := err.Error()
		d.broken.CompareAndSwap(nil, &reason)
	}
}

// Identity implements storage.Disk.
func (d *SimDisk) Identity() storage.Identity { return d.identity }

// Sim is the medium.
func (d *SimDisk) Sim() *Sim { return d.sim }

// CreateShard implements storage.Disk.
func (d *SimDisk) CreateShard(ctx context.Context, id storage.ShardID, info storage.ShardInfo) (storage.ShardWriter, error) {
	if info.BlockSize < storage.BlockAlign || bits.OnesCount(uint(info.BlockSize)) != 1 {
		return nil, d.wrap(OpCreate, fmt.Errorf("block size %d is not a power of two from %d on", info.BlockSize, storage.BlockAlign))
	}
	if len(info.Owner) > storage.MaxOwner {
		return nil, d.wrap(OpCreate, fmt.Errorf("owner of %d bytes, at most %d", len(info.Owner), storage.MaxOwner))
	}
	st, err := d.begin(ctx, OpCreate, id, 0)
	if err != nil {
		return nil, err
	}
	hint := max(info.Size, 0)
	info.Size, info.Owner = 0, slices.Clone(info.Owner)
	f := &simFile{id: id, info: info}
	if err := d.end(&st, d.addFile(f, hint)); err != nil {
		return nil, err
	}
	return &simWriter{disk: d, file: f}, nil
}

func (d *SimDisk) addFile(f *simFile, hint int64) error {
	s := d.sim
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case d.down.Load():
		return storage.ErrOffline
	case s.files[f.id] != nil:
		return storage.ErrExists
	case s.fullLocked(hint):
		return storage.ErrFull
	}
	const most = 1 << 20 // the hint is only a hint
	f.data = make([]byte, 0, min(hint, most))
	s.put(f)
	s.dirty = append(s.dirty, f)
	return nil
}

// fullLocked reports whether more bytes do not fit.
func (s *Sim) fullLocked(more int64) bool {
	return s.opts.Capacity > 0 && s.used+more > s.opts.Capacity
}

// OpenShard implements storage.Disk.
func (d *SimDisk) OpenShard(ctx context.Context, id storage.ShardID) (storage.ShardReader, error) {
	st, err := d.begin(ctx, OpOpenShard, id, 0)
	if err != nil {
		return nil, err
	}
	d.sim.mu.Lock()
	f := d.sim.files[id]
	d.sim.mu.Unlock()
	switch {
	case f == nil:
		err = storage.ErrNotFound
	case !f.sealed:
		err = fmt.Errorf("%w: no valid trailer", storage.ErrCorrupt)
	}
	if err := d.end(&st, err); err != nil {
		return nil, err
	}
	return &simReader{disk: d, file: f}, nil
}

// RemoveShard implements storage.Disk.
func (d *SimDisk) RemoveShard(ctx context.Context, id storage.ShardID) error {
	st, err := d.begin(ctx, OpRemove, id, 0)
	if err != nil {
		return err
	}
	return d.end(&st, d.unlink(id, nil))
}

// unlink removes the file under id, if it is only or only is nil.
func (d *SimDisk) unlink(id storage.ShardID, only *simFile) error {
	s := d.sim
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.down.Load() {
		return storage.ErrOffline
	}
	f := s.files[id]
	if f == nil || (only != nil && f != only) {
		return nil
	}
	s.drop(f)
	f.unlinked = true
	if !slices.Contains(s.dirty, f) {
		s.dirty = append(s.dirty, f)
	}
	if len(s.dirty) > maxGhosts {
		if i := slices.IndexFunc(s.dirty, func(f *simFile) bool { return f.unlinked }); i >= 0 {
			s.dirty = slices.Delete(s.dirty, i, i+1)
		}
	}
	return nil
}

// ListShards implements storage.Disk, in the order of ids.
func (d *SimDisk) ListShards(ctx context.Context, after storage.ShardID, n int) ([]storage.ShardID, error) {
	st, err := d.begin(ctx, OpList, after, 0)
	if err != nil {
		return nil, err
	}
	d.sim.mu.Lock()
	ids := d.sim.orderLocked()
	at := 0
	if after != (storage.ShardID{}) {
		var found bool
		if at, found = slices.BinarySearchFunc(ids, after, compareIDs); found {
			at++
		}
	}
	page := slices.Clone(ids[at:min(len(ids), at+max(n, 0))])
	d.sim.mu.Unlock()
	return page, d.end(&st, nil)
}

// KV implements storage.Disk.
func (d *SimDisk) KV() storage.KV { return d.kv.Load() }

// ResetKV implements storage.Disk.
func (d *SimDisk) ResetKV(ctx context.Context) error {
	st, err := d.begin(ctx, OpResetKV, storage.ShardID{}, 0)
	if err != nil {
		return err
	}
	s := d.sim
	s.mu.Lock()
	if d.down.Load() {
		s.mu.Unlock()
		return d.end(&st, storage.ErrOffline)
	}
	d.kv.Load().fail(storage.ErrFailed)
	s.kv, s.rotten = tree{}, false
	s.pending = append(s.pending, s.kv)
	if !st.lies() {
		s.syncKVLocked()
	}
	d.kv.Store(s.newKVLocked(d))
	d.broken.Store(nil)
	s.mu.Unlock()
	return d.end(&st, nil)
}

// Health implements storage.Disk.
func (d *SimDisk) Health() storage.Health {
	s := d.sim
	h := storage.Health{Reads: storage.ReadCounts{Pool: d.reads.Load()}}
	s.mu.Lock()
	h.TotalBytes, h.FreeBytes = s.opts.Capacity, max(0, s.opts.Capacity-s.used)
	full, rotten := s.fullLocked(1), s.rotten
	s.mu.Unlock()
	switch reason := d.broken.Load(); {
	case d.gone() != nil:
		h.State, h.Reason = storage.StateOffline, "closed, crashed or gone"
	case reason != nil:
		h.State, h.Reason = storage.StateFailed, *reason
	case rotten:
		h.State, h.Reason = storage.StateFailed, "metadata store is corrupt"
	case full:
		h.State, h.Reason = storage.StateFull, "capacity used up"
	}
	return h
}

// Check implements storage.Disk.
func (d *SimDisk) Check(ctx context.Context) error {
	st, err := d.begin(ctx, OpCheck, storage.ShardID{}, 0)
	if err != nil {
		return err
	}
	return d.end(&st, nil)
}

// Close implements storage.Disk.
func (d *SimDisk) Close() error {
	d.sim.mu.Lock()
	defer d.sim.mu.Unlock()
	d.down.Store(true)
	if d.sim.open == d {
		d.sim.open = nil
	}
	return nil
}
