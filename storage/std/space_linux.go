package std

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"ringfence/storage"
)

// Stats implements storage.Backend. The space is at most a second old, or older
// while the file system does not answer: nobody waits for that.
func (b *Backend) Stats() storage.BackendStats {
	total, free := b.space.get(b)
	return storage.BackendStats{
		TotalBytes: total,
		FreeBytes:  free,
		Reads:      b.reads.load(),
	}
}

const (
	spaceAge      = 100 * time.Millisecond // from which on the kernel is asked again
	spacePatience = 10 * time.Millisecond  // a healthy file system answers in microseconds
)

// spaceCache keeps statfs from running more than ten times a second, and callers
// from waiting for one that hangs: it runs in a goroutine of its own, one at a
// time, and who started it waits for a moment only. Close waits for it.
type spaceCache struct {
	ask    func(fd int, st *unix.Statfs_t) error // fstatfs; tests put sick disks in its place
	asking atomic.Bool
	state  atomic.Pointer[space]
}

type space struct {
	total, free int64
	at          time.Time
}

func (c *spaceCache) get(b *Backend) (total, free int64) {
	s := c.state.Load()
	if s == nil || time.Since(s.at) >= spaceAge {
		c.refresh(b)
		s = c.state.Load()
	}
	if s == nil {
		return 0, 0
	}
	return s.total, s.free
}

// refresh asks the kernel, unless someone does.
func (c *spaceCache) refresh(b *Backend) {
	if !c.asking.CompareAndSwap(false, true) {
		return
	}
	if b.root.Acquire() != nil {
		c.asking.Store(false)
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer c.asking.Store(false)
		defer b.leave()
		if fresh := c.statfs(b.root.fd); fresh != nil {
			c.state.Store(fresh)
		}
	}()
	patience := time.NewTimer(spacePatience)
	defer patience.Stop()
	select {
	case <-done:
	case <-patience.C:
	}
}

// fits reports whether there is room for n bytes, as far as is known.
func (c *spaceCache) fits(b *Backend, n int64) bool {
	total, free := c.get(b)
	return total == 0 || n <= free
}

// statfs is nil when the file system cannot be asked: the numbers stay as they
// were, and whoever needs to know why calls Check.
func (c *spaceCache) statfs(fd int) *space {
	var st unix.Statfs_t
	if err := retry(func() error { return c.ask(fd, &st) }); err != nil {
		return nil
	}
	unit := st.Frsize
	if unit <= 0 {
		unit = st.Bsize
	}
	return &space{total: int64(st.Blocks) * unit, free: int64(st.Bavail) * unit, at: time.Now()}
}
