package uring

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ringfence/storage"
	"ringfence/storage/uring/ringtest"
)

// TestAbandonedBufferLivesUntilTheKernelIsDone abandons without cancelling.
func TestAbandonedBufferLivesUntilTheKernelIsDone(t *testing.T) {
	pool := newPool(t, 8<<20)
	d := start(t, Options{})
	ops, feed := blocked(t, d, pool, 1)
	inKernel(t, d, 1)
	fd := ops[0].file.FD()
	if !ops[0].state.CompareAndSwap(opWaiting, opAbandoned) {
		t.Fatal("not waiting")
	}
	quiet, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	<-quiet.Done()
	if s := d.Stats().Total(); s.InFlight != 1 || s.Orphans != 0 || s.Oldest < 200*time.Millisecond {
		t.Fatalf("%+v", s)
	}
	if pool.InUse() != 4096 {
		t.Fatalf("the buffer went home early: %d in use", pool.InUse())
	}
	// The caller gave its reference of the file back: the driver has its own.
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
		t.Fatalf("descriptor: %v", err)
	}
	if _, err := feed[0].WriteString("late"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it ended", func() bool { return d.Stats().Total().InFlight == 0 })
	if pool.InUse() != 0 {
		t.Errorf("%d bytes in use", pool.InUse())
	}
	if s := d.Stats().Total(); s.InFlight != 0 || s.Orphans != 1 || s.OrphanBytes != 4 {
		t.Errorf("%+v", s)
	}
	eventually(t, "the file is closed", func() bool {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		return err != nil
	})
}

func TestCancellingEndsAReadSoon(t *testing.T) {
	pool := newPool(t, 8<<20)
	d := start(t, Options{})
	r, _ := newPipe(t)
	b := getBuf(t, pool, 4096)
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan error, 1)
	go func() {
		_, err := d.ReadCurrent(ctx, r, b)
		got <- err
	}()
	eventually(t, "it is in flight", func() bool { return d.Stats().Total().InFlight == 1 })
	cancel()
	if err := <-got; err != context.Canceled {
		t.Fatal(err)
	}
	b.Release()
	begin := time.Now()
	eventually(t, "the buffer goes home", func() bool { return pool.InUse() == 0 && d.Stats().Total().Orphans == 1 })
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("it took %v", took)
	}
}

// TestCancelsGoToTheOwningRing: only there the reads are found.
func TestCancelsGoToTheOwningRing(t *testing.T) {
	pool := newPool(t, 8<<20)
	d, script := scripted(t, Options{Shards: 4, Entries: 16})
	ops, _ := blocked(t, d, pool, 16)
	inKernel(t, d, 16)
	for range 3 { // once is enough, more is no more
		for _, o := range ops {
			o.Cancel()
		}
	}
	for _, o := range ops {
		if _, err := o.Wait(t.Context()); err != unix.ECANCELED {
			t.Errorf("cancelled: %v", err)
		}
	}
	eventually(t, "all ended", func() bool { return d.Stats().Total().InFlight == 0 })
	s := d.Stats()
	conserved(t, s)
	if n := s.Total(); n.Orphans != 16 || n.Delivered != 0 {
		t.Errorf("%+v", n)
	}
	if _, err := d.Close(t.Context()); err != nil {
		t.Error(err)
	}
	s = d.Stats()
	if c := s.Total().Cancels; c.Succeeded != 16 || c.NotFound != 0 || c.Already != 0 || script.Counts().Cancels != 16 {
		t.Errorf("%+v, %d pushed", c, script.Counts().Cancels)
	}
	if pool.InUse() != 0 {
		t.Errorf("%d bytes in use", pool.InUse())
	}
}

