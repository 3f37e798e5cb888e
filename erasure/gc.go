package erasure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"ringfence/erasure/meta"
	"ringfence/storage"
)

// The collector does what commits left for later: it removes the shards of
// replaced and deleted versions, and the parts of uploads that are over. Its
// queue is in the metadata, written by the commit that made the work, so a
// crash loses none of it; every step can be repeated. An entry goes away when
// its work is done on every disk. While a disk is away its entries wait, with
// growing pauses, and the others pass them.
//
// Unlinking a file is not durable by itself, and syncing the folders of all disks
// for every deletion would cost more than the deletion. So shards are removed
// twice by one process: the second time when any file system has long written
// the first one down, after which the entry goes away. Another process, since
// there may have been a power failure in between, begins anew.
//
// It works on one entry at a time, which leaves the disks to the requests, and
// goes on without a pause while there is work, so that the queue cannot grow
// for ever.
const (
	garbageBatch = 64               // entries looked at between two looks at the queue
	garbageIdle  = 5 * time.Second  // pause when nothing is due
	garbageFirst = 10 * time.Second // pause after the first failure of an entry; doubles
	garbageMost  = 10 * time.Minute // longest pause of an entry
	garbageAfter = time.Minute      // from the first removal of shards to the second
	doneKept     = 24 * time.Hour   // how long a completed upload answers again
)

var (
	errBusy    = errors.New("in use")
	errPartial = errors.New("not finished")
)

// garbage is an entry of the queue.
type garbage struct {
	key []byte
	val []byte
	rev meta.Rev
	id  storage.ShardID
	rec *garbageRecord
}

// runGarbage collects until ctx ends.
func (s *Store) runGarbage(ctx context.Context, set *set) error {
	for ctx.Err() == nil {
		err := s.indexDamage(ctx, set)
		worked := false
		if err == nil {
			worked, err = s.collect(ctx, set)
		}
		if err == nil && !worked {
			err = s.sweep(ctx, set)
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, ErrUnavailable) {
			s.log.Warn().Err(err).Int("set", set.index).Msg("collecting garbage failed; it will be tried again")
		}
		if worked && err == nil {
			continue
		}
		idle, stop := s.env.After(garbageIdle)
		select {
		case <-ctx.Done():
		case <-set.kick:
		case <-idle:
		}
		stop()
	}
	return nil
}

// collect works through a batch of what is due and reports whether it got
// anything done. It starts nothing and leaves nothing running.
func (s *Store) collect(ctx context.Context, set *set) (worked bool, err error) {
	batch, err := s.dueGarbage(ctx, set)
	if err != nil || len(batch) == 0 {
		return false, err
	}
	// Readers who looked before the batch was read may be about to pin.
	if err := set.pins.barrier(ctx); err != nil {
		return false, err
	}
	var done []meta.Op // of entries whose work is done
	for _, g := range batch {
		if err = ctx.Err(); err != nil {
			err = fmt.Errorf("collect: %w", err)
			break
		}
		if len(done) > meta.MaxOps-settleOps {
			if _, err = set.commit(ctx, meta.Group{}, nil, done); err != nil {
				return worked, err
			}
			done = done[:0:0]
		}
		ops, more, serr := s.settle(ctx, set, g)
		done = append(done, ops...)
		worked = worked || more
		if serr != nil && !errors.Is(serr, errPartial) {
			err = serr
			break
		}
	}
	if len(done) > 0 {
		_, cerr := set.commit(ctx, meta.Group{}, nil, done)
		err = errors.Join(err, cerr)
	}
	return worked, err
}

// settleOps bounds the operations of one entry: an index entry per blob, the
// entry itself, and the one that follows.
const settleOps = maxBlobs + 2

// garbageFar is further ahead than anything is put off: an entry due later was
// written while the clock was wrong.
const garbageFar = doneKept + time.Hour

// dueGarbage reads the next entries whose time has come.
func (s *Store) dueGarbage(ctx context.Context, set *set) ([]garbage, error) {
	now := uint64(max(s.now(), 0))
	batch, err := set.garbageIn(ctx, []byte(meta.SpaceGarbage), meta.GarbageKey(now+1, storage.ShardID{}))
	if err == nil && len(batch) == 0 {
		far := meta.GarbageKey(now+uint64(garbageFar.Milliseconds()), storage.ShardID{})
		batch, err = set.garbageIn(ctx, far, meta.After([]byte(meta.SpaceGarbage)))
	}
	return batch, err
}

