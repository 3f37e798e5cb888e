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
	refs   atomic.Int64
	closed atomic.Bool
	gone   chan struct{} // closed with the descriptor; may be nil
}

var _ storage.Descriptor = (*handle)(nil)

func (h *handle) init(fd int) {
	h.fd = fd
	h.refs.Store(1)
}

// FD implements storage.Descriptor.
func (h *handle) FD() int { return h.fd }

// Acquire implements storage.Descriptor: it must be paired with Release when
// it returns nil.
func (h *handle) Acquire() error {
	for {
		n := h.refs.Load()
		if n <= 0 || h.closed.Load() {
			return os.ErrClosed
		}
		if h.refs.CompareAndSwap(n, n+1) {
			return nil
		}
	}
}

// Release implements storage.Descriptor.
func (h *handle) Release() error {
	if h.refs.Add(-1) > 0 {
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
