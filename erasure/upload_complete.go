package erasure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"ringfence/erasure/meta"
)

// CompleteUpload makes an object of the parts. No byte moves: the object's
// record names the upload, whose part records never change from then on. The
// commit is small whatever the number of parts; parts that are not named are
// removed later. Asked again within a day, it gives the same answer.
func (s *Store) CompleteUpload(ctx context.Context, bucket, key, uploadID string, in CompleteInput) (ObjectInfo, error) {
	u, err := s.upload(ctx, bucket, key, uploadID)
	if err != nil {
		return ObjectInfo{}, err
	}
	if err := checkPartNumbers(in.Parts); err != nil {
		return ObjectInfo{}, err
	}
	var protected Redundancy
	rec, err := u.apply(ctx, func(old *record, at int64) (change, error) {
		c, r, err := u.planCompletion(ctx, in, old, at)
		protected = r
		return c, err
	})
	if errors.Is(err, errOver) {
		return u.completed(ctx, in)
	}
	if err != nil {
		return ObjectInfo{}, err
	}
	u.set.wake()
	info := rec.info(u.bucket.name, u.set)
	info.Redundancy = protected
	return info, nil
}

// errOver says that an upload is no longer open.
var errOver = errors.New("upload is over")

func checkPartNumbers(numbers []int) error {
	if len(numbers) == 0 || len(numbers) > MaxParts {
		return fmt.Errorf("%w: %d parts named", ErrNoPart, len(numbers))
	}
	for i, n := range numbers {
		if n < 1 || n > MaxParts || (i > 0 && n <= numbers[i-1]) {
			return fmt.Errorf("%w: number %d out of order", ErrNoPart, n)
		}
	}
	return nil
}

// planCompletion decides a completion on the upload's state now. The journal's
// revision is the condition that no part changes before the commit.
func (u *upload) planCompletion(ctx context.Context, in CompleteInput, old *record, at int64) (change, Redundancy, error) {
	none := Redundancy{}
	up, err := u.read(ctx)
	if errors.Is(err, ErrNoUpload) {
		return change{}, none, errOver
	}
	if err != nil {
		return change{}, none, err
	}
	journal, found, err := u.set.get(ctx, u.journalKey())
	if err != nil {
		return change{}, none, err
	}
	if !found {
		return change{}, none, errStale // aborted between the two reads
	}
	p, err := u.pickParts(ctx, in.Parts)
	if err != nil {
		return change{}, none, err
	}
	digest := Digest{}
	if in.Finish != nil {
		if digest, err = in.Finish(up.info(u.bucket.name, u.id), p.parts); err != nil {
			return change{}, none, err
		}
	}
	if err := u.judge(ctx, in.Precond, old); err != nil {
		return change{}, none, err
	}
	m := newManifest(u.id, p.parts)
	rec := &record{Key: u.key, Size: m.size(), Digest: digest, Meta: up.Meta, Manifest: m}
	c := change{rec: rec, conds: []meta.Cond{u.open(), {Key: u.journalKey(), Rev: journal.Rev}}}
	c.ops = u.completionOps(up, rec, at, p.unlisted)
	return c, p.protected, nil
}

// completionOps are what a completion commits beside the object's record.
func (u *upload) completionOps(up *uploadRecord, rec *record, at int64, unlisted bool) []meta.Op {
	now := u.s.now()
	object := *rec
	object.Meta = Meta{}
	object.ModTime = at // as apply will set it
	done := doneRecord{Bucket: u.bucket.id, Upload: up, Object: &object}
	expiry := garbageRecord{Kind: garbageDone, Upload: u.id}
	ops := []meta.Op{
		{Key: u.ukey, Delete: true},
		{Key: u.journalKey(), Val: done.encode()},
		expiry.op(now + doneKept.Milliseconds()),
	}
	if rec.Manifest.Detached {
		ops = append(ops, meta.Op{Key: meta.ManifestKey(u.id, 0), Val: rec.Manifest.encodeDetached()})
	}
	if unlisted {
		g := garbageRecord{Kind: garbageUpload, Upload: u.id, Keep: keepParts(rec.Manifest.Numbers)}
		ops = append(ops, g.op(now))
	}
	return ops
}

