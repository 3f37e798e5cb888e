package hybrid

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ringfence/storage"
	"ringfence/storage/uring"
)

// ringOnly sends every read through the rings.
func ringOnly(k Knobs) { k.Inline.Store(false) }

// directAll reads everything with O_DIRECT.
func directAll(k Knobs) {
	k.Direct.Store(true)
	k.DirectThreshold.Store(0)
}

// TestActiveLatchTripsOnlyOnRefusals: what a ring answers to one read makes
// that one read the reference's; only what says that io_uring is not allowed
// any more takes the rings out.
func TestActiveLatchTripsOnlyOnRefusals(t *testing.T) {
	content := pattern(100_000)
	for _, c := range []struct {
		err   error
		trips bool
	}{
		{unix.ENOSYS, true}, {unix.EPERM, true}, {fmt.Errorf("enter: %w", unix.EPERM), true},
		{unix.EACCES, false}, {unix.EOPNOTSUPP, false}, {unix.EINVAL, false}, {unix.EIO, false}, {unix.ENOENT, false},
		{unix.EAGAIN, false}, {unix.ENOMEM, false}, {unix.ECANCELED, false}, {unix.ENOTRECOVERABLE, false},
		{uring.ErrClosed, false}, {uring.ErrShort, false}, {uring.ErrInvalid, false}, {storage.ErrNoBuffer, false},
		{errors.New("who knows"), false},
	} {
		t.Run(c.err.Error(), func(t *testing.T) {
			var fails atomic.Int64
			fails.Store(1)
			s := &starts{fault: func(_ context.Context, _ uring.Request, n int) (int, error) {
				if fails.Add(-1) == 0 {
					return 0, c.err
				}
				return n, nil
			}}
			r := newRig(t, rigOptions{start: s.start, set: func(k Knobs) {
				ringOnly(k)
				k.Reprobe.Store(time.Minute)
			}})
			r.put(t, "a", content)
			f := r.open(t, "a")
			r.want(t, f, content, 17, 70_000)
			st := r.Status()
			if st.latch(LatchActive).On != c.trips {
				t.Errorf("latched: %v, want %v", !c.trips, c.trips)
			}
			if n := st.Fallbacks[reasonNames[reasonOf(c.err)]]; n != 1 {
				t.Errorf("%d fallbacks: %v", n, st.Fallbacks)
			}
			r.want(t, f, content, 0, 1000)
			if got := r.Stats().Reads; got.Ring != map[bool]int64{true: 0, false: 1}[c.trips] {
				t.Errorf("reads: %+v", got)
			}
		})
	}
}

// TestActiveLatchTripsOnce: many readers meet the refusal at once.
func TestActiveLatchTripsOnce(t *testing.T) {
	s := &starts{fault: func(context.Context, uring.Request, int) (int, error) { return 0, unix.EPERM }}
	r := newRig(t, rigOptions{start: s.start, set: func(k Knobs) {
		ringOnly(k)
		k.Reprobe.Store(time.Minute)
	}})
	content := pattern(64 << 10)
	r.put(t, "a", content)
	f := r.open(t, "a")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 125 {
				r.want(t, f, content, i*100, 5000)
			}
		})
	}
	wg.Wait()
	st := r.Status()
	if l := st.latch(LatchActive); !l.On || l.Trips != 1 || r.log.count(`"warn"`) != 1 {
		t.Errorf("%+v, log:\n%s", l, r.log)
	}
	total := int64(0)
	for _, n := range st.Fallbacks {
		total += n
	}
	if total != 1000 || st.Reads.Inline+st.Reads.Pool != 1000 {
		t.Errorf("%d fallbacks, %+v", total, st.Reads)
	}
}

// TestLatchReopensHalf: after a refusal rings are tried again by themselves,
// with a real probe, later every time; when it succeeds they serve.
func TestLatchReopensHalf(t *testing.T) {
	var refuses atomic.Bool
	s := &starts{fault: func(_ context.Context, _ uring.Request, n int) (int, error) {
		if refuses.Load() {
			return 0, unix.EPERM
		}
		return n, nil
	}}
	r := newRig(t, rigOptions{start: s.start, set: ringOnly})
	content := pattern(5000)
	r.put(t, "a", content)
	f := r.open(t, "a")
	refuses.Store(true)
	s.fail(errors.New("not yet"))
	r.want(t, f, content, 0, 5000)
	r.await(t, "attempts", func(Status) bool { return s.count() >= 4 })
	if st := r.Status(); st.Tier != "std" || !st.latch(LatchActive).On {
		t.Errorf("%+v", st)
	}
	refuses.Store(false)
	s.fail(nil)
	st := r.await(t, "rings", func(s Status) bool { return s.Tier == "ring" })
	if st.latch(LatchActive).On || st.latch(LatchProbe).On {
		t.Errorf("latches: %+v", st.Latches)
	}
	before := r.Stats().Reads.Ring
	r.want(t, f, content, 0, 5000)
	if got := r.Stats().Reads.Ring; got != before+1 {
		t.Errorf("%d ring reads, want %d", got, before+1)
	}
}

