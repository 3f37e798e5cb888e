package hybrid

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ringfence/storage"
	"ringfence/storage/uring"
	"ringfence/storage/uring/ring"
	"ringfence/storage/uring/ringtest"
)

// TestWatch is what a hung disk looks like, and what does not.
func TestWatch(t *testing.T) {
	const after = 2 * time.Second
	type look struct {
		at   time.Duration
		s    uring.ShardStats
		hung bool
	}
	busy := func(oldest time.Duration, delivered int64) uring.ShardStats {
		return uring.ShardStats{InFlight: 3, Oldest: oldest, Delivered: delivered}
	}
	with := func(s uring.ShardStats, f func(s *uring.ShardStats)) uring.ShardStats {
		f(&s)
		return s
	}
	cancelled := func(oldest time.Duration, delivered, already int64) uring.ShardStats {
		return with(busy(oldest, delivered), func(s *uring.ShardStats) { s.Cancels.Already = already })
	}
	s := time.Second
	for _, c := range []struct {
		name  string
		looks []look
	}{
		{"idle for long", []look{{0, uring.ShardStats{}, false}, {100 * s, uring.ShardStats{}, false}}},
		{"one read hangs", []look{
			{0, uring.ShardStats{}, false}, {s, busy(s/2, 0), false}, {2 * s, busy(3*s/2, 0), false}, {3 * s, busy(5*s/2, 0), true},
			{4 * s, busy(0, 3), false},
		}},
		{"one of many hangs", []look{{0, busy(0, 0), false}, {3 * s, busy(3*s, 5), false}, {6 * s, busy(6*s, 6), false}}},
		{"all are slow", []look{{0, busy(0, 0), false}, {3 * s, busy(s, 0), false}, {4 * s, busy(s, 0), false}}},
		{"cancels end what hangs", []look{
			{0, busy(0, 0), false}, {s, busy(s, 0), false},
			{3 * s, with(busy(3*s, 0), func(s *uring.ShardStats) { s.Orphans, s.Cancels.Succeeded = 7, 7 }), true},
		}},
		{"orphans end late", []look{
			{0, busy(0, 0), false}, {3 * s, busy(3*s, 0), true},
			{4 * s, with(busy(4*s, 0), func(s *uring.ShardStats) { s.Orphans = 1 }), false},
		}},
		{"the device has it", []look{
			{0, busy(0, 0), false}, {s, busy(s, 0), false},
			{3 * s / 2, with(busy(3*s/2, 0), func(s *uring.ShardStats) { s.Cancels.Already = 1 }), true},
		}},
		{"the device has it for long", []look{
			{0, busy(0, 0), false}, {s / 10, busy(s/10, 0), false}, {11 * s / 10, cancelled(11*s/10, 0, 1), true},
			{12 * s / 10, cancelled(12*s/10, 0, 1), true}, {18 * s / 10, cancelled(18*s/10, 0, 2), true},
			{19 * s / 10, cancelled(19*s/10, 0, 2), true}, {2 * s, cancelled(2*s, 1, 2), false},
			// What ended takes the half time with it, for the read that is next.
			{31 * s / 10, cancelled(31*s/10, 1, 2), false}, {4 * s, cancelled(4*s, 1, 2), true},
		}},
		{"the device had it early", []look{
			{0, busy(0, 0), false}, {s / 2, cancelled(s/2, 0, 1), false}, {9 * s / 10, cancelled(9*s/10, 0, 1), false},
			{s, cancelled(s, 0, 1), true}, {11 * s / 10, uring.ShardStats{Cancels: uring.CancelStats{Already: 1}}, false},
		}},
		{"the oldest was cancelled", []look{
			{0, busy(0, 0), false}, {3 * s, busy(3*s, 0), true},
			{4 * s, with(busy(s, 0), func(s *uring.ShardStats) { s.Orphans, s.Cancels.Succeeded = 1, 1 }), true},
			{5 * s, busy(2*s, 1), false},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var w watch
			begin := time.Unix(1000, 0)
			for _, l := range c.looks {
				if got := w.look(l.s, begin.Add(l.at), after); got != l.hung {
					t.Errorf("after %v: hung %v", l.at, got)
				}
			}
		})
	}
}

