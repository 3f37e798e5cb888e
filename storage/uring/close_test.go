package uring

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ringfence/storage"
	"ringfence/storage/uring/ring"
	"ringfence/storage/uring/ringtest"
)

// TestCloseDrains: what is in flight is cancelled, and its callers hear it.
func TestCloseDrains(t *testing.T) {
	pool := newPool(t, 8<<20)
	d := start(t, Options{Shards: 2})
	ops, _ := blocked(t, d, pool, 2)
	inKernel(t, d, 2)
	var wg sync.WaitGroup
	for range 3 { // whoever calls, and however often
		wg.Go(func() {
			if s, err := d.Close(t.Context()); err != nil || s.Total().InFlight != 0 || s.Total().Delivered != 2 {
				t.Errorf("%+v, %v", s.Total(), err)
			}
		})
	}
	for _, o := range ops {
		if _, err := o.Wait(t.Context()); err != unix.ECANCELED {
			t.Errorf("%v", err)
		}
	}
	wg.Wait()
	if pool.InUse() != 0 {
		t.Errorf("%d bytes in use", pool.InUse())
	}
	b := getBuf(t, pool, 10)
	defer b.Release()
	f := openFile(t, writeFile(t, content(10)), 0)
	if _, err := d.ReadAt(t.Context(), f, b, 0); err != ErrClosed {
		t.Errorf("after close: %v", err)
	}
	if _, err := d.TrySubmit(Request{File: f, Bufs: []*storage.Buf{b}}); err != ErrClosed {
		t.Errorf("after close: %v", err)
	}
}

