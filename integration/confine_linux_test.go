//go:build linux && (amd64 || arm64)

package integration

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// audit is what the kernel calls the system call tables of this architecture.
var audit = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[runtime.GOARCH]

// confine becomes the program line[0], under a filter that allows every system
// call but the three of io_uring. It returns only if that fails.
func confine(mode string, line []string) error {
	action, ok := map[string]uint32{
		confineRefuse: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM),
		confineKill:   unix.SECCOMP_RET_KILL_PROCESS,
	}[mode]
	if !ok {
		return fmt.Errorf("%s: %q", confineVariable, mode)
	}
	program, err := exec.LookPath(line[0])
	if err != nil {
		return err
	}
	if err := os.Unsetenv(confineVariable); err != nil {
		return err
	}
	runtime.LockOSThread() // the filter is this thread's, which is the one that execs
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	const nr, arch = 0, 4 // offsets in struct seccomp_data
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: arch},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 4, K: audit},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: nr},
		{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, Jf: 2, K: unix.SYS_IO_URING_SETUP},
		{Code: unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K, Jt: 1, K: unix.SYS_IO_URING_REGISTER},
		{Code: unix.BPF_RET | unix.BPF_K, K: action},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(filter)
	if errno != 0 {
		return fmt.Errorf("install a filter: %w", errno)
	}
	return syscall.Exec(program, line, os.Environ())
}

// ringsRefused is why this machine makes no rings, nil if it does.
func ringsRefused() error {
	var params [120]byte // struct io_uring_params
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params)), 0)
	if errno != 0 {
		return errno
	}
	return unix.Close(int(fd))
}
