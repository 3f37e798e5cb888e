package erasure

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ringfence/storage"
)

// racer is a disk whose reads take as long as the test says, and that notes
// when it was told to stop one.
type racer struct {
	storage.Disk
	slow func(first, n int) time.Duration

	mu      sync.Mutex
	stopped []time.Time // protected by mu
}

func (l *racer) OpenShard(ctx context.Context, id storage.ShardID) (storage.ShardReader, error) {
	r, err := l.Disk.OpenShard(ctx, id)
	return &racerReader{r, l}, err
}

func (l *racer) stops() []time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.stopped)
}

type racerReader struct {
	storage.ShardReader
	l *racer
}

func (r *racerReader) ReadBlocks(ctx context.Context, first int, bufs []*storage.Buf) error {
	if d := r.l.slow(first, len(bufs)); d > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
			r.l.mu.Lock()
			r.l.stopped = append(r.l.stopped, time.Now())
			r.l.mu.Unlock()
			return ctx.Err()
		}
	}
	return r.ShardReader.ReadBlocks(ctx, first, bufs)
}

// racingRig makes a rig whose disks are racers, none of them slow.
func racingRig(t *testing.T, n, parity int) (*dataRig, []*racer) {
	var all []*racer
	rig := newDataRig(t, n, parity, func(o *dataOptions) {
		for i, d := range o.Disks {
			l := &racer{Disk: d, slow: func(int, int) time.Duration { return 0 }}
			all = append(all, l)
			o.Disks[i] = l
		}
	})
	return rig, all
}

// ofShard is the disk of a shard of b.
func ofShard(all []*racer, b blob, shard int) *racer { return all[b.Layout.Slots[shard]] }

// A shard that is late is asked of another disk, and its own disk is told to
// stop before the first byte goes out.
func TestLoserIsCancelledAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig, all := racingRig(t, 6, 2)
		body := randomBytes(3<<20, 31)
		b := rig.store(body)
		late := ofShard(all, b, 1)
		late.slow = func(int, int) time.Duration { return 5 * time.Second }
		start := time.Now()
		var first time.Time
		r, err := rig.open(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		defer r.close()
		var got bytes.Buffer
		_, err = r.writeTo(t.Context(), writerFunc(func(p []byte) (int, error) {
			if first.IsZero() {
				first = time.Now()
				synctest.Wait() // whoever was cancelled notices now
				if n := len(late.stops()); n != 1 {
					t.Errorf("%d reads of the late disk were stopped before the first byte, want 1", n)
				}
			}
			return got.Write(p)
		}), 0, b.Size)
		if err != nil || !bytes.Equal(got.Bytes(), body) {
			t.Fatalf("%d bytes, %v", got.Len(), err)
		}
		if took := first.Sub(start); took == 0 || took >= 300*time.Millisecond {
			t.Errorf("the first byte took %v", took)
		}
		if at := late.stops()[0]; !at.Equal(first) {
			t.Errorf("the late disk was told to stop %v after the first byte", at.Sub(first))
		}
		for i, l := range all {
			if l != late && len(l.stops()) != 0 {
				t.Errorf("disk %d was told to stop a read that was needed", i)
			}
		}
		if n := rig.count.Hedged.Load(); n != 1 {
			t.Errorf("%d extra reads, want 1", n)
		}
	})
}

