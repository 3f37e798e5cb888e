package storagetest

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"ringfence/storage"
)

// MemBackend is a Backend in memory that knows what was synced. CrashClone
// gives what a power failure would leave.
type MemBackend struct {
	reads atomic.Int64

	mu     sync.Mutex // protects the fields below and all nodes
	root   *memNode
	log    []entryOp // changes of folders that no SyncDir made durable, in order
	closed bool
	gone   bool
}

var _ storage.Backend = (*MemBackend)(nil)

// memNode is a file or a folder, as it is and as it was when last synced.
type memNode struct {
	dir           bool
	data, synced  []byte
	entries, safe map[string]*memNode
}

// entryOp is a change of folders: name in folder becomes node, or is removed if
// node is nil; a rename does it in two folders at once.
type entryOp struct {
	folder, from *memNode // from: of a rename, else nil
	name, source string
	node         *memNode
}

func newFolder() *memNode {
	return &memNode{dir: true, entries: map[string]*memNode{}, safe: map[string]*memNode{}}
}

// NewMemBackend makes an empty one.
func NewMemBackend() *MemBackend { return &MemBackend{root: newFolder()} }

// Vanish makes Check and every later call fail with ErrOffline.
func (m *MemBackend) Vanish() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gone = true
}

func memError(op, name string, err error) error {
	return &storage.DiskError{Op: op, Disk: "memory", Err: fmt.Errorf("%s: %w", name, err)}
}

// enter takes the lock and finds the folder of each name; the caller unlocks
// when the error is nil.
func (m *MemBackend) enter(ctx context.Context, op string, names ...string) ([]*memNode, error) {
	if err := ctx.Err(); err != nil {
		return nil, memError(op, names[0], err)
	}
	m.mu.Lock()
	if m.closed || m.gone {
		m.mu.Unlock()
		return nil, memError(op, names[0], storage.ErrOffline)
	}
	var folders []*memNode
	for _, name := range names {
		err := fs.ErrInvalid
		if fs.ValidPath(name) && !strings.Contains(name, "\x00") {
			err = storage.ErrNotFound
			if folder := m.root.find(path.Dir(name)); folder != nil && folder.dir {
				folders = append(folders, folder)
				continue
			}
		}
		m.mu.Unlock()
		return nil, memError(op, name, err)
	}
	return folders, nil
}

// find walks to a name, or gives nil.
func (n *memNode) find(name string) *memNode {
	if name == "." {
		return n
	}
	for step := range strings.SplitSeq(name, "/") {
		if n == nil || !n.dir {
			return nil
		}
		n = n.entries[step]
	}
	return n
}

// change applies an operation to the folders as they are, and logs it.
func (m *MemBackend) change(op entryOp) {
	op.apply(func(n *memNode) map[string]*memNode { return n.entries })
	m.log = append(m.log, op)
}

func (op entryOp) apply(view func(*memNode) map[string]*memNode) {
	if op.from != nil {
		if view(op.from)[op.source] != op.node {
			return // it never got there
		}
		delete(view(op.from), op.source)
	}
	if op.node == nil {
		delete(view(op.folder), op.name)
	} else {
		view(op.folder)[op.name] = op.node
	}
}

// Create implements storage.Backend.
func (m *MemBackend) Create(ctx context.Context, name string, _ int64) (storage.File, error) {
	folders, err := m.enter(ctx, "create", name)
	if err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	base := path.Base(name)
	if folders[0].entries[base] != nil || name == "." {
		return nil, memError("create", name, storage.ErrExists)
	}
	node := &memNode{}
	m.change(entryOp{folder: folders[0], name: base, node: node})
	return &memFile{backend: m, node: node, name: name}, nil
}

// Open implements storage.Backend.
func (m *MemBackend) Open(ctx context.Context, name string) (storage.File, error) {
	if _, err := m.enter(ctx, "open", name); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	node := m.root.find(name)
	if node == nil || node.dir {
		return nil, memError("open", name, storage.ErrNotFound)
	}
	return &memFile{backend: m, node: node, name: name, readOnly: true}, nil
}

