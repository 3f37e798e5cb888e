package std

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"ringfence/storage"
)

func (r *rig) raw(t testing.TB) storage.RawFile {
	t.Helper()
	f, ok := r.file.(storage.RawFile)
	if !ok {
		t.Fatalf("%T is no RawFile", r.file)
	}
	return f
}

// openDirect opens the second descriptor, or skips where there can be none.
func (r *rig) openDirect(t testing.TB) (storage.Descriptor, int) {
	t.Helper()
	d, align, err := r.raw(t).Direct()
	if errors.Is(err, storage.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d, align
}

func isOpen(fd int) bool { return unix.Fstat(fd, new(unix.Stat_t)) == nil }

func hasDirect(t testing.TB, fd int) bool {
	t.Helper()
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		t.Fatal(err)
	}
	return flags&unix.O_DIRECT != 0
}

// TestDescriptorOutlivesClose: who holds a reference can go on using the
// number, and nobody gets one after Close.
func TestDescriptorOutlivesClose(t *testing.T) {
	r := newRig(t, t.TempDir(), Options{})
	direct, _ := r.openDirect(t)
	plain := r.raw(t).Descriptor()
	for _, d := range []storage.Descriptor{plain, direct} {
		if err := d.Acquire(); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.file.Close(); err != nil {
		t.Fatal(err)
	}
	for _, d := range []storage.Descriptor{plain, direct} {
		if err := d.Acquire(); err != os.ErrClosed {
			t.Errorf("acquire after close: %v", err)
		}
		if !isOpen(d.FD()) {
			t.Error("the descriptor was closed under its user")
		}
		if err := d.Release(); err != nil {
			t.Error(err)
		}
		if isOpen(d.FD()) {
			t.Error("the descriptor is open after its last user")
		}
	}
	if _, _, err := r.raw(t).Direct(); !errors.Is(err, os.ErrClosed) && err != nil {
		t.Errorf("direct after close: %v", err)
	}
	if err := r.file.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("second close: %v", err)
	}
}

// TestDescriptorClosesOnce: however users come and go while the file is being
// closed, the number is good for those who hold it and gone after the last.
func TestDescriptorClosesOnce(t *testing.T) {
	for range 300 {
		fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		h := &handle{gone: make(chan struct{})} // closed twice, it panics
		h.init(fd)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for h.Acquire() == nil {
					if !isOpen(h.FD()) {
						t.Error("closed under a user")
					}
					if err := h.Release(); err != nil {
						t.Error(err)
					}
				}
			})
		}
		if err := h.close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
		select {
		case <-h.gone:
		default:
			t.Error("never closed")
		}
		if err := h.Acquire(); err != os.ErrClosed {
			t.Errorf("acquire: %v", err)
		}
		if err := h.close(); err != os.ErrClosed {
			t.Errorf("close: %v", err)
		}
	}
}

