package erasure

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"ringfence/erasure/rs"
	"ringfence/storage"
)

// blobReader reads one blob. It belongs to one goroutine; its fetches run in
// tasks of their own and share only what mu protects. Until close it holds the
// memory of two windows, so a goroutine should hold one reader at a time: two
// that wait for each other's memory would both be refused.
type blobReader struct {
	d     *data
	b     blob
	codec *rs.Codec
	wake  chan struct{} // a fetch that matters is over

	mu sync.Mutex
	// mu protects the fields below, and over and lost of every fetch.
	handles [MaxSetSize]*handle
	pending int  // fetches that are not over
	eager   bool // wake up for every fetch, not just the last
	closed  bool

	state readState
}

// readState is what the reading goroutine keeps for itself.
type readState struct {
	res      *storage.Reservation
	reserved int64
	spare    []*storage.Buf // memory to use again
	fetches  []*fetch       // to use again
	windows  []*window      // to use again
	ready    *window        // prefetched
	off, end int64          // of ready
	parent   context.Context
	heats    [windowMax][windowMax]heat // by the first stripe, and the last
	tick     <-chan time.Time
	stop     func() // gives tick back
	faults   readFaults
}

// heat is what the fetches of the same stripes of a window have in common: all
// of them are needed until these stripes are done, and none is any more after.
// So one context serves them all, and goes on from window to window while no
// fetch has to be given up.
type heat struct {
	ctx    context.Context
	cancel context.CancelFunc // nil: there is none
}

// end cancels what still runs.
func (h *heat) end() {
	if h.cancel != nil {
		h.cancel()
	}
	*h = heat{}
}

// readFaults is what a reader learned about the shards, by bit or index.
type readFaults struct {
	avoid uint16            // try last
	dead  uint16            // gone or wrong as a whole
	told  uint16            // reported as damaged
	errs  [MaxSetSize]error // the latest of each
}

// open makes a reader. It reads nothing yet.
func (d *data) open(ctx context.Context, b blob) (*blobReader, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if err := b.check(); err != nil {
		return nil, fmt.Errorf("open blob %s: %w: %w", b.id(), ErrCorrupt, err)
	}
	codec, err := d.codecs.Get(int(b.Layout.K), int(b.Layout.M))
	if err != nil {
		return nil, fmt.Errorf("open blob %s: %w", b.id(), err)
	}
	r := &blobReader{d: d, b: b, codec: codec, wake: make(chan struct{}, 1)}
	now := d.opts.Env.Now()
	for i, slot := range b.Layout.Slots {
		switch {
		case int(slot) >= len(d.reads):
			r.state.faults.dead |= 1 << i
			r.state.faults.errs[i] = fmt.Errorf("no such slot: %w", storage.ErrOffline)
		case i < int(b.Layout.K) && d.reads[slot].avoided(now), i >= int(b.Layout.K) && d.reads[slot].aside(now):
			// Only a reader of a data shard may be the one to try the disk:
			// another might never come to read from it.
			r.state.faults.avoid |= 1 << i
		}
	}
	for _, i := range b.Missing {
		r.state.faults.avoid |= 1 << i
	}
	return r, nil
}

// prefetch reads and verifies the first window of off <= x < off+n, so that
// most errors show before anything is delivered. A writeTo of the same range
// goes on from there.
func (r *blobReader) prefetch(ctx context.Context, off, n int64) error {
	if err := r.checkRange(off, n); err != nil || n == 0 {
		return err
	}
	r.begin(ctx)
	w, err := r.first(ctx, off, off+n)
	if err != nil {
		return err
	}
	if err := r.await(ctx, w); err != nil {
		r.discard(w)
		return err
	}
	r.state.ready, r.state.off, r.state.end = w, off, off+n
	return nil
}

// writeTo delivers off <= x < off+n to w and returns how many bytes it did. All
// of them are verified. Errors: w's as it is, ErrUnavailable, ErrCorrupt,
// ErrOverload, ctx's.
func (r *blobReader) writeTo(ctx context.Context, w io.Writer, off, n int64) (int64, error) {
	if err := r.checkRange(off, n); err != nil || n == 0 {
		return 0, err
	}
	r.begin(ctx)
	end := off + n
	cur := r.state.ready
	r.state.ready = nil
	if cur != nil && (r.state.off != off || r.state.end != end) {
		r.discard(cur)
		cur = nil
	}
	if cur == nil {
		var err error
		if cur, err = r.first(ctx, off, end); err != nil {
			return 0, err
		}
	}
	var done int64
	for {
		if err := r.await(ctx, cur); err != nil {
			r.discard(cur)
			return done, err
		}
		var next *window
		if s := cur.first + int64(cur.n); s*int64(r.b.Layout.stripeSize()) < end {
			var err error
			if next, err = r.start(s, off, end); err != nil {
				r.discard(cur)
				return done, err
			}
		}
		m, err := deliver(w, cur)
		done += m
		r.discard(cur)
		if err != nil {
			r.discard(next)
			return done, err
		}
		if next == nil {
			return done, nil
		}
		cur = next
	}
}

