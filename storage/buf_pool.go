package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"ringfence/internal/invariant"
)

// PoolOptions configures NewPool.
type PoolOptions struct {
	// BudgetBytes bounds all buffers together; 0 means 256 MiB.
	BudgetBytes int64
	// IdleBytes is how much unused memory stays mapped for the next request,
	// besides a quarter of all that is mapped; 0 means 16 MiB. The rest goes
	// back to the kernel at once.
	IdleBytes int64
	// MaxWaiters bounds the callers that wait in Reserve; 0 means 1,024. One
	// more is refused with ErrNoBuffer.
	MaxWaiters int
}

func (o PoolOptions) withDefaults() PoolOptions {
	if o.BudgetBytes == 0 {
		o.BudgetBytes = 256 << 20
	}
	if o.IdleBytes == 0 {
		o.IdleBytes = 16 << 20
	}
	if o.MaxWaiters == 0 {
		o.MaxWaiters = 1024
	}
	return o
}

// Pool hands out block buffers outside the Go heap, within a budget. Memory is
// mapped in slabs of 2 MiB that any mix of buffer sizes shares, so that a burst
// of one size leaves nothing behind that another can't use. The budget counts
// buffers, not slabs: what is mapped exceeds it by partly used slabs.
//
// Its methods may be called concurrently. One lock protects everything: it is
// held for tens of nanoseconds per block of, typically, 256 KiB.
type Pool struct {
	opts    PoolOptions
	mapSlab func() ([]byte, error) // tests put a kernel without memory in its place

	mu     sync.Mutex // protects the fields below and those of all Reservations
	used   int64      // budget that is reserved or in unreserved buffers
	out    int        // buffers that are handed out
	mapped int        // slabs
	// slabs by free(): 0 are used up, the last are wholly free.
	slabs   [slabOrders + 1][]*slab
	waiters []*waiter // first come, first served
	spare   *Buf
	closed  bool
	kept    int // MapAlls that were not released: what the budget fills stays mapped
	// visitors counts the Slabs that run: everything stays mapped.
	visitors int

	watching sync.RWMutex // held for reading while watchers run; protects the field below
	watchers []*func(id uint64)
}

// waiter is a caller in Reserve. done is closed when res was granted, or when
// the pool was closed.
type waiter struct {
	res     *Reservation
	granted bool
	done    chan struct{}
}

// NewPool makes an empty pool; memory is mapped when it is first needed.
func NewPool(opts PoolOptions) (*Pool, error) {
	opts = opts.withDefaults()
	if opts.BudgetBytes < minBuf || opts.IdleBytes < 0 || opts.MaxWaiters < 0 {
		return nil, fmt.Errorf("buffer pool: budget %d (at least %d), idle %d, waiters %d", opts.BudgetBytes, minBuf, opts.IdleBytes, opts.MaxWaiters)
	}
	return &Pool{opts: opts, mapSlab: mapSlab}, nil
}

// Reserve waits until bytes of the budget are free and sets them aside. Callers
// are served in order. ErrNoBuffer, with the cause: bytes exceeds the budget or
// too many wait (at once), or ctx ended.
func (p *Pool) Reserve(ctx context.Context, bytes int64) (*Reservation, error) {
	if bytes < 0 || bytes > p.opts.BudgetBytes {
		return nil, fmt.Errorf("reserve %d bytes: %w: budget is %d", bytes, ErrNoBuffer, p.opts.BudgetBytes)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("reserve %d bytes: %w: %w", bytes, ErrNoBuffer, context.Cause(ctx))
	}
	r := &Reservation{pool: p, bytes: bytes}
	p.mu.Lock()
	switch {
	case p.closed:
		p.mu.Unlock()
		return nil, errClosed
	case len(p.waiters) == 0 && p.used+bytes <= p.opts.BudgetBytes:
		p.used += bytes
		p.mu.Unlock()
		return r, nil
	case len(p.waiters) >= p.opts.MaxWaiters:
		p.mu.Unlock()
		return nil, fmt.Errorf("reserve %d bytes: %w: %d callers wait already", bytes, ErrNoBuffer, p.opts.MaxWaiters)
	}
	w := &waiter{res: r, done: make(chan struct{})}
	p.waiters = append(p.waiters, w)
	p.mu.Unlock()

	select {
	case <-w.done:
	case <-ctx.Done():
	}
	return p.settle(ctx, w)
}

// settle ends a wait.
func (p *Pool) settle(ctx context.Context, w *waiter) (*Reservation, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch i := slices.Index(p.waiters, w); {
	case w.granted:
		return w.res, nil
	case i < 0:
		return nil, errClosed
	default:
		p.waiters = slices.Delete(p.waiters, i, i+1)
		p.grantLocked() // w may have been in the way
		return nil, fmt.Errorf("reserve %d bytes: %w: %w", w.res.bytes, ErrNoBuffer, context.Cause(ctx))
	}
}

var errClosed = fmt.Errorf("%w: pool is closed", ErrNoBuffer)

// grantLocked serves the waiters that fit, in order.
func (p *Pool) grantLocked() {
	n := 0
	for ; n < len(p.waiters); n++ {
		w := p.waiters[n]
		if p.used+w.res.bytes > p.opts.BudgetBytes {
			break
		}
		p.used += w.res.bytes
		w.granted = true
		close(w.done)
	}
	p.waiters = slices.Delete(p.waiters, 0, n)
}

