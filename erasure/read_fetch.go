package erasure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ringfence/erasure/frame"
	"ringfence/storage"
)

// fetch is one read of consecutive blocks of one shard into a window. The
// reader fills it in and starts it as a task; from then on it is the task's,
// until over is set. A task that is given up on keeps its memory and gives it
// back itself.
type fetch struct {
	r      *blobReader
	run    func() // f.do, made once: starting a fetch allocates nothing
	shard  uint8
	at     int // first stripe in the window
	n      int // blocks
	block  int64
	bufs   [windowMax]*storage.Buf
	ctx    context.Context // ends when nobody needs the blocks any more
	waited bool            // the reader's: it was late

	took  time.Duration
	good  [windowMax]bool // verified
	dirty bool            // the engine may still write to bufs
	err   error           // why some are not good

	// The reader's mu protects the fields below.
	begun time.Time // when the task ran at last; zero: not yet
	over  bool
	lost  bool
}

// do is the task.
func (f *fetch) do() {
	r := f.r
	defer r.d.tasks.Done()
	begun := r.d.opts.Env.Now()
	r.mu.Lock()
	f.begun = begun
	r.mu.Unlock()
	f.err = f.read()
	f.took = r.d.opts.Env.Now().Sub(begun)
	r.mu.Lock()
	f.over = true
	lost := f.lost
	if !lost {
		r.pending--
	}
	wake := r.pending == 0 || r.eager || f.err != nil
	r.mu.Unlock()
	if lost {
		f.release()
	} else if wake {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

// release gives the memory back for good.
func (f *fetch) release() {
	for i, b := range f.bufs {
		if b != nil {
			b.Release()
			f.bufs[i] = nil
		}
	}
}

// read fills and verifies the blocks. It fails when one of them is not good.
func (f *fetch) read() error {
	h, err := f.r.acquire(f.ctx, f.shard)
	if err != nil {
		return err
	}
	defer f.r.release(h)
	bufs := f.bufs[:f.n]
	err = h.reader.ReadBlocks(f.ctx, int(f.block), bufs)
	if err == nil {
		return f.verify(h.reader, 0, f.n)
	}
	if f.ctx.Err() != nil || f.n == 1 || errors.Is(err, storage.ErrOffline) {
		f.dirty = f.ctx.Err() != nil
		return fmt.Errorf("read blocks from %d: %w", f.block, err)
	}
	// One bad block must not cost its neighbours.
	errs := []error{err}
	for i := range bufs {
		if err := h.reader.ReadBlocks(f.ctx, int(f.block)+i, bufs[i:i+1]); err != nil {
			errs = append(errs, err)
		} else if err := f.verify(h.reader, i, i+1); err != nil {
			errs = append(errs, err)
		}
		if f.ctx.Err() != nil {
			f.dirty = true
			break
		}
	}
	return fmt.Errorf("read blocks from %d: %w", f.block, errors.Join(errs...))
}

// verify checks blocks from to to of the fetch where they lie.
func (f *fetch) verify(rd storage.ShardReader, from, to int) error {
	b := &f.r.b
	var bad error
	for i := from; i < to; i++ {
		s := f.block + int64(i)
		p := f.bufs[i].Bytes()
		f.good[i] = len(p) == b.Layout.blockLen(b.Layout.stripeLen(b.Size, s)) &&
			frame.Verify(rd.Sum(int(s)), b.UUID, b.Part, f.shard, uint32(s), p)
		if !f.good[i] && bad == nil {
			bad = fmt.Errorf("block %d does not verify: %w", s, storage.ErrCorrupt)
		}
	}
	return bad
}

// handle is an open shard. refs is protected by the reader's mu: the reader
// holds one until it closes, a fetch one while it reads, and the last closes.
type handle struct {
	reader storage.ShardReader
	refs   int
}

// acquire opens a shard, or takes it as it is open already.
func (r *blobReader) acquire(ctx context.Context, shard uint8) (*handle, error) {
	r.mu.Lock()
	if h := r.handles[shard]; h != nil {
		h.refs++
		r.mu.Unlock()
		return h, nil
	}
	r.mu.Unlock()
	rd, err := r.d.opts.Disks[r.b.Layout.Slots[shard]].OpenShard(ctx, r.b.id())
	if err != nil {
		return nil, fmt.Errorf("open shard: %w", err)
	}
	if info := rd.Info(); info.BlockSize != r.b.Layout.BlockSize || info.Size != r.b.Layout.shardSize(r.b.Size) {
		err := fmt.Errorf("open shard: %d bytes in blocks of %d, want %d in %d: %w", info.Size, info.BlockSize,
			r.b.Layout.shardSize(r.b.Size), r.b.Layout.BlockSize, storage.ErrCorrupt)
		return nil, errors.Join(err, rd.Close())
	}
	h := &handle{reader: rd, refs: 1}
	r.mu.Lock()
	if r.handles[shard] == nil && !r.closed {
		r.handles[shard] = h
		h.refs++
	}
	r.mu.Unlock()
	return h, nil
}

// release gives a handle back.
func (r *blobReader) release(h *handle) {
	r.mu.Lock()
	h.refs--
	last := h.refs == 0
	r.mu.Unlock()
	if !last {
		return
	}
	if err := h.reader.Close(); err != nil {
		r.d.opts.Log.Warn().Stringer("shard", r.b.id()).Err(err).Msg("close shard")
	}
}
