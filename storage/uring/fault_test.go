package uring

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ringfence/storage"
	"ringfence/storage/uring/ring"
	"ringfence/storage/uring/ringtest"
)

// TestFailedEntersLoseNothing: what the kernel did not take stays queued, owned
// and is taken later.
func TestFailedEntersLoseNothing(t *testing.T) {
	data := content(8192)
	f := openFile(t, writeFile(t, data), 0)
	pool := newPool(t, 8<<20)
	for _, c := range []struct {
		errs    []error
		counted int64
	}{
		{[]error{unix.EINTR}, 0},
		{[]error{unix.EBUSY, unix.EBUSY, unix.EINTR}, 0},
		{[]error{unix.EAGAIN}, 1},
		{[]error{unix.EAGAIN, unix.ENOMEM, unix.EINTR, unix.EPERM}, 3},
		{slices.Repeat([]error{unix.EAGAIN}, submitErrorsMax-1), submitErrorsMax - 1},
	} {
		d, script := scripted(t, Options{Pool: pool})
		script.FailEnters(c.errs...)
		checkRead(t, d, pool, f, data, 0, 8192, 0)
		if s := d.Stats().Total(); s.SubmitErrors != c.counted || s.Delivered != 1 || s.Submitted != 1 || s.Restarts != 0 {
			t.Errorf("%v: %+v", c.errs, s)
		}
	}
}

