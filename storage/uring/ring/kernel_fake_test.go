//go:build linux

package ring

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// fakeKernel knows some set-up flags and features, lays queues out either way,
// and answers every entry with its length.
type fakeKernel struct {
	t        *testing.T
	known    uint32
	features uint32
	errnos   map[int]unix.Errno // of set-ups, by their number from 1
	failMap  int64              // offset that can't be mapped, or -1
	enterErr unix.Errno
	regErr   func(op uint32, arg unsafe.Pointer) unix.Errno
	closeErr error

	p        params
	setups   []uint32
	areas    map[int64][]byte
	unmapped int
	closed   int
	enters   []fakeEnter
	regs     []fakeRegister
}

type fakeEnter struct {
	submit, wait, flags uint32
	sec, nsec           int64
}

type fakeRegister struct{ op, n uint32 }

const (
	fakeFD    = 1 << 20
	allKnown  = SetupCQSize | SetupSubmitAll | SetupCoopTaskrun | SetupSingleIssuer | SetupDeferTaskrun
	allNeeded = FeatNoDrop | FeatExtArg
)

func newFake(t *testing.T) *fakeKernel {
	return &fakeKernel{t: t, known: allKnown, features: allNeeded | FeatSingleMmap, failMap: -1, areas: map[int64][]byte{}}
}

func (f *fakeKernel) kernel() *kernel {
	return &kernel{setup: f.setup, enter: f.enter, register: f.register, mmap: f.mmap, munmap: f.munmap, close: f.close}
}

func (f *fakeKernel) setup(entries uint32, p *params) (int, unix.Errno) {
	f.setups = append(f.setups, p.flags)
	if errno := f.errnos[len(f.setups)]; errno != 0 {
		return -1, errno
	}
	if p.flags&^f.known != 0 {
		return -1, unix.EINVAL
	}
	if p.cqEntries != 2*entries || p.flags&SetupCQSize == 0 {
		f.t.Errorf("%d entries, %d completions, flags %x", entries, p.cqEntries, p.flags)
	}
	p.sqEntries, p.features = entries, f.features
	p.sq = sqOffsets{head: 0, tail: 4, mask: 8, entries: 12, flags: 16, dropped: 20, array: 64}
	p.cq = cqOffsets{head: 24, tail: 28, mask: 32, entries: 36, overflow: 40, cqes: 64}
	if f.features&FeatSingleMmap != 0 {
		p.sq.array = p.cq.cqes + 16*p.cqEntries
	}
	f.p = *p
	return fakeFD, 0
}

func (f *fakeKernel) mmap(fd int, off int64, size uintptr) (unsafe.Pointer, error) {
	if fd != fakeFD {
		f.t.Errorf("map of descriptor %d", fd)
	}
	if off == f.failMap {
		return nil, unix.ENOMEM
	}
	p, err := unix.MmapPtr(-1, 0, nil, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, err
	}
	f.areas[off] = unsafe.Slice((*byte)(p), size)
	switch off {
	case offSQRing:
		*f.word(f.areas[off], f.p.sq.mask) = f.p.sqEntries - 1
		if f.features&FeatSingleMmap != 0 {
			*f.word(f.areas[off], f.p.cq.mask) = f.p.cqEntries - 1
		}
	case offCQRing:
		*f.word(f.areas[off], f.p.cq.mask) = f.p.cqEntries - 1
	}
	return p, nil
}

func (f *fakeKernel) munmap(p unsafe.Pointer, size uintptr) error {
	f.unmapped++
	return unix.MunmapPtr(p, size)
}

func (f *fakeKernel) close(fd int) error {
	f.closed++
	if fd != fakeFD || f.unmapped != len(f.areas) {
		f.t.Errorf("close of %d with %d of %d areas unmapped", fd, f.unmapped, len(f.areas))
	}
	return f.closeErr
}

func (f *fakeKernel) word(area []byte, off uint32) *uint32 {
	return (*uint32)(unsafe.Pointer(&area[off]))
}

func (f *fakeKernel) enter(fd int, submit, wait, flags uint32, arg unsafe.Pointer, size uintptr) (int, unix.Errno) {
	e := fakeEnter{submit: submit, wait: wait, flags: flags}
	if flags&enterExtArg != 0 {
		a := (*waitArg)(arg)
		if size != 24 || a.sigmask != 0 {
			f.t.Errorf("argument of %d bytes: %+v", size, *a)
		}
		at := uintptr(a.timeout)
		ts := *(**timespec)(unsafe.Pointer(&at))
		e.sec, e.nsec = ts.sec, ts.nsec
	}
	f.enters = append(f.enters, e)
	if fd != fakeFD {
		return -1, unix.EBADF
	}
	if f.enterErr != 0 {
		return -1, f.enterErr
	}
	sq, cq := f.areas[offSQRing], f.areas[offSQRing]
	if f.features&FeatSingleMmap == 0 {
		cq = f.areas[offCQRing]
	}
	for range submit {
		head := f.word(sq, f.p.sq.head)
		index := *f.word(sq, f.p.sq.array+4*(*head&(f.p.sqEntries-1)))
		s := (*SQE)(unsafe.Pointer(&f.areas[offSQEs][64*index]))
		tail := f.word(cq, f.p.cq.tail)
		*(*CQE)(unsafe.Pointer(&cq[f.p.cq.cqes+16*(*tail&(f.p.cqEntries-1))])) = CQE{UserData: s.UserData, Res: int32(s.Len)}
		*head++
		*tail++
	}
	return int(submit), 0
}

func (f *fakeKernel) register(fd int, op uint32, arg unsafe.Pointer, n uint32) unix.Errno {
	f.regs = append(f.regs, fakeRegister{op, n})
	if fd != fakeFD {
		f.t.Errorf("register of descriptor %d", fd)
	}
	if f.regErr != nil {
		return f.regErr(op, arg)
	}
	return 0
}
