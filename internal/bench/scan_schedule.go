package bench

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"ringfence/storage"
)

// queue hands out files to the threads that share it.
type queue struct {
	files []int // numbers in ScanLeg.Files
	next  atomic.Int64
}

func (q *queue) take() (int, bool) {
	i := q.next.Add(1) - 1
	if i >= int64(len(q.files)) {
		return 0, false
	}
	return q.files[i], true
}

// schedule makes the queue of every thread.
func schedule(files []ScanFile, threads int, how Scheduling) []*queue {
	if how == Shared {
		q := &queue{files: interleave(files, func(int) bool { return true })}
		return slices.Repeat([]*queue{q}, threads)
	}
	n := devices(files)
	queues := make([]*queue, threads)
	for t := range queues {
		if t >= n { // several threads for one device
			queues[t] = queues[t%n]
			continue
		}
		queues[t] = &queue{files: interleave(files, func(device int) bool { return device%threads == t })}
	}
	return queues
}

// interleave lists the files of some devices, one of each device in turn, so
// that all of them are busy from the start.
func interleave(files []ScanFile, of func(device int) bool) (order []int) {
	byDevice := make([][]int, devices(files))
	for i, f := range files {
		if of(f.Device) {
			byDevice[f.Device] = append(byDevice[f.Device], i)
		}
	}
	for more := true; more; {
		more = false
		for d, list := range byDevice {
			if len(list) > 0 {
				order, byDevice[d], more = append(order, list[0]), list[1:], true
			}
		}
	}
	return order
}

// request is a part of a file to read. Its descriptor is held until release.
type request struct {
	file   int // number in ScanLeg.Files
	device int
	fd     *descriptor
	off    int64
	n      int
}

// thread deals out the requests of its files, in order. Several goroutines may
// call it.
type thread struct {
	leg   *ScanLeg
	queue *queue
	flags int
	most  int64 // requests to make at most; 0 is no limit

	mu   sync.Mutex // protects the fields below
	file int
	fd   *descriptor // nil between files
	off  int64
	done int64 // files that were opened
	made int64 // requests
}

// take gives the next request; the caller must release its descriptor. ok is
// false at the end.
func (t *thread) take() (r request, ok bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.made++; t.most > 0 && t.made > t.most {
		return r, false, nil
	}
	for t.fd == nil || t.off >= t.leg.Files[t.file].Size {
		if err := t.drop(); err != nil {
			return r, false, err
		}
		var more bool
		if t.file, more = t.queue.take(); !more {
			return r, false, nil
		}
		if err := t.open(); err != nil {
			return r, false, err
		}
	}
	f := t.leg.Files[t.file]
	r = request{file: t.file, device: f.Device, fd: t.fd, off: t.off}
	r.n = int(min(f.Size-t.off, int64(t.leg.Load.RequestBytes)))
	t.off += int64(r.n)
	return r, true, t.fd.Acquire()
}

func (t *thread) open() error {
	f := t.leg.Files[t.file]
	fd, err := File{Path: f.Path, Size: f.Size}.open(t.flags)
	if err != nil {
		return err
	}
	t.fd, t.off = newDescriptor(fd), 0
	t.done++
	return nil
}

// drop lets go of the present file; requests under way keep it open.
func (t *thread) drop() error {
	if t.fd == nil {
		return nil
	}
	fd := t.fd
	t.fd = nil
	return fd.Release()
}

// end gives back what a scan that stopped early left open.
func (t *thread) end() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.drop()
}

// descriptor is a storage.Descriptor that begins with one reference.
type descriptor struct {
	fd   int
	refs atomic.Int64
}

var _ storage.Descriptor = (*descriptor)(nil)

func newDescriptor(fd int) *descriptor {
	d := &descriptor{fd: fd}
	d.refs.Store(1)
	return d
}

func (d *descriptor) FD() int { return d.fd }

func (d *descriptor) Acquire() error {
	for {
		n := d.refs.Load()
		if n <= 0 {
			return os.ErrClosed
		}
		if d.refs.CompareAndSwap(n, n+1) {
			return nil
		}
	}
}

func (d *descriptor) Release() error {
	if d.refs.Add(-1) > 0 {
		return nil
	}
	if err := unix.Close(d.fd); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return nil
}
