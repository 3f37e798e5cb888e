package uring

import (
	"errors"
	"math/rand/v2"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"ringfence/storage"
	"ringfence/storage/uring/ring"
	"ringfence/storage/uring/ringtest"
)

// openDirect opens a file with O_DIRECT, or skips where there is no such thing.
func openDirect(t testing.TB, path string) *file {
	t.Helper()
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_DIRECT, 0)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		if required("direct") {
			t.Fatalf("O_DIRECT is required: %v", err)
		}
		t.Skipf("SKIP %s: O_DIRECT: %v", t.Name(), err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return newFile(fd)
}

// TestDirectReadsAreExact: whatever the alignment, exactly the range comes back.
func TestDirectReadsAreExact(t *testing.T) {
	for _, align := range []int{512, 4096} {
		data := content(3*align + 7)
		f := openDirect(t, writeFile(t, data))
		pool := newPool(t, 16<<20)
		for _, mode := range []Mode{ModeNonFixed, ModeLegacy, ModeDynamic, ModeStatic} {
			d := start(t, Options{Pool: pool, Mode: mode})
			for _, r := range []struct{ off, n int }{
				{0, 3*align + 7}, {1, 17}, {align - 1, 2}, {align, align}, {align/2 + 1, 2 * align}, {3 * align, 7},
				{0, 10 * align}, {3*align + 6, 1}, {3*align + 7, 5}, {5 * align, 9}, {17, 0},
			} {
				checkRead(t, d, pool, f, data, r.off, r.n, align)
			}
			rng := rand.New(rand.NewPCG(uint64(align), uint64(mode)))
			for range 100 {
				checkRead(t, d, pool, f, data, rng.IntN(len(data)+10), rng.IntN(len(data)), align)
			}
		}
		if pool.InUse() != 0 {
			t.Errorf("%d bytes in use", pool.InUse())
		}
	}
}

// TestLargeMisalignedDirectRead needs a larger aligned range than any Buf has.
func TestLargeMisalignedDirectRead(t *testing.T) {
	data := content(storage.MaxBuf + 100_000)
	f := openDirect(t, writeFile(t, data))
	pool := newPool(t, 16<<20)
	d, script := scripted(t, Options{Pool: pool})
	checkRead(t, d, pool, f, data, 1, storage.MaxBuf, 512)
	checkRead(t, d, pool, f, data, 50_000, storage.MaxBuf, 4096)
	stop := script.Truncate(func(res int32) int32 { return max(4096, res/3&^4095) })
	checkRead(t, d, pool, f, data, 50_001, storage.MaxBuf, 4096)
	stop()
}

// TestAlignedDirectReadNeedsNoBounce: page-aligned memory with room for the
// rounded range is read into as it is.
func TestAlignedDirectReadNeedsNoBounce(t *testing.T) {
	o := &Op{align: 4096}
	pool := newPool(t, 8<<20)
	b := getBuf(t, pool, 5000) // room for 8192
	defer b.Release()
	if o.bounces(&piece{mem: b.Bytes(), off: 8192}) {
		t.Error("aligned start, room for the end")
	}
	if !o.bounces(&piece{mem: b.Bytes(), off: 8193}) {
		t.Error("misaligned offset")
	}
	if !o.bounces(&piece{mem: b.Bytes()[:4097:4097], off: 8192}) {
		t.Error("no room for the end")
	}
	if !o.bounces(&piece{mem: b.Bytes()[512:1024], off: 8192}) {
		t.Error("misaligned memory")
	}
	if (&Op{}).bounces(&piece{mem: b.Bytes()[1:3], off: 3}) {
		t.Error("a buffered read bounces")
	}
}

// TestOddDirectReadsAreLookedInto: an end at an odd place is the end of the file
// or an error, and only the size of the file tells.
func TestOddDirectReadsAreLookedInto(t *testing.T) {
	data := content(16384)
	path := writeFile(t, data)
	f := openDirect(t, path)
	pool := newPool(t, 8<<20)
	d, script := scripted(t, Options{Pool: pool})
	script.Truncate(func(int32) int32 { return 5000 })
	b := getBuf(t, pool, 16384)
	defer b.Release()
	if n, err := d.ReadAtDirect(t.Context(), f, b, 0, 512); n != 0 || err != ErrShort {
		t.Errorf("inside the file: %d bytes, %v", n, err)
	}
	if err := os.Truncate(path, 5000); err != nil {
		t.Fatal(err)
	}
	if n, err := d.ReadAtDirect(t.Context(), f, b, 0, 512); n != 5000 || err != nil {
		t.Errorf("at the end: %d bytes, %v", n, err)
	}
}

func TestOddDirectReadOfAFileThatCannotBeLookedInto(t *testing.T) {
	sim := ringtest.NewSim(ringtest.SimOptions{Seed: 2})
	f := sim.Direct(content(16384), 512) // no descriptor of the kernel's
	pool := newPool(t, 8<<20)
	d, err := Start(t.Context(), Options{Dir: t.TempDir(), Pool: pool, Setup: ring.Setup(sim.Setup)})
	if err != nil {
		t.Fatal(err)
	}
	sim.SetFaults(ringtest.Faults{Short: 1, Ragged: 1})
	b := getBuf(t, pool, 16384)
	for range 20 {
		n, err := d.ReadAtDirect(t.Context(), f, b, 0, 512)
		if err == nil && n != 16384 {
			t.Fatalf("%d bytes pass for the whole file", n)
		}
		if err != nil && err != error(unix.EBADF) {
			t.Fatal(err)
		}
	}
	b.Release()
	if _, err := d.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := sim.Err(); err != nil {
		t.Error(err)
	}
}

func TestGeometry(t *testing.T) {
	for _, c := range []struct {
		off  int64
		want int
		to   int
		is   geometry
	}{
		{5, 10, 0, geometry{5, 0, 10}},
		{5, 10, 1, geometry{5, 0, 10}},
		{5, 10, 512, geometry{0, 5, 512}},
		{512, 512, 512, geometry{512, 0, 512}},
		{511, 2, 512, geometry{0, 511, 1024}},
		{4097, 4096, 4096, geometry{4096, 1, 8192}},
	} {
		if got := align(c.off, c.want, c.to); got != c.is {
			t.Errorf("%d bytes at %d to %d: %+v, want %+v", c.want, c.off, c.to, got, c.is)
		}
	}
}
