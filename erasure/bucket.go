package erasure

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"ringfence/erasure/meta"
	"ringfence/storage"
)

// Buckets live in the first set, under b/<name>. This process is the only one
// that writes them, so a bucket that was read once is kept, and a cached one is
// always right: creations and deletions of a name go through that name's lock,
// and a deletion shuts the bucket's gate before it decides.
type buckets struct {
	mu     sync.RWMutex // protects byName and unsettled
	byName map[string]*bucket
	// unsettled are names with a commit whose outcome nobody knows. It is
	// settled by overwriting the record, which a commit still on its way cannot
	// survive, before the bucket is used again.
	unsettled map[string]bool

	halfway chan struct{} // capacity 1: a decided deletion did not get to its end
}

// bucket is a bucket that exists, or existed until its gate shut.
type bucket struct {
	name    string
	id      storage.UUID
	created int64 // milliseconds since 1970
	region  string
	gate    gate
}

func (b *bucket) info() BucketInfo {
	return BucketInfo{Name: b.name, ID: b.id, Created: time.UnixMilli(b.created).UTC(), Region: b.region}
}

// enter is held around every commit in the bucket: it fails when the bucket is
// gone, and a deletion waits for it.
func (b *bucket) enter(ctx context.Context) (leave func(), err error) {
	if err := b.gate.enter(ctx); err != nil {
		return nil, err
	}
	return b.gate.leave, nil
}

// home set of all buckets.
func (s *Store) bucketSet() *set { return s.sets[0] }

// lockBucket serializes what creates, deletes and loads a bucket name.
func (s *Store) lockBucket(ctx context.Context, name string) (unlock func(), err error) {
	return s.locks.lock(ctx, lockName{Key: "b/" + name, Part: -1})
}

// get returns the bucket, or ErrNoBucket.
func (c *buckets) get(ctx context.Context, s *Store, name string) (*bucket, error) {
	if b := c.cached(name); b != nil {
		return b, nil
	}
	unlock, err := s.lockBucket(ctx, name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return c.loadLocked(ctx, s, name)
}

func (c *buckets) cached(name string) *bucket {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.byName[name]
}

// loadLocked is get for who holds the name's lock.
func (c *buckets) loadLocked(ctx context.Context, s *Store, name string) (*bucket, error) {
	if b := c.cached(name); b != nil {
		return b, nil
	}
	if name == "" || len(name) > 255 {
		return nil, ErrNoBucket
	}
	for range maxTries {
		rec, rev, err := s.readBucket(ctx, name)
		if err != nil {
			return nil, err
		}
		if rec == nil {
			return nil, ErrNoBucket
		}
		if rec.State == bucketEnding {
			again, err := c.finishLocked(ctx, s, name, rec, rev)
			if again {
				continue
			}
			return nil, err
		}
		if rec.State == bucketDeleting || c.isUnsettled(name) {
			// A deletion was cut short and nobody was told that it happened:
			// it did not.
			rec.State = 0
			_, err := s.writeBucket(ctx, name, rec, rev)
			var cond *meta.CondError
			switch {
			case errors.As(err, &cond):
				continue
			case errors.Is(err, ErrUnknown):
				c.drop(name, true)
				return nil, fmt.Errorf("%w: settle bucket: %v", ErrUnavailable, err) //nolint:errorlint // for a reader nothing is unknown
			case err != nil:
				return nil, err
			}
		}
		b := &bucket{name: name, id: rec.ID, created: rec.Created, region: rec.Region}
		c.put(b)
		return b, nil
	}
	return nil, fmt.Errorf("%w: bucket changed %d times", ErrOverload, maxTries)
}

func (c *buckets) put(b *bucket) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byName == nil {
		c.byName = make(map[string]*bucket)
	}
	c.byName[b.name] = b
	delete(c.unsettled, b.name)
}

// drop forgets a bucket; unsettled says that its record must be settled before
// it is loaded again.
func (c *buckets) drop(name string, unsettled bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byName, name)
	delete(c.unsettled, name)
	if unsettled {
		if c.unsettled == nil {
			c.unsettled = make(map[string]bool)
		}
		c.unsettled[name] = true
	}
}

func (c *buckets) isUnsettled(name string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.unsettled[name]
}

func (s *Store) readBucket(ctx context.Context, name string) (*bucketRecord, meta.Rev, error) {
	bkey := meta.BucketKey(name)
	item, found, err := s.bucketSet().get(ctx, bkey)
	if err != nil || !found {
		return nil, 0, err
	}
	rec, err := decodeBucket(item.Val)
	if err != nil {
		return nil, 0, corrupt(bkey, err)
	}
	return rec, item.Rev, nil
}

