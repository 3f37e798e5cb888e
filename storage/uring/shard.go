package uring

import (
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"ringfence/internal/invariant"
	"ringfence/storage/uring/ring"
)

const (
	// An Enter copies what is cached, and puts what isn't into the queue of the
	// hardware, before it returns: it is kept short for those who come next.
	// O_DIRECT does neither.
	enterReads = 8
	enterBytes = 2 << 20

	// heartbeat bounds how long a shard sleeps; nothing depends on it.
	heartbeat = time.Second
	// drainbeat bounds how long a shard that ends sleeps.
	drainbeat = 50 * time.Millisecond

	// submitErrorsMax is after how many failed Enters in a row a shard ends.
	submitErrorsMax = 128
)

// shard is a ring and the thread that it belongs to. All but mail and room is
// the goroutine's own. It ends once, by shutdown or by dying, and its lane may
// start another.
type shard struct {
	lane *lane
	d    *Driver
	mail mailbox
	room room // protected by the driver's permits

	ring     ring.Ring
	wake     *wake // nil in tests without a thread
	table    *table
	backlog  backlog
	unseen   []item // pushed, not yet taken by the kernel, in order
	inKernel int    // submissions without a completion: never more than the completion queue holds
	fixed    fixedTable

	refusals refusals
	ending   ending
	start    beginning
	exited   chan struct{} // closed when the goroutine has left the loop
	stuck    chan struct{} // closed when it doesn't, for too long
}

// refusals are Enters that failed in a row.
type refusals struct {
	errors int
	busy   int
	warned bool // once in a shard's life

	overflow uint32 // completions without room that were counted
}

func newShard(l *lane) *shard {
	s := &shard{lane: l, d: l.driver, exited: make(chan struct{}), stuck: make(chan struct{})}
	s.mail.counts = &l.counts
	return s
}

// run is the shard's goroutine. It stays on one thread for life: the ring
// belongs to the thread that made it, and the kernel cancels what a thread
// submitted when the thread ends. There is no defer here and no recover: a
// panic must end the process before anything is unmapped.
func (s *shard) run(probe bool, started chan<- error) {
	runtime.LockOSThread()
	clean, err := s.open(probe)
	if err != nil {
		s.mail.shutdown()
		if clean {
			s.start.ended(s.d.opts.Dir)
		} else {
			s.start.hangs(s.d.opts.Dir)
		}
		close(s.exited)
		started <- err
		if !clean {
			s.linger()
		}
		return
	}
	s.start.ended(s.d.opts.Dir)
	started <- nil
	for !s.turn() {
	}
	clean = s.finish()
	close(s.exited)
	if !clean {
		s.park()
	}
	// Returning with the thread locked ends it, and nothing is in flight.
}

// park keeps the thread for ever.
func (s *shard) park() {
	leak(s)
	select {}
}

// turn does once what there is to do, and waits if there is nothing. It
// reports whether the shard is through.
func (s *shard) turn() bool {
	switch messages, closed := s.mail.take(); {
	case s.ending.began:
		s.continueEnd()
	case closed:
		s.beginEnd(messages)
	default:
		s.intake(messages)
	}
	if s.over() {
		return true
	}
	more := s.push()
	wait, timeout := 0, time.Duration(0)
	if !more {
		switch {
		case s.ending.began:
			wait, timeout = 1, min(drainbeat, s.d.opts.DrainTimeout)
		case s.mail.sleep():
			wait, timeout = 1, heartbeat
		}
	}
	s.enter(wait, timeout)
	s.reap()
	s.checkInvariants()
	return s.over()
}

// intake takes over what was posted.
func (s *shard) intake(messages []message) {
	for _, m := range messages {
		if m.cancel {
			s.cancelOp(m.op)
			continue
		}
		for i := range m.op.pieces {
			if len(m.op.pieces[i].mem) > 0 {
				s.backlog.push(item{slot: s.table.take(m.op, i)})
			}
		}
	}
	s.fixed.forget(s)
}

// push moves the backlog into the submission queue: as much as one Enter should
// take. It reports whether there is more that another Enter could take. Never
// is more under way than the completion queue has room for, so that it can't
// overflow.
func (s *shard) push() (more bool) {
	if s.wake != nil && !s.armWake() {
		return true
	}
	reads, bytes := 0, 0
	for s.backlog.len() > 0 && s.inKernel < s.ring.Info().CQEntries {
		it := s.backlog.front()
		e := &s.table.entries[it.slot]
		if it.cancel {
			if !s.pushCancel(it, e) {
				return true
			}
			s.backlog.pop()
			continue
		}
		if e.doomed || e.op.state.Load() == opAbandoned {
			s.backlog.pop()
			s.endRead(it.slot, unix.ECANCELED)
			continue
		}
		n := min(e.geo.region-e.nread, ReadMax)
		if e.op.align == 0 {
			if reads > 0 && (reads == enterReads || bytes+n > enterBytes) {
				return true
			}
			reads++
			bytes += n
		}
		if !s.pushRead(it, e) {
			return true
		}
		s.backlog.pop()
	}
	return false
}

