package uring

import (
	"context"
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"ringfence/storage"
)

// What became of an Op. Whoever moves it away from waiting has decided, once.
const (
	opWaiting   uint32 = iota
	opDelivered        // the shard did: the outcome is the caller's
	opAbandoned        // the caller did: the outcome is nobody's
	opStranded         // the shard gave up; the kernel may still have the memory
)

// Op is a read in flight: one operation on the ring for each of its Bufs. The
// shard owns everything in it from the moment it was posted until done gets its
// token, except for what is atomic.
type Op struct {
	state  atomic.Uint32
	pooled bool // used again after delivery; never seen outside of Read
	// done gets one token per wait if pooled, else it is closed.
	done chan struct{}

	file    storage.Descriptor
	pieces  []piece
	one     [1]*storage.Buf // room for a request's list of one
	align   int             // 0 without O_DIRECT
	current bool            // read(2): from where the file stands, a short read is final
	bytes   int64
	count   int // operations: pieces that aren't empty
	left    int // operations whose outcome is open; the shard's alone
	since   int64

	// The wait for permits; protected by permits.mu.
	shard   *shard // granted
	refusal error
	line    struct{ prev, next *Op }
}

// piece is the part of a read that goes into one Buf.
type piece struct {
	buf    *storage.Buf
	mem    []byte       // what to fill; its capacity is the Buf's
	bounce *storage.Buf // where the kernel can't read into mem
	off    int64
	slot   int // in the table, while in flight
	n      int
	err    error
}

// Wait waits for the outcome: how many bytes were read, fewer only at the end
// of the file. When ctx ends first it returns at once with ctx's error and has
// the kernel asked to stop; the outcome is lost then, and so it is after Cancel
// (ECANCELED). It may be called several times, concurrently.
func (o *Op) Wait(ctx context.Context) (int, error) {
	if o.shard == nil { // there was nothing to read
		return 0, nil
	}
	select {
	case <-o.done:
		return o.result()
	case <-ctx.Done():
		if o.abandon() {
			return 0, ctx.Err()
		}
	case <-o.shard.stuck:
		o.state.CompareAndSwap(opWaiting, opStranded)
	}
	if o.state.Load() == opDelivered { // at the same moment: we are about to be told
		<-o.done
	}
	return o.result()
}

var errStranded = fmt.Errorf("%w: the read does not end", ErrClosed)

// Cancel gives the outcome up, if there is none yet, and asks the kernel to
// stop. The memory and the file stay in use until it has.
func (o *Op) Cancel() { o.abandon() }

// abandon reports whether the outcome was still open.
func (o *Op) abandon() bool {
	if !o.state.CompareAndSwap(opWaiting, opAbandoned) {
		return false
	}
	// An abandoned Op is never used again, so the message can't meet another.
	o.shard.mail.post(message{op: o, cancel: true})
	if !o.pooled {
		close(o.done)
	}
	return true
}

// publish tells whoever waits. The Op may be in use for another read when it
// returns.
func (o *Op) publish() {
	if o.pooled {
		o.done <- struct{}{}
	} else {
		close(o.done)
	}
}

// result is valid after done, and for what was never delivered.
func (o *Op) result() (int, error) {
	switch o.state.Load() {
	case opAbandoned:
		return 0, unix.ECANCELED
	case opStranded:
		return 0, errStranded
	}
	total := 0
	for i := range o.pieces {
		p := &o.pieces[i]
		if p.err != nil {
			return 0, p.err
		}
		total += p.n
		if p.n < len(p.mem) {
			break // the file ended here, whatever the later ones met
		}
	}
	return total, nil
}

// reset makes a delivered Op ready for the next read.
func (o *Op) reset() {
	clear(o.pieces)
	o.pieces = o.pieces[:0]
	o.one[0] = nil
	o.file, o.shard, o.refusal = nil, nil, nil
	o.align, o.current, o.bytes, o.count, o.left = 0, false, 0, 0, 0
	o.state.Store(opWaiting)
}
