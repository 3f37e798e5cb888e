package std

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"ringfence/storage"
)

// iovMax is the kernel's limit of buffers in one call.
const iovMax = 1024

// yieldBytes is how much a disk serves inline between two invitations to the
// scheduler. Without them goroutines that only ever hit the page cache run
// whole time slices, and the tail of everybody else grows to seconds; with one
// per read, too many buffers rotate through the processor's cache.
const yieldBytes = 1 << 20

// vec is a position in a list of buffers. The list is kept from call to call.
type vec struct {
	iovs []unix.Iovec // what is left to fill
	all  []unix.Iovec // the backing array
	left int          // bytes
}

var vecs = sync.Pool{New: func() any { return new(vec) }}

func vecOf(bufs []*storage.Buf) *vec {
	v, _ := vecs.Get().(*vec)
	for _, b := range bufs {
		v.add(b.Bytes())
	}
	return v
}

func (v *vec) add(p []byte) {
	if len(p) == 0 {
		return
	}
	iov := unix.Iovec{Base: unsafe.SliceData(p)}
	iov.SetLen(len(p))
	v.all = append(v.all, iov)
	v.iovs = v.all
	v.left += len(p)
}

// advance skips n bytes that were filled.
func (v *vec) advance(n int) {
	v.left -= n
	for n > 0 {
		first := &v.iovs[0]
		size := int(first.Len)
		if n < size {
			first.Base = (*byte)(unsafe.Add(unsafe.Pointer(first.Base), n))
			first.SetLen(size - n)
			return
		}
		n -= size
		v.iovs = v.iovs[1:]
	}
}

// next is what one call may take.
func (v *vec) next() []unix.Iovec { return v.iovs[:min(len(v.iovs), iovMax)] }

func (v *vec) free() {
	clear(v.all)
	v.all, v.iovs, v.left = v.all[:0], nil, 0
	vecs.Put(v)
}

// ReadAt implements storage.File.
func (f *file) ReadAt(ctx context.Context, b *storage.Buf, off int64) (int, error) {
	one := [1]*storage.Buf{b}
	return f.ReadVec(ctx, one[:], off)
}

// ReadVec implements storage.VectorReader.
func (f *file) ReadVec(ctx context.Context, bufs []*storage.Buf, off int64) (int, error) {
	const op = "read"
	if off < 0 {
		return 0, f.backend.wrap(op, f.name, offsetError(off))
	}
	if err := f.begin(ctx, op); err != nil {
		return 0, err
	}
	v := vecOf(bufs)
	n, done, err := f.readInline(v, off)
	if done {
		v.free()
		if err == nil {
			f.backend.countInline(n)
		}
		return n, f.end(op, err)
	}
	f.backend.pool.Add(1)
	more, err := f.readPool(ctx, v, bufs, off+int64(n))
	return n + more, f.backend.wrap(op, f.name, err)
}

func (b *Backend) countInline(n int) {
	b.inline.Add(1)
	if now := b.served.Add(int64(n)); now/yieldBytes != (now-int64(n))/yieldBytes {
		runtime.Gosched()
	}
}

// readInline reads what is in the page cache. done says that nothing is left
// for the pool: v is full, the file ended, or the read failed.
func (f *file) readInline(v *vec, off int64) (n int, done bool, err error) {
	for v.left > 0 {
		if !f.backend.nowait.Load() {
			return n, false, nil
		}
		got, err := f.backend.readNow(f.fd, v.next(), off+int64(n))
		switch {
		case err == nil && got == 0:
			return n, true, nil
		case err == nil:
			n += got
			v.advance(got)
		case err == unix.EAGAIN:
			return n, false, nil
		case err == unix.EOPNOTSUPP, err == unix.ENOSYS, err == unix.EPERM:
			f.backend.nowait.Store(false)
		case err != unix.EINTR:
			return n, true, err
		}
	}
	return n, true, nil
}

// blockingRead is a read in the pool. It has its own references to what it
// uses; n and err are set before done is closed.
type blockingRead struct {
	file *file
	vec  *vec
	bufs []*storage.Buf
	off  int64
	done chan struct{}
	n    int
	err  error
}

// readPool fills v by blocking calls, or leaves when ctx ends. It takes over v
// and the caller's reference to the descriptor.
func (f *file) readPool(ctx context.Context, v *vec, bufs []*storage.Buf, off int64) (int, error) {
	select {
	case f.backend.slots <- struct{}{}:
	case <-ctx.Done():
		v.free()
		return 0, errors.Join(ctx.Err(), f.Release())
	}
	r := &blockingRead{file: f, vec: v, bufs: append([]*storage.Buf(nil), bufs...), off: off, done: make(chan struct{})}
	for _, b := range r.bufs {
		b.Retain()
	}
	// The goroutine's owner is the Backend: Close waits for its slot.
	go r.run()
	select {
	case <-r.done:
		return r.n, r.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (r *blockingRead) run() {
	for r.vec.left > 0 {
		n, err := r.file.backend.readBlocking(r.file.fd, r.vec.next(), r.off+int64(r.n))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			r.err = err
			break
		}
		r.n += n
		r.vec.advance(n)
	}
	r.vec.free()
	for _, b := range r.bufs {
		b.Release()
	}
	if err := r.file.Release(); r.err == nil {
		r.err = err
	}
	close(r.done)
	<-r.file.backend.slots
}

// preadv blocks.
func preadv(fd int, iovs []unix.Iovec, off int64) (int, error) {
	return call(unix.SYS_PREADV, fd, iovs, off, 0)
}

// preadvNow reads what the page cache holds.
func preadvNow(fd int, iovs []unix.Iovec, off int64) (int, error) {
	return call(unix.SYS_PREADV2, fd, iovs, off, unix.RWF_NOWAIT)
}

// call makes a preadv or preadv2. The error is an Errno or nil. It is Syscall6
// and not RawSyscall6: even a read from the page cache may take milliseconds,
// which a P must not wait for.
func call(nr uintptr, fd int, iovs []unix.Iovec, off int64, flags uintptr) (int, error) {
	// The kernel takes the offset as two longs and, where a long has 64 bits,
	// ignores the second.
	n, _, errno := unix.Syscall6(nr, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(iovs))), uintptr(len(iovs)),
		uintptr(off), uintptr(uint64(off)>>32), flags)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
