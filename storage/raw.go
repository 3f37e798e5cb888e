package storage

import "context"

// Descriptor is an open file description that several users share: its number
// stays valid, and the file the same, until the last of them is done. A system
// call or a ring operation that was given the number holds a reference for as
// long as it runs, or it may read from a file that was opened later under the
// same number.
type Descriptor interface {
	// FD is the number. It may be used between Acquire and Release.
	FD() int
	// Acquire adds a reference. os.ErrClosed, bare, once the file was closed.
	Acquire() error
	// Release drops a reference; the last one closes, and gives what that said.
	Release() error
}

// RawFile is a File that another read engine may read from by itself. Found by
// assertion.
type RawFile interface {
	File
	VectorReader
	// Descriptor is the one that reads use. It does not open anything.
	Descriptor() Descriptor
	// Direct is a second descriptor of the same file, opened with O_DIRECT at
	// the first call and kept until the file is closed, and the alignment of
	// offset, length and memory that its reads need, in bytes. ErrUnsupported
	// from then on when the file system has no such thing.
	Direct() (Descriptor, int, error)
	// ReadInline is the first part of ReadVec: it reads what the page cache
	// holds and never waits for the hardware. done says that nothing is left to
	// do: the buffers are full, the file ended, or reading failed. Otherwise
	// the rest is to be read from off+n on. A read that is done is counted as
	// inline by the file's Backend, and yields the processor as often as its
	// own do; err is wrapped. Page-cache reclaim is the caller's business. Large
	// reads take turns: one whose ctx ends before its turn did nothing.
	ReadInline(ctx context.Context, bufs []*Buf, off int64) (n int, done bool, err error)
	// Wrap makes an error of a read the one that callers of this file expect:
	// the same error, whichever engine met it.
	Wrap(err error) error
}
