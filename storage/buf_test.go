package storage

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"unsafe"

	"ringfence/internal/invariant"
)

func newPool(t testing.TB, opts PoolOptions) *Pool {
	t.Helper()
	p, err := NewPool(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if n := p.InUse(); n != 0 {
			t.Errorf("%d bytes in use at the end", n)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if m := p.Stats().MappedBytes; m != 0 {
			t.Errorf("%d bytes mapped after Close", m)
		}
	})
	return p
}

func TestBufSizes(t *testing.T) {
	p := newPool(t, PoolOptions{BudgetBytes: 64 << 20})
	for _, c := range []struct{ size, cap int }{
		{0, 4096}, {1, 4096}, {4096, 4096}, {4097, 8192}, {8192, 8192}, {100_000, 131072},
		{256 << 10, 256 << 10}, {1<<20 + 1, 2 << 20}, {2 << 20, 2 << 20},
	} {
		b, err := p.Get(c.size)
		if err != nil {
			t.Fatal(err)
		}
		if len(b.Bytes()) != c.size || b.Cap() != c.cap || BufBytes(c.size) != int64(c.cap) {
			t.Errorf("size %d: len %d, cap %d, costs %d", c.size, len(b.Bytes()), b.Cap(), BufBytes(c.size))
		}
		b.SetLen(b.Cap())
		if at := uintptr(unsafe.Pointer(&b.Bytes()[0])); at%uintptr(c.cap) != 0 {
			t.Errorf("size %d: address %x is not aligned to %d", c.size, at, c.cap)
		}
		if p.InUse() != int64(c.cap) {
			t.Errorf("size %d: %d in use", c.size, p.InUse())
		}
		b.Release()
	}
	for _, size := range []int{-1, MaxBuf + 1} {
		if b, err := p.Get(size); err == nil || b != nil {
			t.Errorf("size %d: %v, want an error", size, b)
		}
	}
}

func TestPoolBudget(t *testing.T) {
	p := newPool(t, PoolOptions{BudgetBytes: 1 << 20})
	r, err := p.Reserve(t.Context(), 512<<10)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Reserve(t.Context(), 1<<20+1); !errors.Is(err, ErrNoBuffer) {
		t.Errorf("more than the budget: %v", err)
	}
	a, err := p.Get(512 << 10)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Get(1); !errors.Is(err, ErrNoBuffer) {
		t.Errorf("unreserved past the budget: %v", err)
	}
	b, err := r.Get(300 << 10) // costs all of the share
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Get(1); !errors.Is(err, ErrNoBuffer) {
		t.Errorf("past the share: %v", err)
	}
	b.Release()
	if b, err = r.Get(256 << 10); err != nil {
		t.Fatalf("after a buffer came home: %v", err)
	}
	r.Release()
	r.Release()
	if p.InUse() != 768<<10 {
		t.Errorf("%d in use: the rest of the share should be back", p.InUse())
	}
	if _, err := r.Get(1); !errors.Is(err, ErrNoBuffer) {
		t.Errorf("get after release: %v", err)
	}
	b.Retain()
	b.Release()
	if p.InUse() != 768<<10 {
		t.Errorf("%d in use: a reference is left", p.InUse())
	}
	b.Release()
	if p.InUse() != 512<<10 {
		t.Errorf("%d in use: the share's buffer is home", p.InUse())
	}
	a.Release()
}

func TestReserveIsFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, PoolOptions{BudgetBytes: 100 << 10, MaxWaiters: 4})
		first, err := p.Reserve(t.Context(), 80<<10)
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var order []string
		wait := func(ctx context.Context, bytes int64) {
			go func() {
				r, err := p.Reserve(ctx, bytes)
				mu.Lock()
				defer mu.Unlock()
				order = append(order, fmt.Sprint(bytes>>10, err == nil, errors.Is(err, ErrNoBuffer) && errors.Is(err, errGone)))
				if err == nil {
					r.Release()
				}
			}()
			synctest.Wait()
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		wait(ctx, 90<<10)
		wait(t.Context(), 10<<10) // would fit, but waits its turn
		wait(t.Context(), 70<<10)
		wait(t.Context(), 1<<10)
		if p.Stats().Waiting != 4 || len(order) != 0 {
			t.Fatalf("%d wait, done: %v", p.Stats().Waiting, order)
		}
		if _, err := p.Reserve(t.Context(), 1); !errors.Is(err, ErrNoBuffer) {
			t.Fatalf("one too many: %v", err)
		}
		cancel(errGone) // unblocks the second
		synctest.Wait()
		if p.Stats().Waiting != 2 || len(order) != 2 {
			t.Fatalf("%d wait, done: %v", p.Stats().Waiting, order)
		}
		first.Release()
		synctest.Wait()
		if p.Stats().Waiting != 0 || len(order) != 4 {
			t.Fatalf("%d wait, done: %v", p.Stats().Waiting, order)
		}
		for _, want := range []string{"90 false true", "10 true false", "70 true false", "1 true false"} {
			found := false
			for _, got := range order {
				found = found || got == want
			}
			if !found {
				t.Errorf("missing %q in %v", want, order)
			}
		}
		if _, err := p.Reserve(ctx, 1); !errors.Is(err, errGone) {
			t.Errorf("ended context: %v", err)
		}
	})
}

var errGone = errors.New("client is gone")

func TestPoolClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := NewPool(PoolOptions{BudgetBytes: 4096})
		if err != nil {
			t.Fatal(err)
		}
		b, err := p.Get(1)
		if err != nil {
			t.Fatal(err)
		}
		waited := make(chan error, 1)
		go func() {
			_, err := p.Reserve(t.Context(), 1)
			waited <- err
		}()
		synctest.Wait()
		if err := p.Close(); err == nil {
			t.Error("close with a buffer out reports nothing")
		}
		if err := <-waited; !errors.Is(err, ErrNoBuffer) {
			t.Errorf("waiter: %v", err)
		}
		b.Bytes()[0] = 1 // still mapped
		b.Release()
		if s := p.Stats(); s.MappedBytes != 0 || s.InUseBytes != 0 {
			t.Errorf("after the last buffer: %+v", s)
		}
		if _, err := p.Get(1); !errors.Is(err, ErrNoBuffer) {
			t.Errorf("get after close: %v", err)
		}
		if err := p.Close(); err != nil {
			t.Errorf("second close: %v", err)
		}
	})
}

// TestPoolSizesShare fills the budget with one size after another: what one
// gave back must serve the next, and a burst must not stay resident.
func TestPoolSizesShare(t *testing.T) {
	const budget = 32 << 20
	p := newPool(t, PoolOptions{BudgetBytes: budget, IdleBytes: 4 << 20})
	for _, size := range []int{4 << 10, 2 << 20, 64 << 10, 1 << 20, 4 << 10} {
		var bufs []*Buf
		for range budget / size {
			b, err := p.Get(size)
			if err != nil {
				t.Fatal(err)
			}
			bufs = append(bufs, b)
		}
		if m := p.Stats().MappedBytes; m != budget {
			t.Errorf("size %d: %d bytes mapped for a full budget of %d", size, m, budget)
		}
		rand.Shuffle(len(bufs), func(i, j int) { bufs[i], bufs[j] = bufs[j], bufs[i] })
		for _, b := range bufs {
			b.Release()
		}
		if m := p.Stats().MappedBytes; m > 6<<20 {
			t.Errorf("size %d: %d bytes stay mapped", size, m)
		}
	}
}

