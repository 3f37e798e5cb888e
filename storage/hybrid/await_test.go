package hybrid

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ringfence/storage"
	"ringfence/storage/uring"
	"ringfence/storage/uring/ring"
	"ringfence/storage/uring/ringtest"
)

// TestRingsWaitAndCallersCopy: after an attempt that found less than everything
// a ring is asked for the last byte alone, and the read is that ring's.
func TestRingsWaitAndCallersCopy(t *testing.T) {
	needRings(t)
	const length, off, piece = 100_000, 3000, 30_000
	content := pattern(off + length + 5000)
	for _, c := range []struct {
		name  string
		found int
	}{{"nothing found", 0}, {"a buffer and a half found", piece * 3 / 2}, {"all but the last byte found", length - 1}} {
		t.Run(c.name, func(t *testing.T) {
			var n notes
			r := newRig(t, rigOptions{start: n.start, attempt: firstFinds(t, c.found)})
			r.needNowait(t)
			r.put(t, "a", content)
			f := r.open(t, "a")
			for i := range int64(3) {
				got, _, err := r.read(t.Context(), f, off, length, piece)
				if err != nil || !bytes.Equal(got, content[off:off+length]) {
					t.Fatalf("%d bytes, or not the ones wanted: %v", len(got), err)
				}
				n.want(t, asked{off: off + length - 1, length: 1})
				if s := r.Status(); s.Reads != (storage.ReadCounts{Ring: i + 1}) || s.Inline.Hits != 0 {
					t.Errorf("%+v, %+v", s.Reads, s.Inline)
				}
			}
			conserves(t, r.Status().Rings)
		})
	}
}

