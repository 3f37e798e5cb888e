package hybrid

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"ringfence/storage"
	"ringfence/storage/uring"
)

// batchBytes bounds what is asked of a driver at once: a caller that reads much
// must not keep others waiting for the bytes that a ring may have in flight.
const batchBytes = 16 << 20

// read reads while s serves.
func (f *file) read(ctx context.Context, s *serving, bufs []*storage.Buf, off int64) (int, error) {
	b := f.backend
	first := decide(b.facts(f, bufs, off), func() bool { return f.skips(off) })
	if first == stepBase || ctx.Err() != nil {
		return f.RawFile.ReadVec(ctx, bufs, off)
	}
	if b.hung.is() {
		return f.readHung(ctx, s, first, bufs, off, b.opts.Env.Now())
	}
	switch first {
	case stepBase, stepRing:
	case stepDirect:
		return f.readDirect(ctx, s, bufs, off)
	case stepCold:
		if f.warmth.firstPass(f, size(bufs)) {
			return f.readDirect(ctx, s, bufs, off)
		}
	case stepInline:
		n, done, err := f.readInline(ctx, bufs, off)
		if done {
			return n, err
		}
		return f.readAwaited(ctx, s, bufs, off, n)
	}
	return f.readRing(ctx, s, bufs, off, 0)
}

func (b *Backend) facts(f *file, bufs []*storage.Buf, off int64) facts {
	v := facts{
		off: off, written: f.written, inline: b.knobs.Inline.Load(), cold: b.knobs.ColdDirect.Load(),
		direct: b.knobs.Direct.Load(), from: b.knobs.DirectThreshold.Load(), state: directState(b.direct.Load()),
	}
	for _, buf := range bufs {
		n := len(buf.Bytes())
		v.length += n
		v.empty = v.empty || n == 0
	}
	return v
}

// skips reports whether an inline attempt would be wasted.
func (f *file) skips(off int64) bool {
	skip := f.warmth.skips(f, off)
	if skip {
		f.backend.count.skipped.Add(1)
	}
	return skip
}

// readInline is the first part of a read: what the page cache holds. Base
// counts it if it is the whole.
func (f *file) readInline(ctx context.Context, bufs []*storage.Buf, off int64) (n int, done bool, err error) {
	b := f.backend
	n, done, err = f.ReadInline(ctx, bufs, off)
	if !done && ctx.Err() != nil {
		return n, false, nil // maybe it was never its turn
	}
	f.warmth.at(f, off).Observe(done)
	if !done {
		b.count.misses.Add(1)
		return n, false, nil
	}
	if err != nil {
		return n, true, f.Wrap(err)
	}
	b.count.hits.Add(1)
	f.reclaim(off, n)
	return n, true, nil
}

// readRing reads through a ring what is left after the first have bytes, and
// through Base what a ring fails to read.
func (f *file) readRing(ctx context.Context, s *serving, bufs []*storage.Buf, off int64, have int) (int, error) {
	rest, start := unfilled(bufs, have)
	sample := f.sample(off + int64(start))
	n, err := f.ring(ctx, s, uring.Request{File: f.desc, Bufs: rest, Off: off + int64(start)})
	if err != nil {
		sample.forget()
		return f.fallBack(ctx, s, bufs, off, max(have, start+n), 0, err)
	}
	f.backend.count.ring.Add(1)
	f.backend.hung.answered(f.backend)
	sample.take(rest, n, f.reclaim(off, start+n))
	return start + n, nil
}

// readDirect reads through a ring past the page cache.
func (f *file) readDirect(ctx context.Context, s *serving, bufs []*storage.Buf, off int64) (int, error) {
	b := f.backend
	desc, align, err := f.Direct()
	if err != nil {
		if errors.Is(err, storage.ErrUnsupported) {
			b.noDirect(directNone, err)
		}
		return f.fallBack(ctx, s, bufs, off, 0, max(align, 1), err)
	}
	sample := f.sample(off)
	n, err := f.ring(ctx, s, uring.Request{File: desc, Bufs: bufs, Off: off, Align: align})
	if err != nil {
		sample.forget()
		return f.fallBack(ctx, s, bufs, off, n, align, err)
	}
	b.count.ringDirect.Add(1)
	b.hung.answered(b)
	sample.take(bufs, n, true)
	return n, nil
}

