package storagetest

import "syscall"

// plantPipe makes a named pipe.
func plantPipe(path string) error { return syscall.Mkfifo(path, 0o600) }