// Rename implements storage.Backend.
func (m *MemBackend) Rename(ctx context.Context, source, target string) error {
	folders, err := m.enter(ctx, "rename", source, target)
	if err != nil {
		return err
	}
	defer m.mu.Unlock()
	node := folders[0].entries[path.Base(source)]
	if node == nil {
		return memError("rename", source, storage.ErrNotFound)
	}
	if old := folders[1].entries[path.Base(target)]; old == node {
		return nil
	} else if old != nil && (old.dir || node.dir) {
		return memError("rename", target, storage.ErrExists)
	}
	m.change(entryOp{folder: folders[1], name: path.Base(target), from: folders[0], source: path.Base(source), node: node})
	return nil
}

// Remove implements storage.Backend.
func (m *MemBackend) Remove(ctx context.Context, name string) error {
	folders, err := m.enter(ctx, "remove", name)
	if err != nil {
		return err
	}
	defer m.mu.Unlock()
	node := folders[0].entries[path.Base(name)]
	if node == nil || node.dir {
		return memError("remove", name, storage.ErrNotFound)
	}
	m.change(entryOp{folder: folders[0], name: path.Base(name)})
	return nil
}

// Mkdir implements storage.Backend.
func (m *MemBackend) Mkdir(ctx context.Context, name string) error {
	folders, err := m.enter(ctx, "make folder", name)
	if err != nil {
		return err
	}
	defer m.mu.Unlock()
	if name == "." {
		return nil
	}
	switch node := folders[0].entries[path.Base(name)]; {
	case node == nil:
		m.change(entryOp{folder: folders[0], name: path.Base(name), node: newFolder()})
	case !node.dir:
		return memError("make folder", name, storage.ErrExists)
	}
	return nil
}

// ReadDir implements storage.Backend.
func (m *MemBackend) ReadDir(ctx context.Context, name string) ([]fs.DirEntry, error) {
	if _, err := m.enter(ctx, "read folder", name); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	node := m.root.find(name)
	if node == nil || !node.dir {
		return nil, memError("read folder", name, storage.ErrNotFound)
	}
	var entries []fs.DirEntry
	for _, base := range slices.Sorted(maps.Keys(node.entries)) {
		n := node.entries[base]
		entries = append(entries, fs.FileInfoToDirEntry(memInfo{name: base, dir: n.dir, size: int64(len(n.data))}))
	}
	return entries, nil
}

// SyncDir implements storage.Backend.
func (m *MemBackend) SyncDir(ctx context.Context, name string) error {
	if _, err := m.enter(ctx, "sync folder", name); err != nil {
		return err
	}
	defer m.mu.Unlock()
	node := m.root.find(name)
	if node == nil || !node.dir {
		return memError("sync folder", name, storage.ErrNotFound)
	}
	m.log = slices.DeleteFunc(m.log, func(op entryOp) bool {
		if op.folder != node && op.from != node {
			return false
		}
		op.apply(func(n *memNode) map[string]*memNode { return n.safe })
		return true
	})
	return nil
}

// Stats implements storage.Backend.
func (m *MemBackend) Stats() storage.BackendStats {
	const size = 1 << 40
	return storage.BackendStats{TotalBytes: size, FreeBytes: size, Reads: storage.ReadCounts{Pool: m.reads.Load()}}
}

// Check implements storage.Backend.
func (m *MemBackend) Check() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || m.gone {
		return memError("check", ".", storage.ErrOffline)
	}
	return nil
}

// Close implements storage.Backend.
func (m *MemBackend) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	return nil
}

// memInfo is a fs.FileInfo without times.
type memInfo struct {
	name string
	dir  bool
	size int64
}

func (i memInfo) Name() string       { return i.name }
func (i memInfo) Size() int64        { return i.size }
func (i memInfo) IsDir() bool        { return i.dir }
func (i memInfo) Sys() any           { return nil }
func (i memInfo) ModTime() time.Time { return time.Time{} }

func (i memInfo) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o700
	}
	return 0o600
}