// garbageIn reads up to garbageBatch entries.
func (s *set) garbageIn(ctx context.Context, lo, hi []byte) (batch []garbage, err error) {
	c, err := s.engine.Scan(ctx, lo, hi)
	if err != nil {
		return nil, fmt.Errorf("read garbage: %w", translate(err))
	}
	defer func() {
		if cerr := c.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("read garbage: %w", translate(cerr))
		}
	}()
	for len(batch) < garbageBatch && c.Next() {
		item := c.Item()
		g := garbage{key: bytes.Clone(item.Key), val: bytes.Clone(item.Val), rev: item.Rev}
		_, g.id, _ = meta.ParseGarbageKey(item.Key)
		if g.rec, err = decodeGarbage(item.Val); err != nil {
			// Newer than this program, or damaged: it must not block the rest.
			g.rec = &garbageRecord{}
		}
		batch = append(batch, g)
	}
	if err := c.Err(); err != nil {
		return nil, fmt.Errorf("read garbage: %w", translate(err))
	}
	return batch, nil
}

// settle does the work of one entry and returns the operations that are left to
// commit for it. errPartial: some of the work is left, and the entry was put
// off; progress says whether anything was done.
func (s *Store) settle(ctx context.Context, set *set, g garbage) (ops []meta.Op, progress bool, err error) {
	if set.pins.busy(g.rec.pinID()) {
		return nil, false, s.putOff(ctx, set, g, errBusy)
	}
	switch g.rec.Kind {
	case garbageBlobs, garbageAgain:
		ops, err = s.removeBlobs(ctx, set, g.rec)
	case garbageUpload:
		progress, err = s.removeParts(ctx, set, g.rec)
	case garbageDone:
		ops = append(ops, meta.Op{Key: meta.PartKey(g.rec.Upload, journalPart), Delete: true})
	default:
		return nil, false, s.setAside(ctx, set, g)
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, progress, fmt.Errorf("collect: %w", ctx.Err())
		}
		return nil, progress, s.putOff(ctx, set, g, err)
	}
	return append(ops, meta.Op{Key: g.key, Delete: true}), true, nil
}

// removeBlobs removes shards, for the first time or again.
func (s *Store) removeBlobs(ctx context.Context, set *set, g *garbageRecord) (ops []meta.Op, err error) {
	c, err := s.claim(ctx, set)
	if err != nil {
		return nil, err
	}
	for i := range g.Blobs {
		if err := set.data.remove(ctx, g.Blobs[i]); err != nil {
			return nil, err
		}
		ops = append(ops, forget(&g.Blobs[i]))
	}
	if g.Kind == garbageAgain && g.Epoch == c.epoch {
		return nil, nil
	}
	return append(ops, s.again(c, g.Blobs)), nil
}

// again is the entry for the second removal of shards.
func (s *Store) again(c *claim, blobs []blob) meta.Op {
	g := garbageRecord{Kind: garbageAgain, Blobs: blobs, Epoch: c.epoch}
	return g.op(s.now() + garbageAfter.Milliseconds())
}

// pinID names what readers of the garbage would have pinned.
func (r *garbageRecord) pinID() storage.UUID {
	if r.Kind == garbageBlobs && len(r.Blobs) > 0 {
		return r.Blobs[0].UUID
	}
	if r.Kind == garbageUpload && r.Keep == nil {
		return r.Upload
	}
	return storage.UUID{}
}

// forget removes what the index of damage may say about a blob that is gone.
func forget(b *blob) meta.Op { return meta.Op{Key: meta.UnhealedKey(b.id()), Delete: true} }

