package std

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ringfence/internal/invariant"
	"ringfence/storage"
)

// vector takes count buffers of size and checks what reading into them gives.
func (r *rig) vector(t *testing.T, count, size int, off int64) {
	t.Helper()
	var bufs []*storage.Buf
	for range count {
		b := r.buf(t, size)
		defer b.Release()
		bufs = append(bufs, b)
	}
	n, err := storage.ReadFull(t.Context(), r.file, bufs, off)
	if err != nil || n != count*size {
		t.Fatalf("%d buffers: %d bytes, %v", count, n, err)
	}
	for i, b := range bufs {
		at := int(off) + i*size
		if !bytes.Equal(b.Bytes(), r.content[at:at+size]) {
			t.Fatalf("%d buffers: buffer %d holds wrong bytes", count, i)
		}
	}
}

// TestVectorsTakeFewCalls: one call per 1,024 buffers, inline and in the pool.
func TestVectorsTakeFewCalls(t *testing.T) {
	r := newRig(t, t.TempDir(), Options{})
	works := nowaitWorks(r)
	calls := 0
	count := func(inner func(int, []unix.Iovec, int64) (int, error)) func(int, []unix.Iovec, int64) (int, error) {
		return func(fd int, iovs []unix.Iovec, off int64) (int, error) {
			calls++
			return inner(fd, iovs, off)
		}
	}
	r.readNow, r.readBlocking = count(preadvNow), count(preadv)
	for _, nowait := range []bool{true, false} {
		if nowait && !works {
			continue
		}
		r.nowait.Store(nowait)
		for buffers, want := range map[int]int{1: 1, 256: 1, 1024: 1, 1025: 2, 3000: 3} {
			calls = 0
			r.vector(t, buffers, 333, 17)
			if calls != want {
				t.Errorf("nowait %t: %d calls for %d buffers, want %d", nowait, calls, buffers, want)
			}
		}
	}
}

// TestShortCountInsideABuffer: a call that ends anywhere is gone on from there,
// in the middle of a buffer as well.
func TestShortCountInsideABuffer(t *testing.T) {
	r := newRig(t, t.TempDir(), Options{})
	most := 0
	short := func(inner func(int, []unix.Iovec, int64) (int, error)) func(int, []unix.Iovec, int64) (int, error) {
		return func(fd int, iovs []unix.Iovec, off int64) (int, error) {
			left := most
			var cut []unix.Iovec
			for _, iov := range iovs {
				if left == 0 {
					break
				}
				n := min(int(iov.Len), left)
				iov.SetLen(n)
				cut, left = append(cut, iov), left-n
			}
			return inner(fd, cut, off)
		}
	}
	works := nowaitWorks(r)
	r.readNow, r.readBlocking = short(preadvNow), short(preadv)
	for _, nowait := range []bool{true, false} {
		if nowait && !works {
			continue
		}
		r.nowait.Store(nowait)
		for _, most = range []int{1, 332, 333, 334, 700, 5000} {
			r.vector(t, 7, 333, 4090)
			r.vector(t, 40, 100, 3)
		}
	}
}

// TestNowaitIsAskedOnce: a file system without it refuses one attempt, and no
// other is made.
func TestNowaitIsAskedOnce(t *testing.T) {
	for _, errno := range []error{unix.EOPNOTSUPP, unix.ENOSYS, unix.EPERM} {
		r := newRig(t, t.TempDir(), Options{})
		calls := 0
		r.readNow = func(int, []unix.Iovec, int64) (int, error) { calls++; return 0, errno }
		for range 5 {
			r.check(t, 100, 10_000)
		}
		if got := r.Stats().Reads; calls != 1 || got.Pool != 5 || got.Inline != 0 {
			t.Errorf("%v: %d attempts, reads: %+v", errno, calls, got)
		}
	}
}

// TestColdStreamsMakeNoAttempts, but for a few per cent; and as many as there
// are reads while all slots are taken, for the attempt begins the reading.
func TestColdStreamsMakeNoAttempts(t *testing.T) {
	r := newRig(t, t.TempDir(), Options{Slots: 1})
	attempts, cold := 0, true
	r.readNow = func(fd int, iovs []unix.Iovec, off int64) (int, error) {
		attempts++
		if cold {
			return 0, unix.EAGAIN
		}
		return preadv(fd, iovs, off)
	}
	const reads = 1000
	for range reads {
		r.check(t, 0, 4096)
	}
	if attempts == 0 || attempts > reads*6/100 {
		t.Errorf("%d attempts in %d cold reads", attempts, reads)
	}
	r.slots <- struct{}{}
	attempts = 0
	for range 10 {
		if !r.file.(*file).attempts(&vec{left: 1}) {
			t.Error("no attempt while the slots are taken")
		}
	}
	<-r.slots
	cold = false
	for range 40 { // one of these is a probe
		r.check(t, 0, 4096)
	}
	before := r.Stats().Reads.Inline
	for range 100 {
		r.check(t, 0, 4096)
	}
	if n := r.Stats().Reads.Inline - before; n != 100 {
		t.Errorf("%d of 100 reads are inline on a file that is hot again", n)
	}
}