// pushRead reports false when the queue is full.
func (s *shard) pushRead(it item, e *entry) bool {
	p := &e.op.pieces[e.piece]
	if !e.placed {
		s.place(e, p)
	}
	e.gen++
	sqe := ring.SQE{
		Opcode:   ring.OpRead,
		FD:       int32(e.op.file.FD()),
		Off:      uint64(e.geo.off) + uint64(e.nread),
		UserData: uint64(tag(kindRead, it.slot, e.gen)),
	}
	if e.op.current {
		sqe.Off = ring.CurrentPosition
	}
	n := e.geo.region - e.nread
	at := uintptr(0)
	if e.stage != nil {
		n = min(n, len(e.stage))
		at = uintptr(unsafe.Pointer(unsafe.SliceData(e.stage)))
	} else {
		invariant.Check(e.geo.region <= cap(p.mem), "a read beyond its buffer")
		at = uintptr(unsafe.Pointer(unsafe.SliceData(p.mem))) + uintptr(e.nread)
	}
	n = min(n, ReadMax)
	sqe.Addr, sqe.Len = uint64(at), uint32(n)
	if part := s.registered(e, p); part.covers(at, n) {
		sqe.Opcode, sqe.BufIndex = ring.OpReadFixed, part.place
	}
	if !s.ring.Push(sqe) {
		return false
	}
	if sqe.Opcode == ring.OpReadFixed && !e.fixed.counted {
		e.fixed.counted = true
		s.lane.counts.add(func(c *ShardStats) { c.Fixed++ })
	}
	e.asked, e.inKernel, e.unseen = n, true, true
	s.inKernel++
	s.unseen = append(s.unseen, it)
	return true
}

// place decides, once, where the kernel reads a piece to.
func (s *shard) place(e *entry, p *piece) {
	e.placed = true
	if e.op.align <= legacyAlign {
		if stage, part, ok := s.fixed.carve(s, e.geo.region); ok {
			e.stage, e.fixed = stage, part
			return
		}
	}
	if p.bounce != nil {
		e.stage = p.bounce.Bytes()
	}
}

// registered says where in registered memory the kernel reads a piece to. It
// may have changed since the piece was last submitted.
func (s *shard) registered(e *entry, p *piece) fixedPart {
	switch {
	case e.fixed.ok:
		return e.fixed
	case e.stage != nil:
		return s.fixed.find(s, p.bounce)
	default:
		return s.fixed.find(s, p.buf)
	}
}

// enter makes the system call, if there is anything to hand over or to wait
// for.
func (s *shard) enter(wait int, timeout time.Duration) {
	if s.ending.gaveUp || (wait == 0 && s.ring.Queued() == 0) {
		return
	}
	err := s.ring.Enter(wait, timeout)
	s.lane.counts.add(func(c *ShardStats) { c.Enters++ })
	s.seen()
	r := &s.refusals
	switch err {
	case nil, unix.EINTR:
		r.errors, r.busy = 0, 0
	case unix.EBUSY: // completions wait for room, which reap makes
		r.errors = 0
		if r.busy++; r.busy > 1 {
			s.d.pause(time.Millisecond)
		}
	default:
		s.lane.counts.add(func(c *ShardStats) { c.SubmitErrors++ })
		if !r.warned {
			r.warned = true
			s.d.opts.Log.Warn().Err(err).Str("dir", s.d.opts.Dir).Int("shard", s.lane.index).Msg("ring refuses operations")
		}
		if r.errors++; r.errors == submitErrorsMax {
			s.die(err)
			return
		}
		// Most likely the kernel is short of memory.
		s.d.pause(min(time.Duration(r.errors)*100*time.Microsecond, 10*time.Millisecond))
	}
}

// seen finds out which submissions the kernel took. It takes them in order, and
// only within Enter.
func (s *shard) seen() {
	n := max(0, len(s.unseen)-s.ring.Queued())
	for _, it := range s.unseen[:n] {
		if it.slot < 0 {
			s.wake.unseen = false
		} else if !it.cancel {
			s.table.entries[it.slot].unseen = false
		}
	}
	s.unseen = s.unseen[:copy(s.unseen, s.unseen[n:])]
}

// checkInvariants compares what is counted in two ways.
func (s *shard) checkInvariants() {
	if !invariant.Enabled {
		return
	}
	reads, under := 0, 0
	for i := range s.table.entries {
		e := &s.table.entries[i]
		if e.op != nil {
			reads++
		}
		if e.inKernel {
			under++
		}
		if e.cancel.state == cancelPushed {
			under++
		}
	}
	if s.wake != nil && s.wake.armed {
		under++
	}
	invariant.Check(reads == s.table.reading, "%d reads in the table, %d counted", reads, s.table.reading)
	invariant.Check(under == s.inKernel, "%d submissions in the kernel, %d counted", under, s.inKernel)
	invariant.Check(s.inKernel <= s.ring.Info().CQEntries, "completions may overflow")
}
