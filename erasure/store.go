package erasure

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"github.com/zeebo/xxh3"
	"golang.org/x/sync/errgroup"

	"ringfence/erasure/meta"
	"ringfence/internal/env"
	"ringfence/storage"
)

// SetOptions describes one erasure set. The order of the sets, and their
// number, are fixed when the store is formatted.
type SetOptions struct {
	Disks  []storage.Disk // by slot
	Parity int            // parity shards of a full layout
	Engine meta.Engine    // the set's metadata; the store does not close it
}

// Options configures New.
type Options struct {
	Sets   []SetOptions
	Pool   *storage.Pool // block memory of all requests
	Env    env.Env       // default env.System()
	Log    zerolog.Logger
	Region string // of buckets created without one
}

// Store is the object store: what exists under which name, on all sets. All of
// its methods may be called concurrently. Errors are those of errors.go, the
// caller's own (from a Body, a Finish, a Precond), or the context's.
type Store struct {
	env     env.Env
	log     zerolog.Logger
	region  string
	sets    []*set
	buckets buckets
	locks   keyLock
	copies  chan struct{} // capacity maxCopies; one for each copy that streams
}

// set is one erasure set with its metadata.
type set struct {
	index   int
	disks   []storage.Disk
	parity  int
	engine  meta.Engine
	data    shardStore
	pins    pins
	damage  damage
	orphans orphans
	claimed atomic.Pointer[claim] // nil before the first commit of this process
	kick    chan struct{}         // capacity 1: there is garbage to collect
}

// New makes a store. It starts nothing and reads nothing: a store whose disks
// are all away exists, and answers ErrUnavailable.
func New(opts Options) (*Store, error) {
	if len(opts.Sets) == 0 {
		return nil, errors.New("new store: no sets")
	}
	if opts.Env.IsZero() {
		opts.Env = env.System()
	}
	s := &Store{env: opts.Env, log: opts.Log, region: opts.Region, copies: make(chan struct{}, maxCopies)}
	s.buckets.halfway = make(chan struct{}, 1)
	for i, o := range opts.Sets {
		if len(o.Disks) == 0 || len(o.Disks) > MaxSetSize || o.Engine == nil {
			return nil, fmt.Errorf("new store: set %d: needs 1 to %d disks and an engine", i, MaxSetSize)
		}
		set := &set{index: i, disks: o.Disks, parity: o.Parity, engine: o.Engine, kick: make(chan struct{}, 1)}
		data, err := s.newShardStore(set, opts)
		if err != nil {
			return nil, fmt.Errorf("new store: set %d: %w", i, err)
		}
		set.data = data
		// What the process before removed may not be durable yet.
		set.orphans.next = s.env.Now().Add(garbageAfter)
		s.sets = append(s.sets, set)
	}
	return s, nil
}

// Run does the store's work in the background until ctx ends: deferred
// deletions, and buckets whose decided deletion was cut short. It owns the
// goroutines that it starts and waits for them.
func (s *Store) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, set := range s.sets {
		g.Go(func() error { return s.runGarbage(ctx, set) })
	}
	g.Go(func() error { return s.runDeletions(ctx) })
	if err := g.Wait(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("run store: %w", err)
	}
	return nil
}

// Wait returns when all disk work has ended that outlived its request, because
// a disk was slow, or with ctx's error. Call it after the last request.
func (s *Store) Wait(ctx context.Context) error {
	for _, set := range s.sets {
		if err := set.data.wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// set returns the set that holds a key. The function and the number of sets
// are part of the format.
func (s *Store) set(bucket storage.UUID, key string) *set {
	if len(s.sets) == 1 {
		return s.sets[0]
	}
	var buf [16 + MaxKeyBytes]byte
	b := append(append(buf[:0], bucket[:]...), key...)
	return s.sets[xxh3.Hash(b)%uint64(len(s.sets))]
}

// now is the wall clock in milliseconds, for display and expiry.
func (s *Store) now() int64 { return s.env.Now().UnixMilli() }

// newUUID makes a random name.
func (s *Store) newUUID() (u storage.UUID) {
	s.env.Rand(u[:])
	return u
}

// newShardUUID makes a name for shards: the epoch first, so that shards which no
// record names can be told from those of a write in progress.
func (s *Store) newShardUUID(c *claim) storage.UUID {
	u := s.newUUID()
	binary.BigEndian.PutUint32(u[:], uint32(c.epoch))
	return u
}

// newUploadUUID makes the name of an upload: 48 bits of time, so that uploads of
// a key list in the order of their start, and 80 random ones.
func (s *Store) newUploadUUID() storage.UUID {
	u := s.newUUID()
	var t [8]byte
	binary.BigEndian.PutUint64(t[:], uint64(s.now()))
	copy(u[:6], t[2:])
	return u
}

// commitTimeout bounds a commit, which no client can cancel: whoever sent a
// whole body gets it stored even when the connection breaks now, and the
// outcome stays known.
const commitTimeout = 30 * time.Second

// commit is Engine.Commit with the store's errors. *meta.CondError comes
// through.
func (s *set) commit(ctx context.Context, g meta.Group, conds []meta.Cond, ops []meta.Op) (meta.Rev, error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("commit: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	rev, err := s.engine.Commit(ctx, g, conds, ops)
	switch {
	case err == nil:
		return rev, nil
	case errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, meta.ErrUnknown):
		// Never submitted: the wait was ours, not the caller's.
		return 0, fmt.Errorf("commit: %w: %w", ErrUnavailable, err)
	}
	return 0, fmt.Errorf("commit: %w", translate(err))
}

// get is Engine.Get with the store's errors; found is false when there is
// nothing under key.
func (s *set) get(ctx context.Context, key []byte) (item meta.Item, found bool, err error) {
	item, err = s.engine.Get(ctx, key)
	switch {
	case err == nil:
		return item, true, nil
	case errors.Is(err, storage.ErrNotFound):
		return meta.Item{}, false, nil
	}
	return meta.Item{}, false, fmt.Errorf("get record: %w", translate(err))
}

// translate adds the error of this package to an error from the engine. Errors
// of conditions and of contexts stay alone.
func translate(err error) error {
	var cond *meta.CondError
	switch {
	case errors.As(err, &cond), isOurs(err):
		return err
	case errors.Is(err, meta.ErrUnknown):
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	case errors.Is(err, storage.ErrFull):
		return fmt.Errorf("%w: %w", ErrFull, err)
	case errors.Is(err, storage.ErrNoBuffer):
		return fmt.Errorf("%w: %w", ErrOverload, err)
	case errors.Is(err, meta.ErrTooLarge):
		return fmt.Errorf("%w: %w", ErrMetaTooLarge, err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, storage.ErrCorrupt):
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// isOurs reports whether err already carries an error of this package.
func isOurs(err error) bool {
	for _, e := range []error{ErrUnknown, ErrUnavailable, ErrOverload, ErrFull, ErrCorrupt, ErrMetaTooLarge, ErrBodyTooLong} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// corrupt is the error for a record that does not decode.
func corrupt(key []byte, err error) error {
	return fmt.Errorf("%w: record %q: %w", ErrCorrupt, key, err)
}
