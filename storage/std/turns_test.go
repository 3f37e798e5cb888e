package std

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"

	"ringfence/storage"
)

// TestLargeInlineReadsTakeTurns: few more of them at a time than there are
// processors, and nobody waits for his turn beyond the end of his context: the
// attempt is meant not to wait, but on a disk that hangs it may.
func TestLargeInlineReadsTakeTurns(t *testing.T) {
	r := newRig(t, t.TempDir(), Options{})
	if !nowaitWorks(r) {
		t.Skip("the file system has no RWF_NOWAIT")
	}
	var running atomic.Int64
	entered, gate := make(chan struct{}, 64), make(chan struct{})
	r.readNow = func(fd int, iovs []unix.Iovec, off int64) (int, error) {
		if n := running.Add(1); n > int64(cap(r.copies)) {
			t.Errorf("%d large reads at a time", n)
		}
		defer running.Add(-1)
		entered <- struct{}{}
		<-gate
		return preadvNow(fd, iovs, off)
	}
	f := r.raw(t)
	var reads sync.WaitGroup
	read := func(ctx context.Context) (int, bool, error) {
		b := r.buf(t, yieldFrom)
		defer b.Release()
		return f.ReadInline(ctx, []*storage.Buf{b}, 0)
	}
	for range 3 * cap(r.copies) {
		reads.Go(func() {
			if n, done, err := read(t.Context()); n != yieldFrom || !done || err != nil {
				t.Errorf("%d bytes, done %t, %v", n, done, err)
			}
		})
	}
	for range cap(r.copies) {
		<-entered
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if n, done, err := read(ctx); n != 0 || done || err != nil {
		t.Errorf("without a turn: %d bytes, done %t, %v", n, done, err)
	}
	b := r.buf(t, yieldFrom)
	defer b.Release()
	ctx, cancel = context.WithCancel(t.Context())
	go cancel()
	if _, err := r.file.ReadAt(ctx, b, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("a read whose context ends before its turn: %v", err)
	}
	close(gate)
	reads.Wait()
}

// TestLostTurnsTeachNothing: that somebody left before his turn says nothing of
// the page cache.
func TestLostTurnsTeachNothing(t *testing.T) {
	r := newRig(t, t.TempDir(), Options{})
	if !nowaitWorks(r) {
		t.Skip("the file system has no RWF_NOWAIT")
	}
	f := r.raw(t)
	b := r.buf(t, yieldFrom)
	defer b.Release()
	for range cap(r.copies) {
		r.copies <- struct{}{}
	}
	for range 40 {
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		if _, err := f.ReadAt(ctx, b, 0); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	for range cap(r.copies) {
		<-r.copies
	}
	before := r.Stats().Reads
	for range 20 {
		if n, err := f.ReadAt(t.Context(), b, 0); n != yieldFrom || err != nil {
			t.Fatal(n, err)
		}
	}
	if after := r.Stats().Reads; after.Inline != before.Inline+20 || after.Pool != before.Pool {
		t.Errorf("before %+v, after %+v", before, after)
	}
}

// TestTurnsAreServedInOrder, and who leaves takes nobody's.
func TestTurnsAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := make(turns, 2)
		for range 2 {
			if !turns.take(t.Context()) {
				t.Fatal("a free turn is refused")
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		order := make(chan int, 5)
		for i := range 5 {
			go func() {
				own := t.Context()
				if i == 1 {
					own = ctx
				}
				if took := turns.take(own); took == (i == 1) {
					t.Errorf("%d: took a turn: %t", i, took)
				}
				order <- i
			}()
			synctest.Wait() // it is in the queue
		}
		cancel()
		for _, want := range []int{1, 0, 2, 3, 4} {
			if got := <-order; got != want {
				t.Errorf("%d was next, want %d", got, want)
			}
			synctest.Wait()
			if len(order) > 0 {
				t.Error("more are served than turns were given back")
			}
			turns.give()
		}
		turns.give()
		if len(turns) != 0 {
			t.Errorf("%d turns are taken", len(turns))
		}
	})
}