// TestPoolNeverSharesMemory marks every buffer with its holder and looks at the
// marks before it gives the buffer back.
func TestPoolNeverSharesMemory(t *testing.T) {
	const budget = 512 << 10 // so little that they wait for each other
	p := newPool(t, PoolOptions{BudgetBytes: budget, IdleBytes: 2 << 20})
	rounds := 2000
	if testing.Short() {
		rounds = 200
	}
	var wg sync.WaitGroup
	for g := range uint64(8) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(g, 1))
			for range rounds {
				share := int64(1+rng.IntN(64)) * minBuf
				r, err := p.Reserve(t.Context(), share)
				if err != nil {
					t.Error(err)
					return
				}
				early := rng.IntN(2) == 0
				bufs := fill(r, rng, share)
				if early {
					r.Release()
				}
				for i, b := range bufs {
					if m := mark(b); m != uint64(uintptr(unsafe.Pointer(b))) {
						t.Errorf("buffer %d was overwritten: %x", i, m)
					}
					b.Release()
				}
				r.Release()
			}
		})
	}
	wg.Wait()
}

// fill takes buffers of random sizes until the share is used up, and marks each
// with its own address at both ends.
func fill(r *Reservation, rng *rand.Rand, share int64) (bufs []*Buf) {
	for share > 0 {
		size := 1 + rng.IntN(int(share))
		b, err := r.Get(size)
		if errors.Is(err, ErrNoBuffer) { // rounded up, it was too much
			share /= 2
			continue
		}
		share -= BufBytes(size)
		b.SetLen(b.Cap())
		id := uint64(uintptr(unsafe.Pointer(b)))
		binary.LittleEndian.PutUint64(b.Bytes(), id)
		binary.LittleEndian.PutUint64(b.Bytes()[b.Cap()-8:], id)
		bufs = append(bufs, b)
	}
	return bufs
}

func mark(b *Buf) uint64 {
	head, tail := binary.LittleEndian.Uint64(b.Bytes()), binary.LittleEndian.Uint64(b.Bytes()[b.Cap()-8:])
	if head != tail {
		return 0
	}
	return head
}

func TestBufMisuseIsCaught(t *testing.T) {
	if !invariant.Enabled {
		t.Skip("needs a build with invariants")
	}
	p, err := NewPool(PoolOptions{BudgetBytes: 1 << 20}) // broken by the panics
	if err != nil {
		t.Fatal(err)
	}
	for name, misuse := range map[string]func(b *Buf){
		"second release": func(b *Buf) { b.Release() },
		"retain":         func(b *Buf) { b.Retain() },
		"bytes":          func(b *Buf) { b.Bytes() },
		"length":         func(b *Buf) { b.SetLen(1) },
		"length over the capacity": func(*Buf) {
			live, err := p.Get(1)
			if err != nil {
				t.Fatal(err)
			}
			defer live.Release()
			live.SetLen(live.Cap() + 1)
		},
		"write to released memory": func(*Buf) {
			live, err := p.Get(4096)
			if err != nil {
				t.Fatal(err)
			}
			mem := live.Bytes()
			live.Release()
			mem[17] = 1
			defer func() { mem[17] = poisoned[0] }()
			again, err := p.Get(4096)
			if err == nil {
				again.Release()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := p.Get(4096)
			if err != nil {
				t.Fatal(err)
			}
			b.Release()
			defer func() {
				if recover() == nil {
					t.Error("nothing noticed")
				}
			}()
			misuse(b)
		})
	}
}

func TestBufAllocatesNothing(t *testing.T) {
	if invariant.Enabled {
		t.Skip("builds with invariants never reuse a Buf")
	}
	p := newPool(t, PoolOptions{BudgetBytes: 8 << 20})
	r, err := p.Reserve(t.Context(), 4<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	if n := testing.AllocsPerRun(100, func() {
		a, errA := r.Get(256 << 10)
		b, errB := p.Get(4 << 10)
		if err := errors.Join(errA, errB); err != nil {
			t.Fatal(err)
		}
		a.Retain()
		a.Release()
		a.Release()
		b.Release()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkPool(b *testing.B) {
	for _, size := range []int{4 << 10, 256 << 10, 2 << 20} {
		b.Run(fmt.Sprintf("size=%dKiB", size>>10), func(b *testing.B) {
			p := newPool(b, PoolOptions{})
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					buf, err := p.Get(size)
					if err != nil {
						b.Error(err)
						return
					}
					buf.Release()
				}
			})
		})
	}
}
