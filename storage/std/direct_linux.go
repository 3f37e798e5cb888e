package std

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"

	"ringfence/storage"
)

// errEndedEarly is a direct read that ended inside the file where none may.
var errEndedEarly = errors.New("direct read ended early")

// wantsDirect decides once for a read of n bytes.
func (b *Backend) wantsDirect(n int) bool {
	return b.opts.Direct.Load() && n > 0 && int64(n) >= b.opts.DirectThreshold.Load() &&
		!b.direct.refused.Load() && !b.direct.failed.Load()
}

// readDirect fills the buffers past the page cache. It reports false, and has
// nothing to say about what the buffers hold, when that failed: no error of
// O_DIRECT is the reader's business, the same bytes are to be had without.
func (r *blockingRead) readDirect() bool {
	h, align, err := r.file.openDirect()
	if err != nil || h.Acquire() != nil {
		return false
	}
	// The result of closing what was only read says nothing.
	defer func() { _ = h.Release() }()
	d := directRead{backend: r.file.backend, fd: h.fd, align: align}
	var n int
	if v := straight(r.bufs, r.off, align); v != nil {
		n, err = d.fill(v, r.off)
		v.free()
	} else {
		n, err = d.bounce(r.bufs, r.off)
	}
	if err != nil {
		if refusesDirect(err) {
			r.file.backend.direct.failed.Store(true)
		}
		return false
	}
	r.n = min(n, r.vec.left)
	return true
}

// straight is the list of bufs as O_DIRECT can fill it, with the last one's
// memory used up to the next multiple of align; nil if their geometry does not
// allow it.
func straight(bufs []*storage.Buf, off int64, align int) *vec {
	if off%int64(align) != 0 {
		return nil
	}
	v := vecOf(bufs)
	pad := -v.left & (align - 1)
	last := len(v.iovs) - 1
	for i, iov := range v.iovs {
		if uintptr(unsafe.Pointer(iov.Base))%uintptr(align) != 0 || (i < last && iov.Len%uint64(align) != 0) {
			v.free()
			return nil
		}
	}
	for i := len(bufs) - 1; i >= 0; i-- {
		if n := len(bufs[i].Bytes()); n > 0 {
			if n+pad > bufs[i].Cap() {
				v.free()
				return nil
			}
			break
		}
	}
	v.iovs[last].SetLen(int(v.iovs[last].Len) + pad)
	v.left += pad
	return v
}

// directRead reads from a descriptor with O_DIRECT.
type directRead struct {
	backend *Backend
	fd      int
	align   int
}

// fill reads until v, whose geometry fits, is full or the file ends.
func (d directRead) fill(v *vec, off int64) (n int, err error) {
	for v.left > 0 {
		got, err := d.backend.calls.readDirect(d.fd, v.next(), off+int64(n))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || got == 0 {
			return n, err
		}
		n += got
		if got%d.align != 0 {
			return n, d.ended(off + int64(n))
		}
		v.advance(got)
	}
	return n, nil
}

// ended checks that the file ends here: elsewhere the kernel reads whole blocks.
func (d directRead) ended(at int64) error {
	var st unix.Stat_t
	if err := unix.Fstat(d.fd, &st); err != nil {
		return err
	}
	if st.Size > at {
		return errEndedEarly
	}
	return nil
}

// bounce reads aligned pieces into a buffer of its own and copies what was
// asked for.
func (d directRead) bounce(bufs []*storage.Buf, off int64) (n int, err error) {
	pool := d.backend.opts.Pool
	if pool == nil {
		return 0, storage.ErrNoBuffer
	}
	v := vecOf(bufs)
	defer v.free()
	align := int64(d.align)
	piece := func() (start int64, head, size int) {
		start = (off + int64(n)) &^ (align - 1)
		head = int(off + int64(n) - start)
		size = min(storage.MaxBuf, (head+v.left+d.align-1)&^(d.align-1))
		return start, head, size
	}
	_, _, size := piece() // the first is the largest
	buf, err := pool.Get(size)
	if err != nil {
		return 0, err
	}
	defer buf.Release()
	for v.left > 0 {
		start, head, size := piece()
		buf.SetLen(size)
		one := vecOf([]*storage.Buf{buf})
		got, err := d.fill(one, start)
		one.free()
		if err != nil {
			return n, err
		}
		if got > head {
			n += v.copy(buf.Bytes()[head:got])
		}
		if got < size { // the file ended
			break
		}
	}
	return n, nil
}

// copy fills v from p, as far as both go.
func (v *vec) copy(p []byte) (n int) {
	for len(p) > 0 && v.left > 0 {
		into := unsafe.Slice(v.iovs[0].Base, int(v.iovs[0].Len))
		got := copy(into, p)
		v.advance(got)
		p, n = p[got:], n+got
	}
	return n
}
