package uring

import (
	"golang.org/x/sys/unix"

	"ringfence/storage/uring/ring"
)

// retriesMax is how often in a row an operation that the kernel interrupted is
// submitted again.
const retriesMax = 16

// reap takes all completions.
func (s *shard) reap() {
	for {
		c, ok := s.ring.Next()
		if !ok {
			break
		}
		s.complete(c)
	}
	if n := s.ring.Overflow(); n != s.refusals.overflow {
		lost := n - s.refusals.overflow
		s.refusals.overflow = n
		s.lane.counts.add(func(c *ShardStats) { c.Overflow += int64(lost) })
		s.d.opts.Log.Warn().Uint32("count", lost).Str("dir", s.d.opts.Dir).Int("shard", s.lane.index).Msg("completions of a ring found no room")
	}
}

func (s *shard) complete(c ring.CQE) {
	u := userData(c.UserData)
	if u.kind() == kindWake {
		s.woken(u, c.Res)
		return
	}
	if u.slot() >= len(s.table.entries) {
		return
	}
	e := &s.table.entries[u.slot()]
	switch u.kind() {
	case kindCancel:
		s.cancelled(u, e, c.Res)
	case kindRead:
		if !e.inKernel || u.gen() != e.gen&genMask {
			return // nobody's
		}
		e.inKernel = false
		s.inKernel--
		s.completeRead(u.slot(), e, c.Res)
	}
}

// verdict is what a completion means for its read.
type verdict uint8

const (
	again   verdict = iota // the rest is to be read
	done                   // all there is
	inspect                // only the size of the file tells
	failed
)

// decide judges a completion, after nread was moved on.
func (e *entry) decide(res int32) (verdict, unix.Errno) {
	want := len(e.op.pieces[e.piece].mem)
	switch {
	case res < 0:
		errno := unix.Errno(-res)
		if (errno == unix.EINTR || errno == unix.EAGAIN) && !e.op.current && e.retries < retriesMax {
			return again, 0
		}
		return failed, errno
	case int(res) > e.asked:
		return failed, unix.EIO // that can't have gone into our memory alone
	case res == 0, e.op.current:
		return done, 0
	case e.nread >= e.geo.head+want:
		return done, 0
	case e.op.align > 1 && e.nread%e.op.align != 0:
		return inspect, 0
	}
	return again, 0
}

func (s *shard) completeRead(slot int, e *entry, res int32) {
	if res > 0 && int(res) <= e.asked {
		e.copyOut(int(res))
		e.nread += int(res)
	}
	v, errno := e.decide(res)
	if res > 0 {
		e.retries = 0
	}
	switch v {
	case done:
		s.endRead(slot, nil)
	case failed:
		s.endRead(slot, errno)
	case inspect:
		s.endRead(slot, s.inspect(e))
	case again:
		if res < 0 {
			e.retries++
		}
		s.backlog.push(item{slot: slot}) // where it ends if nobody wants it any more
	}
}

// copyOut brings the wanted part of what was just read from the stage to where
// it belongs.
func (e *entry) copyOut(n int) {
	if e.stage == nil {
		return
	}
	mem := e.op.pieces[e.piece].mem
	from := max(e.nread, e.geo.head)
	to := min(e.nread+n, e.geo.head+len(mem))
	if from < to {
		copy(mem[from-e.geo.head:to-e.geo.head], e.stage[from-e.nread:to-e.nread])
	}
}

// inspect tells a direct read that met the end of the file from one that ended
// early for another reason: the file system does not go on from an odd place.
func (s *shard) inspect(e *entry) error {
	size, err := s.d.sizeOf(e.op.file.FD())
	if err != nil {
		return err
	}
	if e.geo.off+int64(e.nread) >= size {
		return nil
	}
	return ErrShort
}

// endRead ends the read of an entry: the kernel has let go of memory and file.
func (s *shard) endRead(slot int, err error) {
	e := &s.table.entries[slot]
	o := e.op
	p := &o.pieces[e.piece]
	size := int64(len(p.mem))
	p.n, p.err = max(0, min(e.nread-e.geo.head, len(p.mem))), err
	p.release()
	p.slot = -1
	e.fixed.uncarve()
	s.table.endRead(e)
	ops := 0
	if e.over() {
		s.table.give(slot)
		ops = 1
	}
	s.d.permits.release(s, ops, size)
	if o.left--; o.left == 0 {
		s.settle(o)
	}
}

// free gives slot and permit back.
func (s *shard) free(slot int) {
	s.table.give(slot)
	s.d.permits.release(s, 1, 0)
}

// settle ends an Op all of whose operations have ended.
func (s *shard) settle(o *Op) {
	orphan := int64(0)
	for i := range o.pieces {
		orphan += int64(o.pieces[i].n)
	}
	delivered := o.state.CompareAndSwap(opWaiting, opDelivered)
	s.lane.counts.settle(o, delivered, orphan)
	if !delivered || !o.pooled {
		// Closing may wait for the disk. Whoever waits in Read does it himself.
		s.d.closeFile(o.file)
	}
	if delivered {
		o.publish()
	}
}
