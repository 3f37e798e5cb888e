package hybrid

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"

	"github.com/rs/zerolog"

	"ringfence/internal/env"
	"ringfence/storage"
	"ringfence/storage/uring"
)

// Options configures New. Base, Dir and Pool are required.
type Options struct {
	// Base is the reference: it does everything but read through rings. The
	// Backend owns it and closes it. Files of it that are no storage.RawFile
	// are passed on as they are.
	Base storage.Backend
	// Dir is the disk's own directory, which rings are probed in.
	Dir string
	// Pool is where buffers come from, and what shadow reads are made with.
	Pool *storage.Pool
	// Knobs are the live switches.
	Knobs Knobs
	// Rings is what drivers are started with, beside what the knobs say and
	// Dir, Pool, Log and Env.
	Rings uring.Options
	Log   zerolog.Logger
	// Env is the source of time and goroutines; env.System if zero.
	Env env.Env

	start starter // of drivers; uring.Start if nil
}

func (o Options) withDefaults() Options {
	o.Knobs = o.Knobs.withDefaults()
	if o.Env.IsZero() {
		o.Env = env.System()
	}
	if o.start == nil {
		o.start = startRings
	}
	return o
}

// Backend is a storage.Backend that reads by tiers. Without Run it never starts
// a driver, and reads as Base does.
type Backend struct {
	base  storage.Backend
	opts  Options
	knobs Knobs

	// serving is the driver that new reads use, nil if there is none. Only the
	// supervisor puts one in; whoever has reason to takes it out.
	serving atomic.Pointer[serving]
	swap    sync.Mutex // held while serving is put in, or taken out for good
	direct  atomic.Uint32
	guess   storage.Predictor // of inline hits, over all files of the disk
	awaits  storage.Predictor // of second attempts, after a ring awaited the end
	hung    hung
	latches latches
	count   counts
	shadow  shadow
	rings   rings
	kick    chan struct{} // wakes the supervisor; room for one
	life    life
}

var _ storage.Backend = (*Backend)(nil)

// New wraps Base. It starts nothing.
func New(opts Options) (*Backend, error) {
	if opts.Base == nil || opts.Dir == "" || opts.Pool == nil {
		return nil, errors.New("hybrid: Base, Dir and Pool are required")
	}
	opts = opts.withDefaults()
	b := &Backend{base: opts.Base, opts: opts, knobs: opts.Knobs, kick: make(chan struct{}, 1)}
	b.hung.init()
	b.shadow.init()
	return b, nil
}

// Create implements storage.Backend.
func (b *Backend) Create(ctx context.Context, name string, sizeHint int64) (storage.File, error) {
	f, err := b.base.Create(ctx, name, sizeHint)
	return b.file(f, name, true), err
}

// Open implements storage.Backend.
func (b *Backend) Open(ctx context.Context, name string) (storage.File, error) {
	f, err := b.base.Open(ctx, name)
	return b.file(f, name, false), err
}

// Rename implements storage.Backend.
func (b *Backend) Rename(ctx context.Context, source, target string) error {
	return b.base.Rename(ctx, source, target)
}

// Remove implements storage.Backend.
func (b *Backend) Remove(ctx context.Context, name string) error { return b.base.Remove(ctx, name) }

// Mkdir implements storage.Backend.
func (b *Backend) Mkdir(ctx context.Context, name string) error { return b.base.Mkdir(ctx, name) }

// ReadDir implements storage.Backend.
func (b *Backend) ReadDir(ctx context.Context, name string) ([]fs.DirEntry, error) {
	return b.base.ReadDir(ctx, name)
}

// SyncDir implements storage.Backend.
func (b *Backend) SyncDir(ctx context.Context, name string) error { return b.base.SyncDir(ctx, name) }

// Check implements storage.Backend.
func (b *Backend) Check() error { return b.base.Check() }

// Stats implements storage.Backend: Base counts the reads that it finished,
// and among the inline ones the copies that it made when a ring had waited.
func (b *Backend) Stats() storage.BackendStats {
	s := b.base.Stats()
	s.Reads.Inline = b.count.inlineOf(s.Reads.Inline)
	s.Reads.Ring += b.count.ring.Load()
	s.Reads.RingDirect += b.count.ringDirect.Load()
	return s
}

// Close implements storage.Backend. It ends Run and waits for it, at most for
// as long as a driver's drain may take.
func (b *Backend) Close() error {
	b.life.end()
	if err := b.base.Close(); err != nil {
		return fmt.Errorf("close reference: %w", err)
	}
	return nil
}

// life is the time in which a Backend may be run.
type life struct {
	mu     sync.Mutex // protects the fields below
	closed bool
	cancel context.CancelFunc
	done   chan struct{} // closed when Run has returned; nil if it never ran
}

// begin admits the one Run of a Backend. The context that it returns ends with
// the Backend.
func (l *life) begin(ctx context.Context) (_ context.Context, done func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.done != nil {
		return ctx, nil, false
	}
	ctx, l.cancel = context.WithCancel(ctx)
	l.done = make(chan struct{})
	return ctx, func() { l.cancel(); close(l.done) }, true
}

// end refuses every Run from now on, and waits for the one there was.
func (l *life) end() {
	l.mu.Lock()
	l.closed = true
	cancel, done := l.cancel, l.done
	l.mu.Unlock()
	if done != nil {
		cancel()
		<-done
	}
}
