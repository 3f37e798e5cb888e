package uring

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"ringfence/storage"
)

// TestRangesAreCheckedFirst: nothing is taken for a read that can't be made.
func TestRangesAreCheckedFirst(t *testing.T) {
	for _, c := range []struct {
		off, size int64
		align     int
		ok        bool
	}{
		{0, 0, 0, true}, {0, ReadMax, 0, true}, {math.MaxInt64 - 5, 5, 0, true}, {math.MaxInt64 - 9000, 5, 4096, true},
		{-1, 5, 0, false}, {0, -1, 0, false}, {math.MinInt64, 5, 0, false},
		{0, ReadMax + 1, 0, false}, {0, 1 << 31, 0, false}, {0, 1 << 32, 0, false}, {0, 1<<32 + 1, 0, false}, {0, math.MaxInt64, 0, false},
		{math.MaxInt64, 1, 0, false}, {math.MaxInt64 - 5, 6, 0, false}, {math.MaxInt64 - 5, 5, 512, false},
		{0, 5, 3, false}, {0, 5, -512, false}, {0, 5, 513, false}, {0, 5, 2 * alignMax, false}, {0, 5, 1, true}, {0, 5, alignMax, true},
	} {
		if err := check(c.off, c.size, c.align); (err == nil) != c.ok || err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestInvalidReadsLeaveNoTrace(t *testing.T) {
	f := openFile(t, writeFile(t, content(8192)), 0)
	pool := newPool(t, 8<<20)
	d := start(t, Options{Entries: 4}) // without a pool for bounces
	b := getBuf(t, pool, 4096)
	bufs := []*storage.Buf{b}
	five := []*storage.Buf{b, b, b, b, b}
	for name, r := range map[string]Request{
		"no file":              {Bufs: bufs},
		"negative offset":      {File: f, Bufs: bufs, Off: -1},
		"end beyond all files": {File: f, Bufs: bufs, Off: math.MaxInt64 - 4095},
		"alignment":            {File: f, Bufs: bufs, Align: 3},
		"misaligned, no pool":  {File: f, Bufs: bufs, Off: 1, Align: 512},
		"more than entries":    {File: f, Bufs: five},
	} {
		if o, err := d.TrySubmit(r); o != nil || !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		if len(r.Bufs) == 1 {
			if _, err := d.Read(t.Context(), r); !errors.Is(err, ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if _, err := d.ReadAtDirect(t.Context(), f, b, 0, 0); !errors.Is(err, ErrInvalid) {
		t.Errorf("direct read without alignment: %v", err)
	}
	closed := openFile(t, writeFile(t, content(10)), 0)
	if err := closed.Release(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.ReadAt(t.Context(), closed, b, 0); err != os.ErrClosed {
		t.Errorf("closed file: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.ReadAt(ended, f, b, 0); err != context.Canceled {
		t.Errorf("ended context: %v", err)
	}
	b.Release()
	if n := d.Stats().Total().Submitted; n != 0 || pool.InUse() != 0 || f.refs.Load() != 1 {
		t.Errorf("%d submitted, %d bytes in use, %d references of the file", n, pool.InUse(), f.refs.Load())
	}
}

// blocked fills a driver with n reads of pipes that nobody writes to.
func blocked(t testing.TB, d *Driver, pool *storage.Pool, n int) (ops []*Op, feed []*os.File) {
	t.Helper()
	for range n {
		r, w := newPipe(t)
		b := getBuf(t, pool, 4096)
		o, err := d.trySubmit(Request{File: r, Bufs: []*storage.Buf{b}}, true)
		if err != nil {
			t.Fatal(err)
		}
		b.Release() // the driver has its own reference
		if err := r.Release(); err != nil {
			t.Fatal(err)
		}
		ops, feed = append(ops, o), append(feed, w)
	}
	return ops, feed
}

func TestSaturation(t *testing.T) {
	data := content(8192)
	f := openFile(t, writeFile(t, data), 0)
	pool := newPool(t, 8<<20)
	d := start(t, Options{Entries: 4})
	ops, feed := blocked(t, d, pool, 4)
	b := getBuf(t, pool, 4096)
	defer b.Release()
	r := Request{File: f, Bufs: []*storage.Buf{b}}
	if _, err := d.TrySubmit(r); err != ErrSaturated {
		t.Fatalf("fifth of four: %v", err)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := d.Read(short, r); err != context.DeadlineExceeded {
		t.Fatalf("waiting for a permit: %v", err)
	}
	if s := d.Stats().Total(); s.Submitted != 4 || s.InFlight != 4 {
		t.Fatalf("%+v", s)
	}
	// Leaving gives no permit back: the kernel may still write.
	for _, o := range ops {
		if !o.state.CompareAndSwap(opWaiting, opAbandoned) {
			t.Fatal("a blocked read ended")
		}
	}
	if _, err := d.TrySubmit(r); err != ErrSaturated {
		t.Fatalf("after abandoning: %v", err)
	}
	got := make(chan error, 1)
	go func() {
		n, err := d.Read(t.Context(), r)
		if err == nil && (n != 4096 || !bytes.Equal(b.Bytes(), data[:n])) {
			err = errors.New("other bytes")
		}
		got <- err
	}()
	eventually(t, "somebody waits", func() bool { d.permits.mu.Lock(); defer d.permits.mu.Unlock(); return d.permits.head != nil })
	// Nobody overtakes those who wait, though there is room for an instant.
	if _, err := feed[0].WriteString("x"); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	eventually(t, "the orphan is counted", func() bool { return d.Stats().Total().Orphans == 1 })
	if s := d.Stats().Total(); s.OrphanBytes != 1 || s.Delivered != 1 || s.InFlight != 3 {
		t.Errorf("%+v", s)
	}
}

// TestPermitsServeInOrder: first come, first served, also when the first wants
// more than those behind it.
func TestPermitsServeInOrder(t *testing.T) {
	o, err := Options{Dir: "x", Entries: 4, Bytes: 100}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	var p permits
	p.init(o, 1)
	s := &shard{}
	p.up(0, s)
	op := func(n int, bytes int64) *Op {
		return &Op{pooled: true, done: make(chan struct{}, 1), count: n, bytes: bytes}
	}
	huge := op(1, 1000) // larger than all: alone
	if err := p.try(huge); err != nil {
		t.Fatal(err)
	}
	if err := p.try(op(1, 1)); err != ErrSaturated {
		t.Fatal(err)
	}
	order := make(chan int, 3)
	for i, w := range []*Op{op(4, 10), op(1, 10), op(1, 1)} {
		go func() {
			if err := p.wait(t.Context(), w); err != nil {
				t.Error(err)
			}
			order <- i
		}()
		eventually(t, "it waits", func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.tail == w })
	}
	p.release(s, 1, 1000)
	if first := <-order; first != 0 {
		t.Fatalf("%d came first", first)
	}
	if err := p.try(op(1, 1)); err != ErrSaturated {
		t.Fatalf("somebody overtook: %v", err)
	}
	p.release(s, 4, 10)
	if a, b := <-order, <-order; a+b != 3 {
		t.Fatalf("%d and %d came next", a, b)
	}
	// A waiter that leaves makes way.
	big := op(3, 1)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() { left <- p.wait(ctx, big) }()
	eventually(t, "it waits", func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.head == big })
	go func() { order <- 3; _ = p.wait(t.Context(), op(2, 1)); order <- 4 }()
	<-order
	eventually(t, "two wait", func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.head == big && p.tail != big })
	cancel()
	if err := <-left; err != context.Canceled {
		t.Error(err)
	}
	if n := <-order; n != 4 {
		t.Error(n)
	}
	p.close()
	if err := p.wait(t.Context(), op(1, 1)); err != ErrClosed {
		t.Error(err)
	}
	select {
	case <-p.drained():
		t.Error("drained with permits out")
	default:
	}
	p.release(s, 4, 12)
	<-p.drained()
}

func TestShardsAreChosenEvenly(t *testing.T) {
	f := openFile(t, writeFile(t, content(8192)), 0)
	pool := newPool(t, 8<<20)
	d := start(t, Options{Shards: 4})
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil || len(fds) == 0 {
		t.Fatal(err)
	}
	b := getBuf(t, pool, 512)
	defer b.Release()
	for range 1600 {
		if _, err := d.ReadAt(t.Context(), f, b, 0); err != nil {
			t.Fatal(err)
		}
	}
	rings, tables := map[int]bool{}, map[*table]bool{}
	for i, s := range d.Stats().Shards {
		if s.Submitted < 399 || s.Submitted > 401 {
			t.Errorf("shard %d had %d of 1600", i, s.Submitted)
		}
		sh := d.lanes[i].shard
		rings[sh.ring.Info().FD], tables[sh.table] = true, true
	}
	if len(rings) != 4 || len(tables) != 4 {
		t.Errorf("%d rings, %d tables", len(rings), len(tables))
	}
}

// TestLoadedShardsAreSpared: what is full or down is not chosen, and the less
// loaded of two is.
func TestLoadedShardsAreSpared(t *testing.T) {
	o, err := Options{Dir: "x", Shards: 4, Entries: 4, Bytes: 1000}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	var p permits
	p.init(o, 1)
	shards := []*shard{{}, {}, {}, {}}
	for i, s := range shards {
		p.up(i, s)
	}
	shards[0].room = room{ops: 4, bytes: 4}
	shards[1].room = room{ops: 1, bytes: 999}
	p.down(shards[2])
	for range 3 {
		op := &Op{count: 1, bytes: 10}
		if err := p.try(op); err != nil || op.shard != shards[3] {
			t.Fatalf("%v", err)
		}
	}
	shards[0].room, shards[1].room = room{bytes: 500}, room{bytes: 900}
	chosen := map[*shard]int{}
	for range 1000 {
		op := &Op{count: 1, bytes: 10}
		if err := p.try(op); err != nil {
			t.Fatal(err)
		}
		chosen[op.shard]++
		p.release(op.shard, 1, 10)
	}
	if chosen[shards[3]] < chosen[shards[0]] || chosen[shards[0]] < chosen[shards[1]] {
		t.Errorf("the emptiest got %d, then %d, the fullest %d", chosen[shards[3]], chosen[shards[0]], chosen[shards[1]])
	}
	for _, s := range shards {
		p.down(s)
	}
	if err := p.try(&Op{count: 1}); err != ErrClosed {
		t.Errorf("no shard is up: %v", err)
	}
}
