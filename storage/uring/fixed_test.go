package uring

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"ringfence/storage"
	"ringfence/storage/uring/ring"
	"ringfence/storage/uring/ringtest"
)

var allModes = []Mode{ModeNonFixed, ModeLegacy, ModeDynamic, ModeStatic}

func TestModesHaveNames(t *testing.T) {
	for _, m := range allModes {
		if got, err := ParseMode(m.String()); err != nil || got != m {
			t.Errorf("%s: %v, %v", m, got, err)
		}
	}
	for _, s := range []string{"", "fixed", "Static", "none "} {
		if _, err := ParseMode(s); err == nil {
			t.Errorf("%q is a mode", s)
		}
	}
}

// TestAllModesReadTheSame bytes, with registered memory where the mode says so.
func TestAllModesReadTheSame(t *testing.T) {
	data := content(3<<20 + 77)
	f := openFile(t, writeFile(t, data), 0)
	for _, m := range allModes {
		pool := newPool(t, 32<<20)
		d, script := scripted(t, Options{Pool: pool, Mode: m, Shards: 2})
		if s := d.Stats(); s.Mode != m {
			t.Errorf("%s is in effect instead of %s", s.Mode, m)
		}
		rng := rand.New(rand.NewPCG(1, 1))
		for range 200 {
			checkRead(t, d, pool, f, data, rng.IntN(len(data)+100), 1+rng.IntN(1<<rng.IntN(21)), 0)
		}
		checkRead(t, d, pool, f, data, 1, storage.MaxBuf, 0)
		stop := script.Truncate(func(res int32) int32 { return (res + 1) / 2 })
		checkRead(t, d, pool, f, data, 3, 1<<20, 0)
		stop()
		s := d.Stats()
		fixed := s.Total().Fixed
		if (m == ModeNonFixed) != (fixed == 0) || int(fixed) > script.Counts().Fixed {
			t.Errorf("%s: %d reads into registered memory, %d on the rings", m, fixed, script.Counts().Fixed)
		}
		switch m {
		case ModeNonFixed:
			if s.RegisteredBytes != 0 {
				t.Errorf("%s: %d bytes registered", m, s.RegisteredBytes)
			}
		case ModeLegacy:
			if s.RegisteredBytes != 2*2*legacyBytes {
				t.Errorf("%s: %d bytes registered", m, s.RegisteredBytes)
			}
		case ModeStatic:
			if s.RegisteredBytes != 2*32<<20 || fixed != s.Total().Submitted {
				t.Errorf("%s: %d bytes registered, %d of %d reads", m, s.RegisteredBytes, fixed, script.Counts().Reads)
			}
		}
		if pool.InUse() != 0 {
			t.Errorf("%s: %d bytes in use", m, pool.InUse())
		}
	}
}

// TestErrorsAreErrorsInAllModes: nothing that failed passes for data.
func TestErrorsAreErrorsInAllModes(t *testing.T) {
	f := openFile(t, writeFile(t, content(64<<10)), 0)
	for _, m := range allModes {
		pool := newPool(t, 8<<20)
		d, script := scripted(t, Options{Pool: pool, Mode: m})
		for _, errno := range []unix.Errno{unix.EIO, unix.EFAULT, unix.EINVAL} {
			stop := script.FailReads(1, int32(errno))
			b := getBuf(t, pool, 5000)
			if n, err := d.ReadAt(t.Context(), f, b, 7); n != 0 || err != error(errno) {
				t.Errorf("%s: %d bytes, %v", m, n, err)
			}
			b.Release()
			stop()
		}
		stop := script.Results(func(e ring.SQE, _ int32) int32 { return int32(e.Len) + 1 })
		b := getBuf(t, pool, 5000)
		if n, err := d.ReadAt(t.Context(), f, b, 7); n != 0 || err == nil {
			t.Errorf("%s: %d bytes, %v", m, n, err)
		}
		b.Release()
		stop()
	}
}

