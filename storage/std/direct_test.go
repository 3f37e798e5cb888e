package std

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"

	"ringfence/internal/knob"
	"ringfence/storage"
)

// directOptions turn O_DIRECT on for reads of at least threshold bytes.
func directOptions(pool *storage.Pool, threshold int64) Options {
	o := Options{Pool: pool, Direct: knob.NewBool("direct", true, ""), DirectThreshold: knob.NewSize("threshold", 1<<20, 0, 1<<40, "")}
	o.DirectThreshold.Store(threshold)
	return o
}

// newDirectRig has a file whose end is no multiple of anything, and skips
// where there is no O_DIRECT.
func newDirectRig(t *testing.T, bounces bool) *rig {
	t.Helper()
	pool, err := storage.NewPool(storage.PoolOptions{BudgetBytes: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if n := pool.InUse(); n != 0 {
			t.Errorf("%d bytes of bounce buffers are in use", n)
		}
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	})
	o := directOptions(pool, 0)
	if !bounces {
		o.Pool = nil
	}
	r := newRig(t, t.TempDir(), o)
	r.content = append(r.content, []byte("odd end")...)
	if err := r.file.WriteAt(t.Context(), r.content, 0); err != nil {
		t.Fatal(err)
	}
	r.openDirect(t)
	return r
}

// TestDirectReadsAnyRange: the superset is read, exactly the range is given.
func TestDirectReadsAnyRange(t *testing.T) {
	r := newDirectRig(t, true)
	size := len(r.content)
	reads := int64(0)
	for _, c := range [][2]int{
		{0, size}, {1, 17}, {4095, 2}, {4096, 4096}, {4095, 4098}, {512, 512}, {size - 7, 7}, {size - 7, 100}, {size - 8, 1},
		{size, 10}, {size + 1, 10}, {size + 5000, 10}, {1 << 20, 4096}, {100, 1 << 20},
	} {
		r.check(t, int64(c[0]), c[1])
		reads++
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		r.check(t, int64(rng.IntN(size)), 1+rng.IntN(40<<10))
		reads++
	}
	if got := r.Stats().Reads; got.Direct != reads || got.Pool != 0 || got.Inline != 0 {
		t.Errorf("reads: %+v, want %d direct", got, reads)
	}
	r.check(t, 10, 0) // nothing to read is not worth a descriptor
	if got := r.Stats().Reads; got.Direct != reads || got.Inline != 1 {
		t.Errorf("reads: %+v after one of no bytes", got)
	}
}

// TestDirectWithoutBounce: without a pool to bounce in, what is aligned is
// read directly, the end of the file included, and nothing else is.
func TestDirectWithoutBounce(t *testing.T) {
	r := newDirectRig(t, false)
	size := int64(len(r.content))
	direct := func(off int64, sizes ...int) bool {
		t.Helper()
		before := r.Stats().Reads.Direct
		var bufs []*storage.Buf
		for _, n := range sizes {
			b := r.buf(t, n)
			defer b.Release()
			bufs = append(bufs, b)
		}
		n, err := storage.ReadFull(t.Context(), r.file, bufs, off)
		if err != nil {
			t.Fatal(err)
		}
		var got []byte
		for _, b := range bufs {
			got = append(got, b.Bytes()...)
		}
		if want := r.content[off:min(size, off+int64(len(got)))]; !bytes.Equal(got[:n], want) {
			t.Errorf("offset %d, sizes %v: wrong bytes", off, sizes)
		}
		return r.Stats().Reads.Direct > before
	}
	for _, c := range []struct {
		off   int64
		sizes []int
		want  bool
	}{
		{0, []int{4096}, true},
		{8192, []int{256 << 10, 256 << 10, 256 << 10}, true},
		{8192, []int{256 << 10, 256 << 10, 100_001}, true}, // the last one's memory holds what is read beyond
		{4096, []int{1}, true},
		{size &^ 4095, []int{4096}, true},
		{(size - 8192) &^ 4095, []int{8192, 0, 8192, 0}, true},
		{size&^4095 - 4096, []int{4096, 7}, true},
		{1, []int{4096}, false},
		{4096, []int{100, 4096}, false},
		{0, []int{8192, 4097, 4096}, false},
	} {
		if got := direct(c.off, c.sizes...); got != c.want {
			t.Errorf("offset %d, sizes %v: direct %t", c.off, c.sizes, got)
		}
	}
}

