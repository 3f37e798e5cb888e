package hybrid

import (
	"errors"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"ringfence/storage"
	"ringfence/storage/uring"
)

// counts of reads, since the Backend was made.
type counts struct {
	ring, ringDirect atomic.Int64 // finished by a ring

	// copies are of reads that a ring waited for: those that Base made, and
	// counted as inline ones, and those it is trying to make.
	copies atomic.Int64
	shown  atomic.Int64 // the most inline reads that were ever reported

	hits    atomic.Int64 // inline attempts that finished a read
	misses  atomic.Int64 // that did not
	skipped atomic.Int64 // that were not worth it
	refused atomic.Int64 // reads that failed at once: the disk does not answer

	fallbacks [reasons]atomic.Int64
}

// reason is why Base had to finish a read that a ring was meant to.
type reason uint8

const (
	reasonLatched  reason = iota // a latch keeps reads off the rings
	reasonStarting               // no driver yet, or between two of them
	reasonClosed                 // the driver was retired, or its shard died
	reasonShort                  // an O_DIRECT read ended early
	reasonInvalid                // the driver takes no such read
	reasonNoBuffer               // no memory to bounce in
	reasonNoDirect               // the file system has no O_DIRECT
	reasonEIO
	reasonEINVAL
	reasonENOSYS
	reasonEPERM
	reasonECANCELED
	reasonEAGAIN
	reasonENOMEM
	reasonErrno // another one
	reasonOther
	reasons
)

var reasonNames = [reasons]string{
	"latched", "starting", "closed", "short", "invalid", "no-buffer", "no-direct",
	"eio", "einval", "enosys", "eperm", "ecanceled", "eagain", "enomem", "errno", "other",
}

var reasonErrors = []struct {
	err    error
	reason reason
}{
	{uring.ErrClosed, reasonClosed}, {uring.ErrShort, reasonShort}, {uring.ErrInvalid, reasonInvalid},
	{storage.ErrNoBuffer, reasonNoBuffer}, {storage.ErrUnsupported, reasonNoDirect},
	{unix.EIO, reasonEIO}, {unix.EINVAL, reasonEINVAL}, {unix.ENOSYS, reasonENOSYS}, {unix.EPERM, reasonEPERM},
	{unix.ECANCELED, reasonECANCELED}, {unix.EAGAIN, reasonEAGAIN}, {unix.ENOMEM, reasonENOMEM},
}

func reasonOf(err error) reason {
	// Bare errors first: of what wraps several, none is the one.
	for _, r := range reasonErrors {
		if errors.Is(err, r.err) {
			return r.reason
		}
	}
	var errno unix.Errno
	if errors.As(err, &errno) {
		return reasonErrno
	}
	return reasonOther
}

// without counts a read that finds no driver.
func (c *counts) without(l *latches) {
	if l.rings.Load() {
		c.fallbacks[reasonLatched].Add(1)
	} else {
		c.fallbacks[reasonStarting].Add(1)
	}
}

// stuck reports whether a read never ended, so that the kernel may still write
// to its buffers.
func stuck(err error) bool {
	return errors.Is(err, uring.ErrClosed) && strings.Contains(err.Error(), "the read does not end")
}

// inlineOf gives the inline reads of those that Base counted. The copies that
// are being tried may be missing from that number, and are not when they are
// done: it is never too high, and what was reported before is not too high
// either. So the higher of them is right, and never falls.
func (c *counts) inlineOf(counted int64) int64 {
	n := counted - c.copies.Load()
	for {
		shown := c.shown.Load()
		if n <= shown {
			return shown
		}
		if c.shown.CompareAndSwap(shown, n) {
			return n
		}
	}
}
