package storagetest

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// plantPipe makes a named pipe.
func plantPipe(path string) error { return syscall.Mkfifo(path, 0o600) }

// evict drops a file from the page cache, as far as the kernel takes advice.
func evict(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	fd := int(f.Fd())
	// Only what is on the disk can go.
	return errors.Join(f.Sync(), unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED), f.Close())
}
