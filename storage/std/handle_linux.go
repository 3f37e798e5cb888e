package std

import (
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"ringfence/storage"
)

// handle is a descriptor that closes when its last user is done: its number
// must not be reused while a system call that was given it still runs.
type handle struct {
	fd     int
	refs   atomic.Int64 // far below zero once the descriptor is closed
	closed atomic.Bool
	gone   chan struct{} // closed with the descriptor; may be nil
}

var _ storage.Descriptor = (*handle)(nil)

// refsGone is added when the descriptor is closed: no number of late users
// makes up for it.
const refsGone = -1 << 60

func (h *handle) init(fd int) {
	h.fd = fd
	h.refs.Store(1)
}

// FD implements storage.Descriptor.
func (h *handle) FD() int { return h.fd }

// Acquire implements storage.Descriptor: it must be paired with Release when
// it returns nil. It adds first and looks then, which many readers of one file
// do faster than a compare and swap.
func (h *handle) Acquire() error {
	if h.refs.Add(1) <= 0 {
		h.refs.Add(-1)
		return os.ErrClosed
	}
	if h.closed.Load() {
		// Whoever is last closes; what that says is of no interest here.
		_ = h.Release()
		return os.ErrClosed
	}
	return nil
}

// Release implements storage.Descriptor.
func (h *handle) Release() error {
	if h.refs.Add(-1) != 0 || !h.refs.CompareAndSwap(0, refsGone) {
		// Others use it, or one that came too late and will release it.
		return nil
	}
	// Never retried: on Linux the descriptor is gone even after EINTR.
	err := unix.Close(h.fd)
	if h.gone != nil {
		close(h.gone)
	}
	return err
}

// close ends the handle for new users.
func (h *handle) close() error {
	if h.closed.Swap(true) {
		return os.ErrClosed
	}
	return h.Release()
}