// TestQueuedReadNeverRuns: who leaves the queue has not read, and will not.
func TestQueuedReadNeverRuns(t *testing.T) {
	r := newRig(t, t.TempDir(), Options{Slots: 1})
	started, free := r.hang()
	defer free()
	var calls atomic.Int64
	inner := r.readBlocking
	r.readBlocking = func(fd int, iovs []unix.Iovec, off int64) (int, error) {
		calls.Add(1)
		return inner(fd, iovs, off)
	}
	var wg sync.WaitGroup
	read := func(ctx context.Context, want error) {
		b := r.buf(t, 4096)
		wg.Go(func() {
			defer b.Release()
			if _, err := r.file.ReadAt(ctx, b, 0); !errors.Is(err, want) {
				t.Errorf("read: %v, want %v", err, want)
			}
		})
	}
	read(t.Context(), nil)
	<-started
	ctx, cancel := context.WithCancel(t.Context())
	for range 10 {
		read(ctx, context.Canceled)
	}
	cancel()
	// The queue is empty when nothing but the running read uses the file.
	waitFor(t, func() bool { return r.file.(*file).count() == 1 })
	free()
	wg.Wait()
	if err := r.Close(); err != nil { // waits for whatever runs
		t.Fatal(err)
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("%d reads ran, of which %d had been given up", n, n-1)
	}
}

// TestLateSlotIsGivenBack: a slot and the end of the context at the same
// moment are the end of the read.
func TestLateSlotIsGivenBack(t *testing.T) {
	r := newRig(t, t.TempDir(), Options{Slots: 4})
	r.nowait.Store(false)
	r.readBlocking = func(int, []unix.Iovec, int64) (int, error) {
		t.Error("it ran")
		return 0, unix.EIO
	}
	f := r.file.(*file)
	b := r.buf(t, 4096)
	defer b.Release()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 { // select takes either
		if err := f.Acquire(); err != nil {
			t.Fatal(err)
		}
		bufs := []*storage.Buf{b}
		if n, err := (blockingRead{file: f, vec: vecOf(bufs), prefix: 7}).start(ctx, bufs); n != 7 || !errors.Is(err, context.Canceled) {
			t.Fatalf("%d bytes, %v", n, err)
		}
	}
	if len(r.slots) != 0 || f.count() != 0 {
		t.Errorf("%d slots taken, %d users", len(r.slots), f.count())
	}
}

// TestAbandonedReadTouchesOnlyItsBuffers: the caller's list of buffers is its
// own again once the read returned, and what it puts there is not written to.
func TestAbandonedReadTouchesOnlyItsBuffers(t *testing.T) {
	r := newRig(t, t.TempDir(), Options{})
	started, free := r.hang()
	defer free()
	ctx, cancel := context.WithCancel(t.Context())
	bufs := []*storage.Buf{r.buf(t, 4096), r.buf(t, 4096)}
	abandoned := append([]*storage.Buf(nil), bufs...)
	done := make(chan error, 1)
	go func() {
		_, err := storage.ReadFull(ctx, r.file, bufs, 4096)
		done <- err
	}()
	<-started
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled read: %v", err)
	}
	canary := bytes.Repeat([]byte{0xa5}, 4096)
	for i := range bufs {
		bufs[i].Release()
		bufs[i] = r.buf(t, 4096)
		copy(bufs[i].Bytes(), canary)
		for _, old := range abandoned {
			if &old.Bytes()[0] == &bufs[i].Bytes()[0] {
				t.Error("the memory of a running read was given away")
			}
		}
	}
	free()
	if err := r.Close(); err != nil { // waits for the read
		t.Fatal(err)
	}
	for i, b := range bufs {
		if !bytes.Equal(b.Bytes(), canary) {
			t.Errorf("buffer %d was written to", i)
		}
		b.Release()
	}
	if got := r.pool.InUse(); got != 0 {
		t.Errorf("%d bytes in use", got)
	}
}

