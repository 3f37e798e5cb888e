package ring

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// kernel is the table of system calls. Pointers are passed as such, so that
// what they point at is on the heap and alive during the call.
type kernel struct {
	setup    func(entries uint32, p *params) (fd int, err unix.Errno)
	enter    func(fd int, submit, wait, flags uint32, arg unsafe.Pointer, size uintptr) (n int, err unix.Errno)
	register func(fd int, op uint32, arg unsafe.Pointer, n uint32) unix.Errno
	mmap     func(fd int, off int64, size uintptr) (unsafe.Pointer, error)
	munmap   func(p unsafe.Pointer, size uintptr) error
	close    func(fd int) error
}

func realKernel() *kernel {
	return &kernel{setup: sysSetup, enter: sysEnter, register: sysRegister, mmap: sysMmap, munmap: unix.MunmapPtr, close: unix.Close}
}

func sysSetup(entries uint32, p *params) (int, unix.Errno) {
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, uintptr(entries), uintptr(unsafe.Pointer(p)), 0)
	return int(fd), errno
}

func sysEnter(fd int, submit, wait, flags uint32, arg unsafe.Pointer, size uintptr) (int, unix.Errno) {
	n, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(fd), uintptr(submit), uintptr(wait), uintptr(flags), uintptr(arg), size)
	return int(n), errno
}

func sysRegister(fd int, op uint32, arg unsafe.Pointer, n uint32) unix.Errno {
	_, _, errno := unix.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(fd), uintptr(op), uintptr(arg), uintptr(n), 0, 0)
	return errno
}

func sysMmap(fd int, off int64, size uintptr) (unsafe.Pointer, error) {
	return unix.MmapPtr(fd, off, nil, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
}
