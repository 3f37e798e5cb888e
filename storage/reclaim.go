package storage

import "os"

// ReclaimRange is the rule of page-cache reclaim, the same for all engines: a
// buffered read that gave n bytes from off on, of at least the threshold, drops
// what it read from the page cache, from the start of the first page to the end
// of the read. The kernel keeps the last page if only a part of it was read. A
// negative threshold is never reached.
func ReclaimRange(off int64, n int, threshold int64) (start, length int64, reclaim bool) {
	if n <= 0 || threshold < 0 || int64(n) < threshold {
		return 0, 0, false
	}
	start = off &^ (int64(os.Getpagesize()) - 1)
	return start, off + int64(n) - start, true
}
