package std

import (
	"sync/atomic"

	"golang.org/x/sys/unix"
)

var interrupts atomic.Int64

// shortReads is a kernel that reads at most 1,000 bytes of the first buffer,
// and that is interrupted every third time.
func shortReads(fd int, iovs []unix.Iovec, off int64) (int, error) {
	if interrupts.Add(1)%3 == 0 {
		return 0, unix.EINTR
	}
	first := []unix.Iovec{iovs[0]}
	first[0].SetLen(min(int(first[0].Len), 1000))
	return preadv(fd, first, off)
}
