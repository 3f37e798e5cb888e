package hybrid

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ringfence/storage"
	"ringfence/storage/uring"
	"ringfence/storage/uring/ring"
	"ringfence/storage/uring/ringtest"
)

func shadowAll(k Knobs) {
	ringOnly(k)
	k.Shadow.Store(1)
}

// flipOn flips a bit of the n-th read, from 1.
func flipOn(n int64) func(context.Context, uring.Request, int) (int, error) {
	var reads atomic.Int64
	return func(_ context.Context, r uring.Request, got int) (int, error) {
		if reads.Add(1) == n && got > 0 {
			last := r.Bufs[len(r.Bufs)-1].Bytes()
			last[len(last)-1] ^= 4
		}
		return got, nil
	}
}

// TestShadowFindsOneByte: one bit in one of many ring reads is found, counted
// and said once; that disk's rings are out until they are switched off and on,
// and another disk's go on.
func TestShadowFindsOneByte(t *testing.T) {
	s := &starts{fault: flipOn(40)}
	r := newRig(t, rigOptions{start: s.start, set: shadowAll})
	other := newRig(t, rigOptions{start: fakes(nil), set: shadowAll})
	content := pattern(64 << 10)
	r.put(t, "a", content)
	other.put(t, "a", content)
	f, g := r.open(t, "a"), other.open(t, "a")
	for i := range 60 {
		got, n, err := r.read(t.Context(), f, int64(i)*1000, 700, 300)
		if err != nil || n != 700 || len(got) != 700 {
			t.Fatal(n, err)
		}
		r.settle(t)
		other.want(t, g, content, i*1000, 700)
		other.settle(t)
	}
	st := r.Status()
	if l := st.latch(LatchShadow); !l.On || l.Trips != 1 || l.Reason != "a: 700 bytes from 39000 differ" {
		t.Errorf("%+v", l)
	}
	if st.Shadow != (ShadowStats{Compared: 40, Mismatch: 1}) || st.Reads.Ring != 40 || r.log.count(`"level":"error"`) != 1 {
		t.Errorf("%+v, %+v, log:\n%s", st.Shadow, st.Reads, r.log)
	}
	// What the comparisons read served nobody.
	if now := st.Reads; st.Fallbacks["latched"] != 20 || now.Inline+now.Pool+now.Direct != 20 {
		t.Errorf("%+v, %+v", st.Fallbacks, now)
	}
	st = r.await(t, "reason", func(s Status) bool { return s.Reason == "shadow: a: 700 bytes from 39000 differ" })
	if st.Tier != "std" {
		t.Errorf("%s", st)
	}
	if o := other.Status(); o.Shadow != (ShadowStats{Compared: 60}) || o.Reads != (storage.ReadCounts{Ring: 60}) || o.Tier != "ring" {
		t.Errorf("the other disk: %+v", o)
	}
	// No attempt until somebody decides so.
	for range 10 {
		r.knobs.Changed()
		r.wake()
	}
	r.await(t, "turn", func(Status) bool { return true })
	if n := s.count(); n != 1 {
		t.Errorf("%d drivers", n)
	}
	r.switchTo(func(k Knobs) { k.Enable.Store(false) })
	r.await(t, "reset", func(s Status) bool { return !s.latch(LatchShadow).On })
	r.switchTo(func(k Knobs) { k.Enable.Store(true) })
	r.await(t, "rings", func(s Status) bool { return s.Tier == "ring" })
	r.want(t, f, content, 0, 5000)
}

// TestShadowOfShortAndLongReads: a ring that ends a file early, or goes on
// beyond it, is wrong as well.
func TestShadowOfShortAndLongReads(t *testing.T) {
	content := pattern(5000)
	for _, c := range []struct {
		name     string
		off      int64
		size, by int
	}{{"short", 0, 4000, -1}, {"nothing", 100, 10, -10}, {"long", 4000, 2000, 1}} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, rigOptions{set: shadowAll, start: fakes(func(_ context.Context, _ uring.Request, n int) (int, error) {
				return n + c.by, nil
			})})
			r.put(t, "a", content)
			if _, _, err := r.read(t.Context(), r.open(t, "a"), c.off, c.size, 4096); err != nil {
				t.Fatal(err)
			}
			if s := r.settle(t); s.Mismatch != 1 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestShadowOfChangingFile: a file that is written to while rings read it
// accuses nobody.
func TestShadowOfChangingFile(t *testing.T) {
	var path string
	turn := byte(0)
	r := newRig(t, rigOptions{set: shadowAll, start: fakes(func(_ context.Context, _ uring.Request, n int) (int, error) {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return 0, err
		}
		turn++
		_, err = f.WriteAt([]byte{turn}, 10)
		return n, errors.Join(err, f.Close())
	})})
	content := pattern(5000)
	r.put(t, "a", content)
	path = filepath.Join(r.dir, "a")
	f := r.open(t, "a")
	for range 50 {
		if _, _, err := r.read(t.Context(), f, 0, 5000, 4096); err != nil {
			t.Fatal(err)
		}
		r.settle(t)
	}
	if st := r.Status(); st.Shadow.Changed == 0 || st.Shadow.Mismatch != 0 || st.Tier != "ring" {
		t.Errorf("%+v", st.Shadow)
	}
}

