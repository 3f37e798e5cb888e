package erasure

import (
	"context"
	"errors"
	"fmt"

	"ringfence/erasure/meta"
	"ringfence/storage"
)

// target is one key of one bucket, and where its record is.
type target struct {
	s      *Store
	bucket *bucket
	key    string
	set    *set
	okey   []byte // engine key of the current version
}

// target finds a key's place. It fails with ErrNoBucket, and refuses no key: a
// key that no write accepts just doesn't exist.
func (s *Store) target(ctx context.Context, bucketName, key string) (target, error) {
	b, err := s.buckets.get(ctx, s, bucketName)
	if err != nil {
		return target{}, err
	}
	return s.at(b, key), nil
}

func (s *Store) at(b *bucket, key string) target {
	set := s.set(b.id, key[:min(len(key), MaxKeyBytes)])
	return target{s: s, bucket: b, key: key, set: set, okey: meta.ObjectKey(b.id, key)}
}

// valid reports whether a write could have made the key.
func (t *target) valid() bool { return t.key != "" && len(t.key) <= MaxKeyBytes }

func (t *target) group() meta.Group { return meta.Group{Bucket: t.bucket.id, Key: t.key} }

// current reads the record of the current version; nil if there is none.
func (t *target) current(ctx context.Context) (*record, meta.Rev, error) {
	if !t.valid() {
		return nil, 0, nil
	}
	item, found, err := t.set.get(ctx, t.okey)
	if err != nil || !found {
		return nil, 0, err
	}
	rec, err := decodeRecord(item.Val)
	if err != nil {
		return nil, 0, corrupt(t.okey, err)
	}
	return rec, item.Rev, nil
}

// judge runs a precondition against the version that a write would replace.
func (t *target) judge(ctx context.Context, p Precond, old *record) error {
	if p == nil {
		return nil
	}
	if old == nil || old.DeleteMarker {
		return p(nil)
	}
	if err := t.load(ctx, old); err != nil {
		return err
	}
	info := old.info(t.bucket.name, t.set)
	return p(&info)
}

// check judges a precondition before a body is read, which spares the client
// the sending. What counts is the judgement at the commit.
func (t *target) check(ctx context.Context, p Precond) error {
	if p == nil {
		return nil
	}
	for range maxTries {
		old, _, err := t.current(ctx)
		if err == nil {
			err = t.judge(ctx, p, old)
		}
		if !errors.Is(err, errStale) {
			return err
		}
	}
	return t.busy()
}

// busy is the error after maxTries.
func (t *target) busy() error {
	return fmt.Errorf("%w: key changed %d times", ErrOverload, maxTries)
}

// change is what a write does to a key, decided against its current version.
type change struct {
	rec     *record // the new version; nil removes the key
	keep    bool    // the new version names the bytes of the old one
	nothing bool    // leave everything as it is
	conds   []meta.Cond
	ops     []meta.Op
}

// maxTries bounds how often a write is decided anew because something else was
// committed in between. The key's lock keeps this process out of its own way.
const maxTries = 16

// errStale says that a condition of the change's own did not hold: the change
// was decided on something that is no longer so.
var errStale = errors.New("decided on a stale state")

// planner decides a change of a key against its current version, nil if there
// is none. at is the time that the new version gets, in milliseconds: never
// earlier than the one it replaces. Its error refuses the write.
type planner func(old *record, at int64) (change, error)

// apply commits a change of the key. plan may run several times.
func (t *target) apply(ctx context.Context, plan planner) (*record, error) {
	unlock, err := t.s.locks.lock(ctx, lockName{ID: t.bucket.id, Key: t.key})
	if err != nil {
		return nil, err
	}
	defer unlock()
	leave, err := t.bucket.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	for range maxTries {
		rec, err := t.applyOnce(ctx, plan)
		if !errors.Is(err, errStale) {
			return rec, err
		}
	}
	return nil, t.busy()
}

func (t *target) applyOnce(ctx context.Context, plan planner) (*record, error) {
	old, rev, err := t.current(ctx)
	if err != nil {
		return nil, err
	}
	now := t.s.now()
	at := now
	if old != nil {
		at = max(now, old.ModTime+1)
	}
	c, err := plan(old, at)
	if err != nil || c.nothing {
		return nil, err
	}
	op := meta.Op{Key: t.okey, Delete: c.rec == nil}
	if c.rec != nil {
		c.rec.ModTime = at
		op.Val = c.rec.encode()
	}
	ops := append([]meta.Op{op}, c.ops...)
	if old != nil && !c.keep {
		ops = append(ops, retire(old, now)...)
	}
	conds := append([]meta.Cond{{Key: t.okey, Rev: rev}}, c.conds...)
	_, err = t.set.commit(ctx, t.group(), conds, ops)
	var cond *meta.CondError
	switch {
	case errors.As(err, &cond):
		return nil, fmt.Errorf("%w: %w", errStale, err)
	case err != nil:
		return nil, err
	case old != nil && !c.keep:
		t.set.wake()
	}
	return c.rec, nil
}

