package hybrid

import (
	"fmt"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"ringfence/internal/invariant"
	"ringfence/storage"
	"ringfence/storage/uring"
	"ringfence/storage/uring/ring"
	"ringfence/storage/uring/ringtest"
)

// TestRefusedWhileServing: io_uring is forbidden under a serving driver, and
// allowed again. No read notices, and rings come back by themselves.
func TestRefusedWhileServing(t *testing.T) {
	needRings(t)
	script := &ringtest.Script{}
	r := newRig(t, rigOptions{set: ringOnly, rings: uring.Options{Setup: ringtest.Wrap(ring.New, script)}})
	content := pattern(100_000)
	r.put(t, "a", content)
	f := r.open(t, "a")
	r.want(t, f, content, 0, 1000)
	script.BreakEnters(unix.EPERM)
	script.Hook(ringtest.Hooks{Setup: func(int, ring.Options) error { return unix.EMFILE }})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 25 {
				r.want(t, f, content, i*1000, 5000)
			}
		})
	}
	wg.Wait()
	st := r.await(t, "attempt", func(s Status) bool { return s.Drivers.Failed > 1 })
	if l := st.latch(LatchActive); !l.On || l.Trips != 1 || st.Tier != "std" {
		t.Errorf("%+v", st)
	}
	script.BreakEnters(nil)
	script.Hook(ringtest.Hooks{})
	st = r.await(t, "rings", func(s Status) bool { return s.Tier == "ring" })
	if st.latch(LatchActive).On || st.latch(LatchProbe).On {
		t.Errorf("%+v", st.Latches)
	}
	before := st.Reads.Ring
	r.want(t, f, content, 50_000, 40_000)
	if got := r.Stats().Reads.Ring; got != before+1 {
		t.Errorf("%d ring reads, want %d", got, before+1)
	}
	conserves(t, r.Status().Rings)
}

// TestRingErrorCostsOneRead: an error of a real ring is that read's alone.
func TestRingErrorCostsOneRead(t *testing.T) {
	needRings(t)
	script := &ringtest.Script{}
	r := newRig(t, rigOptions{set: ringOnly, rings: uring.Options{Setup: ringtest.Wrap(ring.New, script)}})
	content := pattern(100_000)
	r.put(t, "a", content)
	f := r.open(t, "a")
	for i, errno := range []unix.Errno{unix.EIO, unix.EINVAL, unix.EOPNOTSUPP, unix.EACCES} {
		script.FailReads(1, int32(errno))
		r.want(t, f, content, 100, 90_000)
		r.want(t, f, content, 100, 90_000)
		st := r.Status()
		if st.Reads.Ring != int64(i)+1 || st.latch(LatchActive).Trips != 0 || st.Tier != "ring" {
			t.Errorf("%v: %+v", errno, st)
		}
	}
}

// TestDirectRefusedAtReadTime: the disk opens files with O_DIRECT and refuses
// to read so; nobody sees EINVAL, and ordinary ring reads go on.
func TestDirectRefusedAtReadTime(t *testing.T) {
	needRings(t)
	script := &ringtest.Script{}
	r := newRig(t, rigOptions{rings: uring.Options{Setup: ringtest.Wrap(ring.New, script)}, set: func(k Knobs) {
		ringOnly(k)
		k.Direct.Store(true)
		k.DirectThreshold.Store(10_000)
	}})
	content := pattern(100_000)
	r.put(t, "a", content)
	f := r.open(t, "a")
	r.want(t, f, content, 0, 10_000)
	if r.Stats().Reads.RingDirect != 1 {
		t.Skipf("SKIP %s: no O_DIRECT here", t.Name())
	}
	script.FailReads(1, int32(unix.EINVAL))
	for range 3 {
		r.want(t, f, content, 0, 50_000)
		r.want(t, f, content, 0, 9_999)
	}
	st := r.Status()
	if l := st.latch(LatchDirect); !l.On || l.Trips != 1 || st.Reads.RingDirect != 1 || st.Reads.Ring != 3 || st.Reads.Direct != 3 {
		t.Errorf("%+v, %+v", st.Latches, st.Reads)
	}
}

