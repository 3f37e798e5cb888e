package hybrid

import (
	"context"
	"os"
	"sync"
	"sync/atomic"

	"ringfence/storage"
)

// file is a file of Base whose reads are made by tiers.
type file struct {
	storage.RawFile
	desc    storage.Descriptor
	backend *Backend
	name    string
	written bool // made by Create
	warmth  warmth

	refs   atomic.Int64 // the owner's, and one per shadow read to come
	closed atomic.Bool
}

var (
	_ storage.RawFile      = (*file)(nil)
	_ storage.VectorReader = (*file)(nil)
)

// file wraps what Base opened, or nil.
func (b *Backend) file(f storage.File, name string, written bool) storage.File {
	raw, ok := f.(storage.RawFile)
	if !ok {
		return f
	}
	w := &file{RawFile: raw, desc: raw.Descriptor(), backend: b, name: name, written: written}
	w.warmth.first.Wider = &b.guess
	w.refs.Store(1)
	return w
}

// acquire keeps the file of Base open. It must be paired with release if it
// returns true.
func (f *file) acquire() bool {
	for {
		n := f.refs.Load()
		if n <= 0 || f.closed.Load() {
			return false
		}
		if f.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (f *file) release() error {
	if f.refs.Add(-1) > 0 {
		return nil
	}
	return f.RawFile.Close()
}

// Close implements storage.File. The file of Base stays open until shadow reads
// that are to come have been made.
func (f *file) Close() error {
	switch {
	case !f.closed.Swap(true):
		return f.release()
	case f.lingers():
		return f.Wrap(os.ErrClosed)
	}
	return f.RawFile.Close()
}

// lingers reports whether the file is closed and the one of Base is not: then
// Base won't refuse what must be refused.
func (f *file) lingers() bool { return f.closed.Load() && f.refs.Load() > 0 }

// Size implements storage.File.
func (f *file) Size() (int64, error) {
	if f.lingers() {
		return 0, f.Wrap(os.ErrClosed)
	}
	return f.RawFile.Size()
}

// WriteAt implements storage.File.
func (f *file) WriteAt(ctx context.Context, p []byte, off int64) error {
	if f.lingers() {
		return f.Wrap(os.ErrClosed)
	}
	return f.RawFile.WriteAt(ctx, p, off)
}

// Sync implements storage.File.
func (f *file) Sync(ctx context.Context) error {
	if f.lingers() {
		return f.Wrap(os.ErrClosed)
	}
	return f.RawFile.Sync(ctx)
}

// ReadAt implements storage.File.
func (f *file) ReadAt(ctx context.Context, b *storage.Buf, off int64) (int, error) {
	one, _ := ones.Get().(*[1]*storage.Buf)
	one[0] = b
	n, err := f.ReadVec(ctx, one[:], off)
	one[0] = nil
	ones.Put(one)
	return n, err
}

// ones are lists of one buffer. Neither Base nor a driver keeps a list beyond
// the call: what goes on after it has references to the buffers themselves.
var ones = sync.Pool{New: func() any { return new([1]*storage.Buf) }}

// ReadVec implements storage.VectorReader.
func (f *file) ReadVec(ctx context.Context, bufs []*storage.Buf, off int64) (int, error) {
	b := f.backend
	if f.lingers() {
		return 0, f.Wrap(os.ErrClosed)
	}
	if !b.knobs.Enable.Load() {
		return f.RawFile.ReadVec(ctx, bufs, off)
	}
	s := b.serving.Load()
	if s == nil {
		b.count.without(&b.latches)
		return f.RawFile.ReadVec(ctx, bufs, off)
	}
	return f.read(ctx, s, bufs, off)
}
