package uring

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"

	"ringfence/internal/invariant"
	"ringfence/storage"
	"ringfence/storage/uring/ring"
	"ringfence/storage/uring/ringtest"
)

// TestReadsAreWhatTheFileHolds compares ranges of all kinds with the file.
func TestReadsAreWhatTheFileHolds(t *testing.T) {
	data := content(1<<20 + 13)
	f := openFile(t, writeFile(t, data), 0)
	pool := newPool(t, 64<<20)
	for _, shards := range []int{0, 1, 4} {
		d := start(t, Options{Shards: shards, Pool: pool})
		rng := rand.New(rand.NewPCG(1, 2))
		for range 64 {
			off, n := rng.IntN(len(data)+8192), 1+rng.IntN(128<<10)
			checkRead(t, d, pool, f, data, off, n, 0)
		}
		s := d.Stats()
		conserved(t, s)
		if total := s.Total(); total.Submitted != 64 || total.Delivered != 64 || total.Orphans != 0 || len(s.Shards) != max(shards, 1) {
			t.Errorf("%d shards: %d of them, %+v", shards, len(s.Shards), total)
		}
	}
	if pool.InUse() != 0 {
		t.Errorf("%d bytes of buffers are still in use", pool.InUse())
	}
}

// marker is in buffers before they are read into. No test content has a run of
// it.
const marker = 0xa5

// checkRead reads a range and compares; what lies past its end must not change
// in a read without O_DIRECT.
func checkRead(t testing.TB, d *Driver, pool *storage.Pool, f storage.Descriptor, data []byte, off, n, align int) {
	t.Helper()
	b := getBuf(t, pool, n)
	defer b.Release()
	b.SetLen(b.Cap())
	whole := b.Bytes()
	for i := range whole {
		whole[i] = marker
	}
	b.SetLen(n)
	got, err := d.Read(t.Context(), Request{File: f, Bufs: []*storage.Buf{b}, Off: int64(off), Align: align})
	if err != nil {
		t.Fatalf("%d bytes at %d: %v", n, off, err)
	}
	want := data[min(off, len(data)):min(off+n, len(data))]
	if !bytes.Equal(b.Bytes()[:got], want) {
		t.Fatalf("%d bytes at %d: got %d, want %d, or other bytes", n, off, got, len(want))
	}
	if align == 0 && len(bytes.Trim(whole[n:], string([]byte{marker}))) > 0 {
		t.Fatalf("%d bytes at %d: bytes beyond the buffer were written", n, off)
	}
}

func TestReadsAtTheEdges(t *testing.T) {
	data := content(10000)
	f := openFile(t, writeFile(t, data), 0)
	pool := newPool(t, 8<<20)
	d := start(t, Options{Pool: pool})
	for _, r := range []struct{ off, n int }{
		{0, 0}, {0, 1}, {0, 10000}, {0, 20000}, {9999, 1}, {9999, 2}, {10000, 1}, {10000, 0}, {10001, 5}, {1 << 40, 4096}, {5000, 5000},
	} {
		checkRead(t, d, pool, f, data, r.off, r.n, 0)
	}
}

// TestShortReadsAreMadeWhole has the ring give a little at a time.
func TestShortReadsAreMadeWhole(t *testing.T) {
	data := content(64 << 10)
	f := openFile(t, writeFile(t, data), 0)
	pool := newPool(t, 8<<20)
	d, script := scripted(t, Options{Pool: pool})
	rng := rand.New(rand.NewPCG(3, 4))
	stop := script.Truncate(func(res int32) int32 { return 1 + rng.Int32N(min(res, 9000)) })
	for _, r := range []struct{ off, n int }{{0, 64 << 10}, {17, 5000}, {60000, 20000}, {65535, 9}} {
		checkRead(t, d, pool, f, data, r.off, r.n, 0)
	}
	stop()
	if s := d.Stats().Total(); s.Submitted != 4 || s.Delivered != 4 {
		t.Errorf("4 reads counted as %+v", s)
	}
	if n := script.Counts().Reads; n < 10 {
		t.Errorf("only %d reads on the ring: nothing was short", n)
	}
}