// A read is stopped when its own stripes are done, though others of the same
// window are not.
func TestLoserDoesNotWaitForItsWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig, all := racingRig(t, 4, 2)
		body := randomBytes(1<<20, 32)
		b := rig.store(body)
		if n := windowStripes(b.Layout); n != 2 || b.Layout.stripes(b.Size) != 2 {
			t.Fatalf("windows of %d stripes, %d in all; want one window of 2", n, b.Layout.stripes(b.Size))
		}
		// Of the first stripe only the second block is wanted: shard 1 is read
		// for both stripes, shard 0 for the second. Both are late, and what is
		// read in their place does for the second stripe alone: the first then
		// takes shard 0 as well, by a read of its own.
		off := int64(b.Layout.stripeSize() - 1)
		ofShard(all, b, 1).slow = func(int, int) time.Duration { return time.Minute }
		ofShard(all, b, 0).slow = func(first, _ int) time.Duration {
			if first == 0 {
				return 700 * time.Millisecond
			}
			return time.Minute
		}
		rig.sims[b.Layout.Slots[3]].FlipBit(b.id(), 0, 99)
		start := time.Now()
		r, err := rig.open(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		defer r.close()
		if err := r.prefetch(t.Context(), off, b.Size-off); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 700*time.Millisecond+5*hedgeMin {
			t.Errorf("the window was done after %v", took)
		}
		synctest.Wait()
		if got := ofShard(all, b, 0).stops(); len(got) != 1 || got[0].Sub(start) != 5*hedgeMin {
			t.Errorf("the read whose stripe was done was stopped at %v, want %v", got, start.Add(5*hedgeMin))
		}
		if got := ofShard(all, b, 1).stops(); len(got) != 1 || got[0].Sub(start) != 700*time.Millisecond+5*hedgeMin {
			t.Errorf("the read whose stripes were not done was stopped at %v", got)
		}
		var out bytes.Buffer
		if _, err := r.writeTo(t.Context(), &out, off, b.Size-off); err != nil || !bytes.Equal(out.Bytes(), body[off:]) {
			t.Errorf("%d bytes, %v", out.Len(), err)
		}
	})
}

// Whoever reads no further stops all disks, and so does a client that leaves.
func TestReaderThatLeavesCancelsItsFetches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig, all := racingRig(t, 6, 2)
		b := rig.store(randomBytes(3<<20, 33))
		for _, l := range all {
			l.slow = func(int, int) time.Duration { return 5 * time.Second }
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Millisecond, cancel)
		r, err := rig.open(ctx, b)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if err := r.prefetch(ctx, 0, b.Size); !errors.Is(err, context.Canceled) {
			t.Errorf("prefetch: %v, want Canceled", err)
		}
		r.close()
		synctest.Wait()
		stopped := 0
		for _, l := range all {
			for _, at := range l.stops() {
				stopped++
				if took := at.Sub(start); took != 20*time.Millisecond {
					t.Errorf("a read was stopped after %v", took)
				}
			}
		}
		if stopped != int(b.Layout.K) {
			t.Errorf("%d reads were stopped, want %d", stopped, b.Layout.K)
		}
		if held := rig.pool.InUse(); held != 0 {
			t.Errorf("%d bytes are held", held)
		}
	})
}

// A blob that loses more shards than parity makes good while it is delivered
// ends in an error: what came before is right, and less than all.
func TestReadFailsInTheMiddle(t *testing.T) {
	rig := newDataRig(t, 6, 2, nil)
	body := randomBytes(12<<20, 34)
	b := rig.store(body)
	r, err := rig.open(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	var got bytes.Buffer
	n, err := r.writeTo(t.Context(), writerFunc(func(p []byte) (int, error) {
		if got.Len() == 0 {
			for slot := range 3 {
				rig.sims[slot].Vanish()
			}
		}
		return got.Write(p)
	}), 0, b.Size)
	if !errors.Is(err, ErrUnavailable) || n != int64(got.Len()) || n == 0 || n >= b.Size {
		t.Errorf("%d of %d bytes, %v, want some and ErrUnavailable", n, b.Size, err)
	}
	if !bytes.HasPrefix(body, got.Bytes()) {
		t.Error("wrong bytes were delivered before the error")
	}
	if _, err := r.writeTo(t.Context(), io.Discard, 0, b.Size); !errors.Is(err, ErrUnavailable) {
		t.Errorf("once more: %v, want ErrUnavailable", err)
	}
}