func TestFixedReadsStayWithinTheirMemory(t *testing.T) {
	mem := make([]byte, 100)
	p := partOf(3, mem)
	for _, c := range []struct {
		at, n int
		ok    bool
	}{{0, 100, true}, {0, 101, false}, {99, 1, true}, {100, 0, true}, {100, 1, false}, {-1, 2, false}, {50, 51, false}} {
		if got := p.covers(p.start+uintptr(c.at), c.n); got != c.ok {
			t.Errorf("%d at %d: %v", c.n, c.at, got)
		}
	}
	if (fixedPart{}).covers(0, 0) {
		t.Error("nothing covers something")
	}
	if p.covers(p.start, int(^uint(0)>>1)) {
		t.Error("length that wraps")
	}
}

// TestForeignBuffersAreReadPlainly: of another pool, or mapped after the start.
func TestForeignBuffersAreReadPlainly(t *testing.T) {
	data := content(64 << 10)
	f := openFile(t, writeFile(t, data), 0)
	pool, other := newPool(t, 4<<20), newPool(t, 4<<20)
	d, script := scripted(t, Options{Pool: pool, Mode: ModeStatic})
	checkRead(t, d, other, f, data, 3, 9000, 0)
	if n := script.Counts().Fixed; n != 0 {
		t.Errorf("%d reads into memory that isn't registered", n)
	}
	checkRead(t, d, pool, f, data, 3, 9000, 0)
	if n := script.Counts().Fixed; n != 1 {
		t.Errorf("%d reads into registered memory", n)
	}
}

// TestStaticPoolIsSharedFairly by twice as many readers as it has buffers.
func TestStaticPoolIsSharedFairly(t *testing.T) {
	const size = 256 << 10
	data := content(4 << 20)
	f := openFile(t, writeFile(t, data), 0)
	pool := newPool(t, 4<<20) // 16 of them
	d := start(t, Options{Pool: pool, Mode: ModeStatic, Entries: 8})
	var wg sync.WaitGroup
	for c := range 32 {
		wg.Go(func() {
			for range 10 {
				r, err := pool.Reserve(t.Context(), storage.BufBytes(size))
				if err != nil {
					t.Error(err)
					return
				}
				b, err := r.Get(size)
				if err != nil {
					t.Error(err)
					return
				}
				off := c * size / 2 % len(data)
				n, err := d.ReadAt(t.Context(), f, b, int64(off))
				if err != nil || !bytes.Equal(b.Bytes()[:n], data[off:min(off+size, len(data))]) {
					t.Errorf("%d bytes at %d: %v, or other bytes", n, off, err)
				}
				b.Release()
				r.Release()
			}
		})
	}
	wg.Wait()
	s := d.Stats().Total()
	if s.Delivered != 320 || s.Fixed != 320 {
		t.Errorf("%+v", s)
	}
	// Used up, it refuses at once, and whoever waits can leave.
	all, err := pool.Reserve(t.Context(), 4<<20)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Get(1); !errors.Is(err, storage.ErrNoBuffer) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := pool.Reserve(ctx, 4096); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	all.Release()
}

// TestDynamicTableFollowsThePool, which maps and unmaps slabs under load.
func TestDynamicTableFollowsThePool(t *testing.T) {
	data := content(2 << 20)
	f := openFile(t, writeFile(t, data), 0)
	pool, err := storage.NewPool(storage.PoolOptions{BudgetBytes: 32 << 20, IdleBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	d, script := scripted(t, Options{Pool: pool, Mode: ModeDynamic, Shards: 2})
	rounds := 3
	for range rounds {
		var wg sync.WaitGroup
		for c := range uint64(8) {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(c, 9))
				for range 5 {
					checkRead(t, d, pool, f, data, rng.IntN(len(data)), 1+rng.IntN(1<<20), 0)
				}
			})
		}
		wg.Wait()
	}
	s := d.Stats()
	if n := s.Total(); n.Fixed != n.Submitted || n.Submitted != int64(rounds)*40 {
		t.Errorf("%d of %d reads into registered memory", n.Fixed, n.Submitted)
	}
	// What was unmapped leaves the tables at the next turn of each shard.
	eventually(t, "tables are like the pool", func() bool {
		return d.registry.bytes.Load() <= 2*pool.Stats().MappedBytes
	})
	if script.Counts().Updates < 4 {
		t.Errorf("%d changes of tables: nothing was mapped", script.Counts().Updates)
	}
}

