package hybrid

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"ringfence/storage/uring"
	"ringfence/storage/uring/ring"
)

// fdReader reads from a descriptor as the reference does.
type fdReader int

func (fd fdReader) ReadAt(p []byte, off int64) (int, error) {
	total := 0
	for len(p) > 0 {
		n, err := unix.Pread(int(fd), p, off)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return total, err
		case n == 0:
			return total, io.EOF
		}
		total, off, p = total+n, off+int64(n), p[n:]
	}
	return total, nil
}

// needRings skips a test where the kernel refuses rings, unless it must not.
func needRings(t testing.TB) {
	t.Helper()
	d, err := startRings(t.Context(), uring.Options{Dir: t.TempDir(), Shards: 1, Entries: 8, Setup: ring.New})
	if err == nil {
		if _, err := d.Retire(t.Context()); err != nil {
			t.Fatal(err)
		}
		return
	}
	var probe *uring.ProbeError
	if !errors.As(err, &probe) || !probe.Restricted {
		t.Fatal(err)
	}
	if required("uring") {
		t.Fatalf("rings are required here: %v", err)
	}
	t.Skipf("SKIP %s: %v", t.Name(), err)
}

func required(what string) bool {
	return slices.Contains(strings.Split(os.Getenv("RINGFENCE_TEST_REQUIRE"), ","), what)
}

// evict drops a file from the page cache.
func evict(t testing.TB, dir, name string) {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // only advised
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
}

// resident is the share of a file that the page cache holds.
func resident(t testing.TB, dir, name string) float64 {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // only mapped
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem) //nolint:errcheck // a test's
	pages := make([]byte, (len(mem)+os.Getpagesize()-1)/os.Getpagesize())
	if err := mincore(mem, pages); err != nil {
		t.Fatal(err)
	}
	in := 0
	for _, p := range pages {
		in += int(p & 1)
	}
	return float64(in) / float64(len(pages))
}

func mincore(mem, pages []byte) error {
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, addr(mem), uintptr(len(mem)), addr(pages))
	if errno != 0 {
		return errno
	}
	return nil
}

func addr(p []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(p))) }

// flip changes a bit at an address that a ring was given.
func flip(address uint64) {
	at := uintptr(address)
	**(**byte)(unsafe.Pointer(&at)) ^= 1
}