// TestQueuedReadKeepsItsFile: the number of a file that its user closed must
// not become another file's before the kernel has seen it.
func TestQueuedReadKeepsItsFile(t *testing.T) {
	pool := newPool(t, 8<<20)
	d, script := scripted(t, Options{Pool: pool})
	old, other := content(4096), bytes.Repeat([]byte{9}, 4096)
	f := openFile(t, writeFile(t, old), 0)
	fd := f.fd
	script.BreakEnters(unix.EBUSY) // what is pushed stays queued
	b := getBuf(t, pool, 4096)
	defer b.Release()
	o, err := d.TrySubmit(Request{File: f, Bufs: []*storage.Buf{b}})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is queued", func() bool { return script.Counts().Reads == 1 })
	if err := f.Release(); err != nil {
		t.Fatal(err)
	}
	second := openFile(t, writeFile(t, other), 0)
	if second.fd == fd {
		t.Fatal("the number was given away")
	}
	script.BreakEnters(nil)
	if n, err := o.Wait(t.Context()); err != nil || !bytes.Equal(b.Bytes()[:n], old) {
		t.Errorf("%d bytes, %v, or of another file", n, err)
	}
	// The number is free again now.
	eventually(t, "the file is closed", func() bool {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		return err != nil
	})
}

func TestOrphanDisturbsNobody(t *testing.T) {
	data := content(1 << 20)
	f := openFile(t, writeFile(t, data), 0)
	pool := newPool(t, 64<<20)
	d := start(t, Options{Pool: pool})
	ops, _ := blocked(t, d, pool, 1)
	inKernel(t, d, 1)
	if !ops[0].state.CompareAndSwap(opWaiting, opAbandoned) {
		t.Fatal("not waiting")
	}
	rng := rand.New(rand.NewPCG(5, 6))
	for range 64 {
		checkRead(t, d, pool, f, data, rng.IntN(len(data)), 1+rng.IntN(64<<10), 0)
	}
	if s := d.Stats().Total(); s.InFlight != 1 || s.Orphans != 0 || s.Delivered != 64 {
		t.Errorf("%+v", s)
	}
}

var stormOps = flag.Int("storm", 2000, "reads per shard count in the storm test")

// TestStormIsConserved has many callers leave at random times, looks at the
// counters all the while, and checks what the others got.
func TestStormIsConserved(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	data := content(1 << 20)
	f := openFile(t, writeFile(t, data), 0)
	for _, shards := range []int{1, 4} {
		pool := newPool(t, 64<<20)
		d, script := scripted(t, Options{Shards: shards, Entries: 16, Pool: pool})
		var mu sync.Mutex
		faults := rand.New(rand.NewPCG(seed, 1))
		script.Truncate(func(res int32) int32 {
			mu.Lock()
			defer mu.Unlock()
			if faults.IntN(4) == 0 {
				return 1 + faults.Int32N(res)
			}
			return res
		})
		const callers = 16
		var wg sync.WaitGroup
		for c := range uint64(callers) {
			wg.Go(func() { stormCaller(t, d, pool, f, data, rand.New(rand.NewPCG(seed, c)), *stormOps/callers) })
		}
		watching, stop := context.WithCancel(t.Context())
		watched := make(chan struct{})
		go func() {
			defer close(watched)
			for watching.Err() == nil {
				conserved(t, d.Stats())
			}
		}()
		wg.Wait()
		stop()
		<-watched
		s, err := d.Close(t.Context())
		if err != nil {
			t.Error(err)
		}
		conserved(t, s)
		if n := s.Total(); n.InFlight != 0 || n.Submitted > int64(*stormOps) || n.Delivered == 0 || n.Orphans == 0 || n.Overflow != 0 {
			t.Errorf("%+v", n)
		}
		if pool.InUse() != 0 || f.refs.Load() != 1 {
			t.Errorf("%d bytes in use, %d references of the file", pool.InUse(), f.refs.Load())
		}
	}
}

