package ring

import (
	"errors"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// uring is a Ring of the kernel.
type uring struct {
	k    *kernel
	info Info
	sq   submission
	cq   completion
	maps []mapping

	backlogs uint32 // Enters that left completions without room
	closed   bool

	// What the kernel reads during one call.
	arg      waitArg
	timeout  timespec
	workers  [2]uint32
	table    rsrcRegister
	update   rsrcUpdate
	iovec    unix.Iovec
	empty    []unix.Iovec
	hasTable bool
}

// submission is the queue whose tail is ours and whose head is the kernel's.
type submission struct {
	head, tail, flags *uint32
	entries           []SQE
	mask              uint32
}

// completion is the queue whose head is ours and whose tail is the kernel's.
type completion struct {
	head, tail, overflow *uint32
	entries              []CQE
	mask                 uint32
}

func (r *uring) Info() Info { return r.info }

func (r *uring) Push(e SQE) bool {
	if r.closed || r.Queued() >= len(r.sq.entries) {
		return false
	}
	tail := *r.sq.tail // ours alone
	r.sq.entries[tail&r.sq.mask] = e
	atomic.StoreUint32(r.sq.tail, tail+1) // publishes the entry
	return true
}

func (r *uring) Queued() int {
	if r.closed {
		return 0
	}
	return int(*r.sq.tail - atomic.LoadUint32(r.sq.head))
}

func (r *uring) Enter(wait int, timeout time.Duration) error {
	if r.closed {
		return unix.EBADF
	}
	// Completions of a DEFER_TASKRUN ring run only in a call that asks for
	// events, and a full completion queue is refilled only there.
	flags := uint32(enterGetEvents)
	var arg unsafe.Pointer
	var size uintptr
	if wait > 0 && timeout >= 0 {
		r.timeout = timespec{sec: int64(timeout / time.Second), nsec: int64(timeout % time.Second)}
		r.arg = waitArg{sigmaskSize: 8, timeout: uint64(uintptr(unsafe.Pointer(&r.timeout)))}
		flags |= enterExtArg
		arg, size = unsafe.Pointer(&r.arg), unsafe.Sizeof(r.arg)
	}
	_, errno := r.k.enter(r.info.FD, uint32(r.Queued()), uint32(max(wait, 0)), flags, arg, size)
	runtime.KeepAlive(r)
	if atomic.LoadUint32(r.sq.flags)&sqCQOverflow != 0 {
		r.backlogs++
	}
	if errno != 0 && errno != unix.ETIME {
		return errno
	}
	return nil
}

func (r *uring) Next() (CQE, bool) {
	if r.closed {
		return CQE{}, false
	}
	head := *r.cq.head                        // ours alone
	if head == atomic.LoadUint32(r.cq.tail) { // the entries before it are written
		return CQE{}, false
	}
	c := r.cq.entries[head&r.cq.mask]
	atomic.StoreUint32(r.cq.head, head+1) // gives the place back
	return c, true
}

func (r *uring) Overflow() uint32 {
	if r.closed {
		return r.backlogs
	}
	return r.backlogs + atomic.LoadUint32(r.cq.overflow)
}

func (r *uring) Close() error {
	if r.closed {
		return nil
	}
	r.backlogs = r.finalOverflow()
	r.closed = true
	var errs error
	for _, m := range r.maps {
		errs = errors.Join(errs, r.k.munmap(m.mem, m.size))
	}
	r.maps, r.sq, r.cq = nil, submission{}, completion{}
	return errors.Join(errs, r.k.close(r.info.FD))
}

func (r *uring) finalOverflow() uint32 {
	if r.cq.overflow == nil { // not mapped yet
		return 0
	}
	return r.Overflow()
}
