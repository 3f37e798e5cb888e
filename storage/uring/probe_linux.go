package uring

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"ringfence/storage/uring/ring"
)

// ringEntriesMin leaves room for the wake-up's read and cancellations in the
// queues of drivers with very few entries.
const ringEntriesMin = 8

// probeBytes is the size of the file that the probe reads back.
const probeBytes = 4096

// probeTag names the probe's read.
const probeTag = 1

// startShard starts a shard's goroutine and waits for its ring. The error is a
// *ProbeError.
func (d *Driver) startShard(ctx context.Context, l *lane, probe bool) (*shard, error) {
	dir := d.opts.Dir
	if err := admit(dir); err != nil {
		return nil, &ProbeError{Err: err}
	}
	s := newShard(l)
	started := make(chan error, 1)
	go s.run(probe, started) // its lane waits for exited
	late, stop := d.opts.Env.After(2 * d.opts.ProbeTimeout)
	defer stop()
	var err error
	select {
	case err = <-started:
		if err == nil {
			return s, nil
		}
		<-s.exited
	case <-ctx.Done():
		err = ctx.Err()
		s.start.hangs(dir) // maybe; it ends when the kernel lets it
		s.mail.shutdown()
	case <-late:
		err = errors.New("probe hangs")
		s.start.hangs(dir)
		s.mail.shutdown()
	}
	var p *ProbeError
	if !errors.As(err, &p) {
		p = &ProbeError{Err: err}
	}
	return nil, p
}

// open makes the ring on the shard's thread. clean reports, with an error, that
// nothing was left behind.
func (s *shard) open(probe bool) (clean bool, err error) {
	o := &s.d.opts
	r, err := o.Setup(ring.Options{Entries: max(o.Entries, ringEntriesMin)})
	if err != nil {
		return true, refused(fmt.Errorf("set up ring: %w", err))
	}
	s.ring = r
	if r.Info().Features&ring.FeatNoDrop == 0 {
		s.close()
		return true, refused(fmt.Errorf("ring drops completions: %w", unix.ENOSYS))
	}
	if probe {
		if clean, err := s.probe(); err != nil {
			if clean {
				s.close()
			}
			return clean, err
		}
	}
	s.wake, err = newWake()
	if err != nil {
		s.close()
		return true, &ProbeError{Err: err}
	}
	s.table = newTable(o.Entries)
	s.fixed.open(s)
	s.d.setup.Store(r.Info().Setup)
	s.mail.mu.Lock()
	s.mail.wake = s.wake
	s.mail.mu.Unlock()
	return true, nil
}

// Restriction reports whether an error of setting a ring up, or of reading
// through it for the first time, says that the environment does not allow
// io_uring. Later the same errors mean other things.
func Restriction(err error) bool {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return false
	}
	switch errno {
	case unix.EACCES, unix.EPERM, unix.ENOSYS, unix.EINVAL, unix.EOPNOTSUPP:
		return true
	}
	return false
}

func refused(err error) *ProbeError { return &ProbeError{Restricted: Restriction(err), Err: err} }

// probe reads a file of the disk through the ring and compares. clean reports
// that the kernel is done with all of it.
func (s *shard) probe() (clean bool, err error) {
	pattern := make([]byte, probeBytes)
	s.d.opts.Env.Rand(pattern)
	fd, err := s.probeFile(pattern)
	if err != nil {
		// That the file can't be made says nothing about rings.
		return true, &ProbeError{Err: fmt.Errorf("probe: %w", err)}
	}
	mem, err := unix.Mmap(-1, 0, probeBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return true, &ProbeError{Err: errors.Join(fmt.Errorf("probe: map: %w", err), unix.Close(fd))}
	}
	res, ended, err := s.probeRead(fd, mem)
	if !ended {
		// Nothing is unmapped or closed yet: the kernel may come back to it.
		s.start.probed.fd, s.start.probed.mem = fd, mem
		return false, &ProbeError{Err: fmt.Errorf("probe: read does not end: %w", err)}
	}
	same := bytes.Equal(mem, pattern)
	errs := errors.Join(unix.Close(fd), unix.Munmap(mem))
	switch {
	case res < 0:
		return true, refused(errors.Join(fmt.Errorf("probe: read: %w", unix.Errno(-res)), errs))
	case res != probeBytes:
		return true, &ProbeError{Err: errors.Join(fmt.Errorf("probe: read %d bytes of %d", res, probeBytes), errs)}
	case !same:
		return true, &ProbeError{Err: errors.Join(errors.New("probe: read other bytes than were written"), errs)}
	case errs != nil:
		return true, &ProbeError{Err: fmt.Errorf("probe: %w", errs)}
	}
	return true, nil
}

// probeRead submits one read and waits for it, never submitting it again.
func (s *shard) probeRead(fd int, mem []byte) (res int32, ended bool, err error) {
	if !s.ring.Push(ring.SQE{
		Opcode: ring.OpRead, FD: int32(fd), Addr: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))), Len: uint32(len(mem)), UserData: probeTag,
	}) {
		return 0, true, errors.New("submission queue is full from the start")
	}
	deadline := s.d.opts.Env.Now().Add(s.d.opts.ProbeTimeout)
	for {
		left := deadline.Sub(s.d.opts.Env.Now())
		if left <= 0 {
			return 0, false, errors.Join(err, unix.ETIME)
		}
		err = s.ring.Enter(1, min(left, 100*time.Millisecond))
		if c, ok := s.probeEnded(); ok {
			return c.Res, true, nil
		}
		switch err {
		case nil, unix.EINTR:
		case unix.EAGAIN, unix.EBUSY:
			s.d.pause(time.Millisecond)
		default:
			// What the kernel has not taken it never will: the ring is given up.
			if s.ring.Queued() > 0 {
				return -int32(errnoOf(err)), true, nil
			}
			return 0, false, err
		}
	}
}

func errnoOf(err error) unix.Errno {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return unix.EIO
}

// probeFile makes a file with the content, open for reading, that has no name.
func (s *shard) probeFile(content []byte) (fd int, err error) {
	dir := s.d.opts.Dir
	fd, err = unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil { // not every file system has such files
		fd, err = s.namedFile(dir)
	}
	if err != nil {
		return -1, fmt.Errorf("make a file in %s: %w", dir, err)
	}
	for off := 0; off < len(content); {
		n, err := unix.Pwrite(fd, content[off:], int64(off))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return -1, errors.Join(fmt.Errorf("write a file in %s: %w", dir, err), unix.Close(fd))
		}
		off += n
	}
	return fd, nil
}

// namedFile makes a file under a name that nobody can guess, follow or keep.
func (s *shard) namedFile(dir string) (fd int, err error) {
	var nonce [16]byte
	s.d.opts.Env.Rand(nonce[:])
	name := filepath.Join(dir, ".ring-probe-"+hex.EncodeToString(nonce[:]))
	fd, err = unix.Open(name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return -1, err
	}
	if err := unix.Unlink(name); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}
