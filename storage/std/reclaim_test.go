package std

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"ringfence/internal/knob"
	"ringfence/storage"
)

// resident is the share of the rig's file that the page cache holds.
func (r *rig) resident(t *testing.T) float64 {
	t.Helper()
	size := len(r.content)
	mem, err := unix.Mmap(r.file.(*file).fd, 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	pages := make([]byte, (size+4095)/4096)
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&mem[0])), uintptr(size), uintptr(unsafe.Pointer(&pages[0])))
	if err := unix.Munmap(mem); err != nil || errno != 0 {
		t.Fatal(err, errno)
	}
	in := 0
	for _, p := range pages {
		in += int(p & 1)
	}
	return float64(in) / float64(len(pages))
}

// TestReclaim: a read of at least the threshold leaves next to nothing in the
// page cache, by whichever tier it was made; a smaller one, or one with the
// switch off, leaves what it read.
func TestReclaim(t *testing.T) {
	const threshold = 512 << 10
	o := Options{Reclaim: knob.NewBool("reclaim", false, ""), ReclaimThreshold: knob.NewSize("threshold", threshold, 0, 1<<40, "")}
	r := newRig(t, t.TempDir(), o)
	if err := r.file.Sync(t.Context()); err != nil { // dirty pages stay
		t.Fatal(err)
	}
	size := len(r.content)
	r.evict(t, 0)
	if got := r.resident(t); got > 0.1 {
		t.Skipf("%.0f%% stay in the page cache here whatever is done", 100*got)
	}
	for _, c := range []struct {
		name      string
		on        bool
		warm      bool // the page cache holds it: read inline where there is nowait
		off, size int
		low, high float64
	}{
		{"off, cold", false, false, 0, size, 0.5, 1},
		{"off, warm", false, true, 0, size, 0.5, 1},
		{"on, cold", true, false, 0, size, 0, 0.1},
		{"on, warm", true, true, 0, size, 0, 0.1},
		{"on, warm, odd offset", true, true, 4000, size, 0, 0.1},
		{"on, cold, below the threshold", true, false, 0, threshold - 1, 0.4, 1},
		{"on, warm, below the threshold", true, true, 0, threshold - 1, 0.5, 1},
		{"on, warm, the threshold", true, true, 0, threshold, 0.4, 0.6}, // the rest stays
		{"on, warm, asked for but not there", true, true, size - 1000, size, 0.5, 1},
	} {
		for _, nowait := range []bool{true, false} {
			r.evict(t, 0)
			r.opts.Reclaim.Store(false)
			if c.warm {
				r.check(t, 0, size)
				r.check(t, 0, size)
			}
			r.nowait.Store(nowait)
			r.opts.Reclaim.Store(c.on)
			b := r.buf(t, c.size)
			n, err := r.file.ReadAt(t.Context(), b, int64(c.off))
			b.Release()
			if err != nil || n != min(c.size, size-c.off) {
				t.Errorf("%s: %d bytes, %v", c.name, n, err)
			}
			if got := r.resident(t); got < c.low || got > c.high {
				t.Errorf("%s (nowait %t): %.0f%% resident, want %.0f%% to %.0f%%", c.name, nowait, 100*got, 100*c.low, 100*c.high)
			}
		}
	}
}

// TestReclaimIsOffByDefault, for the page cache is what serves hot objects.
func TestReclaimIsOffByDefault(t *testing.T) {
	o := Options{}.withDefaults()
	if o.Reclaim.Load() || o.Direct.Load() {
		t.Errorf("reclaim %t, direct %t", o.Reclaim.Load(), o.Direct.Load())
	}
	if o.ReclaimThreshold.Load() != 4<<20 || o.DirectThreshold.Load() != 4<<20 {
		t.Errorf("thresholds: reclaim %d, direct %d", o.ReclaimThreshold.Load(), o.DirectThreshold.Load())
	}
	if _, _, reclaim := storage.ReclaimRange(0, 1<<30, (&Backend{opts: o}).reclaimFrom()); reclaim {
		t.Error("a read of 1 GiB is dropped")
	}
}