// Get hands out one buffer of len size without a reservation, or ErrNoBuffer;
// it never waits. It is for small needs that come and go: it takes what is free
// even while others wait in Reserve. At most MaxBuf.
func (p *Pool) Get(size int) (*Buf, error) {
	if err := fits(size); err != nil {
		return nil, err
	}
	cost := BufBytes(size)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used+cost > p.opts.BudgetBytes {
		return nil, fmt.Errorf("buffer of %d bytes: %w", size, ErrNoBuffer)
	}
	b, err := p.takeLocked(size)
	if err != nil {
		return nil, err
	}
	p.used += cost
	return b, nil
}

func fits(size int) error {
	if size < 0 || size > MaxBuf {
		return fmt.Errorf("buffer of %d bytes: at most %d", size, MaxBuf)
	}
	return nil
}

// takeLocked makes a Buf; the budget is the caller's business.
func (p *Pool) takeLocked(size int) (*Buf, error) {
	if p.closed {
		return nil, errClosed
	}
	order := orderOf(size)
	s, err := p.slabLocked(order)
	if err != nil {
		return nil, fmt.Errorf("buffer of %d bytes: %w: %w", size, ErrNoBuffer, err)
	}
	p.dropLocked(s)
	node := s.take(order)
	p.fileLocked(s)
	p.out++
	b := p.spare
	if b == nil {
		b = &Buf{pool: p}
	} else {
		p.spare, b.next = b.next, nil
	}
	b.mem, b.n, b.slab, b.node = s.chunk(node), size, s, node
	b.refs.Store(1)
	return b, nil
}

// slabLocked finds the slab whose free chunk fits the order best, or maps one.
func (p *Pool) slabLocked(order int) (*slab, error) {
	for free := order + 1; free < len(p.slabs); free++ {
		if list := p.slabs[free]; len(list) > 0 {
			return list[len(list)-1], nil
		}
	}
	mem, err := p.mapSlab()
	if err != nil {
		return nil, err
	}
	s := newSlab(mem)
	p.mapped++
	p.fileLocked(s)
	return s, nil
}

func (p *Pool) fileLocked(s *slab) {
	list := &p.slabs[s.free()]
	s.pos = len(*list)
	*list = append(*list, s)
}

func (p *Pool) dropLocked(s *slab) {
	list := &p.slabs[s.free()]
	last := len(*list) - 1
	(*list)[s.pos] = (*list)[last]
	(*list)[s.pos].pos = s.pos
	(*list)[last] = nil
	*list = (*list)[:last]
}

// put takes a Buf back whose last reference is gone.
func (p *Pool) put(b *Buf) {
	p.mu.Lock()
	cost := int64(len(b.mem))
	if b.res == nil || b.res.released {
		p.used -= cost
	}
	if b.res != nil {
		b.res.used -= cost
	}
	s := b.slab
	p.dropLocked(s)
	s.give(b.node)
	p.fileLocked(s)
	p.out--
	b.mem, b.n, b.slab, b.res = nil, 0, nil, nil
	if !invariant.Enabled { // there a stale pointer must go on pointing at a dead Buf
		b.next, p.spare = p.spare, b
	}
	// One slab at most became free. Two are looked at, so that what a burst
	// left shrinks along with the burst.
	idle := [2]*slab{p.trimLocked(), p.trimLocked()}
	p.grantLocked()
	p.mu.Unlock()
	if idle[0] != nil {
		// Nobody could do anything about its error.
		_ = p.unmap(idle[:]...)
	}
}

// InUse is the number of bytes in buffers that are handed out or reserved.
func (p *Pool) InUse() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used
}

// PoolStats is a snapshot of a Pool.
type PoolStats struct {
	BudgetBytes int64
	InUseBytes  int64 // handed out or reserved
	MappedBytes int64 // memory taken from the kernel
	Waiting     int   // callers in Reserve
}

// Stats gives the numbers as they are now.
func (p *Pool) Stats() PoolStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return PoolStats{
		BudgetBytes: p.opts.BudgetBytes,
		InUseBytes:  p.used,
		MappedBytes: int64(p.mapped) * slabBytes,
		Waiting:     len(p.waiters),
	}
}

// Close ends the pool: later calls and those that wait get ErrNoBuffer. Memory
// without buffers is unmapped; buffers that are still referenced keep theirs
// until they are released, and are reported.
func (p *Pool) Close() error {
	p.mu.Lock()
	p.closed = true
	for _, w := range p.waiters {
		close(w.done)
	}
	p.waiters = nil
	out, idle := p.out, p.trimAllLocked()
	p.mu.Unlock()
	err := p.unmap(idle...)
	if out > 0 {
		err = errors.Join(err, fmt.Errorf("close buffer pool: %d buffers are still referenced", out))
	}
	return err
}

// Reservation is a share of the budget that one request works within. Its
// methods may be called concurrently.
type Reservation struct {
	pool *Pool
	// protected by pool.mu
	bytes    int64
	used     int64 // in buffers that are handed out
	released bool
}

// Get hands out a buffer of len size from the reservation; it never waits. It
// costs BufBytes(size). Past the share, and after Release, ErrNoBuffer.
func (r *Reservation) Get(size int) (*Buf, error) {
	if err := fits(size); err != nil {
		return nil, err
	}
	cost := BufBytes(size)
	p := r.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.released || r.used+cost > r.bytes {
		return nil, fmt.Errorf("buffer of %d bytes: %w: %d of %d reserved are used (released: %t)", size, ErrNoBuffer, r.used, r.bytes, r.released)
	}
	b, err := p.takeLocked(size)
	if err != nil {
		return nil, err
	}
	r.used += cost
	b.res = r
	return b, nil
}

// Release gives the share back as its buffers come home. A second call does
// nothing.
func (r *Reservation) Release() {
	p := r.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.released {
		return
	}
	r.released = true
	p.used -= r.bytes - r.used
	p.grantLocked()
}
