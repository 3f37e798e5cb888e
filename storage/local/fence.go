package local

import (
	"errors"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// errFenced is what a database gets from its file system once it is fenced off.
var errFenced = errors.New("metadata store was fenced off")

// fence stands between one opened database and the file system. A database
// that failed may be impossible to close: one of its goroutines ended while
// others wait for it. Once the fence is shut nothing of it can reach the disk,
// so that its folder can be given to a new one, and its files are closed.
type fence struct {
	vfs.FS
	// manifestSynced is told how much of a MANIFEST is durable.
	manifestSynced func(number, length uint64)

	mu     sync.Mutex // protects the fields below
	idle   *sync.Cond
	ops    int // running
	shut   bool
	opened map[io.Closer]struct{} // files and locks
}

func newFence(fs vfs.FS, manifestSynced func(number, length uint64)) *fence {
	f := &fence{FS: fs, manifestSynced: manifestSynced, opened: make(map[io.Closer]struct{})}
	f.idle = sync.NewCond(&f.mu)
	return f
}

// enter begins an operation; leave ends it.
func (f *fence) enter() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.shut {
		return errFenced
	}
	f.ops++
	return nil
}

func (f *fence) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ops--
	if f.ops == 0 {
		f.idle.Broadcast()
	}
}

func (f *fence) do(op func() error) error {
	if err := f.enter(); err != nil {
		return err
	}
	defer f.leave()
	return op()
}

// close lets nothing more through, waits for what is running, which may hang
// with the hardware, and closes what was left open.
func (f *fence) close() error {
	f.mu.Lock()
	f.shut = true
	for f.ops > 0 {
		f.idle.Wait()
	}
	left := f.opened
	f.opened = nil
	f.mu.Unlock()
	var errs []error
	for c := range left {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// keep registers what was opened.
func (f *fence) keep(c io.Closer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opened[c] = struct{}{}
}

// closeKept closes c unless the fence did.
func (f *fence) closeKept(c io.Closer) error {
	f.mu.Lock()
	_, ours := f.opened[c]
	delete(f.opened, c)
	f.mu.Unlock()
	if !ours {
		return nil
	}
	return c.Close()
}

func (f *fence) file(open func() (vfs.File, error)) (vfs.File, error) {
	if err := f.enter(); err != nil {
		return nil, err
	}
	defer f.leave() // before that, close can't take the list of opened files
	file, err := open()
	if err != nil {
		return nil, err
	}
	f.keep(file)
	return &fencedFile{File: file, fence: f}, nil
}

// Create implements vfs.FS. A marker says which MANIFEST counts, and Pebble makes
// both durable by one sync of the folder. A crash in between may keep either
// entry; so that the marker is never the only one, the folder is synced before
// it is made as well.
func (f *fence) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return f.file(func() (vfs.File, error) {
		if strings.HasPrefix(f.FS.PathBase(name), "marker.") {
			if err := syncFolder(f.FS, f.FS.PathDir(name)); err != nil {
				return nil, err
			}
		}
		file, err := f.FS.Create(name, c)
		if number, ok := manifestNumber(f.FS.PathBase(name)); ok && err == nil {
			file = &manifestFile{File: file, number: number, synced: f.manifestSynced}
		}
		return file, err
	})
}

func syncFolder(fs vfs.FS, name string) error {
	d, err := fs.OpenDir(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Link implements vfs.FS.
func (f *fence) Link(oldname, newname string) error {
	return f.do(func() error { return f.FS.Link(oldname, newname) })
}

// Open implements vfs.FS.
func (f *fence) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	return f.file(func() (vfs.File, error) { return f.FS.Open(name, opts...) })
}

// OpenReadWrite implements vfs.FS.
func (f *fence) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return f.file(func() (vfs.File, error) { return f.FS.OpenReadWrite(name, c, opts...) })
}

// OpenDir implements vfs.FS.
func (f *fence) OpenDir(name string) (vfs.File, error) {
	return f.file(func() (vfs.File, error) { return f.FS.OpenDir(name) })
}

// Remove implements vfs.FS.
func (f *fence) Remove(name string) error {
	return f.do(func() error { return f.FS.Remove(name) })
}

// RemoveAll implements vfs.FS.
func (f *fence) RemoveAll(name string) error {
	return f.do(func() error { return f.FS.RemoveAll(name) })
}

// Rename implements vfs.FS.
func (f *fence) Rename(oldname, newname string) error {
	return f.do(func() error { return f.FS.Rename(oldname, newname) })
}

// ReuseForWrite implements vfs.FS.
func (f *fence) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return f.file(func() (vfs.File, error) { return f.FS.ReuseForWrite(oldname, newname, c) })
}