// TestAwaitBeyondTheEnd: where the last byte would be is none, so nothing can be
// awaited; and that says nothing of the disk.
func TestAwaitBeyondTheEnd(t *testing.T) {
	needRings(t)
	var n notes
	r := newRig(t, rigOptions{start: n.start, attempt: firstFinds(t, 0)})
	content := pattern(5000)
	r.put(t, "a", content)
	for range 40 {
		f, err := r.Open(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		r.want(t, f, content, 1000, 9000)
		n.want(t, asked{off: 9999, length: 1}, asked{off: 1000, length: 9000})
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if s := r.Stats().Reads; s != (storage.ReadCounts{Ring: 40}) {
		t.Errorf("%+v", s)
	}
}

// TestFailedAwaitFallsBack: the reference reads what a ring failed to wait for,
// and the next read is awaited again.
func TestFailedAwaitFallsBack(t *testing.T) {
	needRings(t)
	const size = 50_000
	script := &ringtest.Script{}
	r := newRig(t, rigOptions{attempt: firstFinds(t, 20_000), rings: uring.Options{Setup: ringtest.Wrap(ring.New, script)}})
	r.needNowait(t)
	content := pattern(size)
	r.put(t, "a", content)
	script.FailReads(1, int32(unix.EIO))
	r.want(t, r.open(t, "a"), content, 0, size)
	s := r.Status()
	if s.Fallbacks["eio"] != 1 || s.Reads.Ring != 0 || s.Reads.Inline+s.Reads.Pool != 1 || s.Tier != "ring" {
		t.Errorf("%+v, %+v", s.Reads, s.Fallbacks)
	}
	f := r.open(t, "a")
	r.want(t, f, content, 0, size)
	if after := r.Stats().Reads; after.Ring != 1 || after.Inline+after.Pool != 1 {
		t.Errorf("%+v", after)
	}
}

// TestCancelledAwaitHoldsNothing: who leaves while a ring waits gets away at
// once, and takes all his buffers with him.
func TestCancelledAwaitHoldsNothing(t *testing.T) {
	needRings(t)
	const size = 256 << 10
	script := &ringtest.Script{}
	r := newRig(t, rigOptions{attempt: firstFinds(t, 0), rings: uring.Options{Setup: ringtest.Wrap(ring.New, script)}})
	content := pattern(size)
	r.put(t, "a", content)
	f := r.open(t, "a")
	release := script.Stall(ringtest.AnyFD)
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result := make(chan error, 1)
	go func() {
		_, _, err := r.read(ctx, f, 0, size, 64<<10) // gives its buffers back
		result <- err
	}()
	s := r.await(t, "read in the kernel", func(Status) bool { return script.Counts().Held == 1 })
	if total := s.Rings.Total(); total.InFlight != 1 || total.InFlightBytes != 1 {
		t.Errorf("%+v", total)
	}
	begun := time.Now()
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("leaving took %v", took)
	}
	if n := r.pool.InUse(); n != storage.BufBytes(1) {
		t.Errorf("%d bytes are in use, want %d", n, storage.BufBytes(1))
	}
	release()
	s = r.await(t, "end of the read", func(s Status) bool { return s.Rings.Total().InFlight == 0 })
	conserves(t, s.Rings)
	if n := s.Rings.Total().Orphans; n != 1 || r.pool.InUse() != 0 || s.Reads != (storage.ReadCounts{}) {
		t.Errorf("%d orphans, %d bytes in use, %+v", n, r.pool.InUse(), s.Reads)
	}
	r.want(t, r.open(t, "a"), content, 0, size)
}

// TestVainAwaitsAreLeftOut: where the page cache does not hold what a ring has
// waited for, rings read at once, but for a few; and no more when it does.
func TestVainAwaitsAreLeftOut(t *testing.T) {
	needRings(t)
	const size = 10_000
	var n notes
	vain := true
	r := newRig(t, rigOptions{start: n.start, attempt: func(call int64, _ storage.RawFile, _ []*storage.Buf, _ int64) (int, bool, bool) {
		return 0, false, vain || call == 1
	}})
	r.needNowait(t)
	content := pattern(size)
	r.put(t, "a", content)
	last, whole := asked{off: size - 1, length: 1}, asked{length: size}
	// reads gives how many of so many first reads of a file were awaited. Each
	// first read makes an attempt.
	reads := func(count int) (awaited int) {
		t.Helper()
		for range count {
			f, err := r.Open(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			r.want(t, f, content, 0, size)
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			list := n.take()
			if list[0] == last {
				awaited++
				list = list[1:]
			}
			if vain && (len(list) != 1 || list[0] != whole) {
				t.Fatalf("%+v", list)
			}
		}
		return awaited
	}
	if got := reads(200); got < 2 || got > 40 {
		t.Errorf("%d of 200 vain reads were awaited", got)
	}
	if s := r.Status(); s.Reads != (storage.ReadCounts{Ring: 200}) || s.Inline.Attempts != 200 {
		t.Errorf("%+v, %+v", s.Reads, s.Inline)
	}
	vain = false
	reads(40)
	if got := reads(20); got != 20 {
		t.Errorf("%d of 20 reads were awaited after one that was not in vain", got)
	}
	f := r.open(t, "a")
	for range 40 {
		r.want(t, f, content, 0, size)
	}
	s := r.Status()
	if hits := s.Inline.Hits; hits == 0 || s.Reads != (storage.ReadCounts{Ring: 300 - hits, Inline: hits}) {
		t.Errorf("%+v, %+v", s.Reads, s.Inline)
	}
}

// TestAwaitWithoutMemory: without a buffer to wait with, a ring reads at once.
func TestAwaitWithoutMemory(t *testing.T) {
	needRings(t)
	const size = 10_000
	var n notes
	r := newRig(t, rigOptions{start: n.start, attempt: firstFinds(t, 0)})
	content := pattern(size)
	r.put(t, "a", content)
	f := r.open(t, "a")
	bufs, free := r.bufs(t, 1, size)
	defer free()
	s := r.pool.Stats()
	all, err := r.pool.Reserve(t.Context(), s.BudgetBytes-r.pool.InUse())
	if err != nil {
		t.Fatal(err)
	}
	got, err := f.ReadAt(t.Context(), bufs[0], 0)
	all.Release()
	if got != size || err != nil || !bytes.Equal(bufs[0].Bytes(), content) {
		t.Fatalf("%d bytes, or not the ones wanted: %v", got, err)
	}
	n.want(t, asked{length: size})
	if s := r.Stats().Reads; s != (storage.ReadCounts{Ring: 1}) {
		t.Errorf("%+v", s)
	}
}

// TestAwaitedReadsAreReclaimed, as are all that went through the page cache.
func TestAwaitedReadsAreReclaimed(t *testing.T) {
	needRings(t)
	const size = 2 << 20
	r := newRig(t, rigOptions{attempt: firstFinds(t, 0), set: func(k Knobs) {
		k.Reclaim.Store(true)
		k.ReclaimFrom.Store(size)
	}})
	r.needNowait(t)
	r.needDrops(t)
	content := pattern(size)
	r.put(t, "a", content)
	f := r.open(t, "a")
	r.want(t, f, content, 0, size)
	check(t, resident(t, r.dir, "a"), true)
	if s := r.Stats().Reads; s != (storage.ReadCounts{Ring: 1}) {
		t.Errorf("%+v", s)
	}
}

// TestAwaitedReadsAreCompared, and a difference is found.
func TestAwaitedReadsAreCompared(t *testing.T) {
	needRings(t)
	const size = 100_000
	content := pattern(size)
	for _, flips := range []bool{false, true} {
		misses := firstFinds(t, 0)
		r := newRig(t, rigOptions{set: func(k Knobs) { k.Shadow.Store(1) }, attempt: func(call int64, f storage.RawFile, bufs []*storage.Buf, off int64) (int, bool, bool) {
			if call == 1 || !flips {
				return misses(call, f, bufs, off)
			}
			n, done, err := f.ReadInline(t.Context(), bufs, off)
			if err != nil {
				t.Error(err)
			}
			bufs[0].Bytes()[17] ^= 1
			return n, done, true
		}})
		r.needNowait(t)
		r.put(t, "a", content)
		if _, n, err := r.read(t.Context(), r.open(t, "a"), 0, size, 1<<20); n != size || err != nil {
			t.Fatal(n, err)
		}
		want := ShadowStats{Compared: 1}
		if flips {
			want.Mismatch = 1
		}
		if got := r.settle(t); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		if s := r.Status(); s.Reads.Ring != 1 || s.latch(LatchShadow).On != flips {
			t.Errorf("%+v, %+v", s.Reads, s.Latches)
		}
	}
}

// TestCountersNeverFall while reads are awaited and others look, and none tells
// of a read that was not made.
func TestCountersNeverFall(t *testing.T) {
	needRings(t)
	r := newRig(t, rigOptions{attempt: func(call int64, _ storage.RawFile, _ []*storage.Buf, _ int64) (int, bool, bool) {
		return 0, false, call == 1
	}})
	r.needNowait(t)
	content := pattern(4096)
	r.put(t, "a", content)
	const reads = 300 // awaited, and as many from the page cache
	var begun atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range reads {
			f, err := r.Open(t.Context(), "a")
			if err != nil {
				t.Error(err)
				return
			}
			for range 2 {
				begun.Add(1)
				if _, _, err := r.read(t.Context(), f, 0, 4096, 4096); err != nil {
					t.Error(err)
				}
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
	}()
	var before storage.ReadCounts
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		now := r.Stats().Reads
		n := begun.Load()
		if now.Inline < before.Inline || now.Ring < before.Ring || now.Inline > n/2 || now.Ring > (n+1)/2 {
			t.Fatalf("%+v, before %+v", now, before)
		}
		before = now
	}
	if before != (storage.ReadCounts{Inline: reads, Ring: reads}) {
		t.Errorf("%+v", before)
	}
}

// TestLeavingTeachesAwaitsNothing: who leaves before it is his turn to copy has
// not seen what the page cache holds.
func TestLeavingTeachesAwaitsNothing(t *testing.T) {
	needRings(t)
	const size = 10_000
	var n notes
	var leave context.CancelFunc
	r := newRig(t, rigOptions{start: n.start, attempt: func(call int64, _ storage.RawFile, _ []*storage.Buf, _ int64) (int, bool, bool) {
		if call == 2 && leave != nil {
			leave()
			return 0, false, true
		}
		return 0, false, call == 1
	}})
	r.needNowait(t)
	content := pattern(size)
	r.put(t, "a", content)
	for range 40 {
		f, err := r.Open(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		var ctx context.Context
		ctx, leave = context.WithCancel(t.Context())
		if _, _, err := r.read(ctx, f, 0, size, size); !errors.Is(err, context.Canceled) {
			t.Errorf("gone, with %v", err)
		}
		leave()
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	leave = nil
	n.take()
	r.want(t, r.open(t, "a"), content, 0, size)
	n.want(t, asked{off: size - 1, length: 1})
	if s := r.Stats().Reads; s != (storage.ReadCounts{Ring: 1}) {
		t.Errorf("%+v", s)
	}
}