// TestRetireLetsReadsEnd, and admits none.
func TestRetireLetsReadsEnd(t *testing.T) {
	pool := newPool(t, 8<<20)
	d := start(t, Options{Shards: 2})
	ops, feed := blocked(t, d, pool, 2)
	inKernel(t, d, 2)
	retired := make(chan error, 1)
	go func() {
		_, err := d.Retire(t.Context())
		retired <- err
	}()
	f := openFile(t, writeFile(t, content(10)), 0)
	b := getBuf(t, pool, 10)
	defer b.Release()
	eventually(t, "reads are refused", func() bool {
		_, err := d.ReadAt(t.Context(), f, b, 0)
		return err == ErrClosed
	})
	for i, w := range feed {
		select {
		case err := <-retired:
			t.Fatalf("retired with reads in flight: %v", err)
		default:
		}
		if _, err := w.WriteString("abc"); err != nil {
			t.Fatal(err)
		}
		if n, err := ops[i].Wait(t.Context()); n != 3 || err != nil {
			t.Errorf("%d bytes, %v", n, err)
		}
	}
	if err := <-retired; err != nil {
		t.Error(err)
	}
	if s := d.Stats().Total(); s.Delivered != s.Submitted || s.InFlight != 0 || s.Cancels.Succeeded != 0 {
		t.Errorf("%+v", s)
	}

	// What does not end is not waited for longer than ctx says.
	d = start(t, Options{})
	ops, _ = blocked(t, d, pool, 1)
	inKernel(t, d, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if s, err := d.Retire(ctx); err != nil || s.Total().InFlight != 0 {
		t.Errorf("%+v, %v", s.Total(), err)
	}
	if _, err := ops[0].Wait(t.Context()); err != unix.ECANCELED {
		t.Error(err)
	}
}

// TestStuckShardsAreGivenUpTogether: all drains take one bound, callers go home,
// and memory, files, rings and threads stay, whatever the collector does.
func TestStuckShardsAreGivenUpTogether(t *testing.T) {
	needRing(t)
	const bound = 300 * time.Millisecond
	pool := newPool(t, 8<<20)
	script := &ringtest.Script{}
	d, err := Start(t.Context(), Options{Dir: t.TempDir(), Shards: 4, DrainTimeout: bound, Setup: ringtest.Wrap(ring.New, script)})
	if err != nil {
		t.Fatal(err)
	}
	data := content(4096)
	f := openFile(t, writeFile(t, data), 0)
	release := script.Stall(f.fd)
	defer release()
	before := measure(t)
	var ops []*Op
	var mems [][]byte
	for range 4 {
		b := getBuf(t, pool, 4096)
		o, err := d.TrySubmit(Request{File: f, Bufs: []*storage.Buf{b}})
		if err != nil {
			t.Fatal(err)
		}
		mems = append(mems, b.Bytes())
		b.Release()
		ops = append(ops, o)
	}
	inKernel(t, d, 4)
	begin := time.Now()
	s, err := d.Close(t.Context())
	if took := time.Since(begin); err == nil || took < bound || took > 2*bound {
		t.Errorf("it took %v, bound %v: %v", took, bound, err)
	}
	for _, o := range ops {
		if _, err := o.Wait(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("stranded caller: %v", err)
		}
	}
	conserved(t, s)
	if n := s.Total(); n.InFlight != 4 || n.Leaked != 4 || n.Delivered != 0 || n.Orphans != 0 {
		t.Errorf("%+v", n)
	}
	eventually(t, "all four are kept", func() bool { return leakedShards() >= 4 })
	ops, d = nil, nil
	for range 20 {
		runtime.GC()
		_ = make([]byte, 1<<20)
	}
	after := measure(t)
	if after.threads < before.threads || after.maps < before.maps || after.fds < before.fds {
		t.Errorf("before %+v, after %+v", before, after)
	}
	for i := range mems {
		if mems[i][0] != data[0] { // mapped, and still ours: the kernel wrote it
			t.Errorf("buffer %d was given away", i)
		}
	}
	if pool.InUse() != 4*4096 || f.refs.Load() != 5 {
		t.Errorf("%d bytes in use, %d references", pool.InUse(), f.refs.Load())
	}
	if _, err := unix.FcntlInt(uintptr(f.fd), unix.F_GETFD, 0); err != nil {
		t.Error(err)
	}
}

// TestCloseEndsWithItsContext, while the end goes on.
func TestCloseEndsWithItsContext(t *testing.T) {
	pool := newPool(t, 8<<20)
	d, script := scripted(t, Options{DrainTimeout: time.Minute})
	f := openFile(t, writeFile(t, content(4096)), 0)
	release := script.Stall(f.fd)
	b := getBuf(t, pool, 4096)
	o, err := d.TrySubmit(Request{File: f, Bufs: []*storage.Buf{b}})
	if err != nil {
		t.Fatal(err)
	}
	b.Release()
	inKernel(t, d, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := d.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	release()
	if _, err := d.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if n, err := o.Wait(t.Context()); n != 4096 || err != nil {
		t.Errorf("it had been read: %d bytes, %v", n, err)
	}
}

// TestNobodyHangsWhenADriverCloses: submitters race with the end, and everyone
// gets an answer.
func TestNobodyHangsWhenADriverCloses(t *testing.T) {
	f := openFile(t, writeFile(t, content(64<<10)), 0)
	pool := newPool(t, 64<<20)
	rounds := 20
	if required("million") {
		rounds = 1000
	}
	for range rounds {
		d := start(t, Options{Shards: 2, Entries: 4})
		var wg sync.WaitGroup
		for c := range 8 {
			wg.Go(func() {
				b := getBuf(t, pool, 4096)
				defer b.Release()
				for {
					var err error
					if c%2 == 0 {
						_, err = d.ReadAt(t.Context(), f, b, 0)
					} else if o, submitted := d.TrySubmit(Request{File: f, Bufs: []*storage.Buf{b}}); submitted == nil {
						_, err = o.Wait(t.Context())
					} else if submitted != ErrSaturated {
						err = submitted
					}
					if err == nil {
						continue
					}
					if !errors.Is(err, ErrClosed) && err != unix.ECANCELED {
						t.Errorf("%v", err)
					}
					if errors.Is(err, ErrClosed) {
						return
					}
				}
			})
		}
		eventually(t, "reads are made", func() bool { return d.Stats().Total().Delivered > 20 })
		s, err := d.Close(t.Context())
		if err != nil || s.Total().InFlight != 0 {
			t.Errorf("%+v, %v", s.Total(), err)
		}
		wg.Wait()
	}
	if pool.InUse() != 0 || f.refs.Load() != 1 {
		t.Errorf("%d bytes in use, %d references", pool.InUse(), f.refs.Load())
	}
}

// TestClosedDriverLeavesNothing behind, many times over.
func TestClosedDriverLeavesNothing(t *testing.T) {
	data := content(8192)
	f := openFile(t, writeFile(t, data), 0)
	pool := newPool(t, 8<<20)
	cycle := func(mode Mode) {
		d := start(t, Options{Shards: 2, Pool: pool, Mode: mode})
		checkRead(t, d, pool, f, data, 5, 4096, 0)
		ops, _ := blocked(t, d, pool, 1)
		ops[0].Cancel()
		if s, err := d.Close(t.Context()); err != nil || s.RegisteredBytes != 0 {
			t.Errorf("%d bytes registered, %v", s.RegisteredBytes, err)
		}
	}
	cycles := 30
	if required("million") {
		cycles = 100
	}
	cycle(ModeStatic) // what is made once
	before := measure(t)
	for i := range cycles {
		cycle(Mode(i % len(modeNames)))
	}
	eventually(t, "all is given back", func() bool {
		now := measure(t)
		pipes := cycles // their write ends, until the test ends
		return now.fds <= before.fds+pipes && now.maps <= before.maps && now.goroutines <= before.goroutines && now.threads <= before.threads+4
	})
	if pool.InUse() != 0 {
		t.Errorf("%d bytes in use", pool.InUse())
	}
}

// TestThreadOfAStuckShardStays: the kernel cancels what a thread submitted when
// it ends.
func TestThreadOfAStuckShardStays(t *testing.T) {
	needRing(t)
	script := &ringtest.Script{}
	tid := 0
	inner := ringtest.Wrap(ring.New, script)
	setup := func(o ring.Options) (ring.Ring, error) {
		tid = unix.Gettid()
		return inner(o)
	}
	pool := newPool(t, 8<<20)
	d, err := Start(t.Context(), Options{Dir: t.TempDir(), Setup: setup, DrainTimeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	f := openFile(t, writeFile(t, content(4096)), 0)
	defer script.Stall(f.fd)()
	b := getBuf(t, pool, 4096)
	defer b.Release()
	if _, err := d.TrySubmit(Request{File: f, Bufs: []*storage.Buf{b}}); err != nil {
		t.Fatal(err)
	}
	inKernel(t, d, 1)
	if s, err := d.Close(t.Context()); err == nil || s.Total().Leaked != 1 {
		t.Fatalf("%+v, %v", s.Total(), err)
	}
	for range 50 {
		runtime.GC()
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", tid)); err != nil {
		t.Errorf("thread: %v", err)
	}
}

// hanging is a ring whose Enter hangs while it is told to.
type hanging struct {
	ring.Ring
	gate func()
}

func (r *hanging) Enter(wait int, timeout time.Duration) error {
	r.gate()
	return r.Ring.Enter(wait, timeout)
}

// TestHangingThreadHoldsNobodyUp: callers and Close go home; memory and file
// follow when the call returns.
func TestHangingThreadHoldsNobodyUp(t *testing.T) {
	needRing(t)
	gate := make(chan struct{})
	var hang atomic.Bool
	pool := newPool(t, 8<<20)
	d, err := Start(t.Context(), Options{Dir: t.TempDir(), DrainTimeout: 50 * time.Millisecond, Setup: func(o ring.Options) (ring.Ring, error) {
		r, err := ring.New(o)
		return &hanging{Ring: r, gate: func() {
			if hang.Load() {
				<-gate
			}
		}}, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	f := openFile(t, writeFile(t, content(4096)), 0)
	hang.Store(true)
	before := measure(t)
	read := func() error {
		b, err := pool.Get(4096)
		if err != nil {
			return err
		}
		defer b.Release()
		_, err = d.ReadAt(t.Context(), f, b, 0)
		return err
	}
	got := make(chan error, 2)
	for range cap(got) {
		go func() { got <- read() }()
	}
	b := getBuf(t, pool, 10)
	o, err := d.TrySubmit(Request{File: f, Bufs: []*storage.Buf{b}})
	if err != nil {
		t.Fatal(err)
	}
	b.Release()
	eventually(t, "all are in flight", func() bool { return d.Stats().Total().InFlight == 3 })
	begin := time.Now()
	if s, err := d.Retire(contextThatEnds(t)); err == nil || s.Total().InFlight != 3 || time.Since(begin) > 5*time.Second {
		t.Errorf("after %v: %+v, %v", time.Since(begin), s.Total(), err)
	}
	for range cap(got) {
		if err := <-got; !errors.Is(err, ErrClosed) {
			t.Errorf("%v", err)
		}
	}
	for range 2 {
		if _, err := o.Wait(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("%v", err)
		}
	}
	if pool.InUse() == 0 || f.refs.Load() == 1 {
		t.Error("memory and file were given away")
	}
	close(gate)
	eventually(t, "all is given back", func() bool {
		return pool.InUse() == 0 && f.refs.Load() == 1 && d.Stats().Total().InFlight == 0 && measure(t).fds < before.fds
	})
	conserved(t, d.Stats())
}

func contextThatEnds(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}
