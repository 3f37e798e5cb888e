package ringtest

import (
	"os"

	"golang.org/x/sys/unix"

	"ringfence/storage/uring/ring"
)

// SimFile is a file or pipe of a Sim, and a descriptor of it with references:
// who reads from it must hold one until the read has completed.
type SimFile struct {
	sim *Sim
	fd  int

	// protected by sim.mu
	content []byte
	align   int // of a direct file; 0
	pipe    bool
	ended   bool // nobody will write to the pipe any more
	pos     int  // of reads at the current position
	refs    int
}

// File makes a file; the content must not change any more.
func (s *Sim) File(content []byte) *SimFile { return s.add(&SimFile{content: content}) }

// Direct makes a file that is open with O_DIRECT: offset, length and memory of
// its reads must be multiples of align.
func (s *Sim) Direct(content []byte, align int) *SimFile {
	return s.add(&SimFile{content: content, align: align})
}

// Pipe makes an empty pipe.
func (s *Sim) Pipe() *SimFile { return s.add(&SimFile{pipe: true}) }

func (s *Sim) add(f *SimFile) *SimFile {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.sim, f.fd, f.refs = s, s.nextFD, 1
	s.nextFD++
	s.files[f.fd] = f
	return f
}

// FD is its number.
func (f *SimFile) FD() int { return f.fd }

// Acquire adds a reference; os.ErrClosed if the last one is gone.
func (f *SimFile) Acquire() error {
	f.sim.mu.Lock()
	defer f.sim.mu.Unlock()
	if f.refs == 0 {
		return os.ErrClosed
	}
	f.refs++
	return nil
}

// Release drops a reference; the last one closes. Of one reference too many it
// says os.ErrClosed.
func (f *SimFile) Release() error {
	f.sim.mu.Lock()
	defer f.sim.mu.Unlock()
	if f.refs == 0 {
		f.sim.wrongLocked("descriptor %d was released too often", f.fd)
		return os.ErrClosed
	}
	f.refs--
	return nil
}

// Refs is the number of references.
func (f *SimFile) Refs() int {
	f.sim.mu.Lock()
	defer f.sim.mu.Unlock()
	return f.refs
}

// Write puts bytes into a pipe.
func (f *SimFile) Write(b []byte) (int, error) {
	f.sim.mu.Lock()
	defer f.sim.mu.Unlock()
	f.content = append(f.content, b...)
	f.sim.kickLocked()
	return len(b), nil
}

// CloseWrite ends a pipe.
func (f *SimFile) CloseWrite() {
	f.sim.mu.Lock()
	defer f.sim.mu.Unlock()
	f.ended = true
	f.sim.kickLocked()
}

// readableLocked says that a read would not wait.
func (f *SimFile) readableLocked() bool { return !f.pipe || f.ended || len(f.content) > 0 }

// checkLocked gives the error number of a read that can't be made.
func (f *SimFile) checkLocked(e ring.SQE) unix.Errno {
	switch {
	case f.refs == 0:
		return unix.EBADF
	case f.pipe && e.Off != ring.CurrentPosition && e.Off != 0:
		return 0 // pipes have no positions: it does not matter
	case e.Off != ring.CurrentPosition && int64(e.Off) < 0:
		return unix.EINVAL
	case f.align > 0 && (e.Off|e.Addr|uint64(e.Len))%uint64(f.align) != 0:
		return unix.EINVAL
	}
	return 0
}

// readLocked copies up to len(mem) bytes for the entry.
func (f *SimFile) readLocked(e ring.SQE, mem []byte) int {
	if f.pipe {
		n := copy(mem, f.content)
		f.content = f.content[n:]
		return n
	}
	off := e.Off
	if off == ring.CurrentPosition {
		off = uint64(f.pos)
	}
	if off >= uint64(len(f.content)) {
		return 0
	}
	n := copy(mem, f.content[off:])
	if f.align > 0 && n < len(mem) {
		clear(mem[n:]) // blocks are read whole: memory changes beyond the result
	}
	if e.Off == ring.CurrentPosition {
		f.pos += n
	}
	return n
}

// availableLocked is how much a read of n bytes could give.
func (f *SimFile) availableLocked(e ring.SQE, n int) int {
	off := uint64(0)
	if !f.pipe {
		if off = e.Off; off == ring.CurrentPosition {
			off = uint64(f.pos)
		}
	}
	if off >= uint64(len(f.content)) {
		return 0
	}
	return min(n, len(f.content)-int(off))
}
