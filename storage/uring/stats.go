package uring

import (
	"sync"
	"time"

	"ringfence/internal/invariant"
)

// counters of a lane. They outlive its shards.
type counters struct {
	mu sync.Mutex
	s  ShardStats // protected by mu
}

func (c *counters) add(f func(s *ShardStats)) {
	c.mu.Lock()
	f(&c.s)
	c.mu.Unlock()
}

func (c *counters) accept(o *Op) {
	c.mu.Lock()
	c.s.Submitted += int64(o.count)
	c.s.InFlight += int64(o.count)
	c.s.InFlightBytes += o.bytes
	c.mu.Unlock()
}

// settle moves an Op out of what is in flight. orphan is what was read of it
// for nobody.
func (c *counters) settle(o *Op, delivered bool, orphan int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if delivered {
		c.s.Delivered += int64(o.count)
	} else {
		c.s.Orphans += int64(o.count)
		c.s.OrphanBytes += orphan
	}
	c.s.InFlight -= int64(o.count)
	c.s.InFlightBytes -= o.bytes
	invariant.Check(c.s.InFlight >= 0 && c.s.InFlightBytes >= 0, "more reads ended than began")
	invariant.Check(c.s.Submitted == c.s.Delivered+c.s.Orphans+c.s.InFlight, "reads are not conserved")
}

func (c *counters) snapshot() ShardStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.s
}

// Stats gives the numbers as they are now, each shard's consistent in itself.
func (d *Driver) Stats() Stats {
	s := Stats{Mode: d.registry.mode(), RegisteredBytes: d.registry.bytes.Load(), Setup: d.setupName()}
	for _, l := range d.lanes {
		s.Shards = append(s.Shards, l.stats())
	}
	return s
}

func (l *lane) stats() ShardStats {
	s := l.counts.snapshot()
	l.mu.Lock()
	sh := l.shard
	s.Dead = l.dead
	l.mu.Unlock()
	if sh == nil || s.InFlight == 0 {
		return s
	}
	since := sh.table.oldest.Load()
	if posted := sh.mail.oldest(); posted != 0 && (since == 0 || posted < since) {
		since = posted
	}
	if since != 0 {
		s.Oldest = max(0, time.Duration(l.driver.now()-since))
	}
	return s
}

// Total sums the shards up. Oldest is the largest, Dead whether all are.
func (s Stats) Total() ShardStats {
	var t ShardStats
	t.Dead = len(s.Shards) > 0
	for i := range s.Shards {
		t = t.plus(&s.Shards[i])
	}
	return t
}

// plus is the sum of two.
func (s ShardStats) plus(o *ShardStats) ShardStats {
	s.Submitted += o.Submitted
	s.Delivered += o.Delivered
	s.Orphans += o.Orphans
	s.OrphanBytes += o.OrphanBytes
	s.InFlight += o.InFlight
	s.InFlightBytes += o.InFlightBytes
	s.Cancels.Succeeded += o.Cancels.Succeeded
	s.Cancels.NotFound += o.Cancels.NotFound
	s.Cancels.Already += o.Cancels.Already
	s.SubmitErrors += o.SubmitErrors
	s.Overflow += o.Overflow
	s.Enters += o.Enters
	s.Wakes += o.Wakes
	s.Fixed += o.Fixed
	s.Leaked += o.Leaked
	s.Restarts += o.Restarts
	s.Dead = s.Dead && o.Dead
	s.Oldest = max(s.Oldest, o.Oldest)
	return s
}
