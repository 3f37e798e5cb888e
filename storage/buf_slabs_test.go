package storage

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func slabsOf(p *Pool) map[uint64][]byte {
	all := map[uint64][]byte{}
	p.Slabs(func(id uint64, mem []byte) { all[id] = mem })
	return all
}

// TestSlabIdentity: a buffer names the slab it lies in, whatever else lies
// there, and a number never comes back, even in another pool.
func TestSlabIdentity(t *testing.T) {
	seen := map[uint64]bool{}
	for range 3 {
		p := newPool(t, PoolOptions{BudgetBytes: 8 << 20, IdleBytes: 1}) // nothing stays mapped
		for range 3 {
			var bufs []*Buf
			ids := map[uint64]bool{}
			for _, size := range []int{100, 1 << 20, 2 << 20, 300 << 10, 4096} {
				b, err := p.Get(size)
				if err != nil {
					t.Fatal(err)
				}
				bufs = append(bufs, b)
				id, mem := b.Slab()
				if id == 0 || seen[id] {
					t.Errorf("slab %d: not a new number", id)
				}
				ids[id] = true
				at, base := uintptr(unsafe.Pointer(&b.Bytes()[0])), uintptr(unsafe.Pointer(&mem[0]))
				if len(mem) != slabBytes || at < base || at+uintptr(b.Cap()) > base+slabBytes {
					t.Errorf("slab %d: the buffer at %x does not lie in %x", id, at, base)
				}
				if other := slabsOf(p)[id]; unsafe.SliceData(other) != unsafe.SliceData(mem) {
					t.Errorf("slab %d: Slabs does not show it", id)
				}
			}
			for _, b := range bufs {
				b.Release()
			}
			for id := range ids {
				if _, mapped := slabsOf(p)[id]; !mapped {
					seen[id] = true
				}
			}
		}
	}
	if len(seen) == 0 {
		t.Error("no slab was ever unmapped")
	}
}

