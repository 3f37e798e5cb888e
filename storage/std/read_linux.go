package std

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"ringfence/storage"
)

// iovMax is the kernel's limit of buffers in one call.
const iovMax = 1024

// A processor invites the scheduler after yieldBytes that it served inline, or
// yieldReads reads if these are longer. Without, goroutines that only ever hit
// the page cache run whole time slices of 10 ms, and one read in a few hundred
// waits for several of them: the slice is a hundredth of that now. More often,
// and too many buffers rotate through the processor's cache. Reads below
// yieldFrom don't count: thousands of them fit a slice, so that an invitation
// would only make more of them wait.
const (
	yieldBytes = 1 << 20
	yieldReads = 2
	yieldFrom  = 32 << 10
)

// vec is a position in a list of buffers. The list is kept from call to call.
type vec struct {
	iovs []unix.Iovec // what is left to fill
	all  []unix.Iovec // the backing array
	left int          // bytes

	// A vec stays with a processor for as long as the runtime can keep it
	// there, so that these need not be shared.
	served int    // bytes since the last invitation
	lane   uint32 // of counters
}

var (
	vecs  = sync.Pool{New: func() any { return &vec{lane: lanes.Add(1) % laneCount} }}
	lanes atomic.Uint32 // lanes given out; which one is whose doesn't matter
)

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
	if err := ctx.Err(); err != nil {
		return 0, f.backend.wrap(op, f.name, err)
	}
	b, v := f.backend, vecOf(bufs)
	if err := f.join(v.lane); err != nil {
		v.free()
		return 0, b.wrap(op, f.name, err)
	}
	r := blockingRead{file: f, vec: v, lane: v.lane, off: off, reclaim: b.reclaimFrom(), direct: b.wantsDirect(v.left)}
	if !r.direct && f.attempts(v) {
		n, done, err := f.readInline(ctx, v, off)
		if done || ctx.Err() == nil { // who left before his turn has seen nothing
			f.hits.Observe(done && b.nowait.Load())
		}
		if done {
			return f.inlineDone(v, off, n, r.reclaim, err)
		}
		r.prefix = n
	}
	n, err := r.start(ctx, bufs)
	return n, b.wrap(op, f.name, err)
}

// inlineDone ends a read that needed no more than the attempt.
func (f *file) inlineDone(v *vec, off int64, n int, reclaim int64, err error) (int, error) {
	if err == nil {
		f.drop(off, n, reclaim)
	}
	if left := f.leave(v.lane); err == nil {
		err = left
	}
	if err != nil {
		v.free()
		return n, f.Wrap(err)
	}
	f.backend.servedInline(v, n)
	return n, nil
}

// attempts decides whether to try a read without waiting first. Where that
// failed time and again it is left out; unless all slots are taken, for then
// it has the kernel begin what would otherwise wait for a slot.
func (f *file) attempts(v *vec) bool {
	b := f.backend
	return v.left == 0 || (b.nowait.Load() && (!f.hits.Skip() || len(b.slots) == cap(b.slots)))
}

// reclaimFrom is how many bytes a read has to give to be dropped from the page
// cache, negative for never. It is asked once per read.
func (b *Backend) reclaimFrom() int64 {
	if !b.opts.Reclaim.Load() {
		return -1
	}
	return b.opts.ReclaimThreshold.Load()
}

// drop takes a read of n bytes out of the page cache if it was large enough.
func (f *file) drop(off int64, n int, threshold int64) {
	if start, length, ok := storage.ReclaimRange(off, n, threshold); ok {
		// It is advice.
		_ = unix.Fadvise(f.fd, start, length, unix.FADV_DONTNEED)
	}
}

// servedInline counts a read of n bytes that was made with v, which it frees.
func (b *Backend) servedInline(v *vec, n int) {
	b.reads.inline[v.lane].Add(1)
	if n >= yieldFrom {
		v.served += n
	}
	yield := v.served >= max(yieldBytes, yieldReads*n)
	if yield {
		v.served = 0
	}
	v.free() // the next one here goes on with it
	if yield {
		runtime.Gosched()
	}
}

// readInline reads what is in the page cache. done says that nothing is left
// for the pool: v is full, the file ended, or the read failed.
func (f *file) readInline(ctx context.Context, v *vec, off int64) (n int, done bool, err error) {
	if v.left >= yieldFrom {
		if !f.backend.copies.take(ctx) {
			return 0, false, nil
		}
		defer f.backend.copies.give()
	}
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
	file    *file
	vec     *vec   // what is left to fill
	lane    uint32 // where it is a user of the file
	bufs    []*storage.Buf
	off     int64 // of the whole read
	prefix  int   // bytes that were read already
	direct  bool  // try O_DIRECT first; then there is no prefix
	reclaim int64 // threshold in bytes, negative for never
	done    chan struct{}
	n       int // bytes read, the prefix not counted
	err     error
}

// start fills r.vec by blocking calls, or leaves when ctx ends; then the prefix
// is all that is reported. It takes over r.vec and the caller's reference to
// the descriptor, and does not change r, which may lie on the caller's stack.
func (r blockingRead) start(ctx context.Context, bufs []*storage.Buf) (int, error) {
	slots := r.file.backend.slots
	select {
	case slots <- struct{}{}:
		if ctx.Err() == nil {
			break
		}
		<-slots
		return r.giveUp(ctx)
	case <-ctx.Done():
		return r.giveUp(ctx)
	}
	task := new(blockingRead)
	*task = r
	task.bufs, task.done = append([]*storage.Buf(nil), bufs...), make(chan struct{})
	for _, b := range task.bufs {
		b.Retain()
	}
	// The goroutine's owner is the Backend: Close waits for its slot.
	go task.run()
	select {
	case <-task.done:
		return task.prefix + task.n, task.err
	case <-ctx.Done():
		return r.prefix, ctx.Err()
	}
}

// giveUp ends a read that never ran.
func (r blockingRead) giveUp(ctx context.Context) (int, error) {
	r.vec.free()
	return r.prefix, errors.Join(ctx.Err(), r.file.leave(r.lane))
}

func (r *blockingRead) run() {
	b := r.file.backend
	if r.direct && r.readDirect() {
		b.reads.direct.Add(1)
	} else {
		b.reads.pool.Add(1)
		r.readBuffered()
		r.file.drop(r.off, r.prefix+r.n, r.reclaim)
	}
	r.vec.free()
	for _, b := range r.bufs {
		b.Release()
	}
	if err := r.file.leave(r.lane); r.err == nil {
		r.err = err
	}
	close(r.done)
	<-b.slots
}

func (r *blockingRead) readBuffered() {
	for r.vec.left > 0 {
		n, err := r.file.backend.readBlocking(r.file.fd, r.vec.next(), r.off+int64(r.prefix+r.n))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			r.err = err
			return
		}
		r.n += n
		r.vec.advance(n)
	}
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