// MkdirAll implements vfs.FS.
func (f *fence) MkdirAll(dir string, perm os.FileMode) error {
	return f.do(func() error { return f.FS.MkdirAll(dir, perm) })
}

// Lock implements vfs.FS.
func (f *fence) Lock(name string) (io.Closer, error) {
	if err := f.enter(); err != nil {
		return nil, err
	}
	defer f.leave()
	inner, err := f.FS.Lock(name)
	if err != nil {
		return nil, err
	}
	l := &fencedLock{Closer: inner}
	f.keep(l)
	return closerFunc(func() error { return f.closeKept(l) }), nil
}

// Unwrap implements vfs.FS: nobody is to get around the fence.
func (f *fence) Unwrap() vfs.FS { return nil }

// fencedLock makes any lock usable as the key of a map.
type fencedLock struct{ io.Closer }

type closerFunc func() error

// Close implements io.Closer.
func (c closerFunc) Close() error { return c() }

// fencedFile is an open file behind the fence.
type fencedFile struct {
	vfs.File
	fence *fence
}

// Close implements io.Closer.
func (f *fencedFile) Close() error { return f.fence.closeKept(f.File) }

// Read implements io.Reader.
func (f *fencedFile) Read(p []byte) (n int, err error) {
	err = f.fence.do(func() error { n, err = f.File.Read(p); return err })
	return n, err
}

// ReadAt implements io.ReaderAt.
func (f *fencedFile) ReadAt(p []byte, off int64) (n int, err error) {
	err = f.fence.do(func() error { n, err = f.File.ReadAt(p, off); return err })
	return n, err
}

// Write implements io.Writer.
func (f *fencedFile) Write(p []byte) (n int, err error) {
	err = f.fence.do(func() error { n, err = f.File.Write(p); return err })
	return n, err
}

// WriteAt implements io.WriterAt.
func (f *fencedFile) WriteAt(p []byte, off int64) (n int, err error) {
	err = f.fence.do(func() error { n, err = f.File.WriteAt(p, off); return err })
	return n, err
}

// Preallocate implements vfs.File.
func (f *fencedFile) Preallocate(off, length int64) error {
	return f.fence.do(func() error { return f.File.Preallocate(off, length) })
}

// Stat implements vfs.File.
func (f *fencedFile) Stat() (fi vfs.FileInfo, err error) {
	err = f.fence.do(func() error { fi, err = f.File.Stat(); return err })
	return fi, err
}

// Sync implements vfs.File.
func (f *fencedFile) Sync() error { return f.fence.do(f.File.Sync) }

// SyncData implements vfs.File.
func (f *fencedFile) SyncData() error { return f.fence.do(f.File.SyncData) }

// SyncTo implements vfs.File.
func (f *fencedFile) SyncTo(length int64) (full bool, err error) {
	err = f.fence.do(func() error { full, err = f.File.SyncTo(length); return err })
	return full, err
}

// Prefetch implements vfs.File.
func (f *fencedFile) Prefetch(off, length int64) error {
	return f.fence.do(func() error { return f.File.Prefetch(off, length) })
}

// Fd implements vfs.File. Pebble only asks whether there is one, to decide
// whether preallocation works.
func (f *fencedFile) Fd() uintptr { return f.File.Fd() }
