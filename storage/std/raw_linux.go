package std

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"ringfence/storage"
)

var _ storage.RawFile = (*file)(nil)

// Descriptor implements storage.RawFile.
func (f *file) Descriptor() storage.Descriptor { return &f.handle }

// Wrap implements storage.RawFile.
func (f *file) Wrap(err error) error { return f.backend.wrap("read", f.name, err) }

// ReadInline implements storage.RawFile.
func (f *file) ReadInline(ctx context.Context, bufs []*storage.Buf, off int64) (n int, done bool, err error) {
	if off < 0 {
		return 0, true, f.Wrap(offsetError(off))
	}
	v := vecOf(bufs)
	if err := f.join(v.lane); err != nil {
		v.free()
		return 0, true, f.Wrap(err)
	}
	n, done, err = f.readInline(ctx, v, off)
	if left := f.leave(v.lane); err == nil {
		err = left
	}
	if done && err == nil {
		f.backend.servedInline(v, n)
		return n, true, nil
	}
	v.free()
	return n, done || err != nil, f.Wrap(err)
}

func offsetError(off int64) error { return fmt.Errorf("offset %d", off) }

// alignFallback is the alignment of O_DIRECT where the kernel doesn't say: no
// device wants more, and no file of ours has less.
const alignFallback = storage.BlockAlign

// directSupport is what is known of O_DIRECT on a disk. Each latch is set once
// and stays.
type directSupport struct {
	refused atomic.Bool  // files can't be opened with it
	failed  atomic.Bool  // reads of our own were refused: only these avoid it then
	align   atomic.Int64 // bytes; 0 while unknown
}

// Direct implements storage.RawFile.
func (f *file) Direct() (storage.Descriptor, int, error) {
	h, align, err := f.openDirect()
	if err != nil {
		return nil, 0, f.backend.wrap("open direct", f.name, err)
	}
	return h, align, nil
}

// openDirect takes no lock: of several first callers each opens, and all but
// one close what they opened.
func (f *file) openDirect() (*handle, int, error) {
	support := &f.backend.direct
	if h := f.second.Load(); h != nil {
		return h, int(support.align.Load()), nil
	}
	if support.refused.Load() {
		return nil, 0, storage.ErrUnsupported
	}
	if err := f.Acquire(); err != nil {
		return nil, 0, err
	}
	fd, err := f.reopen(unix.O_DIRECT)
	if refusesDirect(err) {
		support.refused.Store(true)
		err = errors.Join(storage.ErrUnsupported, err)
	}
	if err == nil && support.align.Load() == 0 {
		support.align.Store(int64(alignOf(fd)))
	}
	if released := f.Release(); err == nil && released != nil {
		err = errors.Join(released, unix.Close(fd))
	}
	if err != nil {
		return nil, 0, err
	}
	h := new(handle)
	h.init(fd)
	if !f.second.CompareAndSwap(nil, h) {
		if err := h.close(); err != nil {
			return nil, 0, err
		}
		h = f.second.Load()
	} else if f.closed.Load() {
		// Close may have looked before h was there. If it did not, h is closed
		// already, and again does no harm.
		_ = h.close()
		return nil, 0, os.ErrClosed
	}
	return h, int(support.align.Load()), nil
}

// refusesDirect reports whether the file system said that it has no O_DIRECT,
// or not for such a read.
func refusesDirect(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP)
}

// reopen opens the file again for reading: another descriptor on the same
// inode, with more flags. Flags of a descriptor in use are never changed: that
// would change the reads that run.
func (f *file) reopen(flags int) (int, error) {
	flags |= unix.O_RDONLY | unix.O_NONBLOCK
	var want unix.Stat_t
	if err := unix.Fstat(f.fd, &want); err != nil {
		return -1, err
	}
	// By way of the descriptor, for the name may be another file's by now.
	fd, err := f.backend.calls.reopen(f.fd, flags)
	if err != nil {
		if refusesDirect(err) {
			return -1, err
		}
		// No /proc: then by name, if it still is this file's.
		if fd, err = f.reopenByName(flags); err != nil {
			return -1, err
		}
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && (st.Dev != want.Dev || st.Ino != want.Ino) {
		err = errors.New("the name is another file's now")
	}
	if err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// reopen opens what a descriptor of this process stands for.
func reopen(fd, flags int) (opened int, err error) {
	err = retry(func() (err error) {
		opened, err = unix.Open("/proc/self/fd/"+strconv.Itoa(fd), flags|unix.O_CLOEXEC, 0)
		return err
	})
	return opened, err
}

func (f *file) reopenByName(flags int) (int, error) {
	b := f.backend
	if err := b.root.Acquire(); err != nil {
		return -1, err
	}
	defer b.leave()
	return b.open(f.name, flags, 0)
}

// alignOf is the alignment that O_DIRECT on the descriptor needs.
func alignOf(fd int) int {
	var st unix.Statx_t
	err := retry(func() error {
		return unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &st)
	})
	if err != nil || st.Mask&unix.STATX_DIOALIGN == 0 {
		return alignFallback
	}
	return alignFrom(st.Dio_mem_align, st.Dio_offset_align)
}

// alignFrom combines what the kernel said of memory and of offsets. What makes
// no sense counts as nothing said.
func alignFrom(mem, offset uint32) int {
	const low = 512 // no device has smaller sectors
	if align := max(mem, offset); align >= low && bits.OnesCount32(align) == 1 {
		return int(align)
	}
	return alignFallback
}
