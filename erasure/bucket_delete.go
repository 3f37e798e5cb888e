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

// A bucket without objects can be deleted, and its open uploads end with it. No
// commit covers all of that, so it goes in steps, while the bucket's gate keeps
// commits out of it:
//
//  1. mark the bucket as bucketDeleting, and look whether it holds objects;
//  2. without uploads, remove its record, and that is all;
//  3. otherwise mark it as bucketEnding. This commit decides: the bucket is gone
//     for everybody from now on, and no upload was touched before;
//  4. abort every upload, and remove the record.
//
// A deletion that is cut short before it is decided is taken back when the
// bucket is used again; one that is decided goes on, at the next use of the name
// or in the background, until the record is gone. Each step may be repeated.

// DeleteBucket removes a bucket that has no objects. Uploads in progress end
// with it, as if they were aborted. ErrBucketNotEmpty: nothing was changed. An
// error that is ErrUnknown may come from a deletion that will go on by itself.
func (s *Store) DeleteBucket(ctx context.Context, name string) error {
	b, err := s.buckets.get(ctx, s, name)
	if err != nil {
		return err
	}
	if err := s.checkNoObjects(ctx, b.id); err != nil { // without keeping anyone waiting
		return err
	}
	unlock, err := s.lockBucket(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	if err := b.gate.shut(ctx); err != nil {
		return err
	}
	ending, rev, err := s.decideDeletion(ctx, b)
	switch {
	case err == nil:
		s.buckets.drop(name, false)
		b.gate.remove(ErrNoBucket)
	case errors.Is(err, ErrUnknown):
		s.buckets.drop(name, true)
		b.gate.remove(fmt.Errorf("%w: a deletion of the bucket is undecided", ErrUnavailable))
		return err
	default:
		b.gate.open()
		return err
	}
	if ending == nil {
		return nil
	}
	if err := s.finishDeletion(ctx, name, ending, rev); err != nil {
		s.buckets.wake()
		return fmt.Errorf("%w: end the uploads of a deleted bucket: %w", ErrUnknown, err)
	}
	return nil
}

// decideDeletion deletes the bucket while no commit in it is under way. What it
// returns is nil when the record is gone, and otherwise the record with its
// revision of a bucket whose uploads are to be ended. A crash leaves a mark,
// which loadLocked understands.
func (s *Store) decideDeletion(ctx context.Context, b *bucket) (*bucketRecord, meta.Rev, error) {
	rec, rev, err := s.readBucket(ctx, b.name)
	if err != nil {
		return nil, 0, err
	}
	if rec == nil || rec.ID != b.id {
		return nil, 0, ErrNoBucket
	}
	rec.State = bucketDeleting
	if rev, err = s.writeBucket(ctx, b.name, rec, rev); err != nil {
		return nil, 0, undecided(err)
	}
	err = s.checkNoObjects(ctx, b.id)
	uploads := false
	if err == nil {
		uploads, err = s.anywhere(ctx, meta.UploadPrefix(b.id))
	}
	if err != nil {
		rec.State = 0
		if _, back := s.writeBucket(ctx, b.name, rec, rev); back != nil {
			// The bucket stays, with the mark; whoever loads it takes it back.
			s.log.Warn().Err(back).Str("bucket", b.name).Msg("mark of a refused deletion stays for now")
		}
		return nil, 0, err
	}
	if !uploads {
		_, err = s.writeBucket(ctx, b.name, nil, rev)
		return nil, 0, undecided(err)
	}
	rec.State = bucketEnding
	if rev, err = s.writeBucket(ctx, b.name, rec, rev); err != nil {
		return nil, 0, undecided(err)
	}
	return rec, rev, nil
}

// undecided makes a refused condition, which cannot be while the name is
// locked, an unknown outcome: the bucket is settled before it is used again.
func undecided(err error) error {
	var cond *meta.CondError
	if errors.As(err, &cond) {
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return err
}

// finishDeletion takes a decided deletion to its end. The caller holds the
// name's lock, and nobody can enter the bucket.
func (s *Store) finishDeletion(ctx context.Context, name string, rec *bucketRecord, rev meta.Rev) error {
	b := &bucket{name: name, id: rec.ID}
	for _, set := range s.sets {
		for {
			batch, err := set.someUploads(ctx, b.id)
			if err != nil {
				return err
			}
			if len(batch) == 0 {
				break
			}
			for _, ukey := range batch {
				if err := s.endUpload(ctx, b, set, ukey); err != nil {
					return err
				}
			}
		}
	}
	_, err := s.writeBucket(ctx, name, nil, rev)
	return err
}

// endUpload aborts an upload of a bucket that goes.
func (s *Store) endUpload(ctx context.Context, b *bucket, set *set, ukey []byte) error {
	_, key, text, ok := meta.ParseUploadKey(ukey)
	id, err := storage.ParseUUID(text)
	if err != nil || !ok {
		return corrupt(ukey, errRecord)
	}
	u := upload{target: s.at(b, key), id: id, ukey: ukey}
	u.set = set
	if err := u.abort(ctx); err != nil && !errors.Is(err, ErrNoUpload) {
		return err
	}
	return nil
}

// endBatch bounds how many uploads, or buckets, are held in memory at once.
const endBatch = 64

// someUploads returns keys of up to endBatch uploads of a bucket.
func (s *set) someUploads(ctx context.Context, bucket storage.UUID) ([][]byte, error) {
	return walkAgain(ctx, func() (keys [][]byte, err error) {
		prefix := meta.UploadPrefix(bucket)
		err = s.eachUnder(ctx, prefix, func(item meta.Item) (bool, error) {
			keys = append(keys, bytes.Clone(item.Key))
			return len(keys) < endBatch, nil
		})
		return keys, err
	})
}

// finishLocked is what loadLocked does about a bucket whose deletion was
// decided: its error is ErrNoBucket when the deletion came to its end. again
// says that the record changed meanwhile.
func (c *buckets) finishLocked(ctx context.Context, s *Store, name string, rec *bucketRecord, rev meta.Rev) (again bool, err error) {
	err = s.finishDeletion(ctx, name, rec, rev)
	var cond *meta.CondError
	switch {
	case err == nil:
		c.drop(name, false)
		return false, ErrNoBucket
	case errors.As(err, &cond): // an earlier removal of unknown outcome showed up
		return true, nil
	case errors.Is(err, ErrUnknown):
		return false, fmt.Errorf("%w: finish deletion of bucket: %v", ErrUnavailable, err) //nolint:errorlint // for a reader nothing is unknown
	}
	return false, err
}

// wake tells runDeletions that there is something to do.
func (c *buckets) wake() {
	select {
	case c.halfway <- struct{}{}:
	default: // it was told already
	}
}

// runDeletions finishes decided deletions that a crash or an error cut short,
// until ctx ends.
func (s *Store) runDeletions(ctx context.Context) error {
	for ctx.Err() == nil {
		err := s.finishDeletions(ctx)
		if err != nil && ctx.Err() == nil && !errors.Is(err, ErrUnavailable) {
			s.log.Warn().Err(err).Msg("finishing the deletion of a bucket failed; it will be tried again")
		}
		var again <-chan time.Time
		stop := func() {}
		if err != nil {
			again, stop = s.env.After(garbageIdle)
		}
		select {
		case <-ctx.Done():
		case <-s.buckets.halfway:
		case <-again:
		}
		stop()
	}
	return nil
}

// finishDeletions finishes every decided deletion once.
func (s *Store) finishDeletions(ctx context.Context) error {
	for {
		names, err := s.endingBuckets(ctx)
		if err != nil || len(names) == 0 {
			return err
		}
		var failed []error
		for _, name := range names {
			if err := s.finishBucket(ctx, name); err != nil {
				failed = append(failed, err)
			}
		}
		if len(failed) > 0 {
			return errors.Join(failed...)
		}
	}
}

// finishBucket loads a bucket, which finishes its deletion, after a request
// that may be about it right now.
func (s *Store) finishBucket(ctx context.Context, name string) error {
	unlock, err := s.lockBucket(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := s.buckets.loadLocked(ctx, s, name); err != nil && !errors.Is(err, ErrNoBucket) {
		return fmt.Errorf("finish deletion of bucket %q: %w", name, err)
	}
	return nil
}

// endingBuckets returns names of up to endBatch buckets whose deletion was
// decided.
func (s *Store) endingBuckets(ctx context.Context) ([]string, error) {
	return walkAgain(ctx, func() (names []string, err error) {
		err = s.bucketSet().eachUnder(ctx, meta.BucketKey(""), func(item meta.Item) (bool, error) {
			name, ok := meta.ParseBucketKey(item.Key)
			rec, err := decodeBucket(item.Val)
			if err != nil || !ok {
				return false, corrupt(item.Key, err)
			}
			if rec.State == bucketEnding {
				names = append(names, name)
			}
			return len(names) < endBatch, nil
		})
		return names, err
	})
}

// checkNoObjects fails with ErrBucketNotEmpty when there are objects or
// versions.
func (s *Store) checkNoObjects(ctx context.Context, id storage.UUID) error {
	for _, prefix := range [][]byte{meta.ObjectPrefix(id), meta.VersionPrefix(id)} {
		found, err := s.anywhere(ctx, prefix)
		if err != nil {
			return err
		}
		if found {
			return ErrBucketNotEmpty
		}
	}
	return nil
}

// anywhere reports whether a key with the prefix exists in any set.
func (s *Store) anywhere(ctx context.Context, prefix []byte) (bool, error) {
	for _, set := range s.sets {
		found, err := walkAgain(ctx, func() (found bool, err error) {
			err = set.eachUnder(ctx, prefix, func(meta.Item) (bool, error) {
				found = true
				return false, nil
			})
			return found, err
		})
		if err != nil || found {
			return found, err
		}
	}
	return false, nil
}

// eachUnder calls f for the items with the prefix until it returns false or an
// error. errWalk: what f saw was not all.
func (s *set) eachUnder(ctx context.Context, prefix []byte, f func(item meta.Item) (more bool, err error)) error {
	c, err := s.engine.Scan(ctx, prefix, meta.After(prefix))
	if err != nil {
		return fmt.Errorf("scan: %w", translate(err))
	}
	more := true
	for err == nil && more && c.Next() {
		more, err = f(c.Item())
	}
	if cerr := c.Err(); err == nil && more && cerr != nil {
		err = fmt.Errorf("%w: %w", errWalk, translate(cerr))
	}
	if cerr := c.Close(); err == nil && cerr != nil {
		err = translate(cerr)
	}
	if err != nil {
		return fmt.Errorf("scan: %w", err)
	}
	return nil
}