// TestOnUnmap: watchers hear of every slab once, while it is still mapped, and
// the pool's lock is free meanwhile.
func TestOnUnmap(t *testing.T) {
	p, err := NewPool(PoolOptions{BudgetBytes: 16 << 20, IdleBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	mems, gone, other := map[uint64][]byte{}, map[uint64]int{}, 0
	remove := p.OnUnmap(func(id uint64) {
		gone[id]++
		mems[id][0] = 1 // faults if it is unmapped already
		if !p.mu.TryLock() {
			t.Error("called with the lock held")
			return
		}
		p.mu.Unlock()
	})
	removeOther := p.OnUnmap(func(uint64) { other++ })
	var bufs []*Buf
	for range 8 {
		b, err := p.Get(MaxBuf)
		if err != nil {
			t.Fatal(err)
		}
		id, mem := b.Slab()
		mems[id] = mem
		bufs = append(bufs, b)
	}
	for _, b := range bufs[:7] {
		b.Release()
	}
	mapped := slabsOf(p)
	if len(gone) == 0 || len(gone)+len(mapped) != 8 || other != len(gone) {
		t.Errorf("told of %d unmapped slabs, the other watcher of %d; %d are mapped", len(gone), other, len(mapped))
	}
	for id, n := range gone {
		if _, still := mapped[id]; still || n != 1 {
			t.Errorf("slab %d: told %d times, still mapped: %t", id, n, still)
		}
	}
	removeOther()
	removeOther()
	before := other
	bufs[7].Release()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if len(gone) != 8 || other != before {
		t.Errorf("after Close: told of %d of 8, a removed watcher of %d more", len(gone), other-before)
	}
	remove()
}

// TestOnUnmapRemoveWaits: nothing that f uses may go away under it.
func TestOnUnmapRemoveWaits(t *testing.T) {
	p := newPool(t, PoolOptions{BudgetBytes: 16 << 20, IdleBytes: 1})
	running, proceed := make(chan struct{}), make(chan struct{})
	var once sync.Once
	remove := p.OnUnmap(func(uint64) {
		once.Do(func() {
			close(running)
			<-proceed
		})
	})
	b, err := p.Get(MaxBuf)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(b.Release)
	<-running
	removed := make(chan struct{})
	wg.Go(func() {
		remove()
		close(removed)
	})
	soon := time.NewTimer(20 * time.Millisecond)
	defer soon.Stop()
	select {
	case <-removed:
		t.Error("remove returned while f was running")
	case <-soon.C:
	}
	close(proceed)
	wg.Wait()
}

// TestSlabsStayWhileVisited: what a visit sees is mapped until it is over, and
// goes then.
func TestSlabsStayWhileVisited(t *testing.T) {
	p := newPool(t, PoolOptions{BudgetBytes: 16 << 20, IdleBytes: 1})
	var bufs []*Buf
	for range 6 {
		b, err := p.Get(MaxBuf)
		if err != nil {
			t.Fatal(err)
		}
		bufs = append(bufs, b)
	}
	visited := 0
	p.Slabs(func(_ uint64, mem []byte) {
		for _, b := range bufs {
			b.Release()
		}
		bufs = nil
		mem[len(mem)-1] = mem[0] // faults if unmapped
		if m := p.Stats().MappedBytes; m != 6*slabBytes {
			t.Errorf("%d bytes mapped during the visit", m)
		}
		visited++
	})
	if m := p.Stats().MappedBytes; visited != 6 || m > 2*slabBytes {
		t.Errorf("%d of 6 slabs visited, %d bytes mapped after it", visited, m)
	}
}

// TestMapAll: the whole budget is mapped at once, the slabs stay the same under
// any load, what exhaustion does is what it was, and release gives all back.
func TestMapAll(t *testing.T) {
	const budget = 8 << 20
	p := newPool(t, PoolOptions{BudgetBytes: budget, IdleBytes: 1})
	release, err := p.MapAll()
	if err != nil {
		t.Fatal(err)
	}
	again, err := p.MapAll()
	if err != nil {
		t.Fatal(err)
	}
	first := slabsOf(p)
	if len(first) != budget/slabBytes {
		t.Fatalf("%d slabs mapped", len(first))
	}
	// Scattered small buffers leave no room for a large one: one more slab.
	var small []*Buf
	for range budget / (64 << 10) {
		b, err := p.Get(64 << 10)
		if err != nil {
			t.Fatal(err)
		}
		small = append(small, b)
	}
	if _, err := p.Get(1); !errors.Is(err, ErrNoBuffer) {
		t.Errorf("past the budget: %v", err)
	}
	var kept []*Buf
	for i, b := range small {
		if i%32 == 0 {
			kept = append(kept, b)
		} else {
			b.Release()
		}
	}
	large, err := p.Get(MaxBuf)
	if err != nil {
		t.Fatal(err)
	}
	if id, _ := large.Slab(); first[id] != nil {
		t.Errorf("a buffer of %d bytes lies in slab %d, which is partly used", MaxBuf, id)
	}
	large.Release()
	for _, b := range kept {
		b.Release()
	}
	again()
	again()
	now := slabsOf(p)
	for id := range first {
		if now[id] == nil {
			t.Errorf("slab %d did not stay", id)
		}
	}
	if len(now) != len(first) {
		t.Errorf("%d slabs are mapped, %d were kept", len(now), len(first))
	}
	release()
	if m := p.Stats().MappedBytes; m > slabBytes {
		t.Errorf("%d bytes mapped after release", m)
	}
}

// TestMapAllExhausted: who waits for a mapped pool is served in order and
// leaves with its context.
func TestMapAllExhausted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const budget = 4 << 20
		p := newPool(t, PoolOptions{BudgetBytes: budget})
		release, err := p.MapAll()
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		first, err := p.Reserve(t.Context(), budget)
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		for i := range 2 * budget / MaxBuf { // twice as many as there are slabs
			wg.Go(func() {
				r, err := p.Reserve(t.Context(), MaxBuf)
				if err != nil {
					t.Error(err)
					return
				}
				defer r.Release()
				b, err := r.Get(MaxBuf)
				if err != nil {
					t.Error(err)
					return
				}
				defer b.Release()
				mu.Lock()
				defer mu.Unlock()
				order = append(order, i)
			})
			synctest.Wait() // in line
		}
		if p.Stats().Waiting != 4 {
			t.Errorf("%d wait", p.Stats().Waiting)
		}
		first.Release()
		wg.Wait()
		if len(order) != 4 || p.Stats().MappedBytes != budget {
			t.Errorf("served: %v; %d bytes mapped", order, p.Stats().MappedBytes)
		}
	})
}

