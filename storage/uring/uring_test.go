package uring

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ringfence/storage"
	"ringfence/storage/uring/ring"
	"ringfence/storage/uring/ringtest"
)

// required reports whether RINGFENCE_TEST_REQUIRE names what a test needs.
func required(what string) bool {
	return slices.Contains(strings.Split(os.Getenv("RINGFENCE_TEST_REQUIRE"), ","), what)
}

// needRing skips where the kernel has no rings for us.
func needRing(t testing.TB) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r, err := ring.New(ring.Options{Entries: 8})
	switch {
	case err == nil:
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	case !Restriction(err):
		t.Fatal(err)
	case required("uring"):
		t.Fatalf("io_uring is required: %v", err)
	default:
		t.Skipf("SKIP %s: %v", t.Name(), err)
	}
}

// scripted gives a driver over real rings that misbehave as the script says.
func scripted(t testing.TB, o Options) (*Driver, *ringtest.Script) {
	t.Helper()
	script := &ringtest.Script{}
	o.Setup = ringtest.Wrap(ring.New, script)
	return start(t, o), script
}

// start gives a driver that is closed after the test, all of whose reads must
// be accounted for then.
func start(t testing.TB, o Options) *Driver {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	needRing(t)
	d, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s, _ := d.Close(context.WithoutCancel(t.Context()))
		conserved(t, s)
		if n := s.Total().InFlight - s.Total().Leaked; n != 0 {
			t.Errorf("%d reads in flight after close", n)
		}
		if n := s.Total().Overflow; n != 0 {
			t.Errorf("%d completions found no room", n)
		}
	})
	return d
}

// conserved checks what holds of every snapshot.
func conserved(t testing.TB, s Stats) {
	t.Helper()
	for i, sh := range s.Shards {
		if sh.Submitted != sh.Delivered+sh.Orphans+sh.InFlight {
			t.Errorf("shard %d: reads are not conserved: %+v", i, sh)
		}
		if c := sh.Cancels; c.Succeeded+c.NotFound+c.Already > sh.Submitted {
			t.Errorf("shard %d: more cancellations than reads: %+v", i, sh)
		}
	}
}

func newPool(t testing.TB, budget int64) *storage.Pool {
	t.Helper()
	p, err := storage.NewPool(storage.PoolOptions{BudgetBytes: budget})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func getBuf(t testing.TB, p *storage.Pool, n int) *storage.Buf {
	t.Helper()
	b, err := p.Get(n)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// file is a Descriptor that counts its references.
type file struct {
	fd   int
	refs atomic.Int64
}

func newFile(fd int) *file {
	f := &file{fd: fd}
	f.refs.Store(1)
	return f
}

func (f *file) FD() int { return f.fd }

func (f *file) Acquire() error {
	for {
		n := f.refs.Load()
		if n <= 0 {
			return os.ErrClosed
		}
		if f.refs.CompareAndSwap(n, n+1) {
			return nil
		}
	}
}

func (f *file) Release() error {
	switch n := f.refs.Add(-1); {
	case n == 0:
		return unix.Close(f.fd)
	case n < 0:
		return errors.New("released too often")
	}
	return nil
}

func openFile(t testing.TB, path string, flags int) *file {
	t.Helper()
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|flags, 0)
	if err != nil {
		t.Fatal(err)
	}
	return newFile(fd)
}

// content is what byte off of every test file is.
func content(n int) []byte {
	p := make([]byte, n)
	rng := rand.New(rand.NewPCG(7, 7))
	for i := range p {
		p[i] = byte(rng.Uint32())
	}
	return p
}

func writeFile(t testing.TB, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// newPipe gives a pipe whose read end blocks; reads of it stay in flight until
// something is written.
func newPipe(t testing.TB) (r *file, w *os.File) {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	r, w = newFile(fds[0]), os.NewFile(uintptr(fds[1]), "pipe")
	t.Cleanup(func() { _ = w.Close() })
	return r, w
}

// eventually waits until ok holds.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	late := time.After(10 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("never happened: %s", what)
		}
	}
}
