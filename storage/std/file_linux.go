package std

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"ringfence/storage"
)

// file is an open regular file.
type file struct {
	handle
	backend *Backend
	name    string
	second  atomic.Pointer[handle] // with O_DIRECT, from the first need on
	hits    storage.Predictor

	write sync.RWMutex // held for reading by writes, for writing by trim
	// syncing is held during a Sync and protects the fields below. The kernel
	// reports lost data to one caller only: another must not take its silence
	// for success.
	syncing  sync.Mutex
	reserved int64 // bytes preallocated and not yet trimmed
	syncErr  error // of the sync that failed; there is no second try
}

var (
	_ storage.File         = (*file)(nil)
	_ storage.VectorReader = (*file)(nil)
)

func (b *Backend) file(fd int, name string) *file {
	f := &file{backend: b, name: name, hits: storage.Predictor{Wider: &b.hits}}
	f.init(fd)
	return f
}

// begin admits a call that uses the descriptor; finish ends it.
func (f *file) begin(ctx context.Context, op string) error {
	if err := ctx.Err(); err != nil {
		return f.backend.wrap(op, f.name, err)
	}
	return f.backend.wrap(op, f.name, f.Acquire())
}

// finish releases the descriptor and adds what closing it said, if this was
// the last use.
func (f *file) finish(op string, err error) error {
	if closed := f.Release(); err == nil {
		err = closed
	}
	return f.backend.wrap(op, f.name, err)
}

// WriteAt implements storage.File.
func (f *file) WriteAt(ctx context.Context, p []byte, off int64) error {
	const op = "write"
	if err := f.begin(ctx, op); err != nil {
		return err
	}
	f.write.RLock()
	defer f.write.RUnlock()
	for len(p) > 0 {
		var n int
		err := retry(func() (err error) {
			n, err = unix.Pwrite(f.fd, p, off)
			return err
		})
		if err == nil && n == 0 {
			err = io.ErrShortWrite
		}
		if err != nil {
			return f.finish(op, err)
		}
		p, off = p[n:], off+int64(n)
	}
	return f.finish(op, nil)
}

// Sync implements storage.File.
func (f *file) Sync(ctx context.Context) error {
	const op = "sync"
	if err := f.begin(ctx, op); err != nil {
		return err
	}
	f.syncing.Lock()
	defer f.syncing.Unlock()
	if f.syncErr != nil {
		return f.finish(op, fmt.Errorf("an earlier sync failed: %w", f.syncErr))
	}
	if err := f.trim(); err != nil {
		return f.finish(op, err)
	}
	f.syncErr = syncFailed(retry(func() error { return f.backend.syncFile(f.fd) }))
	return f.finish(op, f.syncErr)
}

// trim gives back what was preallocated past the end.
func (f *file) trim() error {
	if f.reserved == 0 {
		return nil
	}
	f.write.Lock()
	defer f.write.Unlock()
	var st unix.Stat_t
	if err := unix.Fstat(f.fd, &st); err != nil {
		return err
	}
	if st.Size < f.reserved {
		if err := retry(func() error { return unix.Ftruncate(f.fd, st.Size) }); err != nil {
			return err
		}
	}
	f.reserved = 0
	return nil
}

// Size implements storage.File.
func (f *file) Size() (int64, error) {
	const op = "size"
	if err := f.Acquire(); err != nil {
		return 0, f.backend.wrap(op, f.name, err)
	}
	var st unix.Stat_t
	err := unix.Fstat(f.fd, &st)
	return st.Size, f.finish(op, err)
}

// Close implements storage.File. Reads that were abandoned keep their
// descriptor until they are over.
func (f *file) Close() error {
	err := f.close()
	if second := f.second.Load(); second != nil && !errors.Is(err, os.ErrClosed) {
		// It may be closed already, by whoever opened it too late.
		if late := second.close(); !errors.Is(late, os.ErrClosed) {
			err = errors.Join(err, late)
		}
	}
	return f.backend.wrap("close", f.name, err)
}
