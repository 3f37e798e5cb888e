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

// fence stands between one opened database and the file system. It does what
// Pebble relies on its caller for, and can't be told otherwise.
//
// Once it is shut, nothing of the database can reach the disk, so that its
// folder can be given to a new one, and its files are closed: a database that
// failed may be impossible to close, when one of its goroutines ended while
// others wait for it.
//
// And Pebble never hears of a failed write, unless it is one of those it can
// cope with, of a table. All others make it panic or end a goroutine: those of
// logs while a mutex is unlocked that a deferred call unlocks again, which ends
// the process whatever recovers; those of folder syncs in goroutines of its own.
// So the fence reports a failed write to its owner, who ends the store, and
// turns into a void: from then on writes and removals do nothing and succeed.
// Pebble goes on to where it can be closed. Nothing is acknowledged meanwhile,
// because the store ended before the void began.
type fence struct {
	vfs.FS
	hooks fenceHooks

	mu     sync.Mutex // protects the fields below
	idle   *sync.Cond
	ops    int // running
	shut   bool
	void   bool                   // always when shut
	opened map[io.Closer]struct{} // files and locks
}

// fenceHooks are how a fence talks to its owner. Both may be called by any
// goroutine of Pebble.
type fenceHooks struct {
	// manifestSynced is told how much of a MANIFEST is durable.
	manifestSynced func(number, length uint64)
	// writeFailed is told of a failed write that Pebble can't cope with. When
	// it returns, no write may be acknowledged any more.
	writeFailed func(err error)
}

func newFence(fs vfs.FS, hooks fenceHooks) *fence {
	f := &fence{FS: fs, hooks: hooks, opened: make(map[io.Closer]struct{})}
	f.idle = sync.NewCond(&f.mu)
	return f
}

// read runs an operation that changes nothing.
func (f *fence) read(op func() error) error {
	f.mu.Lock()
	if f.shut {
		f.mu.Unlock()
		return errFenced
	}
	f.ops++
	f.mu.Unlock()
	defer f.leave()
	return op()
}

// change runs an operation that changes something, or none in the void. The
// failure of a vital one is reported to the owner, and is success for Pebble.
func (f *fence) change(vital bool, op func() error) error {
	f.mu.Lock()
	if f.void {
		f.mu.Unlock()
		return nil
	}
	f.ops++
	f.mu.Unlock()
	err := func() error {
		defer f.leave()
		return op()
	}()
	if err == nil || !vital {
		return err
	}
	f.failed(err)
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

// failed ends the store and begins the void, in that order.
func (f *fence) failed(err error) {
	f.hooks.writeFailed(err)
	f.begin()
}

// begin begins the void. The store must have ended.
func (f *fence) begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.void = true
}

// close lets nothing more through, waits for what is running, which may hang
// with the hardware, and closes what was left open.
func (f *fence) close() error {
	f.mu.Lock()
	f.shut, f.void = true, true
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

// keep registers what was opened, during the operation that did.
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

// copes reports whether Pebble copes with failed writes of a file: it writes
// tables and blobs anew, under another name, and doesn't know the witness.
func (f *fence) copes(name string) bool {
	return strings.HasSuffix(name, ".sst") || strings.HasSuffix(name, ".blob") || f.FS.PathBase(name) == nameWitness
}

// opening opens a file to read it.
func (f *fence) opening(open func() (vfs.File, error)) (vfs.File, error) {
	var file vfs.File
	if err := f.read(func() (err error) { file, err = f.kept(open); return err }); err != nil {
		return nil, err
	}
	return &fencedFile{File: file, fence: f}, nil
}

// creating opens a file to write it. In the void it is one of the void.
func (f *fence) creating(name string, open func() (vfs.File, error)) (vfs.File, error) {
	vital := !f.copes(name)
	var file vfs.File
	if err := f.change(vital, func() (err error) { file, err = f.kept(open); return err }); err != nil {
		return nil, err
	}
	if file == nil {
		file = voidFile{name: f.FS.PathBase(name)}
	}
	return &fencedFile{File: file, fence: f, vital: vital}, nil
}

func (f *fence) kept(open func() (vfs.File, error)) (vfs.File, error) {
	file, err := open()
	if err != nil {
		return nil, err
	}
	f.keep(file)
	return file, nil
}

// Create implements vfs.FS. A marker says which MANIFEST counts, and Pebble makes
// both durable by one sync of the folder. A crash in between may keep either
// entry; so that the marker is never the only one, the folder is synced before
// it is made as well.
func (f *fence) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return f.creating(name, func() (vfs.File, error) {
		if strings.HasPrefix(f.FS.PathBase(name), "marker.") {
			if err := syncFolder(f.FS, f.FS.PathDir(name)); err != nil {
				return nil, err
			}
		}
		file, err := f.FS.Create(name, c)
		if number, ok := manifestNumber(f.FS.PathBase(name)); ok && err == nil {
			file = &manifestFile{File: file, number: number, synced: f.hooks.manifestSynced}
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
	return f.change(true, func() error { return f.FS.Link(oldname, newname) })
}

// Open implements vfs.FS.
func (f *fence) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	return f.opening(func() (vfs.File, error) { return f.FS.Open(name, opts...) })
}

// OpenReadWrite implements vfs.FS.
func (f *fence) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return f.creating(name, func() (vfs.File, error) { return f.FS.OpenReadWrite(name, c, opts...) })
}

// OpenDir implements vfs.FS. The folder is to be synced.
func (f *fence) OpenDir(name string) (vfs.File, error) {
	return f.creating(name, func() (vfs.File, error) { return f.FS.OpenDir(name) })
}

// List implements vfs.FS. Pebble lists its folder in the middle of opening,
// when its goroutines work already and it must not fail any more.
func (f *fence) List(dir string) (names []string, err error) {
	err = f.change(true, func() (err error) { names, err = f.FS.List(dir); return err })
	return names, err
}

// Remove implements vfs.FS. Pebble copes with what it can't remove.
func (f *fence) Remove(name string) error {
	return f.change(false, func() error { return f.FS.Remove(name) })
}

// RemoveAll implements vfs.FS.
func (f *fence) RemoveAll(name string) error {
	return f.change(false, func() error { return f.FS.RemoveAll(name) })
}

// Rename implements vfs.FS.
func (f *fence) Rename(oldname, newname string) error {
	return f.change(true, func() error { return f.FS.Rename(oldname, newname) })
}

// ReuseForWrite implements vfs.FS.
func (f *fence) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return f.creating(newname, func() (vfs.File, error) { return f.FS.ReuseForWrite(oldname, newname, c) })
}

// MkdirAll implements vfs.FS.
func (f *fence) MkdirAll(dir string, perm os.FileMode) error {
	return f.change(true, func() error { return f.FS.MkdirAll(dir, perm) })
}

// Lock implements vfs.FS. It is the first thing that Pebble does.
func (f *fence) Lock(name string) (io.Closer, error) {
	l := &fencedLock{}
	err := f.read(func() (err error) {
		if l.Closer, err = f.FS.Lock(name); err == nil {
			f.keep(l)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return closerFunc(func() error { return f.closeKept(l) }), nil
}

// Unwrap implements vfs.FS: nobody is to get around the fence.
func (f *fence) Unwrap() vfs.FS { return nil }

// fencedLock makes any lock usable as the key of a map.
type fencedLock struct{ io.Closer }

type closerFunc func() error

// Close implements io.Closer.
func (c closerFunc) Close() error { return c() }