// hungRig is a Backend on rings that can be stalled, and one on the disk beside.
func hungRig(t *testing.T, set func(k Knobs)) (r, other *rig, script *ringtest.Script) {
	t.Helper()
	needRings(t)
	script = &ringtest.Script{}
	r = newRig(t, rigOptions{rings: uring.Options{Setup: ringtest.Wrap(ring.New, script)}, set: func(k Knobs) {
		set(k)
		k.HungAfter.Store(200 * time.Millisecond)
	}})
	return r, newRig(t, rigOptions{set: set}), script
}

// TestHungDiskFailsReadsAtOnce: when a disk stops to answer, reads wait for as
// long as they must to find out, and then fail at once with ErrOffline, but for
// a few; when it is back, reads are served again by themselves.
func TestHungDiskFailsReadsAtOnce(t *testing.T) {
	r, other, script := hungRig(t, ringOnly)
	content := pattern(64 << 10)
	for _, r := range []*rig{r, other} {
		r.put(t, "a", content)
	}
	f, g := r.open(t, "a"), other.open(t, "a")
	release := script.Stall(ringtest.AnyFD)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if _, _, err := r.read(ctx, f, 0, 4096, 4096); err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	st := r.await(t, "hung disk", func(s Status) bool { return s.latch(LatchHung).On })
	if st.Hung < 200*time.Millisecond || st.Tier != "ring" {
		t.Errorf("%+v", st)
	}
	evict(t, r.dir, "a")
	trials := 0
	for range 200 {
		read, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		begun := time.Now()
		_, _, err := r.read(read, f, 8192, 512, 512)
		cancel()
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			trials++
		case err == nil: // the readahead of the attempts before
			evict(t, r.dir, "a")
		case !errors.Is(err, storage.ErrOffline) || !strings.Contains(err.Error(), "does not answer reads for"):
			t.Fatal(err)
		case time.Since(begun) > 40*time.Millisecond:
			t.Logf("an answer took %v", time.Since(begun))
		}
		var disk *storage.DiskError
		if err != nil && (!errors.As(err, &disk) || disk.Op != "read" || disk.Disk != r.dir) {
			t.Fatalf("%#v", err)
		}
	}
	if trials > 5 {
		t.Errorf("%d of 200 reads had to wait", trials)
	}
	// The disk beside it does not notice.
	for range 100 {
		other.want(t, g, content, 100, 5000)
	}
	if s := other.Status(); s.latch(LatchHung).Trips != 0 || s.Refused != 0 {
		t.Errorf("the other disk: %+v", s)
	}
	if s := r.Status(); s.Refused == 0 || s.latch(LatchHung).Trips != 1 || r.log.count(`"warn"`) != 1 {
		t.Errorf("%+v, log:\n%s", s, r.log)
	}
	release()
	wg.Wait()
	r.await(t, "answer", func(s Status) bool { return !s.latch(LatchHung).On && s.Hung == 0 })
	r.want(t, f, content, 8192, 512)
	st = r.await(t, "end of what hung", func(s Status) bool { return s.Rings.Total().InFlight == 0 })
	conserves(t, st.Rings)
	cancel()
}

// TestHungDiskServesItsCache: what the page cache holds needs no disk.
func TestHungDiskServesItsCache(t *testing.T) {
	r, _, script := hungRig(t, func(Knobs) {})
	r.needNowait(t)
	content := pattern(64 << 10)
	r.put(t, "cached", content)
	r.put(t, "cold", content)
	hot, cold := r.open(t, "cached"), r.open(t, "cold")
	r.want(t, hot, content, 0, 64<<10)
	release := script.Stall(ringtest.AnyFD)
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for r.Status().latch(LatchHung).Trips == 0 && ctx.Err() == nil {
			evict(t, r.dir, "cold") // until one is not read ahead
			_, _, err := r.read(ctx, cold, 32<<10, 4096, 4096)
			if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, storage.ErrOffline) {
				t.Error(err)
			}
		}
	})
	r.await(t, "hung disk", func(s Status) bool { return s.latch(LatchHung).On })
	for range 50 {
		r.want(t, hot, content, 0, 64<<10)
	}
	cancel()
	wg.Wait()
}

