package local_test

import (
	"io"
	"os"
	"path"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// hookFS calls a hook before each operation on what is below meta/, closing of
// files included, and fails it with what the hook returns.
type hookFS struct {
	vfs.FS
	hook func(op, name string) error
}

func (h *hookFS) do(op, name string) error {
	if !strings.Contains(name+"/", "/meta/") {
		return nil
	}
	if err := h.hook(op, path.Base(name)); err != nil {
		return &os.PathError{Op: op, Path: name, Err: err}
	}
	return nil
}

func (h *hookFS) file(op, name string, open func() (vfs.File, error)) (vfs.File, error) {
	if err := h.do(op, name); err != nil {
		return nil, err
	}
	f, err := open()
	if err != nil {
		return nil, err
	}
	return &hookFile{f, h, name}, nil
}

func (h *hookFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return h.file("create", name, func() (vfs.File, error) { return h.FS.Create(name, c) })
}

func (h *hookFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return h.file("reuse", newname, func() (vfs.File, error) { return h.FS.ReuseForWrite(oldname, newname, c) })
}

func (h *hookFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return h.file("open to write", name, func() (vfs.File, error) { return h.FS.OpenReadWrite(name, c, opts...) })
}

func (h *hookFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	return h.file("open", name, func() (vfs.File, error) { return h.FS.Open(name, opts...) })
}

func (h *hookFS) OpenDir(name string) (vfs.File, error) {
	return h.file("open folder", name, func() (vfs.File, error) { return h.FS.OpenDir(name) })
}

func (h *hookFS) List(name string) ([]string, error) {
	if err := h.do("list", name); err != nil {
		return nil, err
	}
	return h.FS.List(name)
}

func (h *hookFS) Stat(name string) (vfs.FileInfo, error) {
	if err := h.do("stat", name); err != nil {
		return nil, err
	}
	return h.FS.Stat(name)
}

func (h *hookFS) Remove(name string) error {
	if err := h.do("remove", name); err != nil {
		return err
	}
	return h.FS.Remove(name)
}

func (h *hookFS) Rename(oldname, newname string) error {
	if err := h.do("rename", newname); err != nil {
		return err
	}
	return h.FS.Rename(oldname, newname)
}

func (h *hookFS) MkdirAll(name string, perm os.FileMode) error {
	if err := h.do("mkdir", name); err != nil {
		return err
	}
	return h.FS.MkdirAll(name, perm)
}

func (h *hookFS) Lock(name string) (io.Closer, error) {
	if err := h.do("lock", name); err != nil {
		return nil, err
	}
	return h.FS.Lock(name)
}

type hookFile struct {
	vfs.File
	h    *hookFS
	name string
}

func (f *hookFile) Write(p []byte) (int, error) {
	if err := f.h.do("write", f.name); err != nil {
		return 0, err
	}
	return f.File.Write(p)
}

func (f *hookFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.h.do("write", f.name); err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}

func (f *hookFile) Read(p []byte) (int, error) {
	if err := f.h.do("read", f.name); err != nil {
		return 0, err
	}
	return f.File.Read(p)
}

func (f *hookFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.h.do("read", f.name); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, off)
}

func (f *hookFile) Stat() (vfs.FileInfo, error) {
	if err := f.h.do("stat file", f.name); err != nil {
		return nil, err
	}
	return f.File.Stat()
}

func (f *hookFile) Sync() error {
	if err := f.h.do("sync", f.name); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *hookFile) SyncData() error {
	if err := f.h.do("sync", f.name); err != nil {
		return err
	}
	return f.File.SyncData()
}

func (f *hookFile) SyncTo(length int64) (bool, error) {
	if err := f.h.do("sync", f.name); err != nil {
		return false, err
	}
	return f.File.SyncTo(length)
}

// Close closes the file also when it fails, as the kernel does.
func (f *hookFile) Close() error {
	err := f.h.do("close", f.name)
	if cerr := f.File.Close(); err == nil {
		err = cerr
	}
	return err
}
