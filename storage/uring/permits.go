package uring

import (
	"context"
	"math/rand/v2"
	"sync"
)

// permits admit reads: so many operations and bytes per shard, given back with
// the final completion and never when a caller leaves, so that memory which the
// kernel may still write to goes on counting. Callers wait in one line for the
// whole driver, first come, first served: whichever shard has room serves the
// first. The line needs no bound of its own: each waiter is a caller's
// goroutine, which its context can end.
type permits struct {
	mu sync.Mutex // protects the fields below, room of all shards and the wait of all Ops

	entries int
	bytes   int64
	shards  []*shard // by lane; nil while it is down
	cursor  int
	rng     *rand.Rand

	head, tail *Op // who waits
	closed     bool
	out        int           // operations admitted on all shards, dead ones included
	idle       chan struct{} // closed when nothing is out, once closed; nil until Retire asks
}

// room is what a shard has admitted; protected by permits.mu.
type room struct {
	ops   int
	bytes int64
	off   bool // nothing of it counts any more
}

func (p *permits) init(o Options, seed uint64) {
	p.entries, p.bytes = o.Entries, o.Bytes
	p.shards = make([]*shard, o.Shards)
	p.rng = rand.New(rand.NewPCG(seed, uint64(o.Shards)))
}

// try admits o at once, or says why not.
func (p *permits) try(o *Op) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tryLocked(o)
}

func (p *permits) tryLocked(o *Op) error {
	if p.closed || !p.anyLocked() {
		return ErrClosed
	}
	if p.head != nil { // it is their turn
		return ErrSaturated
	}
	s := p.chooseLocked(o)
	if s == nil {
		return ErrSaturated
	}
	p.grantLocked(o, s)
	return nil
}

func (p *permits) grantLocked(o *Op, s *shard) {
	s.room.ops += o.count
	s.room.bytes += o.bytes
	p.out += o.count
	o.shard = s
}

// wait admits o when its turn has come. o must be pooled.
func (p *permits) wait(ctx context.Context, o *Op) error {
	p.mu.Lock()
	if err := p.tryLocked(o); err != ErrSaturated {
		p.mu.Unlock()
		return err
	}
	o.line.prev, o.line.next = p.tail, nil
	if p.tail == nil {
		p.head = o
	} else {
		p.tail.line.next = o
	}
	p.tail = o
	p.mu.Unlock()
	select {
	case <-o.done:
		return o.refusal
	case <-ctx.Done():
	}
	p.mu.Lock()
	settled := o.shard != nil || o.refusal != nil
	if !settled {
		p.unlinkLocked(o)
		p.serveLocked() // o may have been in the way
	}
	p.mu.Unlock()
	if settled {
		<-o.done
		if o.refusal != nil {
			return o.refusal
		}
		p.release(o.shard, o.count, o.bytes)
	}
	return ctx.Err()
}

func (p *permits) unlinkLocked(o *Op) {
	if o.line.prev == nil {
		p.head = o.line.next
	} else {
		o.line.prev.line.next = o.line.next
	}
	if o.line.next == nil {
		p.tail = o.line.prev
	} else {
		o.line.next.line.prev = o.line.prev
	}
	o.line.prev, o.line.next = nil, nil
}

// serveLocked admits the first in line as long as there is room for it.
func (p *permits) serveLocked() {
	for p.head != nil {
		o := p.head
		if p.closed || !p.anyLocked() {
			o.refusal = ErrClosed
		} else if s := p.chooseLocked(o); s != nil {
			p.grantLocked(o, s)
		} else {
			return
		}
		p.unlinkLocked(o)
		o.done <- struct{}{}
	}
}

// release gives back what was admitted on s.
func (p *permits) release(s *shard, ops int, bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.room.off {
		return
	}
	s.room.ops -= ops
	s.room.bytes -= bytes
	p.out -= ops
	p.serveLocked()
	p.idleLocked()
}

// writeOff stops counting what a shard has admitted, which gave up on it.
func (p *permits) writeOff(s *shard) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !s.room.off {
		s.room.off = true
		p.out -= s.room.ops
	}
	p.idleLocked()
}

func (p *permits) idleLocked() {
	if p.idle != nil && p.closed && p.out == 0 {
		close(p.idle)
		p.idle = nil
	}
}

// up makes a shard that was started the one of its lane.
func (p *permits) up(lane int, s *shard) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shards[lane] = s
	p.serveLocked()
}

// down has no read go to s any more. Those who wait for the last shard are
// refused: they have another engine.
func (p *permits) down(s *shard) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.shards {
		if p.shards[i] == s {
			p.shards[i] = nil
		}
	}
	p.serveLocked()
}

// close refuses everybody from now on, also those who wait.
func (p *permits) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.serveLocked()
}

// drained is closed when all that was admitted has come to its end. close comes
// before.
func (p *permits) drained() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := make(chan struct{})
	if p.out == 0 {
		close(c)
		return c
	}
	if p.idle == nil {
		p.idle = c
	}
	return p.idle
}
