package local_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"ringfence/storage"
)

// vfsBackend is a Backend over any file system that Pebble can use, so that a
// crash of the one is a crash of both.
type vfsBackend struct {
	fs   vfs.FS
	root string
	fail func(op, name string) error // injects errors; may be nil

	mu    sync.Mutex // protects the fields below, and makes Create exclusive
	opens int        // calls of Open
	reads int        // calls of ReadAt and ReadVec
	total int64      // reported space
	free  int64
	gone  bool
}

func newVFSBackend(fs vfs.FS, root string) *vfsBackend { return &vfsBackend{fs: fs, root: root} }

func (b *vfsBackend) inject(op, name string) error {
	if b.fail == nil {
		return nil
	}
	return b.fail(op, name)
}

func (b *vfsBackend) path(name string) string {
	if name == "." {
		return b.root
	}
	return b.fs.PathJoin(b.root, name)
}

func (b *vfsBackend) Create(_ context.Context, name string, _ int64) (storage.File, error) {
	if err := b.inject("create", name); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, err := b.fs.Stat(b.path(name)); err == nil {
		return nil, fmt.Errorf("create %s: %w", name, storage.ErrExists)
	}
	f, err := b.fs.OpenReadWrite(b.path(name), "test")
	if err != nil {
		return nil, err
	}
	return &vfsFile{b: b, name: name, f: f}, nil
}

func (b *vfsBackend) Open(_ context.Context, name string) (storage.File, error) {
	if err := b.inject("open", name); err != nil {
		return nil, err
	}
	b.mu.Lock()
	b.opens++
	b.mu.Unlock()
	f, err := b.fs.Open(b.path(name))
	if err != nil {
		return nil, err
	}
	return &vfsFile{b: b, name: name, f: f}, nil
}

func (b *vfsBackend) Rename(_ context.Context, source, target string) error {
	return cmp.Or(b.inject("rename", source), b.fs.Rename(b.path(source), b.path(target)))
}

func (b *vfsBackend) Remove(_ context.Context, name string) error {
	return cmp.Or(b.inject("remove", name), b.fs.Remove(b.path(name)))
}

func (b *vfsBackend) Mkdir(_ context.Context, name string) error {
	return cmp.Or(b.inject("mkdir", name), b.fs.MkdirAll(b.path(name), 0o755))
}

func (b *vfsBackend) ReadDir(_ context.Context, name string) ([]fs.DirEntry, error) {
	names, err := b.fs.List(b.path(name))
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var entries []fs.DirEntry
	for _, n := range names {
		fi, err := b.fs.Stat(b.fs.PathJoin(b.path(name), n))
		if err != nil {
			return nil, err
		}
		entries = append(entries, fs.FileInfoToDirEntry(named{fi, n}))
	}
	return entries, nil
}

// named gives a MemFS's nameless infos their name.
type named struct {
	fs.FileInfo
	name string
}

func (n named) Name() string { return n.name }

func (b *vfsBackend) SyncDir(_ context.Context, name string) error {
	if err := b.inject("syncdir", name); err != nil {
		return err
	}
	d, err := b.fs.OpenDir(b.path(name))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (b *vfsBackend) Stats() storage.BackendStats {
	b.mu.Lock()
	defer b.mu.Unlock()
	return storage.BackendStats{TotalBytes: b.total, FreeBytes: b.free}
}

func (b *vfsBackend) setSpace(total, free int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.total, b.free = total, free
}

func (b *vfsBackend) Check() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone {
		return storage.ErrOffline
	}
	return b.inject("check", ".")
}

func (b *vfsBackend) Close() error { return nil }

func (b *vfsBackend) counts() (opens, reads int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.opens, b.reads
}

type vfsFile struct {
	b    *vfsBackend
	name string
	f    vfs.File
}

func (f *vfsFile) ReadAt(ctx context.Context, buf *storage.Buf, off int64) (int, error) {
	return f.ReadVec(ctx, []*storage.Buf{buf}, off)
}

// ReadVec counts as one read, however many buffers it fills.
func (f *vfsFile) ReadVec(_ context.Context, bufs []*storage.Buf, off int64) (int, error) {
	if err := f.b.inject("read", f.name); err != nil {
		return 0, err
	}
	f.b.mu.Lock()
	f.b.reads++
	f.b.mu.Unlock()
	total := 0
	for _, b := range bufs {
		n, err := f.f.ReadAt(b.Bytes(), off+int64(total))
		total += n
		if errors.Is(err, io.EOF) {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

func (f *vfsFile) WriteAt(_ context.Context, p []byte, off int64) error {
	if err := f.b.inject("write", f.name); err != nil {
		return err
	}
	_, err := f.f.WriteAt(p, off)
	return err
}

func (f *vfsFile) Sync(context.Context) error {
	return cmp.Or(f.b.inject("sync", f.name), f.f.SyncData())
}

func (f *vfsFile) Size() (int64, error) {
	fi, err := f.f.Stat()
	if err != nil {
		return 0, err
	}
	return fi.Size(), nil
}

func (f *vfsFile) Close() error { return f.f.Close() }

// failOnce fails the first matching operation with err.
func failOnce(op string, err error) func(string, string) error {
	var once sync.Once
	return func(o, _ string) (out error) {
		if o == op {
			once.Do(func() { out = fmt.Errorf("%s: %w", op, err) })
		}
		return out
	}
}

var errIO = syscall.EIO

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
