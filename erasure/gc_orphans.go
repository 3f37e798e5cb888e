package erasure

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"ringfence/erasure/meta"
	"ringfence/storage"
)

// Orphans are shards that no record names: of writes that a crash cut short
// before their commit, or whose commit of unknown outcome never happened.
//
// Every shard's name starts with the epoch of its process: that of the log when
// the process first committed. The recovery before that decided all commits of
// earlier processes for good. So a shard of an earlier epoch that no record
// names will never be named, and is removed; a shard of this process is never
// looked at. How far a disk was swept is kept in the metadata, so that a start
// looks only at what was written since the one before. A power failure may bring
// removed files back: only a look that found nothing to remove counts.
//
// There is one thing worse than orphans: to take a store that lost its metadata
// for a store full of orphans. Shards say which metadata they belong to, and one
// that belongs to another is left alone, as is everything when a record cannot
// be read to its end.
type orphans struct {
	// The fields belong to the collector.
	swept [MaxSetSize]bool
	next  time.Time // when to try the rest again
}

const (
	orphanBatch = 200_000 // shards compared with the metadata in one pass
	orphanPage  = 1000
	orphanRetry = 10 * time.Minute
)

// sweptKey is where it says how far a disk was swept.
func sweptKey(d storage.Disk) []byte {
	return meta.ConfigKey("swept-" + d.Identity().Disk.String())
}

// sweep removes the orphans of all disks that were not swept yet, when it is
// time to.
func (s *Store) sweep(ctx context.Context, set *set) error {
	o := &set.orphans
	now := s.env.Now()
	if now.Before(o.next) {
		return nil
	}
	o.next = now.Add(orphanRetry)
	c, err := s.claim(ctx, set)
	if err != nil {
		return err
	}
	w := sweep{set: set, claim: c}
	for slot, disk := range set.disks {
		if o.swept[slot] || disk.Identity().Disk.IsZero() { // nobody knows what comes there
			continue
		}
		from, err := set.sweptTo(ctx, disk)
		if err != nil {
			return err
		}
		if o.swept[slot] = from >= c.epoch; !o.swept[slot] {
			w.disks = append(w.disks, sweptDisk{slot: slot, from: from})
		}
	}
	for w.left() {
		w.gather(ctx)
		if err := w.strike(ctx); err != nil {
			return err
		}
		if err := w.remove(ctx); err != nil {
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
	claim *claim
	disks []sweptDisk
	// found are the shards of a batch, and in which of the disks they are.
	found   map[storage.ShardID]uint16
	strange int // shards of other metadata, and what may be
}

type sweptDisk struct {
	slot    int
	from    uint64 // epoch
	after   storage.ShardID
	done    bool
	removed int
	err     error
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
			ids, d.err = w.list(ctx, d)
			d.done = d.err == nil && len(ids) < orphanPage
			for _, id := range ids {
				d.after = id
				if e := uint64(id.Epoch()); e >= d.from && e < w.claim.epoch {
					w.found[id] |= 1 << i
				}
			}
		}
	}
}

