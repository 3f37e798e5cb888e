package hybrid

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"ringfence/storage"
	"ringfence/storage/std"
	"ringfence/storage/uring"
)

// fake is a driver without rings: it reads with the reference's system calls,
// on the caller, and does what a test says to what it read.
type fake struct {
	// fault may be nil. It sees the request after it was read and may change
	// what was; its error is given instead.
	fault func(ctx context.Context, r uring.Request, n int) (int, error)

	mu      sync.Mutex
	stats   uring.ShardStats // protected by mu, as are those below
	retired bool
}

func (d *fake) Read(ctx context.Context, r uring.Request) (n int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	d.mu.Lock()
	if d.retired {
		d.mu.Unlock()
		return 0, uring.ErrClosed
	}
	d.stats.Submitted++
	d.stats.InFlight++
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.stats.InFlight--
		d.stats.Delivered++
	}()
	if err := r.File.Acquire(); err != nil {
		return 0, err
	}
	f := io.NewSectionReader(fdReader(r.File.FD()), r.Off, 1<<40)
	for _, b := range r.Bufs {
		m, err := io.ReadFull(f, b.Bytes())
		n += m
		if err != nil {
			break
		}
	}
	if err := r.File.Release(); err != nil {
		return 0, err
	}
	if d.fault != nil {
		return d.fault(ctx, r, n)
	}
	return n, nil
}

func (d *fake) Stats() uring.Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	return uring.Stats{Setup: "fake", Shards: []uring.ShardStats{d.stats}}
}

func (d *fake) change(f func(s *uring.ShardStats)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(&d.stats)
}

func (d *fake) Retire(context.Context) (uring.Stats, error) {
	d.mu.Lock()
	d.retired = true
	d.mu.Unlock()
	return d.Stats(), nil
}

// rig is a Backend on a folder, run, with the reference beside it.
type rig struct {
	*Backend
	std   storage.Backend // another one on the same folder
	dir   string
	pool  *storage.Pool
	log   *logs
	knobs Knobs
	leaks bool // buffers stay out for good
}

type rigOptions struct {
	start starter // nil for real rings
	rings uring.Options
	set   func(k Knobs)
	dir   string // a fresh one if empty
	idle  bool   // don't wait until rings serve

	attempt attempt // of reads from the page cache; nil for the reference's
}