// TestOneOpenPerRead: the attempt and what follows its failure use the one
// descriptor that Open made.
func TestOneOpenPerRead(t *testing.T) {
	r := newRig(t, t.TempDir(), Options{})
	var fds []int
	r.readNow = func(fd int, iovs []unix.Iovec, off int64) (int, error) {
		fds = append(fds, fd)
		return 0, unix.EAGAIN
	}
	before := descriptors(t)
	r.readBlocking = func(fd int, iovs []unix.Iovec, off int64) (int, error) {
		fds = append(fds, fd)
		if n := descriptors(t); n != before {
			t.Errorf("%d descriptors more during the read", n-before)
		}
		return preadv(fd, iovs, off)
	}
	r.check(t, 0, 4096)
	if want := []int{r.file.(*file).fd, r.file.(*file).fd}; fmt.Sprint(fds) != fmt.Sprint(want) {
		t.Errorf("read from descriptors %v, want %v", fds, want)
	}
}

// TestNothingWaitsForARead: while a read hangs, all else on the same file
// answers.
func TestNothingWaitsForARead(t *testing.T) {
	r := newRig(t, t.TempDir(), Options{})
	r.openDirect(t)
	works := nowaitWorks(r)
	started, free := r.hang()
	defer free()
	b := r.buf(t, 4096)
	done := make(chan error, 1)
	go func() {
		_, err := r.file.ReadAt(t.Context(), b, 0)
		done <- err
	}()
	<-started
	r.nowait.Store(works)
	one := make(chan string)
	go func() {
		defer close(one)
		_, err := r.file.Size()
		errs := []error{err}
		if works {
			r.check(t, 4096, 10_000) // a hit
		}
		errs = append(errs, r.file.WriteAt(t.Context(), r.content[:10], 0), r.file.Sync(t.Context()))
		_, _, err = r.raw(t).Direct()
		errs = append(errs, err)
		f, err := r.Open(t.Context(), "file")
		if errs = append(errs, err); err == nil {
			errs = append(errs, f.Close())
		}
		r.Stats()
		errs = append(errs, r.Check(), r.file.Close())
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
	}()
	timeout := time.NewTimer(10 * time.Second)
	defer timeout.Stop()
	select {
	case <-one:
	case <-timeout.C:
		t.Error("something waits for the read")
	}
	free()
	if err := <-done; err != nil {
		t.Error(err)
	}
	b.Release()
}

// TestHungDiskUsesItsOwnSlots: another disk's reads don't notice.
func TestHungDiskUsesItsOwnSlots(t *testing.T) {
	sick, well := newRig(t, t.TempDir(), Options{Slots: 2}), newRig(t, t.TempDir(), Options{Slots: 2})
	started, free := sick.hang()
	defer free()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 20 {
		b := sick.buf(t, 4096)
		wg.Go(func() {
			defer b.Release()
			if _, err := sick.file.ReadAt(ctx, b, 0); !errors.Is(err, context.Canceled) {
				t.Errorf("read of the sick disk: %v", err)
			}
		})
	}
	<-started
	<-started
	well.nowait.Store(false) // by its pool
	for range 50 {
		well.check(t, 0, 100_000)
	}
	if n := len(started); n != 0 {
		t.Errorf("%d more reads run than the sick disk has slots", n)
	}
	cancel()
	wg.Wait()
}

// TestInlineReadsTakeTurns: goroutines that only ever hit share a processor
// by what they read, not by time slices.
func TestInlineReadsTakeTurns(t *testing.T) {
	if invariant.Enabled {
		t.Skip("the race detector throws away what processors keep")
	}
	r := newRig(t, t.TempDir(), Options{})
	if !nowaitWorks(r) {
		t.Skip("the file system has no RWF_NOWAIT")
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const size, readers, reads = 64 << 10, 3, 1600
	var turns []int // who read, in order; one processor, but preemption at any point
	var mu sync.Mutex
	var wg sync.WaitGroup
	for g := range readers {
		b := r.buf(t, size)
		wg.Go(func() {
			defer b.Release()
			for range reads {
				if _, err := r.file.ReadAt(t.Context(), b, 0); err != nil {
					t.Error(err)
				}
				mu.Lock()
				turns = append(turns, g)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	changes := 0
	for i := 1; i < len(turns); i++ {
		if turns[i] != turns[i-1] {
			changes++
		}
	}
	// By time slices of 10 ms there would be a handful.
	if want := readers * reads * size / yieldBytes; changes < want/2 || changes > want*2 {
		t.Errorf("%d changes of turn in %d reads, want about %d", changes, len(turns), want)
	}
}
