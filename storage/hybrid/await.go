package hybrid

import (
	"context"

	"ringfence/storage"
	"ringfence/storage/uring"
)

// readAwaited goes on after an inline attempt that found less than everything.
// The attempt had the kernel begin to read the whole range, so that a ring only
// needs to wait for its end: when the last byte has come, another attempt copies
// all of it on the caller, whose processor is the one that wants it. The ring's
// thread, of which there is one, copies nothing, and the kernel holds none of
// the caller's memory meanwhile. Where the kernel doesn't begin to read, or
// other than from front to back, the second attempt fails; so these
// are watched, over all files of the disk, and left out if they do.
func (f *file) readAwaited(ctx context.Context, s *serving, bufs []*storage.Buf, off int64, have int) (int, error) {
	b := f.backend
	if b.awaits.Skip() {
		return f.readRing(ctx, s, bufs, off, have)
	}
	last, err := b.opts.Pool.Get(1)
	if err != nil {
		return f.readRing(ctx, s, bufs, off, have)
	}
	sample := f.sample(off)
	one := [1]*storage.Buf{last}
	waited, err := f.ring(ctx, s, uring.Request{File: f.desc, Bufs: one[:], Off: off + int64(size(bufs)) - 1})
	last.Release()
	if err != nil {
		sample.forget()
		return f.fallBack(ctx, s, bufs, off, have, 0, err)
	}
	b.hung.answered(b)
	if waited == 0 { // the file ends before: nothing was awaited, and nothing is learned
		sample.forget()
		return f.readRing(ctx, s, bufs, off, have)
	}
	b.count.copies.Add(1)
	n, done, err := f.ReadInline(ctx, bufs, off)
	if !done || err != nil {
		b.count.copies.Add(-1)
	}
	if done || ctx.Err() == nil { // who left before his turn has seen nothing
		b.awaits.Observe(done)
	}
	if err != nil {
		sample.forget()
		return n, f.Wrap(err)
	}
	if !done {
		sample.forget()
		return f.readRing(ctx, s, bufs, off, n)
	}
	b.count.ring.Add(1)
	sample.take(bufs, n, f.reclaim(off, n))
	return n, nil
}

// size is the length of a read, in bytes.
func size(bufs []*storage.Buf) int {
	n := 0
	for _, b := range bufs {
		n += len(b.Bytes())
	}
	return n
}