// TestInterruptedReadsAreRetried allows 16 in a row, and again after progress.
func TestInterruptedReadsAreRetried(t *testing.T) {
	data := content(8192)
	f := openFile(t, writeFile(t, data), 0)
	pool := newPool(t, 8<<20)
	d, script := scripted(t, Options{Pool: pool})
	for _, errno := range []unix.Errno{unix.EINTR, unix.EAGAIN} {
		stop := script.FailReads(retriesMax, int32(errno))
		checkRead(t, d, pool, f, data, 0, 8192, 0)
		stop()

		// 16 failures, one byte, 16 failures, the rest.
		n := 0
		stop = script.Results(func(_ ring.SQE, res int32) int32 {
			n++
			switch {
			case n == retriesMax+1:
				return 1
			case n <= 2*retriesMax+1:
				return -int32(errno)
			}
			return res
		})
		checkRead(t, d, pool, f, data, 0, 8192, 0)
		stop()

		stop = script.FailReads(retriesMax+1, int32(errno))
		b := getBuf(t, pool, 8192)
		if _, err := d.ReadAt(t.Context(), f, b, 0); err != error(errno) {
			t.Errorf("%v 17 times: got %v", errno, err)
		}
		b.Release()
		stop()
	}
}

// TestErrorsOfReadsAreBare: what the kernel said is what callers compare with.
func TestErrorsOfReadsAreBare(t *testing.T) {
	f := openFile(t, writeFile(t, content(8192)), 0)
	pool := newPool(t, 8<<20)
	d, script := scripted(t, Options{Pool: pool})
	for _, errno := range []unix.Errno{unix.EIO, unix.EINVAL, unix.EPERM, unix.ENOSYS, unix.EOPNOTSUPP} {
		b := getBuf(t, pool, 4096)
		stop := script.FailReads(1, int32(errno))
		n, err := d.ReadAt(t.Context(), f, b, 0)
		stop()
		if n != 0 || err != error(errno) {
			t.Errorf("%v: %d bytes, %v", errno, n, err)
		}
		b.Release()
	}
	if s := d.Stats().Total(); s.Delivered != 5 {
		t.Errorf("errors are outcomes: %+v", s)
	}
}

// TestNoResultIsTakenOnTrust: more bytes than were asked for can't be.
func TestNoResultIsTakenOnTrust(t *testing.T) {
	f := openFile(t, writeFile(t, content(8192)), 0)
	pool := newPool(t, 8<<20)
	d, script := scripted(t, Options{Pool: pool})
	stop := script.Results(func(e ring.SQE, _ int32) int32 { return int32(e.Len) + 1 })
	defer stop()
	b := getBuf(t, pool, 4096)
	defer b.Release()
	if n, err := d.ReadAt(t.Context(), f, b, 0); n != 0 || !errors.Is(err, unix.EIO) {
		t.Errorf("%d bytes, %v", n, err)
	}
}