func stormCaller(t *testing.T, d *Driver, pool *storage.Pool, f *file, data []byte, rng *rand.Rand, n int) {
	for range n {
		off, size := rng.IntN(len(data)), 1+rng.IntN(64<<10)
		b, err := pool.Get(size)
		if err != nil {
			t.Error(err)
			return
		}
		ctx, cancel := context.WithCancel(t.Context())
		if rng.IntN(2) == 0 {
			ctx, cancel = context.WithTimeout(t.Context(), time.Duration(rng.IntN(300))*time.Microsecond)
		}
		got, err := d.ReadAt(ctx, f, b, int64(off))
		cancel()
		switch {
		case errors.Is(err, context.DeadlineExceeded):
		case err != nil:
			t.Errorf("read: %v", err)
		case !bytes.Equal(b.Bytes()[:got], data[off:min(off+size, len(data))]):
			t.Errorf("%d bytes at %d are others", size, off)
		}
		b.Release()
	}
}

var claims = flag.Int("claims", 10_000, "races of a cancellation with a completion")

// TestClaimIsExclusive lets a caller leave at the moment of completion, over and
// over: one of the two has the outcome, and the buffer goes home once.
func TestClaimIsExclusive(t *testing.T) {
	n := *claims
	if required("million") {
		n = 1_000_000
	}
	data := content(4096)
	f := openFile(t, writeFile(t, data), 0)
	pool := newPool(t, 8<<20)
	d := start(t, Options{})
	delivered, abandoned := 0, 0
	for i := range n {
		b := getBuf(t, pool, 512)
		o, err := d.TrySubmit(Request{File: f, Bufs: []*storage.Buf{b}})
		if err == ErrSaturated {
			b.Release()
			eventually(t, "there is room again", func() bool { return d.Stats().Total().InFlight < 64 })
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		// Sometimes before, sometimes after: a read takes about as long.
		for begin := time.Now(); time.Since(begin) < time.Duration(i%64)*time.Microsecond && o.state.Load() == opWaiting; {
			runtime.Gosched()
		}
		o.Cancel()
		switch got, err := o.Wait(t.Context()); {
		case err == unix.ECANCELED:
			abandoned++
		case err != nil || got != 512 || !bytes.Equal(b.Bytes(), data[:512]):
			t.Fatalf("%d bytes, %v", got, err)
		default:
			delivered++
		}
		b.Release()
	}
	if _, err := d.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := d.Stats().Total()
	if int(s.Delivered) != delivered || int(s.Orphans) != abandoned || pool.InUse() != 0 || f.refs.Load() != 1 {
		t.Errorf("%d delivered, %d abandoned, %+v, %d bytes in use, %d references", delivered, abandoned, s, pool.InUse(), f.refs.Load())
	}
	if delivered < n/100 || abandoned < n/100 {
		t.Errorf("no race: %d delivered, %d abandoned", delivered, abandoned)
	}
}

// TestHungReadShows: a cancellation that comes too late, and its age.
func TestHungReadShows(t *testing.T) {
	sim := ringtest.NewSim(ringtest.SimOptions{Seed: 1})
	data := content(4096)
	f := openFile(t, writeFile(t, data), 0)
	pool := newPool(t, 8<<20)
	d, err := Start(t.Context(), Options{Dir: t.TempDir(), Setup: sim.Setup})
	if err != nil {
		t.Fatal(err)
	}
	release := sim.Hang(f.fd)
	b := getBuf(t, pool, 4096)
	o, err := d.TrySubmit(Request{File: f, Bufs: []*storage.Buf{b}})
	if err != nil {
		t.Fatal(err)
	}
	inKernel(t, d, 1)
	o.Cancel()
	b.Release()
	eventually(t, "the cancellation failed", func() bool { return d.Stats().Total().Cancels.Already == 1 })
	if s := d.Stats().Total(); s.Oldest == 0 || s.InFlight != 1 || pool.InUse() == 0 {
		t.Errorf("%+v", s)
	}
	release()
	if _, err := d.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := sim.Err(); err != nil || pool.InUse() != 0 {
		t.Error(err)
	}
}
