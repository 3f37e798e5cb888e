package ringtest

import (
	"math"
	"slices"

	"golang.org/x/sys/unix"

	"ringfence/storage/uring/ring"
)

// simOp is an operation that a simulated ring has taken.
type simOp struct {
	entry
	ring *simRing
	file *SimFile // nil for real descriptors and for what has none
	read bool     // waits for its file and writes to memory

	decided   bool // res is what it will give
	res       int32
	hung      bool
	cancelled bool // somebody tried
}

// issueLocked takes an entry over.
func (r *simRing) issueLocked(e ring.SQE) {
	s := r.s
	s.counts.Submitted++
	op := &simOp{entry: newEntry(e), ring: r}
	for _, other := range r.pending {
		if other.UserData == e.UserData {
			s.wrongLocked("two operations are called %#x: %s and %s", e.UserData, ring.OpName(other.Opcode), ring.OpName(e.Opcode))
		}
	}
	switch e.Opcode {
	case ring.OpNop:
		op.decide(0)
	case ring.OpRead, ring.OpReadFixed:
		op.issueReadLocked()
	case ring.OpAsyncCancel:
		op.issueCancelLocked()
	default:
		op.decide(-int32(unix.EINVAL))
	}
	r.pending = append(r.pending, op)
}

func (op *simOp) decide(res int32) { op.decided, op.res = true, res }

func (op *simOp) fail(errno unix.Errno) { op.decide(-int32(errno)) }

func (op *simOp) issueReadLocked() {
	s := op.ring.s
	op.file = s.files[int(op.FD)]
	switch {
	case op.FD < 0 || op.FD >= simFirstFD && op.file == nil:
		op.fail(unix.EBADF)
		return
	case op.Opcode == ring.OpReadFixed && !op.ring.registeredLocked(op.SQE), op.Addr == 0 && op.Len > 0:
		op.fail(unix.EFAULT)
		return
	}
	if op.file != nil {
		if op.file.refs == 0 {
			s.wrongLocked("a read of descriptor %d, which is closed, was submitted", op.FD)
		}
		if errno := op.file.checkLocked(op.SQE); errno != 0 {
			op.fail(errno)
			return
		}
	}
	op.read = true
	op.checkMemoryLocked()
	if !op.wake && s.chance(s.faults.Hang) {
		op.hung = true
		s.counts.Hung++
	}
}

// checkMemoryLocked looks whether another read in flight has the same memory.
func (op *simOp) checkMemoryLocked() {
	end := op.Addr + uint64(op.Len)
	for _, r := range op.ring.s.rings {
		for _, other := range r.pending {
			if other.read && op.Addr < other.Addr+uint64(other.Len) && other.Addr < end {
				op.ring.s.wrongLocked("two reads share memory: %#x+%d and %#x+%d", op.Addr, op.Len, other.Addr, other.Len)
			}
		}
	}
}

func (r *simRing) registeredLocked(e ring.SQE) bool {
	if int(e.BufIndex) >= len(r.table) {
		return false
	}
	place := r.table[e.BufIndex]
	return place[1] > 0 && e.Addr >= place[0] && e.Addr+uint64(e.Len) <= place[0]+place[1]
}

// issueCancelLocked decides a cancel, and what it cancels, at once; which of
// the two completes first is left to chance.
func (op *simOp) issueCancelLocked() {
	s := op.ring.s
	if op.OpFlags != 0 {
		op.fail(unix.EINVAL)
		return
	}
	i := slices.IndexFunc(op.ring.pending, func(other *simOp) bool { return other.UserData == op.Addr })
	if i < 0 || op.ring.pending[i].decided {
		s.counts.NotFound++
		op.fail(unix.ENOENT)
		return
	}
	target := op.ring.pending[i]
	if target.cancelled {
		s.wrongLocked("operation %#x was cancelled twice", target.UserData)
	}
	target.cancelled = true
	switch {
	case target.hung || s.hangsLocked(target.entry) || s.chance(s.faults.Busy):
		s.counts.Already++
		op.fail(unix.EALREADY)
	case s.chance(s.faults.Late):
		s.counts.NotFound++
		op.fail(unix.ENOENT)
	default:
		s.counts.Cancelled++
		target.fail(unix.ECANCELED)
		op.decide(0)
	}
}

// isReadyLocked says that an operation can complete.
func (op *simOp) isReadyLocked() bool {
	switch {
	case op.hung || op.ring.s.hangsLocked(op.entry):
		return false
	case op.decided || !op.read:
		return true
	case op.file != nil:
		return op.file.readableLocked()
	}
	fds := []unix.PollFd{{Fd: op.FD, Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}

// completeLocked gives an operation's result, and fills its memory now.
func (r *simRing) completeLocked(op *simOp) {
	if op.read {
		op.completeReadLocked()
	}
	r.pending = slices.DeleteFunc(r.pending, func(other *simOp) bool { return other == op })
	r.postLocked(ring.CQE{UserData: op.UserData, Res: op.res})
}

func (op *simOp) completeReadLocked() {
	s := op.ring.s
	if op.file != nil && op.file.refs == 0 {
		s.wrongLocked("descriptor %d was closed under a read", op.FD)
	}
	mem := memory(op.Addr, int(min(op.Len, math.MaxInt32&^4095)))
	if !op.decided && !op.wake {
		switch {
		case s.chance(s.faults.Transient):
			s.counts.Transient++
			op.fail([...]unix.Errno{unix.EINTR, unix.EAGAIN}[s.rng.IntN(2)])
		case s.chance(s.faults.Fail):
			s.counts.Failed++
			op.fail(s.faults.Errno)
		}
	}
	if !op.decided {
		op.decide(op.fillLocked(mem))
	}
	if s.faults.Scribble && !op.wake {
		rest := mem[max(op.res, 0):]
		for i := range rest {
			rest[i] = ScribbleByte
		}
	}
}

// fillLocked reads, as much as chance allows, and gives the result.
func (op *simOp) fillLocked(mem []byte) int32 {
	s := op.ring.s
	if op.file == nil {
		res := op.fillReal(mem)
		if res > 1 && op.Off != ring.CurrentPosition && s.chance(s.faults.Short) {
			s.counts.Short++
			short := 1 + int32(s.rng.IntN(int(res-1)))
			if short > realBlock && !s.chance(s.faults.Ragged) {
				short -= short % realBlock
			}
			return short
		}
		return res
	}
	if n := op.file.availableLocked(op.SQE, len(mem)); n > 1 && s.chance(s.faults.Short) {
		short := 1 + s.rng.IntN(n-1)
		if align := op.file.align; align > 0 && !s.chance(s.faults.Ragged) {
			short -= short % align
		}
		if short > 0 {
			s.counts.Short++
			mem = mem[:short]
		}
	}
	return int32(op.file.readLocked(op.SQE, mem))
}

// realBlock is what short reads of real files are multiples of, as far as they
// are longer: they may be direct.
const realBlock = 512

// fillReal reads from a descriptor of the process, which has something.
func (op *simOp) fillReal(mem []byte) int32 {
	var n int
	var err error
	if op.Off == ring.CurrentPosition {
		n, err = unix.Read(int(op.FD), mem)
	} else if n, err = unix.Pread(int(op.FD), mem, int64(op.Off)); err == unix.ESPIPE {
		n, err = unix.Read(int(op.FD), mem)
	}
	if errno, ok := err.(unix.Errno); ok {
		return -int32(errno)
	}
	return int32(n)
}
