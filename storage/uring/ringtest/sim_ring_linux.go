package ringtest

import (
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"ringfence/storage/uring/ring"
)

// simRing is a ring of a Sim. Its fields are protected by the Sim's lock.
type simRing struct {
	s    *Sim
	info ring.Info
	kick int // eventfd; closed with the ring

	queue    []ring.SQE
	pending  []*simOp
	done     []ring.CQE // at most CQEntries
	backlog  []ring.CQE // those that found no room
	overflow uint32
	table    [][2]uint64 // first address and length of registered memory
	closed   bool
}

func (r *simRing) Info() ring.Info { return r.info }

func (r *simRing) Push(e ring.SQE) bool {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if r.closed || len(r.queue) >= r.info.SQEntries {
		return false
	}
	r.queue = append(r.queue, e)
	return true
}

func (r *simRing) Queued() int {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return len(r.queue)
}

func (r *simRing) Enter(wait int, timeout time.Duration) error {
	if err := r.begin(wait); err != nil {
		return err
	}
	for start := time.Now(); ; {
		fds, enough := r.look(wait)
		left := timeout - time.Since(start)
		if enough || timeout >= 0 && left <= 0 {
			return nil
		}
		if r.s.opts.Idle != nil {
			r.s.opts.Idle()
			r.look(wait)
			return nil
		}
		var limit *unix.Timespec
		if timeout >= 0 {
			ts := unix.NsecToTimespec(left.Nanoseconds())
			limit = &ts
		}
		if _, err := unix.Ppoll(fds, limit, nil); err != nil {
			return err
		}
	}
}

// begin is the submitting half of an Enter.
func (r *simRing) begin(wait int) error {
	s := r.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.closed {
		return unix.EBADF
	}
	s.counts.Enters++
	r.flushLocked()
	if len(r.queue) > 0 && s.chance(s.faults.Enter) {
		return [...]unix.Errno{unix.EINTR, unix.EBUSY, unix.EAGAIN}[s.rng.IntN(3)]
	}
	n := len(r.queue)
	if n > 1 && s.chance(s.faults.Partial) {
		n = 1 + s.rng.IntN(n-1)
	}
	taken := slices.Clone(r.queue[:n])
	r.queue = r.queue[:copy(r.queue, r.queue[n:])]
	for _, e := range taken {
		r.issueLocked(e)
	}
	return nil
}

// look completes what can be, unless only steps do. It reports whether there
// are enough completions, and what to wait for if not.
func (r *simRing) look(wait int) (fds []unix.PollFd, enough bool) {
	s := r.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.opts.Manual {
		r.settleLocked(wait)
	}
	if len(r.done) >= wait {
		return nil, true
	}
	var buf [8]byte
	// Nothing in it is no error here.
	_, _ = unix.Read(r.kick, buf[:])
	fds = []unix.PollFd{{Fd: int32(r.kick), Events: unix.POLLIN}}
	if s.opts.Manual {
		return fds, false
	}
	for _, op := range r.pending {
		if op.file == nil && op.read && !op.hung && !s.hangsLocked(op.entry) {
			fds = append(fds, unix.PollFd{Fd: op.FD, Events: unix.POLLIN})
		}
	}
	return fds, false
}

// settleLocked completes operations in any order, at least so many that there
// are wait completions if it can.
func (r *simRing) settleLocked(wait int) {
	ready := r.readyLocked()
	r.s.rng.Shuffle(len(ready), func(i, j int) { ready[i], ready[j] = ready[j], ready[i] })
	for _, op := range ready {
		if len(r.done) >= wait && r.s.rng.IntN(4) == 0 {
			return
		}
		if op.isReadyLocked() { // another one may have emptied its pipe
			r.completeLocked(op)
		}
	}
}

func (r *simRing) readyLocked() (ready []*simOp) {
	for _, op := range r.pending {
		if op.isReadyLocked() {
			ready = append(ready, op)
		}
	}
	return ready
}

func (r *simRing) Next() (ring.CQE, bool) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if len(r.done) == 0 {
		return ring.CQE{}, false
	}
	c := r.done[0]
	r.done = r.done[:copy(r.done, r.done[1:])]
	return c, true
}

// postLocked gives a completion, as far as there is room.
func (r *simRing) postLocked(c ring.CQE) {
	r.s.counts.Completed++
	if len(r.done) == r.info.CQEntries || len(r.backlog) > 0 {
		r.overflow++
		r.backlog = append(r.backlog, c)
		return
	}
	r.done = append(r.done, c)
}

func (r *simRing) flushLocked() {
	n := min(len(r.backlog), r.info.CQEntries-len(r.done))
	r.done = append(r.done, r.backlog[:n]...)
	r.backlog = r.backlog[n:]
}

func (r *simRing) Overflow() uint32 {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return r.overflow
}

// tableMax and bufferMax are the kernel's bounds for registered memory.
const (
	tableMax  = 16384
	bufferMax = 1 << 30
)

func (r *simRing) Buffers(n int) error {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	switch {
	case r.closed:
		return unix.EBADF
	case n < 0 || n > tableMax:
		return unix.EINVAL
	}
	r.table = make([][2]uint64, n)
	return nil
}

func (r *simRing) SetBuffer(place int, mem []byte) error {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	switch {
	case r.closed:
		return unix.EBADF
	case place < 0:
		return unix.EINVAL
	case len(r.table) == 0:
		return unix.ENXIO
	case place >= len(r.table):
		return unix.EINVAL
	case len(mem) > bufferMax:
		return unix.EFAULT
	case len(mem) == 0:
		r.table[place] = [2]uint64{}
	default:
		r.table[place] = [2]uint64{address(mem), uint64(len(mem))}
	}
	return nil
}

func (r *simRing) Close() error {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	if n := len(r.pending) + len(r.queue); n > 0 {
		r.s.wrongLocked("a ring was closed with %d operations in flight", n)
	}
	r.queue, r.pending, r.done, r.backlog = nil, nil, nil, nil
	r.s.rings = slices.DeleteFunc(r.s.rings, func(other *simRing) bool { return other == r })
	if err := unix.Close(r.kick); err != nil {
		return errors.Join(errors.New("close simulated ring"), err)
	}
	return nil
}
