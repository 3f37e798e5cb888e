package uring

import (
	"golang.org/x/sys/unix"

	"ringfence/storage/uring/ring"
)

// cancelOp has the kernel asked to stop what is left of an Op.
func (s *shard) cancelOp(o *Op) {
	for i := range o.pieces {
		if slot := o.pieces[i].slot; slot >= 0 && s.table.entries[slot].op == o {
			s.cancel(slot)
		}
	}
}

// cancel queues the one cancellation that an operation may have.
func (s *shard) cancel(slot int) {
	e := &s.table.entries[slot]
	if e.op == nil || e.doomed {
		return
	}
	e.doomed = true
	// What the kernel doesn't have ends when its turn in the backlog comes.
	if e.inKernel {
		e.cancel.state = cancelQueued
		s.backlog.push(item{slot: slot, cancel: true})
	}
}

// pushCancel reports false when the queue is full.
func (s *shard) pushCancel(it item, e *entry) bool {
	if !e.inKernel { // it ended meanwhile
		e.cancel.state = cancelDone
		if e.over() {
			s.free(it.slot)
		}
		return true
	}
	ok := s.ring.Push(ring.SQE{
		Opcode: ring.OpAsyncCancel, FD: -1,
		Addr:     uint64(tag(kindRead, it.slot, e.gen)),
		UserData: uint64(tag(kindCancel, it.slot, e.gen)),
	})
	if ok {
		e.cancel.state, e.cancel.gen = cancelPushed, e.gen&genMask
		s.inKernel++
		s.unseen = append(s.unseen, it)
	}
	return ok
}

// cancelled takes the completion of a cancellation. It never ends the read: the
// read's own completion does.
func (s *shard) cancelled(u userData, e *entry, res int32) {
	if e.cancel.state != cancelPushed || u.gen() != e.cancel.gen {
		return
	}
	e.cancel.state = cancelDone
	s.inKernel--
	s.lane.counts.add(func(c *ShardStats) {
		switch unix.Errno(max(-res, 0)) {
		case 0:
			c.Cancels.Succeeded++
		case unix.ENOENT:
			c.Cancels.NotFound++
		case unix.EALREADY:
			c.Cancels.Already++
		}
	})
	if e.over() {
		s.free(u.slot())
	}
}
