package hybrid

import (
	"golang.org/x/sys/unix"

	"ringfence/storage"
)

// reclaim drops a large range that was read through the page cache from it, as
// Base does after its own reads.
func (f *file) reclaim(off int64, n int) {
	k := f.backend.knobs
	if !k.Reclaim.Load() {
		return
	}
	from, length, do := storage.ReclaimRange(off, n, k.ReclaimFrom.Load())
	if !do {
		return
	}
	if f.desc.Acquire() != nil {
		return // closed meanwhile
	}
	// Advice: whether it was taken changes no byte, and neither does what
	// closing a descriptor says that was only read from.
	_ = unix.Fadvise(f.desc.FD(), from, length, unix.FADV_DONTNEED)
	_ = f.desc.Release()
}