// TestDirectIsASecondDescriptor: the first one's flags stay as they are.
func TestDirectIsASecondDescriptor(t *testing.T) {
	r := newRig(t, t.TempDir(), Options{})
	d, align := r.openDirect(t)
	plain := r.raw(t).Descriptor()
	var a, b unix.Stat_t
	if err := errors.Join(unix.Fstat(plain.FD(), &a), unix.Fstat(d.FD(), &b)); err != nil {
		t.Fatal(err)
	}
	if a.Dev != b.Dev || a.Ino != b.Ino || d.FD() == plain.FD() {
		t.Error("not a second descriptor of the same file")
	}
	if hasDirect(t, plain.FD()) || !hasDirect(t, d.FD()) {
		t.Errorf("O_DIRECT: first %t, second %t", hasDirect(t, plain.FD()), hasDirect(t, d.FD()))
	}
	if again, same, err := r.raw(t).Direct(); err != nil || again != d || same != align {
		t.Errorf("the second call: %v, %d, %v", again, same, err)
	}
	if align < 512 || align&(align-1) != 0 {
		t.Errorf("alignment %d", align)
	}
	buf := r.buf(t, 64<<10)
	defer buf.Release()
	n, err := unix.Pread(d.FD(), buf.Bytes(), int64(align))
	if err != nil || !bytes.Equal(buf.Bytes()[:n], r.content[align:align+n]) || n != 64<<10 {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// TestDirectAtOnce: many first callers get one descriptor, and none is left.
func TestDirectAtOnce(t *testing.T) {
	r := newRig(t, t.TempDir(), Options{})
	r.openDirect(t)
	for range 20 {
		f, err := r.Open(t.Context(), "file")
		if err != nil {
			t.Fatal(err)
		}
		before := descriptors(t)
		var wg sync.WaitGroup
		got := make(chan storage.Descriptor, 8)
		for range cap(got) {
			wg.Go(func() {
				d, _, err := f.(storage.RawFile).Direct()
				if err != nil {
					t.Error(err)
					return
				}
				got <- d
			})
		}
		wg.Wait()
		first := <-got
		for range cap(got) - 1 {
			if d := <-got; d != first {
				t.Error("two descriptors")
			}
		}
		if n := descriptors(t); n != before+1 {
			t.Errorf("%d descriptors more", n-before)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if n := descriptors(t); n != before-1 {
			t.Errorf("%d descriptors before, %d after close", before-1, n)
		}
	}
}

// TestDirectRacesClose: whoever is late, nothing stays open.
func TestDirectRacesClose(t *testing.T) {
	r := newRig(t, t.TempDir(), Options{})
	r.openDirect(t)
	before := descriptors(t)
	for range 200 {
		f, err := r.Open(t.Context(), "file")
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, _, err := f.(storage.RawFile).Direct(); err != nil && !errors.Is(err, os.ErrClosed) {
				t.Error(err)
			}
		})
		wg.Go(func() {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
	}
	if n := descriptors(t); n != before {
		t.Errorf("%d descriptors before, %d after", before, n)
	}
}

// descriptors is how many the process has.
func descriptors(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(entries)
}

// TestDirectFindsTheFile: the second descriptor is of the file that is open,
// whatever its name stands for by now, with and without /proc.
func TestDirectFindsTheFile(t *testing.T) {
	root := t.TempDir()
	r := newRig(t, root, Options{})
	r.openDirect(t)
	if err := r.Mkdir(t.Context(), "d"); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		proc, replace, found bool
	}{
		"proc":                     {proc: true, found: true},
		"proc, name taken over":    {proc: true, replace: true, found: true},
		"by name":                  {found: true},
		"by name, name taken over": {replace: true},
	} {
		t.Run(name, func(t *testing.T) {
			r.reopen = reopen
			if !c.proc {
				r.reopen = func(int, int) (int, error) { return -1, unix.ENOENT }
			}
			if err := r.Remove(t.Context(), "d/f"); err != nil && !errors.Is(err, storage.ErrNotFound) {
				t.Fatal(err)
			}
			f, err := r.Create(t.Context(), "d/f", 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if c.replace {
				other := filepath.Join(root, "d", "g")
				if err := errors.Join(os.WriteFile(other, []byte("other"), 0o600), os.Rename(other, filepath.Join(root, "d", "f"))); err != nil {
					t.Fatal(err)
				}
			}
			before := descriptors(t)
			d, _, err := f.(storage.RawFile).Direct()
			if !c.found {
				if err == nil || errors.Is(err, storage.ErrUnsupported) {
					t.Errorf("another file's name: %v", err)
				}
				if n := descriptors(t); n != before {
					t.Errorf("%d descriptors more", n-before)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var a, b unix.Stat_t
			if err := errors.Join(unix.Fstat(f.(*file).fd, &a), unix.Fstat(d.FD(), &b)); err != nil || a.Ino != b.Ino {
				t.Errorf("inode %d, want %d (%v)", b.Ino, a.Ino, err)
			}
		})
	}
}

// TestDirectIsLatchedOff: only a file system without O_DIRECT is asked once
// and never again.
func TestDirectIsLatchedOff(t *testing.T) {
	for _, c := range []struct {
		errno   unix.Errno
		latches bool
	}{{unix.EINVAL, true}, {unix.EOPNOTSUPP, true}, {unix.EMFILE, false}, {unix.EIO, false}} {
		r := newRig(t, t.TempDir(), Options{})
		calls := 0
		r.reopen = func(int, int) (int, error) { calls++; return -1, c.errno }
		r.walks = true
		for range 3 {
			if !c.latches {
				// The name would be found: take it away.
				_ = r.Remove(t.Context(), "file")
			}
			_, _, err := r.raw(t).Direct()
			if err == nil || errors.Is(err, storage.ErrUnsupported) != c.latches {
				t.Errorf("%v: %v", c.errno, err)
			}
		}
		if want := map[bool]int{true: 1, false: 3}[c.latches]; calls != want {
			t.Errorf("%v: asked %d times, want %d", c.errno, calls, want)
		}
		// Reading is as it was.
		r.check(t, 100, 5000)
	}
}

func TestAlignment(t *testing.T) {
	for _, c := range []struct {
		mem, offset uint32
		want        int
	}{
		{512, 512, 512}, {4, 512, 512}, {4, 4096, 4096}, {8192, 512, 8192}, {0, 0, 4096}, {4, 4, 4096}, {3, 1536, 4096}, {256, 256, 4096}, {1 << 31, 512, 1 << 31},
	} {
		if got := alignFrom(c.mem, c.offset); got != c.want {
			t.Errorf("memory %d, offset %d: %d, want %d", c.mem, c.offset, got, c.want)
		}
	}
}

// TestReadInlineIsTheFirstPart: what it gives and what is left, for hits,
// prefixes, ends and errors.
func TestReadInlineIsTheFirstPart(t *testing.T) {
	r := newRig(t, t.TempDir(), Options{})
	if !nowaitWorks(r) {
		t.Skip("the file system has no RWF_NOWAIT")
	}
	f := r.raw(t)
	size := int64(len(r.content))
	read := func(off int64, sizes ...int) (n int, done bool, got []byte, err error) {
		var bufs []*storage.Buf
		for _, size := range sizes {
			bufs = append(bufs, r.buf(t, size))
		}
		n, done, err = f.ReadInline(t.Context(), bufs, off)
		for _, b := range bufs {
			got = append(got, b.Bytes()...)
			b.Release()
		}
		return n, done, got[:n], err
	}
	before := r.Stats().Reads.Inline
	n, done, got, err := read(5000, 100, 0, 3000)
	if n != 3100 || !done || err != nil || !bytes.Equal(got, r.content[5000:8100]) {
		t.Errorf("hit: %d bytes, done %t, %v", n, done, err)
	}
	n, done, _, err = read(size-10, 100)
	if n != 10 || !done || err != nil {
		t.Errorf("end: %d bytes, done %t, %v", n, done, err)
	}
	if got := r.Stats().Reads.Inline - before; got != 2 {
		t.Errorf("%d reads counted, want 2", got)
	}
	n, done, _, err = read(-1, 100)
	if n != 0 || !done || err == nil || fmt.Sprint(err) != fmt.Sprint(readError(t, r, -1)) {
		t.Errorf("offset -1: %d bytes, done %t, %v", n, done, err)
	}
	r.evict(t, 64<<10)
	n, done, got, err = read(4096, 256<<10)
	if err != nil || !bytes.Equal(got, r.content[4096:4096+n]) || done != (n == 256<<10) {
		t.Errorf("prefix: %d bytes, done %t, %v", n, done, err)
	}
	t.Logf("of 256 KiB %d bytes were cached", n)
	r.nowait.Store(false)
	if n, done, _, err := read(0, 100); n != 0 || done || err != nil {
		t.Errorf("no nowait: %d bytes, done %t, %v", n, done, err)
	}
	r.nowait.Store(true)
	r.readNow = func(int, []unix.Iovec, int64) (int, error) { return 0, unix.EIO }
	n, done, _, err = read(0, 100)
	if n != 0 || !done || !errors.Is(err, storage.ErrFailed) || fmt.Sprint(err) != fmt.Sprint(f.Wrap(unix.EIO)) {
		t.Errorf("EIO: %d bytes, done %t, %v", n, done, err)
	}
	if err := r.file.Close(); err != nil {
		t.Fatal(err)
	}
	if n, done, _, err := read(0, 100); n != 0 || !done || !errors.Is(err, os.ErrClosed) {
		t.Errorf("closed: %d bytes, done %t, %v", n, done, err)
	}
}

func readError(t *testing.T, r *rig, off int64) error {
	t.Helper()
	b := r.buf(t, 1)
	defer b.Release()
	_, err := r.file.ReadAt(t.Context(), b, off)
	return err
}

// TestWrapIsWhatReadsReturn: the same error from any engine has one text and
// one sentinel.
func TestWrapIsWhatReadsReturn(t *testing.T) {
	r := newRig(t, t.TempDir(), Options{})
	r.nowait.Store(false)
	for _, errno := range []error{unix.EIO, unix.ENODEV, unix.EINVAL, unix.ENOMEM, unix.ESTALE} {
		r.readBlocking = func(int, []unix.Iovec, int64) (int, error) { return 0, errno }
		want, got := readError(t, r, 0), r.raw(t).Wrap(errno)
		if fmt.Sprint(got) != fmt.Sprint(want) || !errors.Is(got, errno) {
			t.Errorf("%v: wrapped %v, read %v", errno, got, want)
		}
		if again := r.raw(t).Wrap(got); again != got {
			t.Errorf("wrapped twice: %v", again)
		}
	}
	if err := r.raw(t).Wrap(nil); err != nil {
		t.Error(err)
	}
}
