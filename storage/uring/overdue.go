package uring

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ringfence/storage/uring/ring"
)

// startsMax bounds the starts on one directory that hang in the kernel. Each
// holds a thread and maybe a ring, and a disk that hangs for a week is tried
// every few minutes.
const startsMax = 4

// overdue counts starts that hang, by directory: drivers come and go, and what
// they left behind stays. It is global for the same reason as leaked is.
var overdue struct {
	mu     sync.Mutex
	starts map[string]int // protected by mu, and so are all shards' beginnings
}

// beginning is the start of a shard. Protected by overdue.mu.
type beginning struct {
	over bool // nothing of it hangs
	late bool // counted among those that do
	// What the probe's read uses, which has not ended; the shard's alone.
	probed struct {
		fd  int
		mem []byte
	}
}

// admit refuses a start if too many of the same directory hang.
func admit(dir string) error {
	overdue.mu.Lock()
	defer overdue.mu.Unlock()
	if n := overdue.starts[dir]; n >= startsMax {
		return fmt.Errorf("%d former starts still hang", n)
	}
	return nil
}

// hangs counts a start that is not over.
func (b *beginning) hangs(dir string) {
	overdue.mu.Lock()
	defer overdue.mu.Unlock()
	if b.over || b.late {
		return
	}
	b.late = true
	if overdue.starts == nil {
		overdue.starts = make(map[string]int)
	}
	overdue.starts[dir]++
}

// ended takes back what hangs counted.
func (b *beginning) ended(dir string) {
	overdue.mu.Lock()
	defer overdue.mu.Unlock()
	b.over = true
	if !b.late {
		return
	}
	b.late = false
	if overdue.starts[dir]--; overdue.starts[dir] == 0 {
		delete(overdue.starts, dir)
	}
}

// linger waits for a probe's read that was given up, as long as it takes, and
// then gives back what the kernel may have used until then. The read is never
// submitted again: at most it is handed over for the first time.
func (s *shard) linger() {
	leak(s)
	for {
		if _, ok := s.probeEnded(); ok {
			break
		}
		err := s.ring.Enter(1, heartbeat)
		if err != nil && err != unix.EINTR {
			s.d.pause(time.Second)
		}
	}
	unleak(s)
	p := &s.start.probed
	if err := unix.Close(p.fd); err != nil {
		s.d.opts.Log.Warn().Err(err).Str("dir", s.d.opts.Dir).Msg("close the file of a probe that hung")
	}
	if err := unix.Munmap(p.mem); err != nil {
		s.d.opts.Log.Warn().Err(err).Str("dir", s.d.opts.Dir).Msg("unmap the memory of a probe that hung")
	}
	s.close()
	s.start.ended(s.d.opts.Dir)
}

// probeEnded takes the completion of the probe's read, if it is there.
func (s *shard) probeEnded() (ring.CQE, bool) {
	for c, ok := s.ring.Next(); ok; c, ok = s.ring.Next() {
		if c.UserData == probeTag {
			return c, true
		}
	}
	return ring.CQE{}, false
}