// TestProbeCache: a refusal by the environment is not asked about again until
// rings are switched off and on; anything else is.
func TestProbeCache(t *testing.T) {
	t.Run("restricted", func(t *testing.T) {
		s := &starts{always: &uring.ProbeError{Restricted: true, Err: fmt.Errorf("io_uring_setup: %w", unix.EPERM)}}
		r := newRig(t, rigOptions{start: s.start, idle: true})
		st := r.await(t, "latch", func(s Status) bool { return s.latch(LatchProbe).On })
		if want := "std: io_uring: io_uring_setup: operation not permitted (seccomp, kernel.io_uring_disabled or an old kernel)"; st.String() != want {
			t.Errorf("%s", st)
		}
		for range 20 { // other changes are no reason to ask
			r.switchTo(func(k Knobs) { k.Entries.Store(k.Entries.Load() + 1) })
			r.await(t, "turn", func(Status) bool { return true })
		}
		if n := s.count(); n != 1 {
			t.Errorf("probed %d times", n)
		}
		r.switchTo(func(k Knobs) { k.Enable.Store(false) })
		r.await(t, "reset", func(s Status) bool { return !s.latch(LatchProbe).On })
		s.fail(nil)
		r.switchTo(func(k Knobs) { k.Enable.Store(true) })
		r.await(t, "rings", func(s Status) bool { return s.Tier == "ring" })
		if n := s.count(); n != 2 {
			t.Errorf("probed %d times", n)
		}
	})
	t.Run("unexpected", func(t *testing.T) {
		no := &uring.ProbeError{Err: unix.EMFILE}
		s := &starts{errs: []error{no, no, no}}
		r := newRig(t, rigOptions{start: s.start})
		if n := s.count(); n != 4 || r.log.count(`"warn"`) != 1 {
			t.Errorf("probed %d times, log:\n%s", n, r.log)
		}
		if l := r.Status().latch(LatchProbe); l.On || l.Trips != 1 {
			t.Errorf("%+v", l)
		}
	})
}

// TestDirectLatchIsItsOwn: O_DIRECT that fails costs a read its way, never its
// result, and ordinary ring reads go on.
func TestDirectLatchIsItsOwn(t *testing.T) {
	content := pattern(300_000)
	for _, err := range []error{unix.EINVAL, unix.EOPNOTSUPP} {
		t.Run(err.Error(), func(t *testing.T) {
			s := &starts{fault: func(_ context.Context, r uring.Request, n int) (int, error) {
				if r.Align > 0 {
					return 0, err
				}
				return n, nil
			}}
			r := newRig(t, rigOptions{start: s.start, set: func(k Knobs) {
				ringOnly(k)
				k.Direct.Store(true)
				k.DirectThreshold.Store(100_000)
			}})
			r.put(t, "a", content)
			f := r.open(t, "a")
			for range 10 {
				r.want(t, f, content, 1, 200_000)
				r.want(t, f, content, 1, 2000)
			}
			st := r.Status()
			if l := st.latch(LatchDirect); !l.On || l.Trips != 1 || st.latch(LatchActive).On || r.log.count(`"warn"`) != 1 {
				t.Errorf("%+v, log:\n%s", st.Latches, r.log)
			}
			if st.Reads.Ring != 10 || st.Reads.RingDirect != 0 || st.Tier != "ring" {
				t.Errorf("%+v", st)
			}
		})
	}
	t.Run("an I/O error", func(t *testing.T) {
		s := &starts{fault: func(_ context.Context, r uring.Request, n int) (int, error) { return 0, unix.EIO }}
		r := newRig(t, rigOptions{start: s.start, set: directAll})
		r.put(t, "a", content)
		f := r.open(t, "a")
		r.want(t, f, content, 0, 200_000)
		if st := r.Status(); st.latch(LatchDirect).On || st.Fallbacks["eio"] != 1 {
			t.Errorf("%+v", st)
		}
	})
}

// TestDeadDriverIsReplaced: rings that all died are started anew.
func TestDeadDriverIsReplaced(t *testing.T) {
	s := &starts{}
	r := newRig(t, rigOptions{start: s.start})
	s.last().change(func(s *uring.ShardStats) { s.Dead = true })
	r.await(t, "new driver", func(st Status) bool { return st.Tier == "ring" && s.count() == 2 })
	if l := r.Status().latch(LatchProbe); l.On || l.Trips != 1 {
		t.Errorf("%+v", l)
	}
}
