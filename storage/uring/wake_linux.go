package uring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"ringfence/storage/uring/ring"
)

// wakeErrorsMax is after how many failed reads of its eventfd in a row a shard
// dies: it could not be woken any more.
const wakeErrorsMax = 16

// wake is how a shard that waits in its ring is woken: a read of an eventfd is
// always under way, so that one system call waits for completions and callers
// alike.
type wake struct {
	fd  int    // blocking: an operation on it waits in the kernel
	mem []byte // a page of its own: what the kernel writes the counter to

	armed  bool // a read is under way; the shard's alone, as are the following
	unseen bool
	stop   bool // is not armed again
	errors int  // in a row
	gen    uint64
}

func newWake() (*wake, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	mem, err := unix.Mmap(-1, 0, unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("map: %w", err), unix.Close(fd))
	}
	return &wake{fd: fd, mem: mem}, nil
}

// write wakes. It can't wait: the counter overflows after 2^64-1 writes.
func (w *wake) write() {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	for {
		_, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(w.fd), uintptr(unsafe.Pointer(&one)), uintptr(len(one)))
		if errno != unix.EINTR {
			// Nothing else can go wrong with an eventfd that is open; the
			// shard's heartbeat would make up for it.
			return
		}
	}
}

// close comes after the ring's. The page of a read that the ring did not end is
// never given back.
func (w *wake) close() error {
	err := unix.Close(w.fd)
	if w.armed {
		return err
	}
	return errors.Join(err, unix.Munmap(w.mem))
}

// armWake reports false when the submission queue is full: without it the shard
// must not sleep.
func (s *shard) armWake() bool {
	w := s.wake
	if w.armed || w.stop {
		return true
	}
	w.gen++
	ok := s.ring.Push(ring.SQE{
		Opcode: ring.OpRead, FD: int32(w.fd), Off: ring.CurrentPosition,
		Addr: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(w.mem)))), Len: 8,
		UserData: uint64(tag(kindWake, 0, w.gen)),
	})
	if ok {
		w.armed, w.unseen = true, true
		s.inKernel++
		s.unseen = append(s.unseen, item{slot: -1})
	}
	return ok
}

// woken takes the completion of the eventfd's read.
func (s *shard) woken(u userData, res int32) {
	w := s.wake
	if w == nil || !w.armed || u.gen() != w.gen {
		return
	}
	w.armed = false
	s.inKernel--
	if res == 8 {
		w.errors = 0
		return
	}
	if w.errors++; w.errors == wakeErrorsMax {
		s.die(unix.Errno(max(-res, 0)))
	}
}