// TestShadowOutlivesClose: a file that is closed at once is compared all the
// same, cannot be used by its owner, and is closed in the end.
func TestShadowOutlivesClose(t *testing.T) {
	r := newRig(t, rigOptions{set: shadowAll, start: fakes(nil)})
	content := pattern(300_000)
	r.put(t, "a", content)
	before := descriptors(t)
	for range 200 {
		f, err := r.Open(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		r.want(t, f, content, 0, 300_000)
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		_, errSize := f.Size()
		_, _, errRead := r.read(t.Context(), f, 0, 10, 10)
		for _, err := range []error{f.Close(), errSize, errRead, f.Sync(t.Context()), f.WriteAt(t.Context(), content[:1], 0)} {
			if !errors.Is(err, os.ErrClosed) {
				t.Fatal(err)
			}
		}
	}
	s := r.settle(t)
	if s.Compared == 0 || s.Compared+s.Dropped != 200 || s.Failed != 0 {
		t.Errorf("%+v", s)
	}
	poll(t, func() bool { return descriptors(t) == before }, func() string { return fmt.Sprint(descriptors(t), " descriptors, before ", before) })
}

// TestWrittenFilesAreNotShadowed: what a file holds that is being written is
// for nobody to compare.
func TestWrittenFilesAreNotShadowed(t *testing.T) {
	r := newRig(t, rigOptions{set: shadowAll, start: fakes(nil)})
	f, err := r.Create(t.Context(), "a", 0)
	if err != nil {
		t.Fatal(err)
	}
	content := pattern(1000)
	if err := f.WriteAt(t.Context(), content, 0); err != nil {
		t.Fatal(err)
	}
	r.want(t, f, content, 0, 1000)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if n := r.shadow.turn.Load(); n != 0 {
		t.Errorf("%d samples", n)
	}
}

func TestShareOfShadowReads(t *testing.T) {
	for _, share := range []float64{0, 1e-3, 0.01, 0.1, 0.3, 0.5, 0.999, 1} {
		var s shadow
		n := 0
		for range 10_000 {
			if s.chosen(share) {
				n++
			}
		}
		if want := 10_000 * share; math.Abs(float64(n)-want) > 1 {
			t.Errorf("share %v: %d of 10,000", share, n)
		}
	}
}

// TestMillionShadowedReads injects one wrong byte into one of very many reads
// through real rings, on one of two disks.
func TestMillionShadowedReads(t *testing.T) {
	needRings(t)
	total := int64(6000)
	switch {
	case required("million"):
		total = 1_000_000
	case testing.Short():
		total = 2000
	}
	script := &ringtest.Script{}
	r := newRig(t, rigOptions{set: shadowAll, rings: uring.Options{Setup: ringtest.Wrap(ring.New, script)}})
	other := newRig(t, rigOptions{set: shadowAll})
	content := pattern(64 << 10)
	r.put(t, "a", content)
	other.put(t, "a", content)
	bad := total * 9 / 10
	var seen, flipped atomic.Int64
	script.Results(func(e ring.SQE, res int32) int32 {
		if e.Len == 512 && seen.Add(1) == bad {
			flip(e.Addr + uint64(res)/2)
			flipped.Add(1)
		}
		return res
	})
	var wrong atomic.Int64
	load := func(r *rig, total int64) {
		f := r.open(t, "a")
		var turn atomic.Int64
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for {
					i := turn.Add(1)
					if i > total || t.Failed() {
						return
					}
					off := int64(i*37) % 60_000
					got, n, err := r.read(t.Context(), f, off, 512, 512)
					if err != nil || n != 512 {
						t.Error(n, err)
						return
					}
					if string(got) != string(content[off:off+512]) {
						wrong.Add(1)
					}
					r.pace()
				}
			})
		}
		wg.Wait()
	}
	load(r, total)
	load(other, min(total/10, 20_000))
	s, o := r.settle(t), other.settle(t)
	if flipped.Load() != 1 || wrong.Load() != 1 {
		t.Errorf("%d bytes flipped, %d reads wrong", flipped.Load(), wrong.Load())
	}
	if s.Mismatch != 1 || s.Dropped != 0 || s.Failed != 0 || s.Changed != 0 {
		t.Errorf("%+v", s)
	}
	if l := r.Status().latch(LatchShadow); !l.On || l.Trips != 1 {
		t.Errorf("%+v", l)
	}
	if st := other.Status(); o.Mismatch != 0 || st.latch(LatchShadow).On || st.Tier != "ring" {
		t.Errorf("the other disk: %+v", st)
	}
	if got := r.Stats().Reads.Ring; got < bad {
		t.Errorf("%d reads by rings, the %d. was wrong", got, bad)
	}
}

// pace waits while the shadow worker is behind, so that nothing is dropped.
func (r *rig) pace() {
	if len(r.shadow.jobs) <= shadowQueue/2 {
		return
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for len(r.shadow.jobs) > shadowQueue/4 {
		<-tick.C
	}
}

func descriptors(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
