package uring

import (
	"sync/atomic"

	"ringfence/internal/invariant"
)

// What an entry of the table knows of its cancellation.
type cancelling uint8

const (
	cancelNone   cancelling = iota
	cancelQueued            // waits in the backlog
	cancelPushed            // the kernel has it, or will with the next Enter
	cancelDone
)

// entry is an operation: what owns memory and file while the kernel may use
// them. It is taken at intake and given back with the final completion of the
// read and of its cancellation, if there was one, and at no other moment.
type entry struct {
	op    *Op // nil once the read has ended
	piece int
	geo   geometry
	nread int    // bytes of geo's range that were read
	stage []byte // where the kernel reads to instead of the piece's memory
	fixed fixedPart
	asked int    // bytes of the last submission
	gen   uint64 // of the last submission: names it among all of the slot's

	retries  int // since the last progress
	placed   bool
	inKernel bool // pushed, no completion yet
	unseen   bool // pushed, not yet taken by the kernel
	doomed   bool // to be ended at the next chance: its cancellation was asked for
	cancel   struct {
		state cancelling
		gen   uint64
	}

	prev, next int // by age, while op is there
}

// table is the pending table of a shard. It belongs to the shard's goroutine.
type table struct {
	entries []entry
	free    []int
	head    int // oldest, or -1
	tail    int
	reading int          // entries whose read has not ended
	oldest  atomic.Int64 // when the head was posted; 0 when there is none
}

func newTable(n int) *table {
	t := &table{entries: make([]entry, n), free: make([]int, n), head: -1, tail: -1}
	for i := range t.free {
		t.free[i] = n - 1 - i
	}
	return t
}

// used is the number of entries that are taken.
func (t *table) used() int { return len(t.entries) - len(t.free) }

// take makes an entry for a piece of op. Permits see to it that one is free.
func (t *table) take(op *Op, piece int) int {
	invariant.Check(len(t.free) > 0, "more operations than permits")
	slot := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	e := &t.entries[slot]
	p := &op.pieces[piece]
	p.slot = slot
	*e = entry{op: op, piece: piece, geo: align(p.off, len(p.mem), op.align), gen: e.gen, prev: t.tail, next: -1}
	if t.tail < 0 {
		t.head = slot
		t.oldest.Store(op.since)
	} else {
		t.entries[t.tail].next = slot
	}
	t.tail = slot
	t.reading++
	return slot
}

// endRead takes the read out of an entry.
func (t *table) endRead(e *entry) {
	if e.prev < 0 {
		t.head = e.next
	} else {
		t.entries[e.prev].next = e.next
	}
	if e.next < 0 {
		t.tail = e.prev
	} else {
		t.entries[e.next].prev = e.prev
	}
	if e.prev < 0 {
		since := int64(0)
		if t.head >= 0 {
			since = t.entries[t.head].op.since
		}
		t.oldest.Store(since)
	}
	e.op, e.stage = nil, nil
	t.reading--
}

// over reports whether nothing refers to the entry any more: neither its read
// nor its cancellation can have a completion to come.
func (e *entry) over() bool {
	return e.op == nil && !e.inKernel && (e.cancel.state == cancelNone || e.cancel.state == cancelDone)
}

// give makes the slot free for the next operation.
func (t *table) give(slot int) {
	e := &t.entries[slot]
	invariant.Check(e.over(), "an operation's slot is given away under it")
	t.free = append(t.free, slot)
}

// user_data names what a completion is of: kind, generation and slot. A
// completion that names anything but what is awaited is nobody's.
type userData uint64

const (
	kindRead userData = iota << 62
	kindCancel
	kindWake
	kindMask = kindRead | kindCancel | kindWake | 3<<62

	slotBits = 16 // EntriesMax fits
	genMask  = 1<<(62-slotBits) - 1
)

func tag(kind userData, slot int, gen uint64) userData {
	return kind | userData(gen&genMask)<<slotBits | userData(slot)
}

func (u userData) kind() userData { return u & kindMask }
func (u userData) slot() int      { return int(u & (1<<slotBits - 1)) }
func (u userData) gen() uint64    { return uint64(u&^kindMask) >> slotBits }

// item is something to be pushed into the submission queue.
type item struct {
	slot   int
	cancel bool
}

// backlog is what waits for room in the queues of the ring, in order. Every
// entry has at most one read and one cancellation in it.
type backlog struct {
	items []item
	head  int
}

func (b *backlog) len() int { return len(b.items) - b.head }

func (b *backlog) push(i item) { b.items = append(b.items, i) }

func (b *backlog) front() item { return b.items[b.head] }

func (b *backlog) pop() {
	b.head++
	switch {
	case b.head == len(b.items):
		b.items, b.head = b.items[:0], 0
	case b.head > 64 && b.head > len(b.items)/2:
		b.items, b.head = b.items[:copy(b.items, b.items[b.head:])], 0
	}
}
