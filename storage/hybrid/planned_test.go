package hybrid

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"ringfence/storage"
	"ringfence/storage/uring"
)

// attempt is the call-th attempt, from 1, to read from what a test says is the
// page cache.
type attempt func(call int64, f storage.RawFile, bufs []*storage.Buf, off int64) (n int, done, planned bool)

// planned is a reference whose inline attempts go as a test has planned, or as
// they would if it did not.
type planned struct {
	storage.Backend
	attempt attempt
}

func (p planned) Open(ctx context.Context, name string) (storage.File, error) {
	f, err := p.Backend.Open(ctx, name)
	return p.file(f), err
}

func (p planned) Create(ctx context.Context, name string, sizeHint int64) (storage.File, error) {
	f, err := p.Backend.Create(ctx, name, sizeHint)
	return p.file(f), err
}

func (p planned) file(f storage.File) storage.File {
	raw, ok := f.(storage.RawFile)
	if !ok {
		return f
	}
	return &plannedFile{RawFile: raw, attempt: p.attempt}
}

type plannedFile struct {
	storage.RawFile
	attempt attempt
	calls   atomic.Int64
}

func (f *plannedFile) ReadInline(ctx context.Context, bufs []*storage.Buf, off int64) (int, bool, error) {
	if n, done, planned := f.attempt(f.calls.Add(1), f.RawFile, bufs, off); planned {
		return n, done, nil
	}
	return f.RawFile.ReadInline(ctx, bufs, off)
}

// allMiss finds nothing in the page cache, ever.
func allMiss(int64, storage.RawFile, []*storage.Buf, int64) (int, bool, bool) { return 0, false, true }

// firstFinds finds no more than n bytes at every other attempt, from the first
// on. It must not find everything.
func firstFinds(t testing.TB, n int) attempt {
	return func(call int64, f storage.RawFile, bufs []*storage.Buf, off int64) (int, bool, bool) {
		if call%2 == 0 {
			return 0, false, false
		}
		d := f.Descriptor()
		if err := d.Acquire(); err != nil {
			t.Error(err)
			return 0, false, true
		}
		left := n
		for _, b := range bufs {
			p := b.Bytes()
			p = p[:min(left, len(p))]
			if _, err := fdReader(d.FD()).ReadAt(p, off+int64(n-left)); err != nil {
				t.Error(err)
			}
			left -= len(p)
		}
		if err := d.Release(); err != nil {
			t.Error(err)
		}
		return n, false, true
	}
}

// asked is a read that a driver was asked for.
type asked struct {
	off    int64
	length int
	direct bool
}

// notes are what drivers were asked for, which are real ones.
type notes struct {
	mu   sync.Mutex
	list []asked // protected by mu
}

type noting struct {
	driver
	notes *notes
}

func (n *notes) start(ctx context.Context, o uring.Options) (driver, error) {
	d, err := startRings(ctx, o)
	if err != nil {
		return nil, err
	}
	return noting{d, n}, nil
}

func (d noting) Read(ctx context.Context, r uring.Request) (int, error) {
	d.notes.mu.Lock()
	d.notes.list = append(d.notes.list, asked{r.Off, size(r.Bufs), r.Align > 0})
	d.notes.mu.Unlock()
	return d.driver.Read(ctx, r)
}

// take gives what was asked for since the last time.
func (n *notes) take() []asked {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := n.list
	n.list = nil
	return list
}

func (n *notes) want(t testing.TB, want ...asked) {
	t.Helper()
	if got := n.take(); !slices.Equal(got, want) {
		t.Errorf("rings were asked for %+v, want %+v", got, want)
	}
}

// needNowait skips a test where the page cache can't be asked.
func (r *rig) needNowait(t testing.TB) {
	t.Helper()
	r.put(t, "hot", pattern(4096))
	bufs, free := r.bufs(t, 1, 4096)
	defer free()
	if n, done, err := openOn(t, r.std, "hot").ReadInline(t.Context(), bufs, 0); n != 4096 || !done || err != nil {
		t.Skipf("SKIP %s: no RWF_NOWAIT here: %d bytes, %v", t.Name(), n, err)
	}
}

// needDrops skips a test where nothing leaves the page cache: a file system in
// memory has no other place for it.
func (r *rig) needDrops(t testing.TB) {
	t.Helper()
	r.put(t, "dropped", pattern(1<<20))
	evict(t, r.dir, "dropped")
	if share := resident(t, r.dir, "dropped"); share > 0.5 {
		t.Skipf("SKIP %s: the file system keeps %.0f%% of what it is told to drop", t.Name(), 100*share)
	}
}
