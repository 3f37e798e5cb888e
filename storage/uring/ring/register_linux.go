package ring

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

func (r *uring) Buffers(n int) error {
	if r.closed {
		return unix.EBADF
	}
	if n < 0 {
		return unix.EINVAL
	}
	if r.hasTable {
		if errno := r.k.register(r.info.FD, unregisterBuffers, nil, 0); errno != 0 && errno != unix.ENXIO {
			return errno
		}
		r.hasTable = false
	}
	if n == 0 {
		return nil
	}
	r.table = rsrcRegister{nr: uint32(n), flags: rsrcSparse}
	errno := r.registerTable()
	if errno == unix.EINVAL {
		// Before 5.19 an empty table is one of empty places.
		r.empty = make([]unix.Iovec, n) // in a field, so that it is on the heap
		r.table = rsrcRegister{nr: uint32(n), data: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(r.empty))))}
		errno = r.registerTable()
		r.empty = nil
	}
	if errno != 0 {
		return errno
	}
	r.hasTable = true
	return nil
}

func (r *uring) registerTable() unix.Errno {
	return r.k.register(r.info.FD, registerBuffers2, unsafe.Pointer(&r.table), uint32(unsafe.Sizeof(r.table)))
}

func (r *uring) SetBuffer(place int, mem []byte) error {
	if r.closed {
		return unix.EBADF
	}
	if place < 0 || uint64(place) > uint64(^uint32(0)) {
		return unix.EINVAL
	}
	r.iovec = unix.Iovec{}
	if len(mem) > 0 {
		r.iovec.Base = unsafe.SliceData(mem)
		r.iovec.SetLen(len(mem))
	}
	r.update = rsrcUpdate{offset: uint32(place), data: uint64(uintptr(unsafe.Pointer(&r.iovec))), nr: 1}
	errno := r.k.register(r.info.FD, registerBuffersUpdate, unsafe.Pointer(&r.update), uint32(unsafe.Sizeof(r.update)))
	r.iovec = unix.Iovec{} // the kernel has pinned the pages
	if errno != 0 {
		return errno
	}
	return nil
}