// TestDeadShardFailsItsCallersAndIsReplaced: after 128 refusals in a row.
func TestDeadShardFailsItsCallersAndIsReplaced(t *testing.T) {
	data := content(8192)
	f := openFile(t, writeFile(t, data), 0)
	pool := newPool(t, 8<<20)
	d, script := scripted(t, Options{Pool: pool, DrainTimeout: 200 * time.Millisecond})
	b := getBuf(t, pool, 4096)
	defer b.Release()
	script.BreakEnters(unix.EPERM)
	begin := time.Now()
	_, err := d.ReadAt(t.Context(), f, b, 0)
	if !errors.Is(err, ErrClosed) || !errors.Is(err, unix.EPERM) {
		t.Fatalf("read on a dying shard: %v", err)
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	if s := d.Stats().Total(); s.InFlight != 0 || s.Leaked != 0 {
		t.Errorf("what the kernel never saw is leaked: %+v", s)
	}
	if _, err := d.ReadAt(t.Context(), f, b, 0); !errors.Is(err, ErrClosed) {
		t.Errorf("no shard is up: %v", err)
	}
	script.BreakEnters(nil)
	eventually(t, "the shard is replaced", func() bool {
		_, err := d.ReadAt(t.Context(), f, b, 0)
		return err == nil
	})
	if !bytes.Equal(b.Bytes(), data[:4096]) {
		t.Error("other bytes")
	}
	s := d.Stats().Total()
	if s.Restarts == 0 || s.Dead || s.SubmitErrors < submitErrorsMax || s.Delivered < 2 {
		t.Errorf("counters of the first life are lost: %+v", s)
	}
	conserved(t, d.Stats())
}

// TestShardThatDiesTooOftenStaysDown, and its siblings serve.
func TestShardThatDiesTooOftenStaysDown(t *testing.T) {
	data := content(8192)
	f := openFile(t, writeFile(t, data), 0)
	pool := newPool(t, 8<<20)
	// Lane 0 has the first ring, and those after the fourth.
	script := &ringtest.Script{}
	broken := atomic.Bool{}
	script.Hook(ringtest.Hooks{Enter: func(n, _, _ int) error {
		if broken.Load() && (n == 1 || n > 4) {
			return unix.EPERM
		}
		return nil
	}})
	d := start(t, Options{Pool: pool, Shards: 4, Restarts: 2, DrainTimeout: 100 * time.Millisecond, Setup: ringtest.Wrap(ring.New, script)})
	broken.Store(true)
	b := getBuf(t, pool, 4096)
	defer b.Release()
	failures := 0
	eventually(t, "the shard stays down", func() bool {
		if _, err := d.ReadAt(t.Context(), f, b, 0); err != nil {
			failures++
		}
		return d.Stats().Shards[0].Dead
	})
	for range 400 {
		if _, err := d.ReadAt(t.Context(), f, b, 0); err != nil {
			t.Fatalf("a dead shard is chosen: %v", err)
		}
	}
	s := d.Stats()
	if s.Shards[0].Restarts != 2 || s.Total().Dead || failures > 3 {
		t.Errorf("%d failures, %+v", failures, s.Shards[0])
	}
}

// TestCompletionsNeverOverflow reads far more than the queue holds.
func TestCompletionsNeverOverflow(t *testing.T) {
	n := 6000
	if required("million") {
		n = 100_000
	}
	f := openFile(t, writeFile(t, content(64<<10)), 0)
	pool := newPool(t, 8<<20)
	for _, entries := range []int{1, 2, 64} {
		d := start(t, Options{Entries: entries})
		b := getBuf(t, pool, 512)
		var ops []*Op
		for i := 0; i < n/10; {
			o, err := d.TrySubmit(Request{File: f, Bufs: []*storage.Buf{b}, Off: int64(i % 60000)})
			if err == nil {
				i++
				if i%3 == 0 {
					o.Cancel()
				}
				ops = append(ops, o)
			}
			if err == ErrSaturated || len(ops) == 64 {
				for _, o := range ops {
					if _, err := o.Wait(t.Context()); err != nil && err != unix.ECANCELED {
						t.Fatal(err)
					}
				}
				ops = ops[:0]
			}
		}
		b.Release()
		s, err := d.Close(t.Context())
		if err != nil || s.Total().Overflow != 0 || s.Total().Submitted != int64(n/10) {
			t.Errorf("%d entries: %+v, %v", entries, s.Total(), err)
		}
	}
}

// TestIdleShardIsQuietAndWakesAtOnce counts system calls of an idle shard, and
// times a read that comes after.
func TestIdleShardIsQuietAndWakesAtOnce(t *testing.T) {
	data := content(8192)
	f := openFile(t, writeFile(t, data), 0)
	pool := newPool(t, 8<<20)
	d := start(t, Options{Pool: pool})
	checkRead(t, d, pool, f, data, 0, 4096, 0)
	inKernel(t, d, 0)
	before := d.Stats().Total()
	quiet := 300 * time.Millisecond
	if required("million") {
		quiet = 5 * time.Second
	}
	<-time.After(quiet)
	after := d.Stats().Total()
	if n := after.Enters - before.Enters; n > 1+int64(quiet/heartbeat) || after.Wakes != before.Wakes {
		t.Errorf("%d enters, %d wakes in %v of nothing", n, after.Wakes-before.Wakes, quiet)
	}
	var took []time.Duration
	for range 50 {
		inKernel(t, d, 0)
		begin := time.Now()
		checkRead(t, d, pool, f, data, 0, 4096, 0)
		took = append(took, time.Since(begin))
	}
	// Much less than any heartbeat; the machine may be busy.
	slices.Sort(took)
	if m := took[len(took)/2]; m > 20*time.Millisecond {
		t.Errorf("half of the reads of a sleeping shard take over %v", m)
	}
	// A cancellation wakes as well.
	ops, _ := blocked(t, d, pool, 1)
	inKernel(t, d, 1)
	begin := time.Now()
	ops[0].Cancel()
	eventually(t, "it ended", func() bool { return d.Stats().Total().InFlight == 0 })
	if took := time.Since(begin); took > heartbeat/2 {
		t.Errorf("cancelling took %v", took)
	}
}

// TestRestOfAShortReadGoesAtOnce, not at some heartbeat.
func TestRestOfAShortReadGoesAtOnce(t *testing.T) {
	data := content(8192)
	f := openFile(t, writeFile(t, data), 0)
	pool := newPool(t, 8<<20)
	d, script := scripted(t, Options{Pool: pool})
	script.Truncate(func(res int32) int32 { return res / 2 })
	begin := time.Now()
	for range 10 {
		checkRead(t, d, pool, f, data, 0, 8192, 0) // 14 reads each
	}
	if took := time.Since(begin); took > 10*heartbeat/4 {
		t.Errorf("10 reads of 14 parts took %v", took)
	}
}

// strange is a ring that gives completions again after the next Enter, when
// their place may be used anew, and before each one others that nobody asked
// for.
type strange struct {
	ring.Ring
	next, later []ring.CQE
	rng         *rand.Rand
}

func (r *strange) Enter(wait int, timeout time.Duration) error {
	err := r.Ring.Enter(wait, timeout)
	r.next, r.later = append(r.next, r.later...), nil
	return err
}

func (r *strange) Next() (ring.CQE, bool) {
	if len(r.next) == 0 {
		c, ok := r.Ring.Next()
		if !ok {
			return c, false
		}
		garbage := ring.CQE{UserData: r.rng.Uint64(), Res: 4096}
		near := ring.CQE{UserData: c.UserData + 1<<slotBits, Res: 1}
		r.next = append(r.next, garbage, near, c, c)
		r.later = append(r.later, c)
	}
	c := r.next[0]
	r.next = r.next[1:]
	return c, true
}

// TestStrangeCompletionsAreNobodys: only what is awaited counts.
func TestStrangeCompletionsAreNobodys(t *testing.T) {
	data := content(64 << 10)
	f := openFile(t, writeFile(t, data), 0)
	pool := newPool(t, 8<<20)
	script := &ringtest.Script{}
	inner := ringtest.Wrap(ring.New, script)
	d := start(t, Options{Pool: pool, Setup: func(o ring.Options) (ring.Ring, error) {
		r, err := inner(o)
		return &strange{Ring: r, rng: rand.New(rand.NewPCG(1, 2))}, err
	}})
	script.Truncate(func(res int32) int32 { return (res + 2) / 3 })
	for i := range 50 {
		checkRead(t, d, pool, f, data, 77*i, 9000, 0)
	}
	ops, _ := blocked(t, d, pool, 4)
	for _, o := range ops {
		o.Cancel()
	}
	eventually(t, "all ended", func() bool { return d.Stats().Total().InFlight == 0 })
	if s := d.Stats().Total(); s.Delivered != 50 || s.Orphans != 4 || pool.InUse() != 0 {
		t.Errorf("%+v, %d bytes in use", s, pool.InUse())
	}
}

// TestCompletionsAlwaysHaveRoom, even when every read is cancelled at once while
// the wake-up is under way: never is more of it than the queue holds.
func TestCompletionsAlwaysHaveRoom(t *testing.T) {
	pool := newPool(t, 8<<20)
	script := &ringtest.Script{}
	most, limit := 0, 0
	script.Hook(ringtest.Hooks{
		Enter: func(int, int, int) error {
			c := script.Counts()
			most = max(most, c.Pushed-c.Completed)
			return nil
		},
		Info: func(_ int, i ring.Info) ring.Info { limit = i.CQEntries; return i },
	})
	d := start(t, Options{Entries: ringEntriesMin, Setup: ringtest.Wrap(ring.New, script)})
	ops, _ := blocked(t, d, pool, ringEntriesMin)
	inKernel(t, d, ringEntriesMin)
	m := &d.lanes[0].shard.mail
	m.mu.Lock()
	for _, o := range ops {
		o.state.Store(opAbandoned)
		close(o.done)
		m.queue = append(m.queue, message{op: o, cancel: true})
	}
	m.mu.Unlock() // nobody wakes it, so that its heartbeat finds the wake-up still under way
	eventually(t, "all ended", func() bool { return d.Stats().Total().Orphans == ringEntriesMin })
	s, err := d.Close(t.Context())
	if c := s.Total().Cancels; err != nil || c.Succeeded+c.NotFound != ringEntriesMin {
		t.Errorf("%+v, %v", c, err)
	}
	if most > limit || most < limit {
		t.Errorf("%d under way at most, with room for %d", most, limit)
	}
}
