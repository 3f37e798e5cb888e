package std

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ringfence/internal/invariant"
	"ringfence/storage"
)

// rig is a Backend with one file of content.
type rig struct {
	*Backend
	pool    *storage.Pool
	content []byte
	file    storage.File
}

func newRig(t testing.TB, root string, opts Options) *rig {
	t.Helper()
	opts.Root = root
	b, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	pool, err := storage.NewPool(storage.PoolOptions{BudgetBytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	content := make([]byte, 1<<20)
	for i := range content {
		content[i] = byte(i>>12) ^ byte(i*7)
	}
	f, err := b.Create(t.Context(), "file", int64(len(content)))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.WriteAt(t.Context(), content, 0), f.Sync(t.Context())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(b.Close(), pool.Close()); err != nil {
			t.Error(err)
		}
		if err := f.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
	})
	return &rig{b, pool, content, f}
}

func (r *rig) buf(t testing.TB, size int) *storage.Buf {
	t.Helper()
	b, err := r.pool.Get(size)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// evict drops the file from the page cache but for its head.
func (r *rig) evict(t *testing.T, head int) {
	t.Helper()
	f, ok := r.file.(*file)
	if !ok {
		t.Fatalf("a %T", r.file)
	}
	_, err := unix.Pread(f.fd, make([]byte, 1), 0)
	err = errors.Join(err, unix.Fadvise(f.fd, 0, 0, unix.FADV_DONTNEED), unix.Fadvise(f.fd, 0, 0, unix.FADV_RANDOM))
	if err == nil {
		_, err = unix.Pread(f.fd, make([]byte, head), 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.forget(f)
}

// forget makes the next read of a file attempt to hit the page cache, whatever
// was observed.
func (r *rig) forget(f *file) {
	r.hits, f.hits = storage.Predictor{}, storage.Predictor{Wider: &r.hits}
}

func (r *rig) check(t *testing.T, off int64, size int) {
	t.Helper()
	b := r.buf(t, size)
	defer b.Release()
	n, err := r.file.ReadAt(t.Context(), b, off)
	if err != nil {
		t.Fatal(err)
	}
	end := int64(len(r.content))
	if want := r.content[min(end, off):min(end, off+int64(size))]; !bytes.Equal(b.Bytes()[:n], want) {
		t.Errorf("offset %d, size %d: wrong bytes", off, size)
	}
}

// hang replaces the blocking read by one that reports its start and waits.
func (r *rig) hang() (started <-chan struct{}, free func()) {
	begun, gate := make(chan struct{}, 100), make(chan struct{})
	r.nowait.Store(false)
	r.readBlocking = func(fd int, iovs []unix.Iovec, off int64) (int, error) {
		begun <- struct{}{}
		<-gate
		return preadv(fd, iovs, off)
	}
	return begun, sync.OnceFunc(func() { close(gate) })
}

func TestHitsStayInline(t *testing.T) {
	r := newRig(t, t.TempDir(), Options{})
	if !nowaitWorks(r) {
		t.Skip("the file system has no RWF_NOWAIT")
	}
	for range 10 {
		r.check(t, 5000, 100_000)
	}
	r.check(t, int64(len(r.content))-10, 100) // the end of the file is no miss
	if got := r.Stats().Reads; got.Inline != 12 || got.Pool != 0 {
		t.Errorf("reads: %+v, want 12 inline", got)
	}
}

// nowaitWorks reads once.
func nowaitWorks(r *rig) bool {
	b, err := r.pool.Get(1)
	if err != nil {
		return false
	}
	defer b.Release()
	_, err = r.file.ReadAt(context.Background(), b, 0)
	return err == nil && r.nowait.Load()
}

func TestMissesGoToThePool(t *testing.T) {
	r := newRig(t, t.TempDir(), Options{})
	if !nowaitWorks(r) {
		t.Skip("the file system has no RWF_NOWAIT")
	}
	var offsets []int64
	inner := r.readBlocking
	r.readBlocking = func(fd int, iovs []unix.Iovec, off int64) (int, error) {
		offsets = append(offsets, off)
		return inner(fd, iovs, off)
	}
	// A head that is cached is kept; the pool reads only the rest.
	for range 20 {
		r.evict(t, 64<<10)
		r.check(t, 4096, 256<<10)
	}
	if len(offsets) == 0 {
		t.Skip("nothing could be evicted here")
	}
	t.Logf("%d of 20 reads missed, from %v on", len(offsets), offsets)
	for _, off := range offsets {
		if off < 64<<10 {
			t.Errorf("the pool read from %d on, which was cached", off)
		}
	}
	if got := r.Stats().Reads; got.Pool != int64(len(offsets)) || got.Inline+got.Pool != 21 {
		t.Errorf("reads: %+v with %d pool reads", got, len(offsets))
	}
}

func TestNowaitIsLatchedOff(t *testing.T) {
	const shm = "/dev/shm"
	var st unix.Statfs_t
	if err := unix.Statfs(shm, &st); err != nil || st.Type != unix.TMPFS_MAGIC {
		t.Skip("no tmpfs")
	}
	root, err := os.MkdirTemp(shm, "ringfence")
	if err != nil {
		t.Skip(err)
	}
	defer os.RemoveAll(root)
	r := newRig(t, root, Options{})
	refused := 0
	r.readNow = func(fd int, iovs []unix.Iovec, off int64) (int, error) {
		n, err := preadvNow(fd, iovs, off)
		if err == unix.EOPNOTSUPP {
			refused++
		}
		return n, err
	}
	for range 5 {
		r.check(t, 0, 10_000)
	}
	got := r.Stats().Reads
	if r.nowait.Load() {
		// Kernels from 6.6 on may serve tmpfs inline; then nothing was refused.
		if got.Inline != 5 {
			t.Errorf("reads: %+v", got)
		}
		return
	}
	if refused != 1 || got.Pool != 5 || got.Inline != 0 {
		t.Errorf("reads: %+v after %d refusals, want 5 by the pool after one", got, refused)
	}
}

func TestCancelledReadKeepsItsMemory(t *testing.T) {
	r := newRig(t, t.TempDir(), Options{})
	started, free := r.hang()
	defer free()
	ctx, cancel := context.WithCancel(t.Context())
	b := r.buf(t, 8192)
	done := make(chan error, 1)
	go func() {
		_, err := r.file.ReadAt(ctx, b, 4096)
		done <- err
	}()
	<-started
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled read: %v", err)
	}
	b.Release()
	if got := r.pool.InUse(); got != 8192 {
		t.Errorf("%d bytes in use: the read that goes on needs them", got)
	}
	// The descriptor stays too: nothing that opens now gets its number.
	fd := r.file.(*file).fd
	if err := r.file.Close(); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		f, err := r.Open(t.Context(), "file")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if f.(*file).fd == fd {
			t.Fatal("the descriptor's number was reused under a read")
		}
	}
	free()
	if err := r.Close(); err != nil { // waits for the read
		t.Fatal(err)
	}
	if got := r.pool.InUse(); got != 0 {
		t.Errorf("%d bytes in use after the read", got)
	}
	if err := unix.Fstat(fd, new(unix.Stat_t)); !errors.Is(err, unix.EBADF) {
		t.Errorf("the descriptor is still open: %v", err)
	}
}

func TestPoolIsBounded(t *testing.T) {
	r := newRig(t, t.TempDir(), Options{Slots: 2})
	started, free := r.hang()
	defer free()
	var wg sync.WaitGroup
	for range 5 {
		b := r.buf(t, 4096)
		wg.Go(func() {
			defer b.Release()
			if n, err := r.file.ReadAt(t.Context(), b, 0); err != nil || n != 4096 {
				t.Errorf("%d bytes, %v", n, err)
			}
		})
	}
	<-started
	<-started
	// The slots are used up; who waits for one leaves with its context.
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	b := r.buf(t, 4096)
	if _, err := r.file.ReadAt(ctx, b, 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("read without a slot: %v", err)
	}
	b.Release()
	if len(started) != 0 {
		t.Errorf("%d more reads than slots", len(started))
	}
	// A hit needs no slot.
	r.nowait.Store(true)
	if nowaitWorks(r) {
		r.check(t, 4096, 4096)
	}
	free()
	wg.Wait()
}

func TestReadErrors(t *testing.T) {
	r := newRig(t, t.TempDir(), Options{})
	r.nowait.Store(false)
	r.readBlocking = func(int, []unix.Iovec, int64) (int, error) { return 0, unix.EIO }
	b := r.buf(t, 100)
	defer b.Release()
	n, err := r.file.ReadAt(t.Context(), b, 0)
	var disk *storage.DiskError
	if n != 0 || !errors.Is(err, storage.ErrFailed) || !errors.Is(err, unix.EIO) || !errors.As(err, &disk) || disk.Disk != r.opts.Root {
		t.Errorf("%d bytes, %v", n, err)
	}
}

func TestInlineReadAllocatesNothing(t *testing.T) {
	if invariant.Enabled {
		t.Skip("the race detector allocates")
	}
	r := newRig(t, t.TempDir(), Options{})
	if !nowaitWorks(r) {
		t.Skip("the file system has no RWF_NOWAIT")
	}
	one, bufs := r.buf(t, 4096), []*storage.Buf{r.buf(t, 4096), r.buf(t, 8192), r.buf(t, 100)}
	ctx := t.Context()
	if n := testing.AllocsPerRun(200, func() {
		if _, err := r.file.ReadAt(ctx, one, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := storage.ReadFull(ctx, r.file, bufs, 4096); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	one.Release()
	for _, b := range bufs {
		b.Release()
	}
}

func BenchmarkRead(b *testing.B) {
	for name, size := range map[string]int{"4KiB": 4 << 10, "128KiB": 128 << 10, "1MiB": 1 << 20} {
		for _, tier := range []string{"inline", "pool", "plain"} {
			b.Run("size="+name+"/tier="+tier, func(b *testing.B) {
				root := filepath.Join(b.TempDir(), "d")
				if err := os.Mkdir(root, 0o700); err != nil {
					b.Fatal(err)
				}
				r := newRig(b, root, Options{})
				buf := r.buf(b, size)
				defer buf.Release()
				r.nowait.Store(tier == "inline")
				b.SetBytes(int64(size))
				b.ReportAllocs()
				if tier == "plain" { // what the others are measured by
					fd := r.raw(b).Descriptor().FD()
					for b.Loop() {
						if _, err := unix.Pread(fd, buf.Bytes(), 0); err != nil {
							b.Fatal(err)
						}
					}
					return
				}
				for b.Loop() {
					if _, err := r.file.ReadAt(b.Context(), buf, 0); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
