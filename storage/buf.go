package storage

import (
	"sync/atomic"

	"ringfence/internal/invariant"
)

// Buf is a page-aligned, reference-counted buffer outside the Go heap. Whoever
// may still touch the memory holds a reference: the request that asked for it,
// and the read engine from submission until the kernel is done, so that a
// cancelled request goes home at once and the memory does not. Retain and
// Release may be called concurrently; Bytes and SetLen belong to one goroutine
// at a time.
//
// A Buf must not be used after the last Release: its memory is someone else's
// then. Builds with invariants poison released memory, never reuse a Buf, and
// panic on any use of a released one or any write to released memory that they
// see.
type Buf struct {
	mem  []byte
	n    int
	refs atomic.Int32

	pool *Pool
	res  *Reservation // nil without a reservation
	slab *slab
	node uint16 // the chunk in the slab
	next *Buf   // in the pool's list of spare Bufs
}

// Bytes is the buffer's content, of the length last set.
func (b *Buf) Bytes() []byte {
	b.alive()
	return b.mem[:b.n]
}

// SetLen sets the length of Bytes, at most Cap. What lies beyond the length is
// nobody's: a read that needs whole blocks may use it.
func (b *Buf) SetLen(n int) {
	b.alive()
	invariant.Check(n >= 0 && n <= len(b.mem), "length outside the buffer")
	b.n = n
}

// Cap is the size of the memory behind the buffer.
func (b *Buf) Cap() int {
	b.alive()
	return len(b.mem)
}

// Retain adds a reference. The caller holds one already.
func (b *Buf) Retain() {
	n := b.refs.Add(1)
	invariant.Check(n > 1, "retain of a released buffer")
}

// Release drops a reference; the last one gives the memory back.
func (b *Buf) Release() {
	switch n := b.refs.Add(-1); {
	case n == 0:
		b.pool.put(b)
	case n < 0:
		// Freeing twice would give one memory to two requests: leak instead.
		invariant.Check(false, "release of a released buffer")
	}
}

func (b *Buf) alive() {
	if invariant.Enabled {
		invariant.Check(b.refs.Load() > 0, "use of a released buffer")
	}
}