func TestStreamReadsAreFinalWhenShort(t *testing.T) {
	pool := newPool(t, 8<<20)
	d := start(t, Options{Pool: pool})
	r, w := newPipe(t)
	if _, err := w.WriteString("hello"); err != nil {
		t.Fatal(err)
	}
	b := getBuf(t, pool, 64)
	defer b.Release()
	if n, err := d.ReadCurrent(t.Context(), r, b); err != nil || string(b.Bytes()[:n]) != "hello" {
		t.Fatalf("%q, %v", b.Bytes()[:n], err)
	}
	// The end of the stream is no error, also when it comes during the read.
	o, err := d.trySubmit(Request{File: r, Bufs: []*storage.Buf{b}}, true)
	if err != nil {
		t.Fatal(err)
	}
	inKernel(t, d, 1)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := o.Wait(t.Context()); n != 0 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// inKernel waits until so many reads of all shards are in the kernel's hands.
func inKernel(t testing.TB, d *Driver, n int) {
	t.Helper()
	eventually(t, "reads are in the kernel", func() bool {
		total := 0
		for _, l := range d.lanes {
			l.mu.Lock()
			s := l.shard
			l.mu.Unlock()
			// A shard that sleeps has handed everything over.
			s.mail.mu.Lock()
			if s.mail.asleep && len(s.mail.queue) == 0 {
				total += int(l.counts.snapshot().InFlight)
			}
			s.mail.mu.Unlock()
		}
		return total == n
	})
}

// TestVectorsAreOneBatch: several buffers, one range, one message, one enter.
func TestVectorsAreOneBatch(t *testing.T) {
	data := content(300 << 10)
	f := openFile(t, writeFile(t, data), 0)
	pool := newPool(t, 8<<20)
	d, script := scripted(t, Options{Pool: pool, Entries: 16})
	for _, sizes := range [][]int{{4096, 100, 0, 70000, 1}, {200 << 10, 200 << 10}, {300 << 10, 5, 5}, nil} {
		var bufs []*storage.Buf
		total := 0
		for _, n := range sizes {
			bufs = append(bufs, getBuf(t, pool, n))
			total += n
		}
		const off = 33
		n, err := d.Read(t.Context(), Request{File: f, Bufs: bufs, Off: off})
		if want := min(total, len(data)-off); err != nil || n != want {
			t.Fatalf("%v: %d bytes, want %d: %v", sizes, n, want, err)
		}
		got := []byte{}
		for _, b := range bufs {
			got = append(got, b.Bytes()...)
			b.Release()
		}
		if !bytes.Equal(got[:n], data[off:off+n]) {
			t.Errorf("%v: other bytes", sizes)
		}
	}
	inKernel(t, d, 0)
	before, stats := script.Counts(), d.Stats().Total()
	var bufs []*storage.Buf
	for range 8 {
		bufs = append(bufs, getBuf(t, pool, 8192))
	}
	if _, err := d.Read(t.Context(), Request{File: f, Bufs: bufs}); err != nil {
		t.Fatal(err)
	}
	inKernel(t, d, 0)
	after, stats2 := script.Counts(), d.Stats().Total()
	// One Enter that was waiting ended by the wake; one handed all over; one
	// or two wait again.
	if n := after.Enters - before.Enters; n > 3 || stats2.Wakes-stats.Wakes > 1 {
		t.Errorf("%d enters and %d wakes for one batch", n, stats2.Wakes-stats.Wakes)
	}
	for range 20 { // more than Entries: batch after batch
		bufs = append(bufs, getBuf(t, pool, 8192))
	}
	if n, err := d.Read(t.Context(), Request{File: f, Bufs: bufs}); err != nil || n != 28*8192 {
		t.Errorf("28 buffers, 16 entries: %d bytes, %v", n, err)
	}
	for i, b := range bufs {
		if !bytes.Equal(b.Bytes(), data[i*8192:(i+1)*8192]) {
			t.Errorf("buffer %d: other bytes", i)
		}
		b.Release()
	}
}

// TestEnterIsKeptShort: a deep batch of buffered reads goes over in parts.
func TestEnterIsKeptShort(t *testing.T) {
	f := openFile(t, writeFile(t, content(1<<20)), 0)
	pool := newPool(t, 64<<20)
	script := &ringtest.Script{}
	most := 0
	script.Hook(ringtest.Hooks{Enter: func(_, queued, _ int) error {
		most = max(most, queued)
		return nil
	}})
	d := start(t, Options{Pool: pool, Setup: ringtest.Wrap(ring.New, script)})
	var bufs []*storage.Buf
	for range 64 {
		bufs = append(bufs, getBuf(t, pool, 4096))
	}
	if _, err := d.Read(t.Context(), Request{File: f, Bufs: bufs}); err != nil {
		t.Fatal(err)
	}
	if s, err := d.Close(t.Context()); err != nil || s.Total().Delivered != 64 {
		t.Fatalf("%+v, %v", s, err)
	}
	if most > enterReads+1 { // and the wake-up's read
		t.Errorf("%d entries in one enter", most)
	}
	for _, b := range bufs {
		b.Release()
	}
}

func TestReadAllocatesNothing(t *testing.T) {
	if invariant.Enabled {
		t.Skip("builds with invariants never reuse a Buf")
	}
	f := openFile(t, writeFile(t, content(1<<20)), 0)
	pool := newPool(t, 64<<20)
	d := start(t, Options{Pool: pool})
	b := getBuf(t, pool, 4096)
	defer b.Release()
	ctx := t.Context()
	if n := testing.AllocsPerRun(500, func() {
		if _, err := d.ReadAt(ctx, f, b, 4096); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	bufs := []*storage.Buf{b, getBuf(t, pool, 9000), getBuf(t, pool, 100)}
	if n := testing.AllocsPerRun(500, func() {
		if _, err := d.Read(ctx, Request{File: f, Bufs: bufs, Off: 12345}); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations for a vector", n)
	}
}
