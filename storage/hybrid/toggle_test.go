package hybrid

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ringfence/storage"
	"ringfence/storage/uring"
	"ringfence/storage/uring/ring"
	"ringfence/storage/uring/ringtest"
)

// kept starts real drivers and remembers them.
type kept struct {
	mu      sync.Mutex
	drivers []*uring.Driver // protected by mu
}

func (k *kept) start(ctx context.Context, o uring.Options) (driver, error) {
	d, err := uring.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.drivers = append(k.drivers, d)
	return d, nil
}

// load reads until it is stopped, and cancels now and then.
type load struct {
	stop             atomic.Bool
	reads, cancelled atomic.Int64
	wg               sync.WaitGroup
}

func (l *load) begin(t *testing.T, r *rig, f storage.File, content []byte) {
	for g := range uint64(6) {
		l.wg.Go(func() {
			rng := rand.New(rand.NewPCG(g, 1))
			for !l.stop.Load() && !t.Failed() {
				l.read(t, r, f, content, rng)
			}
		})
	}
}

func (l *load) read(t *testing.T, r *rig, f storage.File, content []byte, rng *rand.Rand) {
	off, size := rng.IntN(len(content)), 1+rng.IntN(64<<10)
	ctx, cancel := context.WithCancel(t.Context())
	if rng.IntN(10) == 0 {
		go cancel()
	}
	got, _, err := r.read(ctx, f, int64(off), size, 16<<10)
	abandoned := ctx.Err() != nil
	cancel()
	switch {
	case abandoned && errors.Is(err, context.Canceled):
		l.cancelled.Add(1)
	case err != nil:
		t.Errorf("%d bytes from %d: %v", size, off, err)
	case !bytes.Equal(got, content[off:min(off+size, len(content))]):
		t.Errorf("%d bytes from %d are wrong", size, off)
	default:
		l.reads.Add(1)
	}
}

func (l *load) end() {
	l.stop.Store(true)
	l.wg.Wait()
}

// toggle turns one switch after the other, and waits until it has turned.
func (r *rig) toggle(t *testing.T, i int, rng *rand.Rand) Status {
	t.Helper()
	r.switchTo(func(k Knobs) {
		switch i % 5 {
		case 0:
			k.Enable.Store(!k.Enable.Load())
		case 1:
			k.Shards.Store(1 + rng.Int64N(3))
		case 2:
			k.Mode.Store([]string{"non-fixed", "legacy", "dynamic", "static"}[rng.IntN(4)])
		case 3:
			k.Entries.Store(1 << rng.IntN(7))
		case 4:
			k.Inline.Store(!k.Inline.Load())
			k.Direct.Store(rng.IntN(2) == 0)
			k.DirectThreshold.Store(32 << 10)
		}
	})
	want := r.knobs.config()
	r.await(t, "turn", func(Status) bool {
		s := r.serving.Load()
		return s == nil && !r.knobs.Enable.Load() || s != nil && s.config == want && r.knobs.Enable.Load()
	})
	return r.Status()
}

// TestTogglesUnderLoad turns the switches again and again while reads run: none
// fails, none is wrong, every driver that was replaced conserves, and nothing
// is left of it.
func TestTogglesUnderLoad(t *testing.T) {
	needRings(t)
	threads, fds, open := tasks(t), descriptors(t), openRings(t)
	var k kept
	r := newRig(t, rigOptions{start: k.start, set: func(k Knobs) { k.Shadow.Store(0.01) }})
	content := pattern(1<<20 + 17)
	r.put(t, "a", content)
	var l load
	l.begin(t, r, r.open(t, "a"), content)
	rng := rand.New(rand.NewPCG(2, 3))
	var before uring.ShardStats
	for i := range 100 {
		st := r.toggle(t, i, rng)
		conserves(t, st.Rings)
		now := st.Rings.Total()
		if now.Submitted < before.Submitted || now.Delivered < before.Delivered || now.Orphans < before.Orphans || now.Enters < before.Enters {
			t.Errorf("counters went back: %+v, before %+v", now, before)
		}
		before = now
	}
	l.end()
	r.settle(t)
	r.switchTo(func(k Knobs) { k.Enable.Store(false) })
	st := r.await(t, "end of drivers", func(s Status) bool { return s.Drivers.Retiring == 0 && s.Tier == "std" })
	t.Logf("%d reads, %d cancelled, %d drivers, %+v, %+v", l.reads.Load(), l.cancelled.Load(), st.Drivers.Started, st.Reads, st.Fallbacks)
	k.check(t, st)
	if st.Reads.Ring == 0 || l.reads.Load() < 100 {
		t.Errorf("%d reads, %+v", l.reads.Load(), st.Reads)
	}
	// The runtime keeps a few idle threads of its own.
	poll(t, func() bool { return openRings(t) <= open && descriptors(t) <= fds+8 && tasks(t) <= threads+24 }, func() string {
		return fmt.Sprintf("%d threads, before %d; %d descriptors, before %d; %d rings", tasks(t), threads, descriptors(t), fds, openRings(t))
	})
}