// TestNoMemory: a kernel that has none is a typed error, and the pool goes on
// when it has some again.
func TestNoMemory(t *testing.T) {
	p := newPool(t, PoolOptions{BudgetBytes: 8 << 20, IdleBytes: 1})
	left := 2
	p.mapSlab = func() ([]byte, error) {
		if left == 0 {
			return nil, unix.ENOMEM
		}
		left--
		return mapSlab()
	}
	failed := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, ErrNoBuffer) || !errors.Is(err, unix.ENOMEM) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := p.MapAll(); err == nil {
		t.Error("MapAll mapped what is not there")
	} else {
		failed("MapAll", err)
	}
	if m := p.Stats().MappedBytes; m > slabBytes {
		t.Errorf("%d bytes stay mapped after MapAll failed", m)
	}
	r, err := p.Reserve(t.Context(), 8<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	var bufs []*Buf
	for range 4 {
		b, err := r.Get(MaxBuf)
		if err != nil {
			failed("Get", err)
			break
		}
		bufs = append(bufs, b)
	}
	if len(bufs) == 4 {
		t.Error("no allocation failed")
	}
	left = 4
	b, err := r.Get(MaxBuf)
	if err != nil {
		t.Fatalf("when there is memory again: %v", err)
	}
	for _, b := range append(bufs, b) {
		b.Release()
	}
}

// TestSlabsUnderLoad has slabs come and go while watchers and visitors look.
func TestSlabsUnderLoad(t *testing.T) {
	p := newPool(t, PoolOptions{BudgetBytes: 32 << 20, IdleBytes: 1})
	rounds := 300
	if testing.Short() {
		rounds = 50
	}
	var mu sync.Mutex
	dead := map[uint64]bool{}
	remove := p.OnUnmap(func(id uint64) {
		mu.Lock()
		defer mu.Unlock()
		if dead[id] {
			t.Errorf("slab %d was unmapped twice", id)
		}
		dead[id] = true
	})
	defer remove()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range rounds {
				r, err := p.Reserve(t.Context(), 3*MaxBuf)
				if err != nil {
					t.Error(err)
					return
				}
				var bufs []*Buf
				for range 3 {
					b, err := r.Get(MaxBuf)
					if err != nil {
						t.Error(err)
						break
					}
					bufs = append(bufs, b)
				}
				slices.Reverse(bufs)
				for _, b := range bufs {
					id, mem := b.Slab()
					mem[0] = 1
					mu.Lock()
					if dead[id] {
						t.Errorf("slab %d is in use and unmapped", id)
					}
					mu.Unlock()
					b.Release()
				}
				r.Release()
			}
		})
	}
	wg.Go(func() {
		for range rounds {
			p.Slabs(func(id uint64, mem []byte) {
				mu.Lock()
				defer mu.Unlock()
				if dead[id] {
					t.Errorf("slab %d is visited and unmapped", id)
				}
				_ = mem[0]
			})
			release, err := p.MapAll()
			if err != nil {
				t.Error(err)
				return
			}
			release()
		}
	})
	wg.Wait()
}