// TestDirectIsDecidedByLength: the threshold itself is direct, one byte less
// is not, and the switch is live.
func TestDirectIsDecidedByLength(t *testing.T) {
	r := newDirectRig(t, true)
	const threshold = 64 << 10
	r.opts.DirectThreshold.Store(threshold)
	counts := func(size int) int64 {
		before := r.Stats().Reads
		r.check(t, 5, size)
		after := r.Stats().Reads
		return after.Direct - before.Direct
	}
	for _, c := range []struct {
		size int
		want int64
	}{{threshold - 1, 0}, {threshold, 1}, {threshold + 1, 1}, {0, 0}} {
		if got := counts(c.size); got != c.want {
			t.Errorf("%d bytes: %d direct reads", c.size, got)
		}
	}
	r.opts.Direct.Store(false)
	if got := counts(2 * threshold); got != 0 {
		t.Error("direct while switched off")
	}
	r.opts.Direct.Store(true)
	if got := counts(2 * threshold); got != 1 {
		t.Error("not direct while switched on")
	}
}

// TestDirectErrorsAreNobodysBusiness: whatever goes wrong, the read gives the
// bytes, and only a refusal ends further attempts.
func TestDirectErrorsAreNobodysBusiness(t *testing.T) {
	type reader = func(fd int, iovs []unix.Iovec, off int64) (int, error)
	fails := func(err error) reader {
		return func(int, []unix.Iovec, int64) (int, error) { return 0, err }
	}
	for _, c := range []struct {
		name    string
		read    reader
		latches bool
	}{
		{"EINVAL", fails(unix.EINVAL), true},
		{"EOPNOTSUPP", fails(unix.EOPNOTSUPP), true},
		{"EIO", fails(unix.EIO), false},
		{"ENOMEM", fails(unix.ENOMEM), false},
		{"ends inside the file", func(fd int, iovs []unix.Iovec, off int64) (int, error) {
			one := []unix.Iovec{iovs[0]}
			one[0].SetLen(100)
			if _, err := unix.Pread(fd, make([]byte, 1), off); err == nil {
				return 0, errors.New("not opened with O_DIRECT")
			}
			return 100, nil
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, bounces := range []bool{false, true} {
				r := newDirectRig(t, bounces)
				off := int64(4096)
				if bounces {
					off = 100
				}
				calls := 0
				r.calls.readDirect = func(fd int, iovs []unix.Iovec, off int64) (int, error) {
					calls++
					return c.read(fd, iovs, off)
				}
				for range 3 {
					r.check(t, off, 100_000)
				}
				if want := map[bool]int{true: 1, false: 3}[c.latches]; calls != want {
					t.Errorf("bounces %t: tried %d times, want %d", bounces, calls, want)
				}
				if got := r.Stats().Reads; got.Direct != 0 || got.Pool+got.Inline != 3 {
					t.Errorf("reads: %+v", got)
				}
				// Other engines' direct reads have latches of their own.
				if _, _, err := r.raw(t).Direct(); err != nil {
					t.Errorf("Direct: %v", err)
				}
			}
		})
	}
	t.Run("open", func(t *testing.T) {
		r := newRig(t, t.TempDir(), directOptions(nil, 0))
		calls := 0
		r.reopen = func(int, int) (int, error) { calls++; return -1, unix.EINVAL }
		for range 3 {
			r.check(t, 0, 8192)
		}
		if got := r.Stats().Reads; calls != 1 || got.Direct != 0 || got.Pool+got.Inline != 3 {
			t.Errorf("opened %d times, reads: %+v", calls, got)
		}
	})
}

