package storage

import (
	"context"
	"io/fs"
)

// Backend is the file system under one disk: names and offsets in, system
// calls out. It is what read engines differ in. Names are slash-separated,
// relative to the disk's directory, and can't leave it; symbolic links are not
// followed. Methods may be called concurrently. Errors wrap the sentinels of
// this package.
type Backend interface {
	// Create makes a new file for writing and reading (O_EXCL). sizeHint, in
	// bytes, preallocates when positive; failure to preallocate is ErrFull only
	// if there is no space, and ignored otherwise.
	Create(ctx context.Context, name string, sizeHint int64) (File, error)
	// Open opens a file for reading. ErrNotFound, also for anything that is not
	// a regular file.
	Open(ctx context.Context, name string) (File, error)
	// Rename replaces target atomically; durable after SyncDir of its folder.
	Rename(ctx context.Context, source, target string) error
	// Remove unlinks a file. ErrNotFound.
	Remove(ctx context.Context, name string) error
	// Mkdir makes one folder; an existing one is no error.
	Mkdir(ctx context.Context, name string) error
	// ReadDir lists a folder ("." is the root) in name order.
	ReadDir(ctx context.Context, name string) ([]fs.DirEntry, error)
	// SyncDir makes the entries of a folder durable.
	SyncDir(ctx context.Context, name string) error
	// Stats are the counters and the space of the file system now.
	Stats() BackendStats
	// Check fails with ErrOffline when the root is gone or is another folder
	// than the one that was opened (removed, moved away, unmounted).
	Check() error
	// Close waits for what is running. Open files stay usable until closed.
	Close() error
}

// BackendStats is a snapshot of a Backend.
type BackendStats struct {
	TotalBytes int64
	FreeBytes  int64
	Reads      ReadCounts
}

// File is an open file. Methods may be called concurrently.
type File interface {
	// ReadAt fills b.Bytes() from offset off and returns how many bytes it
	// read: fewer only at the end of the file (no error then). When ctx ends it
	// returns at once with ctx's error; the engine keeps its own reference to b
	// until the kernel is done with the memory.
	ReadAt(ctx context.Context, b *Buf, off int64) (int, error)
	// WriteAt writes p at off, all of it or an error.
	WriteAt(ctx context.Context, p []byte, off int64) error
	// Sync is fdatasync. After an error the file's data is lost: never retry.
	Sync(ctx context.Context) error
	// Size in bytes.
	Size() (int64, error)
	// Close gives the descriptor back.
	Close() error
}

// VectorReader is a File that can fill several buffers from one contiguous
// range in one submission. Found by assertion.
type VectorReader interface {
	// ReadVec fills each buffer's Bytes() in turn from off on. Otherwise as
	// ReadAt.
	ReadVec(ctx context.Context, bufs []*Buf, off int64) (int, error)
}

// ReadFull fills all of bufs from off on, by one vectored read where the file
// can, and returns how many bytes it read: fewer only at the end of the file.
func ReadFull(ctx context.Context, f File, bufs []*Buf, off int64) (int, error) {
	if v, ok := f.(VectorReader); ok && len(bufs) > 1 {
		return v.ReadVec(ctx, bufs, off)
	}
	total := 0
	for _, b := range bufs {
		n, err := f.ReadAt(ctx, b, off+int64(total))
		total += n
		if err != nil || n < len(b.Bytes()) {
			return total, err
		}
	}
	return total, nil
}
