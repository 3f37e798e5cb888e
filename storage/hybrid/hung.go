package hybrid

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"ringfence/storage"
	"ringfence/storage/uring"
)

const (
	// hungTrial is how often a read may find out whether the disk is back.
	hungTrial = time.Second
	// hungInline bounds the inline attempts at a time while the disk hangs:
	// they are meant not to wait, but they start readahead, and that may.
	hungInline = 4
)

// hung knows whether the disk answers.
type hung struct {
	since  atomic.Int64 // Unix nanoseconds; 0 while the disk answers
	trial  atomic.Int64 // when the next trial may be, Unix nanoseconds
	tokens chan struct{}
}

func (h *hung) init() { h.tokens = make(chan struct{}, hungInline) }

func (h *hung) is() bool { return h.since.Load() != 0 }

// begin marks the disk, whose oldest read has waited for age. It reports false
// if the disk is marked already.
func (h *hung) begin(now time.Time, age time.Duration) bool {
	if h.is() {
		return false
	}
	h.trial.Store(now.Add(hungTrial).UnixNano())
	return h.since.CompareAndSwap(0, now.Add(-age).UnixNano())
}

// answered takes the mark away after a read that a ring made.
func (h *hung) answered(b *Backend) {
	if h.since.Load() != 0 && h.since.Swap(0) != 0 {
		b.latches.reset(LatchHung)
		b.opts.Log.Info().Str("disk", b.opts.Dir).Msg("the disk answers reads again")
	}
}

// try reports whether the caller is the one to find out.
func (h *hung) try(now time.Time) bool {
	next := h.trial.Load()
	return now.UnixNano() >= next && h.trial.CompareAndSwap(next, now.Add(hungTrial).UnixNano())
}

// readHung reads from a disk that does not answer: what the page cache holds,
// as long as looking there does not hang as well; now and then through a ring,
// to find out; and else it fails at once, so that the caller asks another disk.
func (f *file) readHung(ctx context.Context, s *serving, first step, bufs []*storage.Buf, off int64, now time.Time) (int, error) {
	b := f.backend
	have := 0
	select {
	case b.hung.tokens <- struct{}{}:
		n, done, err := f.readInline(ctx, bufs, off)
		<-b.hung.tokens
		if done {
			return n, err
		}
		have = n
	default:
	}
	if b.hung.try(now) {
		if first == stepDirect {
			return f.readDirect(ctx, s, bufs, off)
		}
		return f.readRing(ctx, s, bufs, off, have)
	}
	b.count.refused.Add(1)
	waited := now.Sub(time.Unix(0, b.hung.since.Load()))
	return 0, f.Wrap(fmt.Errorf("%w: does not answer reads for %s", storage.ErrOffline, waited.Round(time.Millisecond)))
}

// watch follows the counters of the rings, to tell a disk that hangs from one
// that is slow, or that has one bad spot.
type watch struct {
	ended     int64 // operations that came to an end by themselves
	already   int64
	progress  time.Time
	executing bool // since then a cancel found its operation executing
	hung      bool // since then the disk was found to hang
}

// look reports whether the disk hangs. It does when its oldest operation has
// been in flight for after and nothing else came to an end meanwhile; and from
// then on until something does, whatever becomes of after. What counts as an
// end is not what a cancel brought about. A cancel that found its operation
// executing says that the device has it, so half the time will do until
// something ends.
func (w *watch) look(t uring.ShardStats, now time.Time, after time.Duration) bool {
	ended := t.Delivered + t.Orphans - t.Cancels.Succeeded
	if ended != w.ended || t.InFlight == 0 || w.progress.IsZero() {
		// A cancel since the last look may have come before the end.
		w.progress, w.executing, w.hung = now, false, false
	} else if t.Cancels.Already > w.already {
		w.executing = true
	}
	w.ended, w.already = ended, t.Cancels.Already
	if w.executing {
		after /= 2
	}
	if t.Oldest >= after && now.Sub(w.progress) >= after {
		w.hung = true
	}
	return w.hung
}