// TestDirectSurvivesShortReads: a kernel that reads block by block and is
// interrupted gives the same bytes.
func TestDirectSurvivesShortReads(t *testing.T) {
	r := newDirectRig(t, true)
	_, align := r.openDirect(t)
	calls := 0
	r.calls.readDirect = func(fd int, iovs []unix.Iovec, off int64) (int, error) {
		if calls++; calls%3 == 0 {
			return 0, unix.EINTR
		}
		one := []unix.Iovec{iovs[0]}
		one[0].SetLen(min(int(iovs[0].Len), (1+calls%4)*align))
		return preadv(fd, one, off)
	}
	size := len(r.content)
	for _, c := range [][2]int{{0, 100_000}, {4096, 50_001}, {77, 50_001}, {size - 5000, 10_000}, {size, 1}} {
		r.check(t, int64(c[0]), c[1])
	}
	if got := r.Stats().Reads; got.Direct != 5 {
		t.Errorf("reads: %+v, want 5 direct", got)
	}
}

// TestDirectReadCancelled: it runs in the pool, with its own references.
func TestDirectReadCancelled(t *testing.T) {
	r := newDirectRig(t, true)
	begun, gate := make(chan struct{}), make(chan struct{})
	r.calls.readDirect = func(fd int, iovs []unix.Iovec, off int64) (int, error) {
		close(begun)
		<-gate
		return preadv(fd, iovs, off)
	}
	ctx, cancel := context.WithCancel(t.Context())
	b := r.buf(t, 8192)
	done := make(chan error, 1)
	go func() {
		_, err := r.file.ReadAt(ctx, b, 4096)
		done <- err
	}()
	<-begun
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled read: %v", err)
	}
	b.Release()
	if got := r.pool.InUse(); got != 8192 || len(r.slots) != 1 {
		t.Errorf("%d bytes, %d slots in use: the read that goes on needs them", got, len(r.slots))
	}
	second := r.file.(*file).second.Load().fd
	if err := r.file.Close(); err != nil {
		t.Fatal(err)
	}
	if !isOpen(second) {
		t.Error("the descriptor was closed under a read")
	}
	close(gate)
	if err := r.Close(); err != nil { // waits for the read
		t.Fatal(err)
	}
	if got := r.pool.InUse(); got != 0 || isOpen(second) {
		t.Errorf("after the read: %d bytes in use, descriptor open: %t", got, isOpen(second))
	}
}

// TestDirectErrorOfBuffered: where the disk itself fails, the error is the one
// that reads by way of the page cache give.
func TestDirectErrorOfBuffered(t *testing.T) {
	r := newDirectRig(t, true)
	fail := func(int, []unix.Iovec, int64) (int, error) { return 0, unix.EIO }
	r.calls.readDirect, r.readBlocking, r.readNow = fail, fail, fail
	err := readError(t, r, 0)
	if fmt.Sprint(err) != fmt.Sprint(r.raw(t).Wrap(unix.EIO)) || !errors.Is(err, storage.ErrFailed) {
		t.Errorf("read: %v", err)
	}
}

// TestDirectWithoutMemory: a bounce buffer that is not to be had is no error.
func TestDirectWithoutMemory(t *testing.T) {
	r := newDirectRig(t, true)
	all, err := r.opts.Pool.Reserve(t.Context(), 8<<20)
	if err != nil {
		t.Fatal(err)
	}
	r.check(t, 100, 100_000)
	if got := r.Stats().Reads; got.Direct != 0 || got.Pool+got.Inline != 1 {
		t.Errorf("reads: %+v", got)
	}
	all.Release()
	r.check(t, 100, 100_000)
	if got := r.Stats().Reads; got.Direct != 1 {
		t.Errorf("reads: %+v when there is memory again", got)
	}
}