// TestHitsNeverTouchRings: what the page cache holds is read on the caller.
func TestHitsNeverTouchRings(t *testing.T) {
	needRings(t)
	r := newRig(t, rigOptions{})
	content := pattern(100_000)
	r.put(t, "a", content)
	f := r.open(t, "a")
	r.want(t, f, content, 0, 100_000)
	before := r.Status()
	for i := range 50 {
		r.want(t, f, content, i, 50_000)
	}
	after := r.Status()
	if n := after.Inline.Hits - before.Inline.Hits; n != 50 {
		t.Skipf("SKIP %s: %d of 50 hits: no RWF_NOWAIT here", t.Name(), n)
	}
	if after.Reads.Inline-before.Reads.Inline != 50 || after.Rings.Total().Submitted != before.Rings.Total().Submitted || after.Reads.Pool != before.Reads.Pool {
		t.Errorf("%+v, before %+v", after.Reads, before.Reads)
	}
}

// TestPartialHit: the cached head is kept, and the ring asked for no more than
// the buffers that it does not fill.
func TestPartialHit(t *testing.T) {
	needRings(t)
	const block, blocks = 64 << 10, 16
	r := newRig(t, rigOptions{})
	content := pattern(block * blocks)
	r.put(t, "a", content)
	partial := 0
	for i := range 20 {
		name := fmt.Sprint("f", i)
		r.put(t, name, content)
		f := r.open(t, name)
		evict(t, r.dir, name)
		advise(t, f, unix.FADV_RANDOM)
		r.want(t, f, content, 0, 4*block)
		submitted := r.Status().Rings.Total().Submitted
		got, _, err := r.read(t.Context(), f, 0, len(content), block)
		if err != nil || string(got) != string(content) {
			t.Fatal(err)
		}
		if n := r.Status().Rings.Total().Submitted - submitted; n > 0 && n <= blocks-4 {
			partial++
		}
	}
	if partial == 0 {
		t.Skipf("SKIP %s: the kernel gives no partial hits here", t.Name())
	}
}

func advise(t *testing.T, f storage.RawFile, advice int) {
	t.Helper()
	d := f.Descriptor()
	if err := d.Acquire(); err != nil {
		t.Fatal(err)
	}
	err := unix.Fadvise(d.FD(), 0, 0, advice)
	if err := d.Release(); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestReadsAllocateNothing in the steady state: inline and through rings.
func TestReadsAllocateNothing(t *testing.T) {
	needRings(t)
	if invariant.Enabled {
		t.Skip("builds with invariants never reuse a buffer")
	}
	for _, set := range []func(k Knobs){func(Knobs) {}, ringOnly, func(k Knobs) { k.Enable.Store(false) }} {
		r := newRig(t, rigOptions{set: set, idle: true})
		r.needNowait(t)
		content := pattern(64 << 10)
		r.put(t, "a", content)
		f := r.open(t, "a")
		r.await(t, "turn", func(s Status) bool { return s.Tier == "ring" || !r.knobs.Enable.Load() })
		bufs, free := r.bufs(t, 4, 4096)
		r.want(t, f, content, 0, 64<<10)
		if n := testing.AllocsPerRun(200, func() {
			_, err1 := f.ReadAt(t.Context(), bufs[0], 4096)
			_, err2 := f.ReadVec(t.Context(), bufs, 8192)
			if err1 != nil || err2 != nil {
				t.Fatal(err1, err2)
			}
		}); n >= 1 {
			t.Errorf("%v allocations for two reads, %+v", n, r.Stats().Reads)
		}
		free()
	}
}

func BenchmarkHit(b *testing.B) {
	for _, size := range []int{4 << 10, 128 << 10, 1 << 20} {
		for _, engine := range []string{"std", "off", "hybrid", "ring"} {
			b.Run(fmt.Sprintf("size=%dKiB/engine=%s", size>>10, engine), func(b *testing.B) {
				r := newRig(b, rigOptions{idle: true, set: func(k Knobs) {
					k.Enable.Store(engine == "hybrid" || engine == "ring")
					k.Inline.Store(engine != "ring")
				}})
				content := pattern(size)
				r.put(b, "a", content)
				f := r.open(b, "a")
				if engine == "std" {
					f = openOn(b, r.std, "a")
				}
				r.await(b, "turn", func(s Status) bool { return s.Tier == "ring" || !r.knobs.Enable.Load() })
				b.ReportAllocs()
				b.SetBytes(int64(size))
				b.RunParallel(func(pb *testing.PB) {
					buf, err := r.pool.Get(size)
					if err != nil {
						b.Error(err)
						return
					}
					defer buf.Release()
					for pb.Next() {
						if n, err := f.ReadAt(b.Context(), buf, 0); n != size || err != nil {
							b.Error(n, err)
							return
						}
					}
				})
			})
		}
	}
}
