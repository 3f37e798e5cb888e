package storage

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapSlab maps memory of slabBytes, aligned to its size and backed by a huge
// page where the kernel has them.
func mapSlab() ([]byte, error) {
	p, err := mapAnonymous(slabBytes)
	if err == nil && uintptr(p)%slabBytes != 0 {
		// Kernels before 6.7 align to 4 KiB: map twice the size and trim.
		if err := unix.MunmapPtr(p, slabBytes); err != nil {
			return nil, fmt.Errorf("unmap: %w", err)
		}
		p, err = mapAligned()
	}
	if err != nil {
		return nil, fmt.Errorf("map buffers: %w", err)
	}
	mem := unsafe.Slice((*byte)(p), slabBytes)
	// Refused where the kernel has no huge pages: small ones do as well.
	_ = unix.Madvise(mem, unix.MADV_HUGEPAGE)
	return mem, nil
}

func mapAnonymous(size uintptr) (unsafe.Pointer, error) {
	return unix.MmapPtr(-1, 0, nil, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
}

func mapAligned() (unsafe.Pointer, error) {
	p, err := mapAnonymous(2 * slabBytes)
	if err != nil {
		return nil, err
	}
	head := -uintptr(p) % slabBytes
	aligned := unsafe.Add(p, head)
	var errs error
	if head > 0 {
		errs = unix.MunmapPtr(p, head)
	}
	errs = errors.Join(errs, unix.MunmapPtr(unsafe.Add(aligned, slabBytes), slabBytes-head))
	return aligned, errs
}

func unmapSlab(mem []byte) error {
	return unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(mem)), uintptr(len(mem)))
}