// TestTrialBringsDiskBack: a read that is let through and succeeds ends it at
// once, also if an old one never ends.
func TestTrialBringsDiskBack(t *testing.T) {
	s := &starts{}
	r := newRig(t, rigOptions{start: s.start, set: func(k Knobs) {
		ringOnly(k)
		k.HungAfter.Store(100 * time.Millisecond)
	}})
	content := pattern(5000)
	r.put(t, "a", content)
	f := r.open(t, "a")
	s.last().change(func(s *uring.ShardStats) {
		s.Submitted, s.InFlight, s.Oldest = 1, 1, time.Hour
	})
	r.await(t, "hung disk", func(s Status) bool { return s.latch(LatchHung).On })
	refused := 0
	poll(t, func() bool {
		evict(t, r.dir, "a")
		got, _, err := r.read(t.Context(), f, 0, 5000, 5000)
		switch {
		case errors.Is(err, storage.ErrOffline):
			refused++
		case err != nil || !bytes.Equal(got, content):
			t.Fatal(err)
		}
		return r.Stats().Reads.Ring == 1
	}, func() string { return "no trial" })
	st := r.Status()
	if refused == 0 || st.Refused != int64(refused) || r.log.count("answers reads again") != 1 {
		t.Errorf("%d refused, %+v, log:\n%s", refused, st, r.log)
	}
}

// conserves checks that every read that a ring took is accounted for.
func conserves(t testing.TB, s uring.Stats) {
	t.Helper()
	for i, s := range s.Shards {
		if s.Submitted != s.Delivered+s.Orphans+s.InFlight {
			t.Errorf("shard %d: %+v", i, s)
		}
	}
}

// TestStalledDiskSlowsNobody: the reads of a disk beside a stalled one take as
// long as they did before.
func TestStalledDiskSlowsNobody(t *testing.T) {
	r, other, script := hungRig(t, ringOnly)
	r.knobs.HungAfter.Store(time.Minute)
	content := pattern(64 << 10)
	r.put(t, "a", content)
	other.put(t, "a", content)
	f, g := r.open(t, "a"), other.open(t, "a")
	p90 := func() time.Duration {
		var took []time.Duration
		for i := range 300 {
			begun := time.Now()
			other.want(t, g, content, i*100, 4096)
			took = append(took, time.Since(begun))
		}
		slices.Sort(took)
		return took[len(took)*9/10]
	}
	before := p90()
	release := script.Stall(ringtest.AnyFD)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			if _, _, err := r.read(ctx, f, 0, 4096, 4096); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	r.await(t, "queue", func(s Status) bool { return s.Rings.Total().InFlight == 100 })
	during := p90()
	// On a machine that others use, times say little: what counts is that no
	// read of this disk waited for the other.
	if during > 20*before+50*time.Millisecond {
		t.Errorf("90th percentile %v beside a stalled disk, %v before", during, before)
	}
	if s := other.Status().Rings.Total(); s.InFlight != 0 || s.Delivered < 600 {
		t.Errorf("%+v", s)
	}
	cancel()
	wg.Wait()
	st := r.Status()
	conserves(t, st.Rings)
	if n := st.Rings.Total().InFlight; n != 100 {
		t.Errorf("%d abandoned reads are in flight", n)
	}
	release()
	st = r.await(t, "end of what hung", func(s Status) bool { return s.Rings.Total().InFlight == 0 })
	if n := st.Rings.Total().Orphans; n != 100 {
		t.Errorf("%d orphans", n)
	}
}
