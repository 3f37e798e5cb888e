//go:build linux

package ring_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"ringfence/storage/uring/ring"
)

// A read of a file through a ring of its own, or without one where the
// environment forbids them.
func ExampleNew() {
	text, err := read("example_test.go", 20)
	if err != nil {
		var whole []byte
		whole, err = os.ReadFile("example_test.go")
		text = string(whole[:min(20, len(whole))])
	}
	fmt.Fprintf(os.Stdout, "%q %v\n", text, err)
	// Output: "//go:build linux\n\npa" <nil>
}

func read(name string, n int) (text string, err error) {
	runtime.LockOSThread() // a ring belongs to a thread
	defer runtime.UnlockOSThread()
	r, err := ring.New(ring.Options{Entries: 8})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	file, err := os.Open(name)
	if err != nil {
		return "", err
	}
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return "", errors.Join(err, file.Close())
	}
	r.Push(ring.SQE{
		Opcode: ring.OpRead, FD: int32(file.Fd()), UserData: 1,
		Addr: uint64(uintptr(unsafe.Pointer(&mem[0]))), Len: uint32(n),
	})
	for {
		c, ok := r.Next()
		if !ok {
			if err := r.Enter(1, time.Second); err != nil && err != unix.EINTR {
				return "", err // the memory and the file are the kernel's for ever
			}
			continue
		}
		// Here they are ours again, and not before.
		text = string(mem[:max(c.Res, 0)])
		return text, errors.Join(unix.Munmap(mem), file.Close())
	}
}
