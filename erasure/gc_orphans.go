package erasure

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"ringfence/erasure/meta"
	"ringfence/storage"
)

// Orphans are shards that no record names: of writes that a crash cut short
// before their commit, or whose commit of unknown outcome never happened.
//
// Every shard's name starts with the epoch in which it was written. The first
// epoch that this process sees began with a recovery, which decided all commits
// of earlier ones for good. So a shard of an earlier epoch that no record names
// will never be named, and is removed; a shard of this process is never looked
// at. How far a disk was swept is kept in the metadata, so that a start looks
// only at what was written since the one before.
//
// There is one thing worse than orphans: to take a store that lost its metadata
// for a store full of orphans. Shards say whose they are, and one that belongs
// to a bucket that the metadata has never heard of is left alone.
type orphans struct {
	first atomic.Uint64 // first epoch that this process saw; 0: none yet
	// The fields below belong to the collector.
	swept [MaxSetSize]bool
	next  time.Time // when to try the rest again
}

const (
	orphanBatch = 200_000 // shards compared with the metadata in one pass
	orphanPage  = 1000
	orphanRetry = 10 * time.Minute
)

// fieldEpoch is of a swept record, c/swept-<disk id>: shards of earlier epochs
// on that disk were looked at.
const fieldEpoch protowire.Number = 52

func sweptKey(d storage.Disk) []byte {
	return meta.ConfigKey("swept-" + d.Identity().Disk.String())
}

// epoch is the set's epoch now, and never 0. A write asks before it reads a
// body: without metadata it would be in vain.
func (s *set) epoch(ctx context.Context) (uint64, error) {
	e := s.engine.Health().Epoch
	if e == 0 {
		// Not recovered yet. A read waits for that as long as the engine likes.
		if _, _, err := s.get(ctx, meta.ConfigKey("epoch")); err != nil {
			return 0, err
		}
		if e = s.engine.Health().Epoch; e == 0 {
			return 0, fmt.Errorf("%w: metadata of set %d is not recovered", ErrUnavailable, s.index)
		}
	}
	s.orphans.first.CompareAndSwap(0, e)
	return e, nil
}

// sweep removes the orphans of all disks that were not swept yet, when it is
// time to.
func (s *Store) sweep(ctx context.Context, set *set) error {
	o := &set.orphans
	now := s.env.Now()
	if now.Before(o.next) {
		return nil
	}
	if _, err := set.epoch(ctx); err != nil {
		return err
	}
	o.next = now.Add(orphanRetry)
	w := sweep{set: set, first: o.first.Load()}
	for slot, disk := range set.disks {
		if o.swept[slot] || disk.Identity().Disk.IsZero() { // nobody knows what comes there
			continue
		}
		from, err := set.sweptTo(ctx, disk)
		if err != nil {
			return err
		}
		if from < w.first {
			w.disks = append(w.disks, sweptDisk{slot: slot, from: from})
		}
	}
	for w.left() {
		w.gather(ctx)
		if err := w.strike(ctx); err != nil {
			return err
		}
		if err := w.remove(ctx, s); err != nil {
			return err
		}
	}
	return w.finish(ctx, s)
}

func (s *set) sweptTo(ctx context.Context, disk storage.Disk) (epoch uint64, err error) {
	skey := sweptKey(disk)
	item, found, err := s.get(ctx, skey)
	if err != nil || !found {
		return 0, err
	}
	d := decoder{rest: item.Val}
	for d.next() {
		switch d.num {
		case fieldFormat:
			d.format()
		case fieldEpoch:
			epoch = d.uint(1<<63 - 1)
		}
	}
	if d.err != nil {
		return 0, corrupt(skey, d.err)
	}
	return epoch, nil
}

// sweep is one pass over the disks of a set.
type sweep struct {
	set   *set
	first uint64
	disks []sweptDisk
	// found are the shards of a batch, and in which of the disks they are.
	found   map[storage.ShardID]uint16
	removed int
	strange int // shards of buckets that nobody knows
}

type sweptDisk struct {
	slot  int
	from  uint64 // epoch
	after storage.ShardID
	done  bool
	err   error
}

// left reports whether a disk has more to look at.
func (w *sweep) left() bool {
	for i := range w.disks {
		if !w.disks[i].done && w.disks[i].err == nil {
			return true
		}
	}
	return false
}

// gather lists the next shards that may be orphans. The disks take turns, so
// that a batch holds the same names from all of them.
func (w *sweep) gather(ctx context.Context) {
	w.found = make(map[storage.ShardID]uint16)
	for len(w.found) < orphanBatch && w.left() {
		for i := range w.disks {
			d := &w.disks[i]
			if d.done || d.err != nil {
				continue
			}
			var ids []storage.ShardID
			ids, d.err = w.set.disks[d.slot].ListShards(ctx, d.after, orphanPage)
			d.done = d.err == nil && len(ids) < orphanPage
			for _, id := range ids {
				d.after = id
				if e := uint64(id.Epoch()); e >= d.from && e < w.first {
					w.found[id] |= 1 << i
				}
			}
		}
	}
}