// writeBucket replaces the record of revision rev (0: there is none); a nil
// record removes it.
func (s *Store) writeBucket(ctx context.Context, name string, rec *bucketRecord, rev meta.Rev) (meta.Rev, error) {
	op := meta.Op{Key: meta.BucketKey(name), Delete: rec == nil}
	g := meta.Group{Key: name}
	if rec != nil {
		op.Val = rec.encode()
		g.Bucket = rec.ID
	}
	return s.bucketSet().commit(ctx, g, []meta.Cond{{Key: op.Key, Rev: rev}}, []meta.Op{op})
}

// CreateBucket makes a bucket. When the name is taken it returns that bucket
// and ErrBucketExists. An empty region is the store's.
func (s *Store) CreateBucket(ctx context.Context, name, region string) (BucketInfo, error) {
	if name == "" || len(name) > 255 || len(region) > maxText {
		return BucketInfo{}, fmt.Errorf("%w: name of a bucket", ErrKeyTooLong)
	}
	unlock, err := s.lockBucket(ctx, name)
	if err != nil {
		return BucketInfo{}, err
	}
	defer unlock()
	b, err := s.buckets.loadLocked(ctx, s, name)
	if err == nil {
		return b.info(), ErrBucketExists
	}
	if !errors.Is(err, ErrNoBucket) {
		return BucketInfo{}, err
	}
	if region == "" {
		region = s.region
	}
	rec := &bucketRecord{ID: s.newUUID(), Created: s.now(), Region: region}
	_, err = s.writeBucket(ctx, name, rec, 0)
	var cond *meta.CondError
	if errors.As(err, &cond) { // an earlier creation of unknown outcome showed up
		if b, err := s.buckets.loadLocked(ctx, s, name); err == nil {
			return b.info(), ErrBucketExists
		}
		return BucketInfo{}, fmt.Errorf("%w: bucket changed meanwhile", ErrOverload)
	}
	if err != nil {
		return BucketInfo{}, err
	}
	b = &bucket{name: name, id: rec.ID, created: rec.Created, region: rec.Region}
	s.buckets.put(b)
	return b.info(), nil
}

// HeadBucket describes a bucket.
func (s *Store) HeadBucket(ctx context.Context, name string) (BucketInfo, error) {
	b, err := s.buckets.get(ctx, s, name)
	if err != nil {
		return BucketInfo{}, err
	}
	return b.info(), nil
}

// maxBucketPage bounds a page of ListBuckets.
const maxBucketPage = 10000

// ListBuckets returns up to limit buckets in byte order of names that start
// with prefix and are greater than after, and whether there are more.
func (s *Store) ListBuckets(ctx context.Context, prefix, after string, limit int) ([]BucketInfo, bool, error) {
	type page struct {
		list []BucketInfo
		more bool
	}
	p, err := walkAgain(ctx, func() (page, error) {
		list, more, err := s.listBucketsOnce(ctx, prefix, after, limit)
		return page{list, more}, err
	})
	return p.list, p.more, err
}

func (s *Store) listBucketsOnce(ctx context.Context, prefix, after string, limit int) ([]BucketInfo, bool, error) {
	limit = min(limit, maxBucketPage)
	lo, hi := meta.BucketKey(prefix), meta.After(meta.BucketKey(prefix))
	if after >= prefix && after != "" {
		lo = append(meta.BucketKey(after), 0)
	}
	c, err := s.bucketSet().engine.Scan(ctx, lo, hi)
	if err != nil {
		return nil, false, fmt.Errorf("list buckets: %w", translate(err))
	}
	list, more, err := readBuckets(c, limit)
	if cerr := c.Close(); err == nil && cerr != nil {
		err = translate(cerr)
	}
	if err != nil {
		return nil, false, fmt.Errorf("list buckets: %w", err)
	}
	return list, more, nil
}

func readBuckets(c meta.Cursor, limit int) (list []BucketInfo, more bool, err error) {
	for limit > 0 && c.Next() {
		if len(list) == limit {
			return list, true, nil
		}
		item := c.Item()
		name, ok := meta.ParseBucketKey(item.Key)
		rec, err := decodeBucket(item.Val)
		if err != nil || !ok {
			return nil, false, corrupt(item.Key, err)
		}
		b := bucket{name: name, id: rec.ID, created: rec.Created, region: rec.Region}
		list = append(list, b.info())
	}
	if err := c.Err(); err != nil {
		return nil, false, fmt.Errorf("%w: %w", errWalk, translate(err))
	}
	return list, false, nil
}
