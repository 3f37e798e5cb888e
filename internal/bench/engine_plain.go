package bench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"ringfence/storage"
)

// plain is what a program without an engine does: system calls in the
// goroutine that wants the bytes, and nothing else.
type plain struct {
	file     File
	strategy Strategy
	fd       int // of the strategies that keep one
	flags    int
	random   bool // no readahead
	misses   atomic.Int64
}

func startPlain(leg Leg) (engine, error) {
	p := &plain{file: leg.File, strategy: leg.Engine.Strategy, fd: -1, random: leg.Load.Access != Warm}
	if leg.Engine.Direct {
		p.flags = unix.O_DIRECT
	}
	if p.strategy == StdOpen {
		return p, nil
	}
	var err error
	p.fd, err = p.open()
	return p, err
}

func (p *plain) open() (int, error) {
	fd, err := open(p.file.Path, unix.O_RDONLY|p.flags, 0)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", p.file.Path, err)
	}
	if p.random {
		if err := unix.Fadvise(fd, 0, 0, unix.FADV_RANDOM); err != nil {
			return -1, errors.Join(fmt.Errorf("advise: %w", err), unix.Close(fd))
		}
	}
	return fd, nil
}

func (p *plain) read(_ context.Context, bufs []*storage.Buf, off int64) error {
	switch p.strategy {
	case StdOpen:
		fd, err := p.open()
		if err != nil {
			return err
		}
		err = preadAll(fd, bufs, off, 0)
		return errors.Join(err, unix.Close(fd))
	case Nowait:
		return p.readNowait(bufs, off)
	default:
		return preadAll(p.fd, bufs, off, 0)
	}
}

// readNowait reads what is there, then waits for the rest.
func (p *plain) readNowait(bufs []*storage.Buf, off int64) error {
	n, err := unix.Preadv2(p.fd, views(bufs, 0), off, unix.RWF_NOWAIT)
	want := sizeOf(bufs)
	if err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EINTR) {
		return err
	}
	if n == want {
		return nil
	}
	p.misses.Add(1)
	return preadAll(p.fd, bufs, off, max(n, 0))
}

// preadAll fills the buffers but for the first skip bytes.
func preadAll(fd int, bufs []*storage.Buf, off int64, skip int) error {
	want := sizeOf(bufs)
	for skip < want {
		var n int
		var err error
		if len(bufs) == 1 {
			n, err = unix.Pread(fd, bufs[0].Bytes()[skip:], off+int64(skip))
		} else {
			n, err = unix.Preadv(fd, views(bufs, skip), off+int64(skip))
		}
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case n == 0:
			return short(skip, want, off)
		default:
			skip += n
		}
	}
	return nil
}

// views is the memory of the buffers but for the first skip bytes.
func views(bufs []*storage.Buf, skip int) [][]byte {
	list := make([][]byte, 0, len(bufs))
	for _, b := range bufs {
		p := b.Bytes()
		cut := min(skip, len(p))
		if skip -= cut; cut < len(p) {
			list = append(list, p[cut:])
		}
	}
	return list
}

func (p *plain) counts(ops int64) Counts {
	c := Counts{Enters: 0, Wakes: 0, InlineHits: -1}
	switch p.strategy {
	case StdOpen:
		c.Opens, c.Syscalls = ops, 3*ops
		if p.random {
			c.Syscalls += ops
		}
	case Nowait:
		misses := p.misses.Load()
		c.Syscalls, c.InlineHits = ops+misses, ops-misses
	default:
		c.Syscalls = ops
	}
	return c
}

func (p *plain) close(context.Context) error {
	if p.fd < 0 {
		return nil
	}
	return unix.Close(p.fd)
}