func (r *blobReader) checkRange(off, n int64) error {
	if off < 0 || n < 0 || off > r.b.Size || n > r.b.Size-off {
		return fmt.Errorf("read blob %s: %d bytes from %d of %d", r.b.id(), n, off, r.b.Size)
	}
	return nil
}

// deliver writes the wanted bytes of a window straight from its blocks.
func deliver(w io.Writer, win *window) (int64, error) {
	var done int64
	for i := range win.n {
		st := &win.stripes[i]
		for pos := st.lo; pos < st.hi; {
			block, from := pos/st.length, pos%st.length
			to := min(st.length, from+st.hi-pos)
			n, err := w.Write(st.blocks[block].Bytes()[from:to])
			done += int64(n)
			if err != nil {
				return done, err
			}
			if n < to-from {
				return done, io.ErrShortWrite
			}
			pos += n
		}
	}
	return done, nil
}

// close gives everything back. Fetches under way end in their own time.
func (r *blobReader) close() {
	r.discard(r.state.ready)
	r.state.ready = nil
	r.mu.Lock()
	r.closed = true
	handles := r.handles
	r.handles = [MaxSetSize]*handle{}
	r.mu.Unlock()
	for _, h := range handles {
		if h != nil {
			r.release(h)
		}
	}
	r.giveBack()
	r.endHeats()
	if r.state.tick != nil {
		r.state.stop()
		r.state.tick = nil
	}
}

// giveBack returns the memory that nobody uses.
func (r *blobReader) giveBack() {
	for _, b := range r.state.spare {
		b.Release()
	}
	r.state.spare = nil
	if r.state.res != nil {
		r.state.res.Release()
	}
	r.state.res, r.state.reserved = nil, 0
}

// first reserves memory for off <= x < end and starts its first window.
func (r *blobReader) first(ctx context.Context, off, end int64) (*window, error) {
	r.discard(r.state.ready)
	r.state.ready = nil
	l := r.b.Layout
	size := int64(l.stripeSize())
	stripes := min((end-1)/size-off/size+1, 2*int64(windowStripes(l)))
	need := stripes * int64(l.shards()) * storage.BufBytes(l.BlockSize)
	if r.state.reserved < need {
		r.giveBack()
		res, err := r.d.reserve(ctx, need)
		if err != nil {
			return nil, err
		}
		r.state.res, r.state.reserved = res, need
	}
	return r.start(off/size, off, end)
}

// buf is memory for one block. A fetch that was given up may still hold some
// of the reservation: then it is borrowed from the pool.
func (r *blobReader) buf() (*storage.Buf, error) {
	if n := len(r.state.spare); n > 0 {
		b := r.state.spare[n-1]
		r.state.spare = r.state.spare[:n-1]
		b.SetLen(r.b.Layout.BlockSize)
		return b, nil
	}
	b, err := r.state.res.Get(r.b.Layout.BlockSize)
	if err != nil {
		b, err = r.d.opts.Pool.Get(r.b.Layout.BlockSize)
	}
	if err != nil {
		return nil, fmt.Errorf("read: %w: %w", ErrOverload, err)
	}
	return b, nil
}

// begin makes ctx the parent of the fetches from now on. What ran below the one
// before is over, or was given up.
func (r *blobReader) begin(ctx context.Context) {
	r.endHeats()
	r.state.parent = ctx
}

func (r *blobReader) endHeats() {
	for first := range r.state.heats {
		for last := range r.state.heats[first] {
			r.state.heats[first][last].end()
		}
	}
}

// heat is that of n stripes from stripe at of a window on.
func (r *blobReader) heat(at, n int) *heat {
	h := &r.state.heats[at][at+n-1]
	if h.cancel == nil {
		h.ctx, h.cancel = context.WithCancel(r.state.parent)
	}
	return h
}