// newRig starts a Backend with rings switched on and the rest as set.
func newRig(t testing.TB, o rigOptions) *rig {
	t.Helper()
	if o.dir == "" {
		o.dir = filepath.Join(t.TempDir(), "disk")
		if err := os.Mkdir(o.dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	pool, err := newPool()
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{dir: o.dir, pool: pool, log: &logs{}, knobs: NewKnobs()}
	r.knobs.Enable.Store(true)
	r.knobs.Reprobe.Store(10 * time.Millisecond)
	if o.set != nil {
		o.set(r.knobs)
	}
	r.std = newStd(t, o.dir, r.knobs)
	if o.rings.DrainTimeout == 0 {
		o.rings.DrainTimeout = 2 * time.Second
	}
	base := newStd(t, o.dir, r.knobs)
	if o.attempt != nil {
		base = planned{base, o.attempt}
	}
	r.Backend, err = New(Options{
		Base: base, Dir: o.dir, Pool: pool, Knobs: r.knobs, Rings: o.rings,
		Log: zerolog.New(r.log).Level(zerolog.InfoLevel), start: o.start,
	})
	if err != nil {
		t.Fatal(err)
	}
	run(t, r.Backend)
	t.Cleanup(func() {
		if err := r.std.Close(); err != nil {
			t.Error(err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if r.leaks {
			return
		}
		if n := pool.InUse(); n != 0 {
			t.Errorf("%d bytes of buffers are still in use", n)
		}
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	})
	if !o.idle {
		r.await(t, "rings", func(s Status) bool { return s.Tier == "ring" })
	}
	return r
}

func newPool() (*storage.Pool, error) {
	return storage.NewPool(storage.PoolOptions{BudgetBytes: 64 << 20})
}

// run runs b until the end of the test.
func run(t testing.TB, b *Backend) {
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	wg.Go(func() { b.Run(ctx) })
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		cancel()
		wg.Wait()
	})
}

func newStd(t testing.TB, dir string, k Knobs) storage.Backend {
	t.Helper()
	b, err := std.New(std.Options{
		Root: dir, Direct: k.Direct, DirectThreshold: k.DirectThreshold, Reclaim: k.Reclaim, ReclaimThreshold: k.ReclaimFrom,
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// await waits until the status is as wanted.
func (r *rig) await(t testing.TB, what string, want func(Status) bool) Status {
	t.Helper()
	var s Status
	poll(t, func() bool {
		s = r.Status()
		return want(s)
	}, func() string { return fmt.Sprintf("no %s: %+v\n%s", what, s, r.log) })
	return s
}

// poll asks until it is told yes, for 20 s.
func poll(t testing.TB, done func() bool, why func() string) {
	t.Helper()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatal(why())
		}
	}
}

// switchTo changes knobs and has the Backend look at them.
func (r *rig) switchTo(f func(k Knobs)) {
	f(r.knobs)
	r.knobs.Changed()
}

// put makes a file that is not in the page cache as dirty pages.
func (r *rig) put(t testing.TB, name string, content []byte) {
	t.Helper()
	f, err := os.Create(filepath.Join(r.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(content)
	for _, err := range []error{err, f.Sync(), f.Close()} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (r *rig) open(t testing.TB, name string) storage.RawFile {
	t.Helper()
	return openOn(t, r.Backend, name)
}

func openOn(t testing.TB, b storage.Backend, name string) storage.RawFile {
	t.Helper()
	f, err := b.Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	raw, ok := f.(storage.RawFile)
	if !ok {
		t.Fatalf("%T is no RawFile", f)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return raw
}

// read reads a range through buffers of at most piece bytes.
func (r *rig) read(ctx context.Context, f storage.File, off int64, size, piece int) (got []byte, n int, err error) {
	var bufs []*storage.Buf
	defer func() {
		for _, b := range bufs {
			b.Release()
		}
	}()
	for left := size; left > 0 || len(bufs) == 0; {
		b, err := r.pool.Get(min(left, piece))
		if err != nil {
			return nil, 0, err
		}
		bufs = append(bufs, b)
		left -= min(left, piece)
	}
	n, err = storage.ReadFull(ctx, f, bufs, off)
	left := n
	for _, b := range bufs {
		p := b.Bytes()
		got = append(got, p[:min(left, len(p))]...)
		left -= min(left, len(p))
	}
	return got, n, err
}

// want reads a range and compares it with what it should be.
func (r *rig) want(t testing.TB, f storage.File, content []byte, off, size int) {
	t.Helper()
	got, _, err := r.read(t.Context(), f, int64(off), size, 1<<20)
	if err != nil {
		t.Fatalf("%d bytes from %d: %v", size, off, err)
	}
	if want := content[min(off, len(content)):min(off+size, len(content))]; !bytes.Equal(got, want) {
		t.Fatalf("%d bytes from %d: %d bytes that are not the %d wanted", size, off, len(got), len(want))
	}
}

// settle waits until all shadow reads were made.
func (r *rig) settle(t testing.TB) ShadowStats {
	t.Helper()
	r.await(t, "end of shadow reads", func(Status) bool { return r.shadow.open.Load() == 0 })
	return r.Status().Shadow
}

// latch returns the latch of a kind.
func (s Status) latch(kind string) Latch {
	for _, l := range s.Latches {
		if l.Kind == kind {
			return l
		}
	}
	return Latch{}
}

// pattern is content in which no two blocks are alike.
func pattern(n int) []byte {
	p := make([]byte, n)
	x := uint64(88172645463325252)
	for i := range p {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		p[i] = byte(x >> 3)
	}
	return p
}

// logs is a log that can be searched.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logs) count(what string) int { return bytes.Count([]byte(l.String()), []byte(what)) }