// list reads the next names on a disk.
func (w *sweep) list(ctx context.Context, d *sweptDisk) ([]storage.ShardID, error) {
	disk, after := w.set.disks[d.slot], d.after
	var ids []storage.ShardID // the attempt's, until it ended
	err := w.set.data.attempt(ctx, func(ctx context.Context) (err error) {
		ids, err = disk.ListShards(ctx, after, orphanPage)
		return err
	})
	if err != nil {
		return nil, err
	}
	return ids, nil
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
			if err = eachBlob(c.Item().Val, func(id storage.ShardID) { delete(w.found, id) }); err != nil {
				err = corrupt(c.Item().Key, err)
				break
			}
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

// eachBlob calls f for every blob that a record names. Its error means that
// there may be others.
func eachBlob(record []byte, f func(id storage.ShardID)) error {
	d := decoder{rest: record}
	for d.next() {
		switch d.num {
		case fieldFormat:
			d.format()
		case fieldBlob:
			if b := d.blob(); b != nil {
				f(b.id())
			}
		case fieldObjectRec:
			if err := eachBlob(d.bytes(meta.MaxValue), f); err != nil {
				return err
			}
		}
	}
	return d.err
}

// remove deletes what is left on the list: first it looks at all of it, since
// the sight of a stranger makes it careful.
func (w *sweep) remove(ctx context.Context) error {
	type orphan struct {
		id   storage.ShardID
		disk *sweptDisk
		mute bool
	}
	var list []orphan
	for _, id := range slices.SortedFunc(maps.Keys(w.found), compareShards) {
		for i := range w.disks {
			d := &w.disks[i]
			if w.found[id]>>i&1 == 0 || d.err != nil {
				continue
			}
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("look at orphans: %w", err)
			}
			var owner storage.UUID
			owner, d.err = w.owner(ctx, d, id)
			switch {
			case d.err != nil:
			case owner == w.claim.metadata || owner.IsZero():
				list = append(list, orphan{id: id, disk: d, mute: owner.IsZero()})
			default:
				w.strange++
			}
		}
	}
	for _, o := range list {
		d := o.disk
		if d.err != nil {
			continue
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("remove orphans: %w", err)
		}
		if o.mute && w.strange > 0 {
			w.strange++
			continue
		}
		disk := w.set.disks[d.slot]
		d.err = w.set.data.attempt(ctx, func(ctx context.Context) error { return disk.RemoveShard(ctx, o.id) })
		if d.err == nil {
			d.removed++
		}
	}
	return nil
}

// compareShards orders names, so that a simulation removes them in one order.
func compareShards(a, b storage.ShardID) int {
	return cmp.Or(bytes.Compare(a.UUID[:], b.UUID[:]), cmp.Compare(a.Part, b.Part))
}

// nobody owns shards that say something, but not which metadata they belong to.
var nobody = storage.UUID{0xff}

// owner reads which metadata a shard belongs to. It is zero for one that was
// never finished, which says nothing.
func (w *sweep) owner(ctx context.Context, d *sweptDisk, id storage.ShardID) (storage.UUID, error) {
	disk := w.set.disks[d.slot]
	var info storage.ShardInfo // the attempt's, until it ended
	err := w.set.data.attempt(ctx, func(ctx context.Context) error {
		r, err := disk.OpenShard(ctx, id)
		if err != nil {
			return err
		}
		info = r.Info()
		return r.Close()
	})
	if isDamage(err) {
		return storage.UUID{}, nil
	}
	if err != nil {
		return storage.UUID{}, err
	}
	if _, owner, err := splitOwner(info.Owner); err == nil {
		if h, err := decodeHome(owner); err == nil && !h.Metadata.IsZero() {
			return h.Metadata, nil
		}
	}
	return nobody, nil
}

// finish records which disks were swept. Those that failed are tried again, and
// so are those where something was removed: until the removals are durable.
func (w *sweep) finish(ctx context.Context, s *Store) error {
	if w.strange > 0 {
		s.log.Warn().Int("set", w.set.index).Int("shards", w.strange).
			Msg("shards of other metadata are left alone; was metadata lost, or a disk of another store brought in?")
	}
	var ops []meta.Op
	removed := 0
	for _, d := range w.disks {
		removed += d.removed
		if d.err == nil && d.removed == 0 {
			e := newEncoder()
			e.uint(fieldEpoch, w.claim.epoch)
			ops = append(ops, meta.Op{Key: sweptKey(w.set.disks[d.slot]), Val: e.b})
		}
	}
	if removed > 0 {
		s.log.Info().Int("set", w.set.index).Int("shards", removed).Msg("removed shards of writes that were cut short")
	}
	if len(ops) > 0 {
		if _, err := w.set.commit(ctx, meta.Group{}, nil, ops); err != nil {
			return err
		}
	}
	for _, d := range w.disks {
		w.set.orphans.swept[d.slot] = d.err == nil && d.removed == 0
	}
	return nil
}
