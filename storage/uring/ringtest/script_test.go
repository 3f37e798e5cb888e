//go:build linux

package ringtest_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"ringfence/storage/uring/ring"
	"ringfence/storage/uring/ringtest"
)

// realRing gives a ring of the kernel under a script, on this goroutine's
// thread. Where the kernel refuses, the test is skipped, unless it is required.
func realRing(t *testing.T, s *ringtest.Script) ring.Ring {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	r, err := ringtest.Wrap(ring.New, s)(ring.Options{Entries: 32})
	if err != nil {
		for _, restricted := range []error{unix.EPERM, unix.EACCES, unix.ENOSYS, unix.EINVAL, unix.EOPNOTSUPP} {
			if errors.Is(err, restricted) && !strings.Contains(os.Getenv("RINGFENCE_TEST_REQUIRE"), "uring") {
				t.Skipf("SKIP %s: %v", t.Name(), err)
			}
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if open := s.Counts().Open; open != 0 {
			t.Errorf("%d rings open at the end", open)
		}
	})
	return r
}

// mapped gives memory that neither moves nor goes away while the test runs.
func mapped(t *testing.T, n int) []byte {
	t.Helper()
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(mem); err != nil {
			t.Error(err)
		}
	})
	return mem
}

func testFile(t *testing.T, content []byte) int {
	t.Helper()
	name := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return openFD(t, name, 0)
}

func openFD(t *testing.T, name string, flags int) int {
	t.Helper()
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC|flags, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Close(fd); err != nil {
			t.Error(err)
		}
	})
	return fd
}

func pipe(t *testing.T) (r, w int) {
	t.Helper()
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(unix.Close(p[0]), unix.Close(p[1])); err != nil {
			t.Error(err)
		}
	})
	return p[0], p[1]
}

func eventFD(t *testing.T) int {
	t.Helper()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Close(fd); err != nil {
			t.Error(err)
		}
	})
	return fd
}

func pattern(n int) []byte {
	b := make([]byte, n)
	rng := rand.New(rand.NewPCG(uint64(n), 7))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

func readAt(fd int, mem []byte, off, id uint64) ring.SQE {
	return ring.SQE{Opcode: ring.OpRead, FD: int32(fd), Off: off, Addr: addrOf(mem), Len: uint32(len(mem)), UserData: id}
}

func addrOf(mem []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) }

func push(t *testing.T, r ring.Ring, entries ...ring.SQE) {
	t.Helper()
	for _, e := range entries {
		if !r.Push(e) {
			t.Fatal("the queue is full")
		}
	}
}

func enter(t *testing.T, r ring.Ring, wait int) {
	t.Helper()
	for {
		// A signal of the runtime may interrupt the wait.
		if err := r.Enter(wait, 2*time.Second); err == nil {
			return
		} else if err != unix.EINTR {
			t.Fatal(err)
		}
	}
}

// drain takes what is there.
func drain(r ring.Ring) map[uint64]int32 {
	got := map[uint64]int32{}
	for {
		c, ok := r.Next()
		if !ok {
			return got
		}
		got[c.UserData] = c.Res
	}
}

func TestScriptBehaves(t *testing.T) {
	var s ringtest.Script
	r := realRing(t, &s)
	content := pattern(10_000)
	fd, mem := testFile(t, content), mapped(t, 16<<10)
	push(t, r, readAt(fd, mem, 0, 1), ring.SQE{Opcode: ring.OpNop, UserData: 2})
	if r.Queued() != 2 {
		t.Errorf("%d queued", r.Queued())
	}
	enter(t, r, 2)
	if got := drain(r); len(got) != 2 || got[1] != 10_000 || got[2] != 0 || !bytes.Equal(mem[:10_000], content) {
		t.Errorf("got %v", got)
	}
	if c := s.Counts(); c != (ringtest.Counts{Setups: 1, Open: 1, Pushed: 2, Enters: 1, Reads: 1, Completed: 2}) {
		t.Errorf("%+v", c)
	}
}

func TestScriptEnter(t *testing.T) {
	var s ringtest.Script
	r := realRing(t, &s)
	s.FailEnters(unix.EAGAIN, unix.EBUSY, nil)
	if err := r.Enter(0, 0); err != nil {
		t.Errorf("with nothing queued: %v", err)
	}
	push(t, r, ring.SQE{UserData: 1})
	for _, want := range []error{unix.EAGAIN, unix.EBUSY} {
		if err := r.Enter(1, time.Second); err != want || r.Queued() != 1 {
			t.Errorf("%v, want %v; %d queued", err, want, r.Queued())
		}
	}
	enter(t, r, 1)
	if got := drain(r); len(got) != 1 {
		t.Errorf("got %v", got)
	}
	s.BreakEnters(unix.EPERM)
	for range 3 {
		if err := r.Enter(0, 0); err != unix.EPERM {
			t.Errorf("broken: %v", err)
		}
	}
	s.BreakEnters(nil)
	enter(t, r, 0)
}