// picked are the parts of an upload that a completion names.
type picked struct {
	parts     []PartInfo
	unlisted  bool // there are others
	protected Redundancy
}

// pickParts reads the parts with the given ascending numbers. ErrNoPart: one of
// them was never stored.
func (u *upload) pickParts(ctx context.Context, numbers []int) (picked, error) {
	return walkAgain(ctx, func() (picked, error) { return u.pickPartsOnce(ctx, numbers) })
}

func (u *upload) pickPartsOnce(ctx context.Context, numbers []int) (picked, error) {
	p := picked{protected: u.set.redundancy(run{})}
	err := u.eachPart(ctx, 1, func(rec *partRecord) bool {
		if len(p.parts) == len(numbers) || rec.Number < numbers[len(p.parts)] {
			p.unlisted = true
			return true
		}
		if rec.Number > numbers[len(p.parts)] {
			return false
		}
		p.parts = append(p.parts, rec.info())
		if r := u.set.redundancy(rec.Run); r.Disks < p.protected.Disks {
			p.protected = r
		}
		return true
	})
	if err != nil {
		return picked{}, err
	}
	if len(p.parts) < len(numbers) {
		return picked{}, fmt.Errorf("%w: number %d", ErrNoPart, numbers[len(p.parts)])
	}
	return p, nil
}

// eachPart calls f for the parts from a number on, in order, until it returns
// false. errWalk: what f saw was not all.
func (u *upload) eachPart(ctx context.Context, from uint16, f func(p *partRecord) bool) (err error) {
	c, err := u.set.engine.Scan(ctx, meta.PartKey(u.id, from), meta.After(meta.PartPrefix(u.id)))
	if err != nil {
		return fmt.Errorf("read parts: %w", translate(err))
	}
	defer func() {
		if cerr := c.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("read parts: %w", translate(cerr))
		}
	}()
	for c.Next() {
		item := c.Item()
		p, err := decodePart(item.Val)
		if err != nil {
			return corrupt(item.Key, err)
		}
		if !f(p) {
			return nil
		}
	}
	if err := c.Err(); err != nil {
		return fmt.Errorf("read parts: %w: %w", errWalk, translate(err))
	}
	return nil
}

// completed answers a completion that already happened, if it was this one:
// the same parts, which the caller judges again as long as they are there.
func (u *upload) completed(ctx context.Context, in CompleteInput) (ObjectInfo, error) {
	item, found, err := u.set.get(ctx, u.journalKey())
	if err != nil {
		return ObjectInfo{}, err
	}
	if !found {
		return ObjectInfo{}, ErrNoUpload
	}
	done, err := decodeDone(item.Val)
	if err != nil {
		return ObjectInfo{}, corrupt(u.journalKey(), err)
	}
	if done == nil || done.Bucket != u.bucket.id || done.Object.Key != u.key || done.Object.Manifest == nil {
		return ObjectInfo{}, ErrNoUpload
	}
	rec := done.Object
	rec.Meta = done.Upload.Meta
	if err := u.load(ctx, rec); err != nil && !errors.Is(err, errStale) {
		return ObjectInfo{}, err
	}
	if m := rec.Manifest; m.Numbers != nil && !slices.EqualFunc(m.Numbers, in.Parts, func(a uint16, b int) bool { return int(a) == b }) {
		return ObjectInfo{}, fmt.Errorf("%w: completed with other parts", ErrNoUpload)
	}
	p, err := u.pickParts(ctx, in.Parts)
	switch {
	case errors.Is(err, ErrNoPart): // the object is gone again
	case err != nil:
		return ObjectInfo{}, err
	case in.Finish != nil:
		if _, err := in.Finish(done.Upload.info(u.bucket.name, u.id), p.parts); err != nil {
			return ObjectInfo{}, err
		}
	}
	info := rec.info(u.bucket.name, u.set)
	info.ModTime = time.UnixMilli(rec.ModTime).UTC()
	info.Redundancy = p.protected
	return info, nil
}