// retire are the operations that give up the bytes of a version, in the commit
// that replaces it. What readers may still hold goes to the collector; inline
// payloads and manifests go at once, since readers have their copy.
func retire(old *record, now int64) []meta.Op {
	switch {
	case old.Manifest != nil:
		g := garbageRecord{Kind: garbageUpload, Upload: old.Manifest.Upload}
		ops := []meta.Op{g.op(now)}
		if old.Manifest.Detached {
			ops = append(ops, meta.Op{Key: meta.ManifestKey(old.Manifest.Upload, 0), Delete: true})
		}
		return ops
	case old.Run.Blob != nil:
		g := garbageRecord{Kind: garbageBlobs, Blobs: []blob{*old.Run.Blob}}
		return []meta.Op{g.op(now)}
	case !old.Run.Inline.IsZero():
		return []meta.Op{{Key: meta.InlineKey(old.Run.Inline), Delete: true}}
	}
	return nil
}

// finish asks the caller for the digest of n bytes.
func finish(f func(n int64) (Digest, error), n int64) (Digest, error) {
	if f == nil {
		return Digest{}, nil
	}
	d, err := f(n)
	if err == nil && (len(d.ETag) > maxText || len(d.Checksums) > maxChecksums) {
		err = fmt.Errorf("%w: digest", ErrMetaTooLarge)
	}
	return d, err
}

// Put stores an object under key, whole or not at all. When it returns nil the
// bytes and the record are durable.
func (s *Store) Put(ctx context.Context, bucket, key string, in PutInput) (ObjectInfo, error) {
	t, err := s.target(ctx, bucket, key)
	if err != nil {
		return ObjectInfo{}, err
	}
	if err := checkWrite(key, &in.Meta); err != nil {
		return ObjectInfo{}, err
	}
	if err := t.check(ctx, in.Precond); err != nil {
		return ObjectInfo{}, err
	}
	st, digest, err := t.receive(ctx, home{Bucket: t.bucket.id, Key: key}, in)
	if err != nil {
		return ObjectInfo{}, err
	}
	rec, err := t.apply(ctx, func(old *record, _ int64) (change, error) {
		if err := t.judge(ctx, in.Precond, old); err != nil {
			return change{}, err
		}
		rec := &record{Key: key, Size: st.size, Digest: digest, Meta: in.Meta, Run: st.run}
		return change{rec: rec, ops: st.ops()}, nil
	})
	if err != nil {
		st.release(ctx, err)
		return ObjectInfo{}, err
	}
	return rec.info(t.bucket.name, t.set), nil
}

// receive reads a body to its end, has it judged, and makes it durable.
func (t *target) receive(ctx context.Context, h home, in PutInput) (*staged, Digest, error) {
	st, err := t.s.stage(ctx, t.set, h, in.Body, in.Size)
	var digest Digest
	if err == nil {
		digest, err = finish(in.Finish, st.size)
	}
	if err == nil {
		err = st.seal(ctx)
	}
	if err != nil {
		st.discard(ctx)
		return nil, Digest{}, err
	}
	return st, digest, nil
}

// Delete removes an object. Removing what is not there is no error, unless
// the precondition thinks so.
func (s *Store) Delete(ctx context.Context, bucket, key string, in DeleteInput) (DeleteResult, error) {
	t, err := s.target(ctx, bucket, key)
	if err != nil {
		return DeleteResult{}, err
	}
	other := !isCurrent(in.VersionID) // nothing but the current version exists
	if !t.valid() || other {
		return DeleteResult{VersionID: in.VersionID}, t.judge(ctx, in.Precond, nil)
	}
	_, err = t.apply(ctx, func(old *record, _ int64) (change, error) {
		if err := t.judge(ctx, in.Precond, old); err != nil {
			return change{}, err
		}
		return change{nothing: old == nil}, nil
	})
	if err != nil {
		return DeleteResult{}, err
	}
	return DeleteResult{VersionID: in.VersionID}, nil
}

// isCurrent reports whether a version id of a bucket that was never versioned
// names the only version.
func isCurrent(id string) bool { return id == "" || id == "null" }

// wake tells the collector of the set that there is something to do.
func (s *set) wake() {
	select {
	case s.kick <- struct{}{}:
	default: // it was told already
	}
}

// op writes a garbage record that is due at the given time.
func (r *garbageRecord) op(due int64) meta.Op {
	return meta.Op{Key: meta.GarbageKey(uint64(max(due, 0)), r.id()), Val: r.encode()}
}

// id keeps the entries of one due time apart. The second field of an entry that
// is not about a blob is its kind, which is no part number of anything: the
// UUID is an upload's.
func (r *garbageRecord) id() storage.ShardID {
	switch r.Kind {
	case garbageBlobs, garbageAgain:
		return r.Blobs[0].id()
	case garbageUpload:
		if r.Keep != nil {
			return storage.ShardID{UUID: r.Upload, Part: garbageUpload | 1<<8}
		}
	}
	return storage.ShardID{UUID: r.Upload, Part: uint16(r.Kind)}
}
