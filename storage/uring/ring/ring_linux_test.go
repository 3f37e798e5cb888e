package ring

import (
	"bytes"
	"errors"
	"fmt"
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
)

// need opens a ring on the thread of the test. Where the environment refuses,
// the test is skipped, unless it is required.
func need(t testing.TB, k *kernel, o Options) Ring {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	r, err := open(k, o)
	if err != nil {
		for _, restricted := range []error{unix.EPERM, unix.EACCES, unix.ENOSYS, unix.EINVAL, unix.EOPNOTSUPP} {
			if errors.Is(err, restricted) && !slices.Contains(strings.Split(os.Getenv("RINGFENCE_TEST_REQUIRE"), ","), "uring") {
				t.Skipf("SKIP %s: %v", t.Name(), err)
			}
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// onRungs runs a test on a ring of each kind that the kernel has.
func onRungs(t *testing.T, test func(t *testing.T, r Ring)) {
	for i, flags := range ladder {
		t.Run(fmt.Sprintf("%s-%d", SetupName(flags), i), func(t *testing.T) {
			test(t, need(t, only(flags), Options{Entries: 16}))
		})
	}
}

// only gives the kernel with one rung of the ladder.
func only(rung uint32) *kernel {
	k := realKernel()
	k.setup = func(entries uint32, p *params) (int, unix.Errno) {
		if p.flags != rung|SetupCQSize {
			return -1, unix.EINVAL
		}
		return sysSetup(entries, p)
	}
	return k
}

// await gives the results of the entries by their user data, once n are there.
func await(t *testing.T, r Ring, n int, entries ...SQE) map[uint64]int32 {
	t.Helper()
	for _, e := range entries {
		if !r.Push(e) {
			t.Fatal("the queue is full")
		}
	}
	got := map[uint64]int32{}
	for deadline := time.Now().Add(5 * time.Second); len(got) < n; {
		// Signals of the runtime interrupt waits.
		if err := r.Enter(1, time.Until(deadline)); err != nil && err != unix.EINTR {
			t.Fatal(err)
		}
		for c, ok := r.Next(); ok; c, ok = r.Next() {
			got[c.UserData] = c.Res
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d completions", len(got), n)
		}
	}
	return got
}

func mapped(t testing.TB, n int) []byte {
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

func closing(t testing.TB, fds ...int) {
	t.Cleanup(func() {
		for _, fd := range fds {
			if err := unix.Close(fd); err != nil {
				t.Error(err)
			}
		}
	})
}

func testFile(t testing.TB, content []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "f")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(content)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return name
}

func openFile(t testing.TB, name string, flags int) int {
	t.Helper()
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC|flags, 0)
	if err != nil {
		if flags&unix.O_DIRECT != 0 && (err == unix.EINVAL || err == unix.EOPNOTSUPP) {
			t.Skipf("SKIP %s: no O_DIRECT here: %v", t.Name(), err)
		}
		t.Fatal(err)
	}
	closing(t, fd)
	return fd
}

func pipe(t *testing.T) (r, w int) {
	t.Helper()
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	closing(t, p[0], p[1])
	return p[0], p[1]
}

func pattern(n int) []byte {
	b := make([]byte, n)
	rng := rand.New(rand.NewPCG(uint64(n), 3))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

func readAt(fd int, mem []byte, off, id uint64) SQE {
	return SQE{Opcode: OpRead, FD: int32(fd), Off: off, Addr: addr(mem), Len: uint32(len(mem)), UserData: id}
}

func addr(mem []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) }

func TestReads(t *testing.T) {
	content := pattern(1<<20 + 777)
	name := testFile(t, content)
	for _, leg := range []string{"cached", "cold", "direct"} {
		t.Run(leg, func(t *testing.T) {
			onRungs(t, func(t *testing.T, r Ring) {
				flags := 0
				if leg == "direct" {
					flags = unix.O_DIRECT
				}
				fd := openFile(t, name, flags)
				if leg == "cold" {
					if err := unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED); err != nil {
						t.Fatal(err)
					}
				}
				testRanges(t, r, fd, content, flags == 0)
			})
		})
	}
}

// testRanges reads several ranges at once, the end of the file among them.
func testRanges(t *testing.T, r Ring, fd int, content []byte, unaligned bool) {
	t.Helper()
	size := len(content)
	ranges := [][2]int{{0, 4096}, {4096, 64 << 10}, {512 << 10, 256 << 10}, {size - 777 - 4096, 8192}, {1 << 20, 4096}, {2 << 20, 4096}}
	if unaligned {
		ranges = append(ranges, [2]int{1, 1}, [2]int{4095, 3}, [2]int{size, 10}, [2]int{size - 1, 10}, [2]int{77, 0})
	}
	mem := mapped(t, 2<<20)
	for i := range mem {
		mem[i] = 0xa5
	}
	var entries []SQE
	var places []int
	at := 0
	for i, rg := range ranges {
		entries = append(entries, readAt(fd, mem[at:at+rg[1]], uint64(rg[0]), uint64(i)))
		places = append(places, at)
		at += (rg[1] + 8191) &^ 4095
	}
	got := await(t, r, len(entries), entries...)
	for i, rg := range ranges {
		want := content[min(rg[0], size):min(rg[0]+rg[1], size)]
		if got[uint64(i)] != int32(len(want)) {
			t.Errorf("range %v: %d, want %d", rg, got[uint64(i)], len(want))
			continue
		}
		if !bytes.Equal(mem[places[i]:places[i]+len(want)], want) {
			t.Errorf("range %v: other bytes", rg)
		}
		if mem[places[i]+rg[1]] != 0xa5 {
			t.Errorf("range %v: written beyond", rg)
		}
	}
}

func TestReadErrors(t *testing.T) {
	r := need(t, realKernel(), Options{Entries: 16})
	content := pattern(10_000)
	fd, mem := openFile(t, testFile(t, content), 0), mapped(t, 8192)
	got := await(t, r, 4,
		readAt(1<<20, mem[:4096], 0, 1),
		SQE{Opcode: OpRead, FD: int32(fd), Addr: 1, Len: 10, UserData: 2},
		SQE{Opcode: 255, UserData: 3},
		readAt(fd, mem[:5], 0, 4))
	for id, want := range map[uint64]int32{1: -int32(unix.EBADF), 2: -int32(unix.EFAULT), 3: -int32(unix.EINVAL), 4: 5} {
		if got[id] != want {
			t.Errorf("entry %d: %d, want %d", id, got[id], want)
		}
	}
}

func TestReadFixed(t *testing.T) {
	r := need(t, realKernel(), Options{Entries: 16})
	content := pattern(64 << 10)
	fd, mem := openFile(t, testFile(t, content), 0), mapped(t, 128<<10)
	registered := mem[:64<<10]
	fixed := func(place uint16, mem []byte, id uint64) SQE {
		e := readAt(fd, mem, 100, id)
		e.Opcode, e.BufIndex = OpReadFixed, place
		return e
	}
	fault := -int32(unix.EFAULT)
	if got := await(t, r, 1, fixed(0, registered[:10], 0)); got[0] != fault {
		t.Errorf("without a table: %d", got[0])
	}
	if err := r.SetBuffer(0, registered); err != unix.ENXIO {
		t.Errorf("place without a table: %v", err)
	}
	for round := range 2 { // the second table replaces the first
		if err := errors.Join(r.Buffers(4+round), r.SetBuffer(2, registered)); err != nil {
			t.Fatal(err)
		}
		clear(mem)
		got := await(t, r, 5, fixed(2, registered[4000:14000], 1), fixed(2, registered[60<<10:], 2),
			fixed(2, mem[64<<10-1:64<<10+1], 3), fixed(2, mem[64<<10:65<<10], 4), fixed(1, registered[:10], 5))
		for id, want := range map[uint64]int32{1: 10000, 2: 4096, 3: fault, 4: fault, 5: fault} {
			if got[id] != want {
				t.Errorf("round %d: entry %d: %d, want %d", round, id, got[id], want)
			}
		}
		if !bytes.Equal(mem[4000:14000], content[100:10100]) || !bytes.Equal(mem[60<<10:64<<10], content[100:4196]) {
			t.Error("other bytes")
		}
		if err := r.SetBuffer(4+round, registered); err != unix.EINVAL {
			t.Errorf("place beyond the table: %v", err)
		}
	}
	if err := r.SetBuffer(2, nil); err != nil {
		t.Fatal(err)
	}
	if got := await(t, r, 1, fixed(2, registered[:10], 6)); got[6] != fault {
		t.Errorf("emptied place: %d", got[6])
	}
	if err := errors.Join(r.Buffers(0), r.Buffers(0)); err != nil {
		t.Error(err)
	}
	if err := r.SetBuffer(0, registered); err != unix.ENXIO {
		t.Errorf("after the table: %v", err)
	}
}

// TestOtherThread: a ring that belongs to a thread refuses others.
func TestOtherThread(t *testing.T) {
	r := need(t, realKernel(), Options{Entries: 4})
	if r.Info().Setup&SetupSingleIssuer == 0 {
		t.Skipf("SKIP %s: the kernel has no SINGLE_ISSUER", t.Name())
	}
	if !r.Push(SQE{UserData: 1}) {
		t.Fatal("no room")
	}
	errs := make(chan error, 2)
	go func() {
		runtime.LockOSThread() // another one: this test has its own
		defer runtime.UnlockOSThread()
		errs <- r.Enter(0, 0)
		errs <- r.Buffers(1)
	}()
	if enter, register := <-errs, <-errs; enter != unix.EEXIST || register != unix.EEXIST {
		t.Errorf("%v and %v, want EEXIST", enter, register)
	}
	if r.Queued() != 1 {
		t.Errorf("%d queued", r.Queued())
	}
	if got := await(t, r, 1); got[1] != 0 {
		t.Errorf("got %v", got)
	}
}

func TestCancelBlockedRead(t *testing.T) {
	onRungs(t, func(t *testing.T, r Ring) {
		from, _ := pipe(t)
		mem := mapped(t, 4096)
		if !r.Push(readAt(from, mem, CurrentPosition, 7)) {
			t.Fatal("no room")
		}
		if err := r.Enter(0, 0); err != nil {
			t.Fatal(err)
		}
		if c, ok := r.Next(); ok {
			t.Fatalf("a read of an empty pipe ended: %+v", c)
		}
		got := await(t, r, 2, SQE{Opcode: OpAsyncCancel, Addr: 7, UserData: 8})
		if got[7] != -int32(unix.ECANCELED) || got[8] != 0 {
			t.Errorf("got %v", got)
		}
		if got := await(t, r, 1, SQE{Opcode: OpAsyncCancel, Addr: 7, UserData: 9}); got[9] != -int32(unix.ENOENT) {
			t.Errorf("again: %v", got)
		}
	})
}

// TestCompletionWithoutWaiting: an Enter that neither submits nor waits still
// lets the completion of a pending read happen.
func TestCompletionWithoutWaiting(t *testing.T) {
	onRungs(t, func(t *testing.T, r Ring) {
		from, to := pipe(t)
		mem := mapped(t, 4096)
		if !r.Push(readAt(from, mem[:100], CurrentPosition, 7)) {
			t.Fatal("no room")
		}
		if err := r.Enter(0, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.Write(to, []byte("hello")); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(5 * time.Second); ; {
			if err := r.Enter(0, 0); err != nil {
				t.Fatal(err)
			}
			if c, ok := r.Next(); ok {
				if c != (CQE{UserData: 7, Res: 5}) || string(mem[:5]) != "hello" {
					t.Errorf("%+v %q", c, mem[:5])
				}
				return
			}
			if time.Now().After(deadline) {
				t.Fatal("no completion")
			}
		}
	})
}

func TestEnterTimeout(t *testing.T) {
	onRungs(t, func(t *testing.T, r Ring) {
		from, _ := pipe(t)
		mem := mapped(t, 4096)
		if !r.Push(readAt(from, mem, CurrentPosition, 7)) {
			t.Fatal("no room")
		}
		for _, timeout := range []time.Duration{0, time.Millisecond, 30 * time.Millisecond} {
			start := time.Now()
			err := r.Enter(1, timeout)
			took := time.Since(start)
			if err == unix.EINTR {
				continue
			}
			if err != nil || took < timeout || took > timeout+3*time.Second {
				t.Errorf("timeout %v: %v after %v", timeout, err, took)
			}
			if c, ok := r.Next(); ok {
				t.Errorf("%+v", c)
			}
		}
		await(t, r, 2, SQE{Opcode: OpAsyncCancel, Addr: 7, UserData: 8})
	})
}

// TestOverflow overfills the completion queue: it is noticed, and nothing is
// lost.
func TestOverflow(t *testing.T) {
	onRungs(t, func(t *testing.T, r Ring) {
		total := r.Info().CQEntries + 10
		for pushed := 0; pushed < total; {
			for pushed < total && r.Push(SQE{UserData: uint64(pushed)}) {
				pushed++
			}
			if err := r.Enter(0, 0); err != nil && err != unix.EBUSY {
				t.Fatal(err)
			}
		}
		if r.Overflow() == 0 {
			t.Error("an overflow went unnoticed")
		}
		if got := await(t, r, total); len(got) != total {
			t.Errorf("%d of %d completions", len(got), total)
		}
		before := r.Overflow()
		if got := await(t, r, 1, SQE{UserData: 1}); len(got) != 1 || r.Overflow() != before {
			t.Errorf("%d, then %d", before, r.Overflow())
		}
	})
}

// TestLeaks opens and closes rings, some with work done, and looks at what the
// process has afterwards.
func TestLeaks(t *testing.T) {
	need(t, realKernel(), Options{Entries: 1})
	mem := mapped(t, 4096)
	fds, maps := resources(t)
	for range 100 {
		r, err := New(Options{Entries: 8})
		if err != nil {
			t.Fatal(err)
		}
		await(t, r, 1, SQE{UserData: 1})
		if err := errors.Join(r.Buffers(2), r.SetBuffer(0, mem)); err != nil {
			t.Error(err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if f, m := resources(t); f != fds || m != maps {
		t.Errorf("%d descriptors and %d ring mappings, %d and %d before", f, m, fds, maps)
	}
}

// resources counts descriptors and mappings of rings.
func resources(t *testing.T) (fds, maps int) {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return len(open), strings.Count(string(text), "io_uring")
}

// TestRealSizes: the largest ring needs more locked memory than a user may
// have, which is not the environment forbidding rings.
func TestRealSizes(t *testing.T) {
	need(t, realKernel(), Options{Entries: 1})
	for _, n := range []int{1, 2, 4096, 32768} {
		r, err := New(Options{Entries: n})
		if n == 32768 && err == unix.ENOMEM && os.Geteuid() != 0 {
			continue
		}
		if err != nil {
			t.Fatalf("%d entries: %v", n, err)
		}
		if i := r.Info(); i.SQEntries != n || i.CQEntries != 2*n {
			t.Errorf("%+v", i)
		}
		await(t, r, 1, SQE{UserData: 1})
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}
