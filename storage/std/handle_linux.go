package std

import (
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"ringfence/storage"
)

// handle is a descriptor that closes when its last user is done: its number
// must not be reused while a system call that was given it still runs.
//
// Users are counted in lanes, for many processors read from one file: each adds
// to a lane and takes away from the same one, so that no lane ever shows fewer
// users than it has. Once closed is set nobody joins for good any more, and
// whoever leaves looks at all lanes: the last one to leave finds them empty.
type handle struct {
	fd     int
	closed atomic.Bool // to new users
	ended  atomic.Bool // the descriptor was closed
	users  [handleLanes]lane
	gone   chan struct{} // closed with the descriptor; may be nil
}

const handleLanes = 8

var _ storage.Descriptor = (*handle)(nil)

func (h *handle) init(fd int) { h.fd = fd }

// FD implements storage.Descriptor.
func (h *handle) FD() int { return h.fd }

// Acquire implements storage.Descriptor.
func (h *handle) Acquire() error { return h.join(0) }

// Release implements storage.Descriptor.
func (h *handle) Release() error { return h.leave(0) }

// join must be paired with leave of the same lane when it returns nil.
func (h *handle) join(lane uint32) error {
	h.users[lane%handleLanes].Add(1)
	if h.closed.Load() {
		// What closing says, if this is the last to leave, is of no interest
		// to one who came too late.
		_ = h.leave(lane)
		return os.ErrClosed
	}
	return nil
}

// leave gives what closing said, if this was the last user.
func (h *handle) leave(lane uint32) error {
	h.users[lane%handleLanes].Add(-1)
	if !h.closed.Load() {
		return nil
	}
	return h.end()
}

// close ends the handle for new users.
func (h *handle) close() error {
	if h.closed.Swap(true) {
		return os.ErrClosed
	}
	return h.end()
}

// end closes the descriptor if nobody uses it.
func (h *handle) end() error {
	if h.count() > 0 || h.ended.Swap(true) {
		return nil
	}
	// Never retried: on Linux the descriptor is gone even after EINTR.
	err := unix.Close(h.fd)
	if h.gone != nil {
		close(h.gone)
	}
	return err
}

// count is how many users there are, at least if some come or leave meanwhile.
func (h *handle) count() (n int64) {
	for i := range h.users {
		n += h.users[i].Load()
	}
	return n
}
