package hybrid

import (
	"golang.org/x/sys/unix"

	"ringfence/storage"
)

// reclaim drops a large range that was read through the page cache from it, as
// Base does after its own reads, and reports whether it did.
func (f *file) reclaim(off int64, n int) bool {
	k := f.backend.knobs
	if !k.Reclaim.Load() {
		return false
	}
	from, length, large := storage.ReclaimRange(off, n, k.ReclaimFrom.Load())
	if large {
		f.drop(from, length)
	}
	return large
}

// drop drops a range from the page cache. It is advice: whether it was taken
// changes no byte, and neither does what closing a descriptor says that was
// only read from.
func (f *file) drop(off, length int64) {
	if f.desc.Acquire() != nil {
		return // closed meanwhile
	}
	_ = unix.Fadvise(f.desc.FD(), off, length, unix.FADV_DONTNEED)
	_ = f.desc.Release()
}
