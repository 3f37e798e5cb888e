package local

import (
	"io/fs"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// fencedFile is an open file behind the fence.
type fencedFile struct {
	vfs.File
	fence *fence
	vital bool // written, and Pebble can't cope with a failure
}

func (f *fencedFile) read(op func() error) error   { return f.fence.read(op) }
func (f *fencedFile) change(op func() error) error { return f.fence.change(f.vital, op) }

// Close implements io.Closer.
func (f *fencedFile) Close() error {
	err := f.fence.closeKept(f.File)
	if err != nil && f.vital {
		f.fence.failed(err)
		return nil
	}
	return err
}

// Read implements io.Reader.
func (f *fencedFile) Read(p []byte) (n int, err error) {
	err = f.read(func() error { n, err = f.File.Read(p); return err })
	return n, err
}

// ReadAt implements io.ReaderAt.
func (f *fencedFile) ReadAt(p []byte, off int64) (n int, err error) {
	err = f.read(func() error { n, err = f.File.ReadAt(p, off); return err })
	return n, err
}

// Write implements io.Writer.
func (f *fencedFile) Write(p []byte) (int, error) {
	return f.written(p, func() (int, error) { return f.File.Write(p) })
}

// WriteAt implements io.WriterAt.
func (f *fencedFile) WriteAt(p []byte, off int64) (int, error) {
	return f.written(p, func() (int, error) { return f.File.WriteAt(p, off) })
}

func (f *fencedFile) written(p []byte, write func() (int, error)) (n int, err error) {
	size := len(p)
	if err := f.change(func() error { n, err = write(); return err }); err != nil {
		return n, err
	}
	return size, nil // also of what the void took
}

// Preallocate implements vfs.File.
func (f *fencedFile) Preallocate(off, length int64) error {
	return f.change(func() error { return f.File.Preallocate(off, length) })
}

// Stat implements vfs.File. Pebble asks for the size of a log that it reuses,
// and takes an error like one of a write.
func (f *fencedFile) Stat() (fi vfs.FileInfo, err error) {
	err = f.read(func() error { fi, err = f.File.Stat(); return err })
	if err != nil && f.vital {
		f.fence.failed(err)
		return voidInfo{}, nil
	}
	return fi, err
}

// Sync implements vfs.File.
func (f *fencedFile) Sync() error { return f.change(f.File.Sync) }

// SyncData implements vfs.File.
func (f *fencedFile) SyncData() error { return f.change(f.File.SyncData) }

// SyncTo implements vfs.File.
func (f *fencedFile) SyncTo(length int64) (full bool, err error) {
	err = f.change(func() error { full, err = f.File.SyncTo(length); return err })
	return full, err
}

// Prefetch implements vfs.File.
func (f *fencedFile) Prefetch(off, length int64) error {
	return f.read(func() error { return f.File.Prefetch(off, length) })
}

// Fd implements vfs.File. Pebble only asks whether there is one, to decide
// whether preallocation works.
func (f *fencedFile) Fd() uintptr { return f.File.Fd() }

// voidFile is a file that was made in the void: it takes everything, and has
// nothing.
type voidFile struct{ name string }

// Close implements io.Closer.
func (voidFile) Close() error { return nil }

// Read implements io.Reader.
func (voidFile) Read([]byte) (int, error) { return 0, errFenced }

// ReadAt implements io.ReaderAt.
func (voidFile) ReadAt([]byte, int64) (int, error) { return 0, errFenced }

// Write implements io.Writer.
func (voidFile) Write(p []byte) (int, error) { return len(p), nil }

// WriteAt implements io.WriterAt.
func (voidFile) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }

// Preallocate implements vfs.File.
func (voidFile) Preallocate(int64, int64) error { return nil }

// Stat implements vfs.File.
func (f voidFile) Stat() (vfs.FileInfo, error) { return voidInfo(f), nil }

// Sync implements vfs.File.
func (voidFile) Sync() error { return nil }

// SyncTo implements vfs.File.
func (voidFile) SyncTo(int64) (bool, error) { return false, nil }

// SyncData implements vfs.File.
func (voidFile) SyncData() error { return nil }

// Prefetch implements vfs.File.
func (voidFile) Prefetch(int64, int64) error { return nil }

// Fd implements vfs.File.
func (voidFile) Fd() uintptr { return vfs.InvalidFd }

// voidInfo says that a file is empty.
type voidInfo struct{ name string }

// Name implements fs.FileInfo.
func (i voidInfo) Name() string { return i.name }

// Size implements fs.FileInfo.
func (voidInfo) Size() int64 { return 0 }

// Mode implements fs.FileInfo.
func (voidInfo) Mode() fs.FileMode { return 0o600 }

// ModTime implements fs.FileInfo.
func (voidInfo) ModTime() time.Time { return time.Time{} }

// IsDir implements fs.FileInfo.
func (voidInfo) IsDir() bool { return false }

// Sys implements fs.FileInfo.
func (voidInfo) Sys() any { return nil }

// DeviceID implements vfs.FileInfo.
func (voidInfo) DeviceID() vfs.DeviceID { return vfs.DeviceID{} }