func TestScriptResults(t *testing.T) {
	var s ringtest.Script
	r := realRing(t, &s)
	content := pattern(4096)
	fd, mem, wake := testFile(t, content), mapped(t, 8192), eventFD(t)
	read := func() int32 {
		push(t, r, readAt(fd, mem[:4096], 0, 1))
		enter(t, r, 1)
		return drain(r)[1]
	}
	stop := s.Truncate(func(res int32) int32 { return res / 4 })
	stopFail := s.FailReads(1, int32(unix.EIO))
	if res := read(); res != -int32(unix.EIO) {
		t.Errorf("failed: %d", res)
	}
	if res := read(); res != 1024 {
		t.Errorf("truncated: %d", res)
	}
	push(t, r, readAt(wake, mem[4096:4104], ring.CurrentPosition, 9))
	if _, err := unix.Write(wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
	enter(t, r, 1)
	if got := drain(r); got[9] != 8 {
		t.Errorf("a wake was touched: %v", got)
	}
	stop()
	stopFail()
	stop = s.Corrupt()
	if res := read(); res != 4096 || mem[0] != content[0]^1 || !bytes.Equal(mem[1:4096], content[1:]) {
		t.Errorf("corrupted: %d", res)
	}
	stop()
	if res := read(); res != 4096 || !bytes.Equal(mem[:4096], content) {
		t.Errorf("behaving again: %d", res)
	}
}

// TestScriptStall hangs one file: the other goes on, and what was held comes
// back in a wait that began before the release.
func TestScriptStall(t *testing.T) {
	var s ringtest.Script
	r := realRing(t, &s)
	a, b := testFile(t, pattern(100)), testFile(t, pattern(200))
	mem := mapped(t, 4096)
	release := s.Stall(a)
	push(t, r, readAt(a, mem[:100], 0, 1), readAt(b, mem[1000:1200], 0, 2))
	enter(t, r, 2)
	if got := drain(r); len(got) != 1 || got[2] != 200 {
		t.Errorf("one is stalled: %v", got)
	}
	push(t, r, ring.SQE{Opcode: ring.OpAsyncCancel, Addr: 1, UserData: 3})
	enter(t, r, 1)
	if got := drain(r); len(got) != 1 || got[3] != -int32(unix.EALREADY) {
		t.Errorf("a stalled read can't be cancelled: %v", got)
	}
	start := time.Now()
	if err := r.Enter(1, 20*time.Millisecond); err != unix.EINTR && (err != nil || time.Since(start) < 20*time.Millisecond) {
		t.Errorf("timeout: %v after %v", err, time.Since(start))
	}
	if c := s.Counts(); c.Held != 1 {
		t.Errorf("%+v", c)
	}
	time.AfterFunc(5*time.Millisecond, release)
	enter(t, r, 1)
	if got := drain(r); len(got) != 1 || got[1] != 100 {
		t.Errorf("released: %v", got)
	}
	push(t, r, ring.SQE{Opcode: ring.OpAsyncCancel, Addr: 1, UserData: 3})
	enter(t, r, 1)
	if got := drain(r); len(got) != 1 || got[3] != -int32(unix.ENOENT) {
		t.Errorf("a completed read is not found: %v", got)
	}

	release = s.Stall(ringtest.AnyFD)
	push(t, r, readAt(a, mem[:100], 0, 4), readAt(b, mem[1000:1200], 0, 5))
	enter(t, r, 2)
	if got := drain(r); len(got) != 0 {
		t.Errorf("all are stalled: %v", got)
	}
	release()
	if got := drain(r); len(got) != 2 {
		t.Errorf("all are released: %v", got)
	}
}

func TestScriptHooks(t *testing.T) {
	var s ringtest.Script
	var setups []int
	s.Hook(ringtest.Hooks{
		Setup: func(n int, o ring.Options) error {
			setups = append(setups, n*1000+o.Entries)
			if n == 1 {
				return unix.EMFILE
			}
			return nil
		},
		Info:      func(_ int, i ring.Info) ring.Info { i.Features &^= ring.FeatNoDrop; return i },
		Push:      func(_ int, e *ring.SQE) bool { e.Off++; return e.UserData != 13 },
		Enter:     func(_, queued, wait int) error { return errIf(queued == 2 && wait == 7, unix.ENXIO) },
		Complete:  func(_ int, e ring.SQE, c *ring.CQE) bool { c.Res *= 2; return e.UserData == 4 },
		Buffers:   func(_, places int) error { return errIf(places == 5, unix.ENOMEM) },
		SetBuffer: func(_, place int, mem []byte) error { return errIf(place == 1 && len(mem) == 9, unix.EPERM) },
		Overflow:  func(_ int, n uint32) uint32 { return n + 3 },
	})
	if _, err := ringtest.Wrap(ring.New, &s)(ring.Options{Entries: 8}); err != unix.EMFILE {
		t.Errorf("setup: %v", err)
	}
	r := realRing(t, &s)
	if !slices.Equal(setups, []int{1008, 2032}) {
		t.Errorf("setups %v", setups)
	}
	if r.Info().Features&ring.FeatNoDrop != 0 || r.Overflow() != 3 || r.Push(ring.SQE{UserData: 13}) {
		t.Error("hooks for info, overflow or push don't work")
	}
	if err := r.Buffers(5); err != unix.ENOMEM {
		t.Errorf("table: %v", err)
	}
	if err := r.SetBuffer(1, make([]byte, 9)); err != unix.EPERM {
		t.Errorf("place: %v", err)
	}
	fd, mem := testFile(t, []byte("abcdef")), mapped(t, 4096)
	push(t, r, readAt(fd, mem[:2], 1, 1), readAt(fd, mem[2:4], 3, 4))
	if err := r.Enter(7, time.Second); err != unix.ENXIO || r.Queued() != 2 {
		t.Errorf("enter: %v, %d queued", err, r.Queued())
	}
	enter(t, r, 2)
	if got := drain(r); len(got) != 1 || got[1] != 4 || string(mem[:4]) != "cdef" {
		t.Errorf("got %v, %q", got, mem[:4])
	}
	s.ReleaseAll()
	if got := drain(r); len(got) != 1 || got[4] != 4 {
		t.Errorf("released %v", got)
	}
}

func errIf(cond bool, err error) error {
	if cond {
		return err
	}
	return nil
}
