package ring

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ladder is what New asks for, best first. Every kernel that may be used knows
// CQSIZE.
var ladder = [...]uint32{
	SetupSingleIssuer | SetupDeferTaskrun | SetupSubmitAll, // 6.1
	SetupSingleIssuer | SetupCoopTaskrun | SetupSubmitAll,  // 6.0
	SetupCoopTaskrun | SetupSubmitAll,                      // 5.19
	0,
}

// New sets a ring up in the kernel. It is a Setup. The calling goroutine must
// be locked to its thread for as long as it uses the ring. ErrEntries, which is
// no system call's error, for a wrong number of entries.
func New(o Options) (Ring, error) { return open(realKernel(), o) }

func open(k *kernel, o Options) (Ring, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	fd, p, errno := setup(k, uint32(o.Entries))
	if errno != 0 {
		return nil, errno
	}
	r := &uring{k: k, info: Info{
		FD: fd, SQEntries: int(p.sqEntries), CQEntries: int(p.cqEntries), Features: p.features, Setup: p.flags,
	}}
	if p.features&FeatNoDrop == 0 || p.features&FeatExtArg == 0 {
		return nil, r.abandon(unix.ENOSYS)
	}
	if err := r.mapQueues(&p); err != nil {
		return nil, r.abandon(err)
	}
	r.capWorkers(uint32(o.Workers))
	return r, nil
}

// abandon closes a ring that can't be used. Where that works, the error stays
// the bare one of the kernel.
func (r *uring) abandon(err error) error {
	if errClose := r.Close(); errClose != nil {
		return errors.Join(err, errClose)
	}
	return err
}

func setup(k *kernel, entries uint32) (fd int, p params, errno unix.Errno) {
	for _, flags := range ladder {
		p = params{flags: flags | SetupCQSize, cqEntries: 2 * entries}
		fd, errno = k.setup(entries, &p)
		if errno != unix.EINVAL {
			break
		}
	}
	return fd, p, errno
}

// mapping is an area of the ring that the kernel shares.
type mapping struct {
	mem  unsafe.Pointer
	size uintptr
}

// mapQueues maps the two queues, which share one area since Linux 5.4, and the
// entries. What it mapped when it fails, Close unmaps.
func (r *uring) mapQueues(p *params) error {
	sqSize := uintptr(p.sq.array) + uintptr(p.sqEntries)*unsafe.Sizeof(uint32(0))
	cqSize := uintptr(p.cq.cqes) + uintptr(p.cqEntries)*unsafe.Sizeof(CQE{})
	if p.features&FeatSingleMmap != 0 {
		sqSize = max(sqSize, cqSize)
	}
	sq, err := r.mmap(offSQRing, sqSize)
	if err != nil {
		return err
	}
	cq := sq
	if p.features&FeatSingleMmap == 0 {
		if cq, err = r.mmap(offCQRing, cqSize); err != nil {
			return err
		}
	}
	entries, err := r.mmap(offSQEs, uintptr(p.sqEntries)*unsafe.Sizeof(SQE{}))
	if err != nil {
		return err
	}
	r.sq = submission{
		head: (*uint32)(unsafe.Add(sq, p.sq.head)), tail: (*uint32)(unsafe.Add(sq, p.sq.tail)),
		flags:   (*uint32)(unsafe.Add(sq, p.sq.flags)),
		entries: unsafe.Slice((*SQE)(entries), p.sqEntries),
		mask:    *(*uint32)(unsafe.Add(sq, p.sq.mask)),
	}
	r.cq = completion{
		head: (*uint32)(unsafe.Add(cq, p.cq.head)), tail: (*uint32)(unsafe.Add(cq, p.cq.tail)),
		overflow: (*uint32)(unsafe.Add(cq, p.cq.overflow)),
		entries:  unsafe.Slice((*CQE)(unsafe.Add(cq, p.cq.cqes)), p.cqEntries),
		mask:     *(*uint32)(unsafe.Add(cq, p.cq.mask)),
	}
	// The queue is a queue of indices: entry i is always submitted as number i.
	for i := range p.sqEntries {
		unsafe.Slice((*uint32)(unsafe.Add(sq, p.sq.array)), p.sqEntries)[i] = i
	}
	return nil
}

func (r *uring) mmap(off int64, size uintptr) (unsafe.Pointer, error) {
	mem, err := r.k.mmap(r.info.FD, off, size)
	if err != nil {
		return nil, err
	}
	r.maps = append(r.maps, mapping{mem, size})
	return mem, nil
}

// capWorkers bounds the kernel's threads for blocking work: its own bound grows
// with the cores, for every ring anew. Kernels before 5.15 don't have the call,
// and a ring works as well without it.
func (r *uring) capWorkers(n uint32) {
	r.workers = [2]uint32{n, 0} // bounded work; unbounded stays as it is
	_ = r.k.register(r.info.FD, registerIOWQMaxWorkers, unsafe.Pointer(&r.workers), uint32(len(r.workers)))
}