// strike takes off the list what is named. Names move from objects and parts to
// garbage and never back, so that order of the walks misses none.
func (w *sweep) strike(ctx context.Context) error {
	for _, space := range []string{meta.SpaceObjects, meta.SpaceVersions, meta.SpaceParts, meta.SpaceGarbage} {
		if len(w.found) == 0 {
			return nil
		}
		c, err := w.set.engine.Scan(ctx, []byte(space), meta.After([]byte(space)))
		if err != nil {
			return fmt.Errorf("look for orphans: %w", translate(err))
		}
		for err == nil && c.Next() {
			eachBlob(c.Item().Val, func(id storage.ShardID) { delete(w.found, id) })
			err = ctx.Err()
		}
		if err == nil {
			err = c.Err()
		}
		if err = errors.Join(err, c.Close()); err != nil {
			return fmt.Errorf("look for orphans: %w", translate(err))
		}
	}
	return nil
}

// eachBlob calls f for every blob that a record names.
func eachBlob(record []byte, f func(id storage.ShardID)) {
	d := decoder{rest: record}
	for d.next() {
		if d.num != fieldBlob {
			continue
		}
		var id storage.ShardID
		sub := decoder{rest: d.raw}
		for sub.next() {
			switch sub.num {
			case fieldUUID:
				id.UUID = sub.uuid()
			case fieldPart:
				id.Part = uint16(sub.uint(1<<16 - 1))
			}
		}
		f(id)
	}
}

// remove deletes what is left on the list.
func (w *sweep) remove(ctx context.Context, s *Store) error {
	if len(w.found) == 0 {
		return nil
	}
	known, err := s.bucketIDs(ctx)
	if err != nil {
		return err
	}
	for id, on := range w.found {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("remove orphans: %w", err)
		}
		for i := range w.disks {
			d := &w.disks[i]
			if on>>i&1 == 0 || d.err != nil {
				continue
			}
			disk := w.set.disks[d.slot]
			if !ownedByOne(ctx, disk, id, known) {
				w.strange++
				continue
			}
			if d.err = disk.RemoveShard(ctx, id); d.err == nil {
				w.removed++
			}
		}
	}
	return nil
}

// ownedByOne reports whether a shard may be removed: it belongs to one of the
// buckets, or it was never finished and says nothing.
func ownedByOne(ctx context.Context, disk storage.Disk, id storage.ShardID, buckets map[storage.UUID]bool) bool {
	r, err := disk.OpenShard(ctx, id)
	if err != nil {
		return errors.Is(err, storage.ErrCorrupt) || errors.Is(err, storage.ErrNotFound)
	}
	_, owner, err := splitOwner(r.Info().Owner)
	if cerr := r.Close(); err != nil || cerr != nil {
		return false
	}
	h, err := decodeHome(owner)
	return err == nil && buckets[h.Bucket]
}

// bucketIDs reads the ids of all buckets.
func (s *Store) bucketIDs(ctx context.Context) (map[storage.UUID]bool, error) {
	known := make(map[storage.UUID]bool)
	after := ""
	for {
		list, more, err := s.ListBuckets(ctx, "", after, maxBucketPage)
		if err != nil {
			return nil, err
		}
		for _, b := range list {
			known[b.ID] = true
			after = b.Name
		}
		if !more {
			return known, nil
		}
	}
}

// finish records which disks were swept. Those that failed are tried again.
func (w *sweep) finish(ctx context.Context, s *Store) error {
	if w.removed > 0 {
		s.log.Info().Int("set", w.set.index).Int("shards", w.removed).Msg("removed shards of writes that were cut short")
	}
	if w.strange > 0 {
		s.log.Warn().Int("set", w.set.index).Int("shards", w.strange).
			Msg("shards of unknown buckets are left alone; was metadata lost, or a disk of another store brought in?")
	}
	var ops []meta.Op
	failed := uint(0)
	for _, d := range w.disks {
		if d.err != nil {
			failed |= 1 << d.slot
			continue
		}
		e := newEncoder()
		e.uint(fieldEpoch, w.first)
		ops = append(ops, meta.Op{Key: sweptKey(w.set.disks[d.slot]), Val: e.b})
	}
	if len(ops) > 0 {
		if _, err := w.set.commit(ctx, meta.Group{}, nil, ops); err != nil {
			return err
		}
	}
	for slot := range w.set.disks {
		w.set.orphans.swept[slot] = failed>>slot&1 == 0
	}
	return nil
}