// ring makes a read, in batches that a ring can take. It returns how many bytes
// of whole buffers were read before an error.
func (f *file) ring(ctx context.Context, s *serving, r uring.Request) (int, error) {
	total, bufs, off := 0, r.Bufs, r.Off
	for len(bufs) > 0 {
		k, want := batch(bufs, s.config.entries)
		r.Bufs, r.Off = bufs[:k], off+int64(total)
		n, err := s.driver.Read(ctx, r)
		if err != nil {
			return total, err
		}
		total += n
		if n < want {
			break // the end of the file
		}
		bufs = bufs[k:]
	}
	return total, nil
}

// batch is how many of bufs one submission takes, and their bytes.
func batch(bufs []*storage.Buf, most int) (k, length int) {
	for _, b := range bufs {
		n := len(b.Bytes())
		if k > 0 && (k == most || length+n > batchBytes) {
			break
		}
		k++
		length += n
	}
	return k, length
}

// unfilled leaves out the buffers that the first n bytes fill, and says where
// the others begin. One that was filled in part is read again as a whole: what
// it holds came from the page cache and will again.
func unfilled(bufs []*storage.Buf, n int) (rest []*storage.Buf, start int) {
	for len(bufs) > 0 && start+len(bufs[0].Bytes()) <= n {
		start += len(bufs[0].Bytes())
		bufs = bufs[1:]
	}
	return bufs, start
}

// fallBack reads with Base what is left after have bytes. align is that of the
// O_DIRECT read that failed, 0 for others.
func (f *file) fallBack(ctx context.Context, s *serving, bufs []*storage.Buf, off int64, have, align int, cause error) (int, error) {
	if err := ctx.Err(); err != nil {
		return have, f.Wrap(err)
	}
	f.backend.failed(s, align > 0, cause)
	if stuck(cause) {
		// The driver was given up with the read in the kernel, which may still
		// write to the buffers: they can't be read into by Base, and must not
		// be used again by a caller who sees an ordinary error. Base would
		// wait for such a disk as well.
		<-ctx.Done()
		return have, f.Wrap(ctx.Err())
	}
	rest, start := unfilled(bufs, have)
	n, err := f.RawFile.ReadVec(ctx, rest, off+int64(start))
	if err == nil && align == 0 {
		f.reclaim(off, start+n)
	}
	return start + n, err
}

// failed learns from the error of a ring. Only what says that io_uring itself
// is not allowed any more keeps reads off the rings.
func (b *Backend) failed(s *serving, direct bool, err error) {
	if errors.Is(err, os.ErrClosed) {
		return // the file is closed: that is the caller's doing
	}
	b.count.fallbacks[reasonOf(err)].Add(1)
	switch {
	case direct && !errors.Is(err, uring.ErrClosed) && (errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP)):
		b.noDirect(directBroken, err)
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM):
		if b.serving.CompareAndSwap(s, nil) {
			b.trip(LatchActive, fmt.Sprintf("read: %v", err))
		}
	}
}

// noDirect keeps reads off O_DIRECT through rings.
func (b *Backend) noDirect(state directState, err error) {
	if b.direct.CompareAndSwap(uint32(directWorks), uint32(state)) {
		b.trip(LatchDirect, err.Error())
	}
}

// trip switches a latch on, says so once, and wakes the supervisor.
func (b *Backend) trip(kind, reason string) {
	if b.latches.trip(kind, reason, b.opts.Env.Now()) {
		b.opts.Log.Warn().Str("disk", b.opts.Dir).Str("latch", kind).Str("reason", reason).Msg(latchTexts[kind])
	}
	b.wake()
}

// wake has the supervisor take a look now.
func (b *Backend) wake() {
	select {
	case b.kick <- struct{}{}:
	default:
	}
}
