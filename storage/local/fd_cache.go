package local

import (
	"sync"
	"time"

	"ringfence/storage"
)

// maxCachedTrailers bounds the memory of all cached trailers, in bytes: a
// shard of 1 GiB in blocks of 256 KiB has 64 KiB of sums.
const maxCachedTrailers = 8 << 20

// fdCache keeps sealed shards open, least recently used first to go. It hides
// the cost of opening and of reading the trailer, nothing else: a shard that
// was removed is never found in it again, also when its open was under way.
// Whoever changes files behind the disk's back is found out when an entry has
// reached its age.
type fdCache struct {
	fdCacheOptions
	mu    sync.Mutex // protects the fields below
	byID  map[storage.ShardID]*openShard
	head  openShard                    // ring: head.next is the latest used
	bytes int64                        // of trailers in the ring
	opens map[storage.ShardID]*opening // opens under way
	dead  bool
}

// fdCacheOptions is what a cache is made with.
type fdCacheOptions struct {
	limit int                     // entries
	on    func() bool             // whether to cache; asked at every open
	age   time.Duration           // from which on a shard is opened anew; negative: never
	now   func() time.Time        // for age
	drop  func(*openShard, error) // told of errors of Close
}

// opening is the opens of one shard that are under way.
type opening struct {
	n       int
	removed bool // the shard was removed meanwhile: don't cache what comes
}

// openShard is a file with its trailer. refs counts readers, and the cache as
// one; the last to leave closes the file.
type openShard struct {
	*trailer
	file       storage.File
	opened     time.Time  // when it was cached; under fdCache.mu
	refs       int        // under fdCache.mu
	next, prev *openShard // in the ring, nil if not cached; under fdCache.mu
}

func newFDCache(opts fdCacheOptions) *fdCache {
	c := &fdCache{
		fdCacheOptions: opts,
		byID:           make(map[storage.ShardID]*openShard),
		opens:          make(map[storage.ShardID]*opening),
	}
	c.head.next, c.head.prev = &c.head, &c.head
	return c
}

// acquire returns an open shard with a reference for the caller, or nil after
// noting that the caller opens it: then finish must follow.
func (c *fdCache) acquire(id storage.ShardID) *openShard {
	s, out := c.find(id)
	c.close(out)
	return s
}

// find is acquire without closing what has to go.
func (c *fdCache) find(id storage.ShardID) (_ *openShard, out []*openShard) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.on() { // switched off: nothing stays
		out = c.emptyLocked()
	}
	if s := c.byID[id]; s != nil && (c.age < 0 || c.now().Sub(s.opened) < c.age) {
		s.refs++
		c.unlinkLocked(s)
		c.linkLocked(s)
		return s, out
	} else if s != nil {
		out = c.evictLocked(s, out)
	}
	o := c.opens[id]
	if o == nil {
		o = &opening{}
		c.opens[id] = o
	}
	o.n++
	return nil, out
}

// finish ends what acquire began. s has one reference, the caller's; nil if
// the open failed.
func (c *fdCache) finish(id storage.ShardID, s *openShard) {
	c.mu.Lock()
	o := c.opens[id]
	o.n--
	if o.n == 0 {
		delete(c.opens, id)
	}
	var out []*openShard
	if s != nil && !o.removed && !c.dead && c.byID[id] == nil && c.limit > 0 && c.on() && s.memory() <= maxCachedTrailers/8 {
		s.refs++
		s.opened = c.now()
		c.byID[id] = s
		c.bytes += s.memory()
		c.linkLocked(s)
		for len(c.byID) > c.limit || c.bytes > maxCachedTrailers {
			out = c.evictLocked(c.head.prev, out)
		}
	}
	c.mu.Unlock()
	c.close(out)
}

// release gives a reference back.
func (c *fdCache) release(s *openShard) error {
	c.mu.Lock()
	s.refs--
	last := s.refs == 0
	c.mu.Unlock()
	if last {
		return s.file.Close()
	}
	return nil
}

// remove forgets a shard, and opens of it that are under way.
func (c *fdCache) remove(id storage.ShardID) {
	c.mu.Lock()
	if o := c.opens[id]; o != nil {
		o.removed = true
	}
	var out []*openShard
	if s := c.byID[id]; s != nil {
		out = c.evictLocked(s, out)
	}
	c.mu.Unlock()
	c.close(out)
}

// shut empties the cache for good. Readers keep what they have.
func (c *fdCache) shut() {
	c.mu.Lock()
	c.dead = true
	out := c.emptyLocked()
	c.mu.Unlock()
	c.close(out)
}

func (c *fdCache) emptyLocked() (out []*openShard) {
	for len(c.byID) > 0 {
		out = c.evictLocked(c.head.prev, out)
	}
	return out
}

// size is the number of cached shards.
func (c *fdCache) size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.byID)
}

// evictLocked takes s out and adds it to out if nobody else holds it.
func (c *fdCache) evictLocked(s *openShard, out []*openShard) []*openShard {
	delete(c.byID, s.id)
	c.bytes -= s.memory()
	c.unlinkLocked(s)
	s.refs--
	if s.refs == 0 {
		out = append(out, s)
	}
	return out
}

func (c *fdCache) close(shards []*openShard) {
	for _, s := range shards {
		if err := s.file.Close(); err != nil {
			c.drop(s, err)
		}
	}
}

func (c *fdCache) linkLocked(s *openShard) {
	s.prev, s.next = &c.head, c.head.next
	s.prev.next, s.next.prev = s, s
}

func (c *fdCache) unlinkLocked(s *openShard) {
	s.prev.next, s.next.prev = s.next, s.prev
	s.next, s.prev = nil, nil
}
