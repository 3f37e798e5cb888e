package uring

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ending is how far a shard is with its end.
type ending struct {
	began    bool
	deadline time.Time
	cause    error // what callers get whose reads can't be made any more
	died     bool  // by itself
	gaveUp   bool  // what is left is never waited for again
}

// leaked roots what the kernel may still write to: rings, memory, descriptors.
// It is never cleared, on purpose; only probes may come to an end after all.
var leaked struct {
	mu     sync.Mutex
	shards []*shard // protected by mu
}

func leak(s *shard) {
	leaked.mu.Lock()
	leaked.shards = append(leaked.shards, s)
	leaked.mu.Unlock()
}

func unleak(s *shard) {
	leaked.mu.Lock()
	leaked.shards = slices.DeleteFunc(leaked.shards, func(l *shard) bool { return l == s })
	leaked.mu.Unlock()
}

// die begins the end of a shard whose ring does not work.
func (s *shard) die(err error) {
	if s.ending.died {
		return
	}
	s.ending.died = true
	s.ending.cause = fmt.Errorf("%w: shard %d died: %w", ErrClosed, s.lane.index, err)
	s.d.permits.down(s)
	s.mail.shutdown()
	s.d.opts.Log.Error().Err(err).Str("dir", s.d.opts.Dir).Int("shard", s.lane.index).Msg("ring died")
}

// beginEnd refuses what was posted and has everything in flight cancelled.
func (s *shard) beginEnd(messages []message) {
	s.ending.began = true
	s.ending.deadline = s.d.opts.Env.Now().Add(s.d.opts.DrainTimeout)
	if s.ending.cause == nil {
		s.ending.cause = ErrClosed
	}
	s.d.permits.down(s)
	for _, m := range messages {
		if m.cancel {
			s.cancelOp(m.op)
		} else {
			s.refuse(m.op)
		}
	}
	for slot := range s.table.entries {
		s.cancel(slot)
	}
	if s.wake != nil {
		s.wake.stop = true
		if s.wake.armed {
			s.wake.write()
		}
	}
	if s.ending.died && s.seenReads() == 0 {
		s.giveUp()
	}
}

// refuse ends an Op that never got into the table.
func (s *shard) refuse(o *Op) {
	for i := range o.pieces {
		if p := &o.pieces[i]; len(p.mem) > 0 {
			p.err = s.ending.cause
			p.release()
		}
	}
	s.d.permits.release(s, o.count, o.bytes)
	o.left = 0
	s.settle(o)
}

// seenReads is the number of reads that the kernel took and has not completed.
func (s *shard) seenReads() int {
	n := 0
	for i := range s.table.entries {
		if e := &s.table.entries[i]; e.op != nil && e.inKernel && !e.unseen {
			n++
		}
	}
	return n
}

func (s *shard) continueEnd() {
	if !s.ending.gaveUp && !s.d.opts.Env.Now().Before(s.ending.deadline) {
		s.giveUp()
	}
}

// over reports whether nothing is left to wait for.
func (s *shard) over() bool {
	if !s.ending.began {
		return false
	}
	return s.ending.gaveUp || (s.table.used() == 0 && s.backlog.len() == 0 && s.inKernel == 0)
}

// giveUp ends everything without the kernel. What it never took, it never will:
// the ring is not entered again. What it did take stays in the table, which is
// leaked; only the callers go home.
func (s *shard) giveUp() {
	s.ending.gaveUp = true
	s.backlog = backlog{}
	for slot := range s.table.entries {
		e := &s.table.entries[slot]
		if e.op == nil || (e.inKernel && !e.unseen) {
			continue
		}
		if e.inKernel {
			e.inKernel = false
			s.inKernel--
		}
		s.endRead(slot, s.ending.cause)
	}
	s.d.permits.writeOff(s)
	stuck := 0
	for i := range s.table.entries {
		o := s.table.entries[i].op
		if o == nil {
			continue
		}
		stuck++
		if o.state.CompareAndSwap(opWaiting, opStranded) {
			o.publish()
		}
	}
	s.lane.counts.add(func(c *ShardStats) { c.Leaked += int64(stuck) })
	if stuck > 0 {
		s.d.opts.Log.Error().Int("reads", stuck).Str("dir", s.d.opts.Dir).Int("shard", s.lane.index).Msg("reads don't end; their memory is kept for good")
	}
}

// finish gives the ring back. It reports false if the kernel may still use any
// of it: then all of it must stay as it is, thread included.
func (s *shard) finish() bool {
	s.mail.unplug()
	for _, it := range s.unseen {
		// Never entered again, the ring takes them with it.
		switch {
		case it.slot < 0:
			s.wake.armed = false
			s.inKernel--
		case it.cancel:
			s.inKernel--
		}
	}
	if s.inKernel > 0 && !s.onlyWake() {
		return false
	}
	s.close()
	return true
}

// onlyWake reports whether nothing but the read of the wake-up is under way,
// which a ring that refuses to be entered does not end. It waits, has nobody's
// memory, and the kernel takes it down with the ring: all that must stay is the
// page that it may write to until then.
func (s *shard) onlyWake() bool { return s.inKernel == 1 && s.wake != nil && s.wake.armed }

// close undoes open. Nothing is in flight.
func (s *shard) close() {
	errs := errors.Join(s.ring.Close(), s.fixed.close(s))
	if s.wake != nil {
		errs = errors.Join(errs, s.wake.close())
	}
	if errs != nil {
		s.d.opts.Log.Warn().Err(errs).Str("dir", s.d.opts.Dir).Int("shard", s.lane.index).Msg("closing a ring")
	}
}

// statSize asks for a file's size.
func statSize(fd int) (int64, error) {
	var st unix.Stat_t
	for {
		err := unix.Fstat(fd, &st)
		if err != unix.EINTR {
			return st.Size, err
		}
	}
}