// check checks that all drivers conserve, and that the status is their sum.
func (k *kept) check(t *testing.T, st Status) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	var sum uring.ShardStats
	for i, d := range k.drivers {
		s := d.Stats()
		conserves(t, s)
		total := s.Total()
		if total.InFlight != 0 || total.Leaked != 0 {
			t.Errorf("driver %d: %+v", i, total)
		}
		sum.Submitted += total.Submitted
		sum.Delivered += total.Delivered
		sum.Orphans += total.Orphans
	}
	if total := st.Rings.Total(); total.Submitted != sum.Submitted || total.Delivered != sum.Delivered || total.Orphans != sum.Orphans || total.InFlight != 0 {
		t.Errorf("summed up %+v, of all drivers %+v", total, sum)
	}
	if st.Drivers.Started < 30 || int(st.Drivers.Started) != len(k.drivers) || st.Drivers.Failed != 0 || st.Drivers.Leaked != 0 {
		t.Errorf("%+v", st.Drivers)
	}
}

// openRings is the number of rings that the process holds.
func openRings(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		name, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && name == "anon_inode:[io_uring]" {
			n++
		}
	}
	return n
}

func tasks(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestOffMeansOff: with the switch off nothing of a ring is touched, not even
// to probe.
func TestOffMeansOff(t *testing.T) {
	s := &starts{}
	r := newRig(t, rigOptions{start: s.start, idle: true, set: func(k Knobs) {
		k.Enable.Store(false)
		k.Shadow.Store(1)
		k.Direct.Store(true)
	}})
	content := pattern(100_000)
	r.put(t, "a", content)
	f := r.open(t, "a")
	for range 50 {
		r.want(t, f, content, 10, 50_000)
		r.knobs.Changed()
	}
	st := r.Status()
	if s.count() != 0 || st.Reads.Ring+st.Reads.RingDirect != 0 || st.Reads.Inline+st.Reads.Pool != 50 {
		t.Errorf("%d starts, %+v", s.count(), st.Reads)
	}
	for reason, n := range st.Fallbacks {
		if n != 0 {
			t.Errorf("%d fallbacks (%s) without rings", n, reason)
		}
	}
	if st.String() != "std: switched off" {
		t.Errorf("%s", st)
	}
}

// TestFailedChangeKeepsRings: when the driver that the knobs want does not
// start, the one before goes on.
func TestFailedChangeKeepsRings(t *testing.T) {
	s := &starts{}
	r := newRig(t, rigOptions{start: s.start, set: ringOnly})
	content := pattern(5000)
	r.put(t, "a", content)
	f := r.open(t, "a")
	s.fail(&uring.ProbeError{Err: unix.ENOMEM})
	r.switchTo(func(k Knobs) { k.Mode.Store("static") })
	st := r.await(t, "attempts", func(Status) bool { return s.count() > 3 })
	if st.Tier != "ring" || st.latch(LatchProbe).On || r.log.count(`"warn"`) != 1 {
		t.Errorf("%+v, log:\n%s", st, r.log)
	}
	r.want(t, f, content, 0, 5000)
	if got := r.Stats().Reads.Ring; got != 1 {
		t.Errorf("%d ring reads", got)
	}
	s.fail(nil)
	r.await(t, "change", func(Status) bool { v := r.serving.Load(); return v != nil && v.config.mode == uring.ModeStatic })
}

// TestStuckReadNeverGivesItsMemoryBack: when a driver is given up with a read in
// the kernel, its caller must not go on with the buffer, which may still be
// written to.
func TestStuckReadNeverGivesItsMemoryBack(t *testing.T) {
	needRings(t)
	script := &ringtest.Script{}
	r := newRig(t, rigOptions{set: ringOnly, rings: uring.Options{
		Setup: ringtest.Wrap(ring.New, script), DrainTimeout: 100 * time.Millisecond,
	}})
	content := pattern(8192)
	r.put(t, "a", content)
	f := r.open(t, "a")
	release := script.Stall(ringtest.AnyFD)
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	buf, err := r.pool.Get(4096)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_, err := f.ReadAt(ctx, buf, 0)
		result <- err
	}()
	r.await(t, "read in the kernel", func(Status) bool { return script.Counts().Held == 1 })
	d, ok := r.serving.Load().driver.(*uring.Driver)
	if !ok {
		t.Fatal("no driver")
	}
	if _, err := d.Close(t.Context()); err == nil {
		t.Error("closed, with a read in the kernel")
	}
	r.await(t, "fallback", func(s Status) bool { return s.Fallbacks["closed"] == 1 })
	select {
	case err := <-result:
		t.Fatalf("the caller went on: %v", err)
	default:
	}
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	buf.Release()
	if n := r.pool.InUse(); n == 0 {
		t.Error("the memory of a stuck read was given back")
	}
	r.leaks = true
}
