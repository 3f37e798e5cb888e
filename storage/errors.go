package storage

import (
	"errors"
	"fmt"
)

// What can happen to one disk. Implementations wrap these in a *DiskError;
// callers compare with errors.Is.
var (
	// ErrNotFound: the shard, file or key does not exist.
	ErrNotFound = errors.New("not found")
	// ErrExists: a write-once name was created twice.
	ErrExists = errors.New("already exists")
	// ErrCorrupt: what is there is not what was written: a checksum, a length
	// or a structure does not fit.
	ErrCorrupt = errors.New("corrupt")
	// ErrFull: no space, quota or inodes. The disk still reads and deletes.
	ErrFull = errors.New("disk full")
	// ErrOffline: the disk is not there, is no longer the one that was opened,
	// or was closed. Nothing is known about the fate of writes in flight.
	ErrOffline = errors.New("disk offline")
	// ErrFailed: an I/O error, a failed sync, or a dead key-value store. A
	// failed sync is never retried: the kernel may have dropped the pages.
	ErrFailed = errors.New("disk failed")
	// ErrNoBuffer: the buffer budget is used up.
	ErrNoBuffer = errors.New("buffer budget exhausted")
	// ErrUnsupported: the kernel or the file system has no such thing. Another
	// way to the same bytes must be taken; it says nothing about the disk.
	ErrUnsupported = errors.New("not supported")
)

// DiskError says which operation on which disk failed. Err is, or wraps, one
// of the sentinels above, and the cause.
type DiskError struct {
	Op   string // "create shard", "kv apply", ...
	Disk string // the disk's name for people: its path, or a simulated name
	Err  error
}

func (e *DiskError) Error() string { return fmt.Sprintf("%s: disk %s: %v", e.Op, e.Disk, e.Err) }

func (e *DiskError) Unwrap() error { return e.Err }