// TestRefusedRegistrationDegrades to ordinary reads, whenever it comes.
func TestRefusedRegistrationDegrades(t *testing.T) {
	data := content(64 << 10)
	f := openFile(t, writeFile(t, data), 0)
	for _, m := range []Mode{ModeLegacy, ModeDynamic, ModeStatic} {
		for _, errno := range []unix.Errno{unix.ENOMEM, unix.EPERM, unix.EINVAL} {
			for after := range 3 {
				script := &ringtest.Script{}
				calls := 0
				refuse := func() error {
					if calls++; calls > after {
						return errno
					}
					return nil
				}
				script.Hook(ringtest.Hooks{
					Buffers: func(int, int) error { return refuse() },
					SetBuffer: func(_, _ int, mem []byte) error {
						if mem == nil {
							return nil
						}
						return refuse()
					},
				})
				pool := newPool(t, 16<<20)
				d := start(t, Options{Pool: pool, Mode: m, Setup: ringtest.Wrap(ring.New, script)})
				var held []*storage.Buf
				for range 3 { // a slab each
					held = append(held, getBuf(t, pool, storage.MaxBuf))
					if n, err := d.ReadAt(t.Context(), f, held[len(held)-1], 0); err != nil || n != len(data) {
						t.Errorf("%s, %v: %d bytes, %v", m, errno, n, err)
					}
				}
				checkRead(t, d, pool, f, data, 5, 5000, 0)
				if s := d.Stats(); s.Mode != ModeNonFixed {
					t.Errorf("%s, %v after %d: %s is in effect", m, errno, after, s.Mode)
				}
				for _, b := range held {
					b.Release()
				}
				if s, err := d.Close(t.Context()); err != nil || s.RegisteredBytes != 0 || s.Total().Delivered != 4 {
					t.Errorf("%s, %v: %+v, %v", m, errno, s, err)
				}
			}
		}
	}
}

// TestLockedMemoryIsLimited by the kernel itself: for threads that may not lock
// as much as they like.
func TestLockedMemoryIsLimited(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		t.Fatal(err)
	}
	// Rings of other processes of the same user count as well: leave some room.
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: min(limit.Cur, 3<<20), Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
			t.Error(err)
		}
	})
	data := content(64 << 10)
	f := openFile(t, writeFile(t, data), 0)
	for _, m := range []Mode{ModeLegacy, ModeDynamic, ModeStatic} {
		pool := newPool(t, 16<<20)
		d := start(t, Options{Pool: pool, Mode: m, Setup: func(o ring.Options) (ring.Ring, error) {
			if err := dropIPCLock(); err != nil {
				return nil, err
			}
			return ring.New(o)
		}})
		var held []*storage.Buf
		for range 4 { // a slab each: more than may be locked
			held = append(held, getBuf(t, pool, storage.MaxBuf))
			if n, err := d.ReadAt(t.Context(), f, held[len(held)-1], 0); err != nil || n != len(data) {
				t.Errorf("%s: %d bytes, %v", m, n, err)
			}
		}
		if s := d.Stats(); s.Mode != ModeNonFixed {
			t.Errorf("%s is in effect, with %d bytes registered", s.Mode, s.RegisteredBytes)
		}
		for _, b := range held {
			b.Release()
		}
	}
}

// dropIPCLock takes the privilege to lock any memory from the calling thread,
// which is a shard's and ends with it.
func dropIPCLock() error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&head, &sets[0]); err != nil {
		return err
	}
	sets[0].Effective &^= 1 << unix.CAP_IPC_LOCK
	return unix.Capset(&head, &sets[0])
}
