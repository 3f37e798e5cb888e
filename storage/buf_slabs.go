package storage

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// slabIDs numbers the slabs of the process. It is the one counter that all
// pools share: a read engine that remembers slabs by number may be given
// buffers of more than one pool.
var slabIDs atomic.Uint64

// Slab is the slab that the buffer lies in: a number that no other slab of the
// process ever has, 0 excepted, and all of its memory, of which the buffer owns
// only its own part. The slab stays mapped for as long as the caller holds its
// reference to the buffer.
func (b *Buf) Slab() (id uint64, mem []byte) {
	b.alive()
	return b.slab.id, b.slab.mem
}

// OnUnmap has f called before a slab is unmapped, by whoever gives back the
// last buffer in it, which may be the read engine itself. So f must not wait
// for anything but short locks, and must not call methods of the pool, of its
// buffers or the returned remove. It is called without the pool's lock, and
// concurrently. Once remove has returned f is neither running nor called again.
//
// The kernel keeps memory that is registered with it, so f need not undo a
// registration before it returns: a note suffices. Nothing is read into that
// memory any more, and should another slab be mapped at the same address, it
// has another number.
func (p *Pool) OnUnmap(f func(id uint64)) (remove func()) {
	p.watching.Lock()
	defer p.watching.Unlock()
	w := &f
	p.watchers = append(p.watchers, w)
	return func() {
		p.watching.Lock()
		defer p.watching.Unlock()
		for i := range p.watchers {
			if p.watchers[i] == w {
				p.watchers = append(p.watchers[:i:i], p.watchers[i+1:]...)
				return
			}
		}
	}
}

// unmap gives slabs back that were taken out of the pool. The caller must not
// hold p.mu.
func (p *Pool) unmap(slabs ...*slab) error {
	var errs []error
	for _, s := range slabs {
		if s == nil {
			continue
		}
		p.watching.RLock()
		for _, f := range p.watchers {
			(*f)(s.id)
		}
		p.watching.RUnlock()
		// Unmapping what was mapped fails for want of kernel memory only; the
		// slab is lost then, and nothing else.
		errs = append(errs, unmapSlab(s.mem))
	}
	return errors.Join(errs...)
}

// Slabs calls f for every slab that is mapped, in no order, without the pool's
// lock. None of them is unmapped until Slabs returns; f should be quick.
func (p *Pool) Slabs(f func(id uint64, mem []byte)) {
	p.mu.Lock()
	p.visitors++
	all := make([]*slab, 0, p.mapped)
	for _, list := range p.slabs {
		all = append(all, list...)
	}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		p.visitors--
		idle := p.trimAllLocked()
		p.mu.Unlock()
		// As in put.
		_ = p.unmap(idle...)
	}()
	for _, s := range all {
		f(s.id, s.mem)
	}
}

// MapAll maps memory for the whole budget now, and keeps it mapped until
// release is called (or the pool is closed), so that it can be registered once.
// It changes nothing else: buffers are handed out within the budget as before,
// Reserve waits, Get refuses. Where small buffers lie scattered so that a large
// one fits nowhere, another slab is still mapped, and is the first to go.
//
// Calls may overlap; a second call of one release does nothing. ErrNoBuffer if
// the kernel has no memory; nothing is kept then.
func (p *Pool) MapAll() (release func(), err error) {
	p.mu.Lock()
	p.kept++
	p.mu.Unlock()
	var done atomic.Bool
	release = func() {
		if done.Swap(true) {
			return
		}
		p.mu.Lock()
		p.kept--
		idle := p.trimAllLocked()
		p.mu.Unlock()
		_ = p.unmap(idle...)
	}
	for {
		p.mu.Lock()
		enough, closed := p.mapped >= p.whole(), p.closed
		p.mu.Unlock()
		if closed {
			release()
			return nil, errClosed
		}
		if enough {
			return release, nil
		}
		mem, err := p.mapSlab()
		if err != nil {
			release()
			return nil, fmt.Errorf("map the whole budget: %w: %w", ErrNoBuffer, err)
		}
		if s := p.adopt(newSlab(mem)); s != nil {
			_ = p.unmap(s)
		}
	}
}

// whole is how many slabs the budget fills.
func (p *Pool) whole() int { return int((p.opts.BudgetBytes + slabBytes - 1) / slabBytes) }

// adopt takes a new slab into the pool, or gives it back if that was closed.
func (p *Pool) adopt(s *slab) *slab {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return s
	}
	p.mapped++
	p.fileLocked(s)
	return nil
}

// trimLocked takes a wholly free slab out of the pool if there are too many.
func (p *Pool) trimLocked() *slab {
	free := p.slabs[slabOrders]
	if len(free) == 0 || p.visitors > 0 {
		return nil
	}
	i := len(free) - 1
	switch {
	case p.closed:
	case p.kept > 0:
		if p.mapped <= p.whole() {
			return nil
		}
		// The latest came when nothing else fit: those that MapAll found or
		// mapped stay.
		for j, s := range free {
			if s.id > free[i].id {
				i = j
			}
		}
	case int64(len(free)) <= max(p.opts.IdleBytes/slabBytes, int64(p.mapped/4)):
		return nil
	}
	s := free[i]
	p.dropLocked(s)
	p.mapped--
	return s
}

func (p *Pool) trimAllLocked() (idle []*slab) {
	for s := p.trimLocked(); s != nil; s = p.trimLocked() {
		idle = append(idle, s)
	}
	return idle
}