// putOff makes an entry due later and returns errPartial, or why that failed.
func (s *Store) putOff(ctx context.Context, set *set, g garbage, cause error) error {
	pause := garbageFirst << min(g.rec.Tries, 16)
	pause = min(pause, garbageMost)
	if errors.Is(cause, errBusy) {
		pause = garbageFirst // somebody reads it; that ends
	} else {
		g.rec.Tries++
	}
	later := meta.Op{Key: meta.GarbageKey(uint64(max(s.now(), 0)+pause.Milliseconds()), g.id), Val: g.rec.encode()}
	ops := []meta.Op{{Key: g.key, Delete: true}, later}
	if _, err := set.commit(ctx, meta.Group{}, []meta.Cond{{Key: g.key, Rev: g.rev}}, ops); err != nil {
		return err
	}
	s.log.Debug().Err(cause).Int("set", set.index).Stringer("shard", g.id).Dur("pause", pause).Msg("garbage is put off")
	return fmt.Errorf("%w: %w", errPartial, cause)
}

// setAside makes an entry that this program does not understand due much later,
// as it is.
func (s *Store) setAside(ctx context.Context, set *set, g garbage) error {
	s.log.Warn().Int("set", set.index).Stringer("shard", g.id).Msg("garbage of a kind that this version does not know is left alone")
	later := meta.Op{Key: meta.GarbageKey(uint64(max(s.now(), 0)+doneKept.Milliseconds()), g.id), Val: g.val}
	ops := []meta.Op{{Key: g.key, Delete: true}, later}
	if _, err := set.commit(ctx, meta.Group{}, []meta.Cond{{Key: g.key, Rev: g.rev}}, ops); err != nil {
		return err
	}
	return errPartial
}

// partBatch is how many parts are removed by one commit: three operations each,
// and one for the second removal, stay within meta.MaxOps.
const partBatch = 32

// removeParts removes the parts of an upload that the entry does not keep,
// batch by batch. A part that cannot go yet stays recorded and holds up no
// other.
func (s *Store) removeParts(ctx context.Context, set *set, g *garbageRecord) (progress bool, err error) {
	c, err := s.claim(ctx, set)
	if err != nil {
		return false, err
	}
	var left error
	next := uint16(journalPart + 1)
	for more := true; more; {
		var parts []*partRecord
		parts, more, err = set.partsFrom(ctx, g, next)
		if err != nil {
			return progress, err
		}
		var ops []meta.Op
		var gone []blob
		for _, p := range parts {
			next = uint16(p.Number) + 1
			if b := p.Run.Blob; b != nil {
				if err := set.data.remove(ctx, *b); err != nil {
					left = err
					continue
				}
				ops = append(ops, forget(b))
				gone = append(gone, *b)
			}
			if !p.Run.Inline.IsZero() {
				ops = append(ops, meta.Op{Key: meta.InlineKey(p.Run.Inline), Delete: true})
			}
			ops = append(ops, meta.Op{Key: meta.PartKey(g.Upload, uint16(p.Number)), Delete: true})
		}
		if len(gone) > 0 {
			ops = append(ops, s.again(c, gone))
		}
		if len(ops) > 0 {
			if _, err := set.commit(ctx, meta.Group{}, nil, ops); err != nil {
				return progress, err
			}
			progress = true
		}
	}
	return progress, left
}

// partsFrom reads the next parts that g does not keep, from a number on.
func (s *set) partsFrom(ctx context.Context, g *garbageRecord, from uint16) (parts []*partRecord, more bool, err error) {
	c, err := s.engine.Scan(ctx, meta.PartKey(g.Upload, from), meta.After(meta.PartPrefix(g.Upload)))
	if err != nil {
		return nil, false, fmt.Errorf("read parts: %w", translate(err))
	}
	defer func() {
		if cerr := c.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("read parts: %w", translate(cerr))
		}
	}()
	for c.Next() {
		item := c.Item()
		_, number, ok := meta.ParsePartKey(item.Key)
		if !ok {
			return nil, false, corrupt(item.Key, errRecord)
		}
		if g.keeps(number) {
			continue
		}
		if len(parts) == partBatch {
			return parts, true, nil
		}
		rec, err := decodePart(item.Val)
		if err != nil {
			return nil, false, corrupt(item.Key, err)
		}
		parts = append(parts, rec)
	}
	if err := c.Err(); err != nil {
		return nil, false, fmt.Errorf("read parts: %w", translate(err))
	}
	return parts, false, nil
}
