package storagetest

import (
	"context"
	"io/fs"
	"math/rand/v2"
	"slices"
	"sync/atomic"

	"ringfence/storage"
)

// memFile is an open file of a MemBackend.
type memFile struct {
	backend  *MemBackend
	node     *memNode
	name     string
	readOnly bool
	closed   atomic.Bool
}

var _ storage.VectorReader = (*memFile)(nil)

// enter takes the lock; the caller unlocks when the error is nil.
func (f *memFile) enter(ctx context.Context, op string) error {
	err := ctx.Err()
	if err == nil && f.closed.Load() {
		err = fs.ErrClosed
	}
	if err == nil {
		f.backend.mu.Lock()
		if !f.backend.gone {
			return nil
		}
		f.backend.mu.Unlock()
		err = storage.ErrOffline
	}
	return memError(op, f.name, err)
}

// ReadAt implements storage.File.
func (f *memFile) ReadAt(ctx context.Context, b *storage.Buf, off int64) (int, error) {
	return f.ReadVec(ctx, []*storage.Buf{b}, off)
}

// ReadVec implements storage.VectorReader.
func (f *memFile) ReadVec(ctx context.Context, bufs []*storage.Buf, off int64) (int, error) {
	if off < 0 {
		return 0, memError("read", f.name, fs.ErrInvalid)
	}
	if err := f.enter(ctx, "read"); err != nil {
		return 0, err
	}
	defer f.backend.mu.Unlock()
	f.backend.reads.Add(1)
	total := 0
	for _, b := range bufs {
		if at := off + int64(total); at < int64(len(f.node.data)) {
			total += copy(b.Bytes(), f.node.data[at:])
		}
	}
	return total, nil
}

// WriteAt implements storage.File.
func (f *memFile) WriteAt(ctx context.Context, p []byte, off int64) error {
	if err := f.enter(ctx, "write"); err != nil {
		return err
	}
	defer f.backend.mu.Unlock()
	if off < 0 || f.readOnly {
		return memError("write", f.name, fs.ErrInvalid)
	}
	if end := int(off) + len(p); end > len(f.node.data) && len(p) > 0 {
		f.node.data = append(f.node.data, make([]byte, end-len(f.node.data))...)
	}
	copy(f.node.data[min(int(off), len(f.node.data)):], p)
	return nil
}

// Sync implements storage.File.
func (f *memFile) Sync(ctx context.Context) error {
	if err := f.enter(ctx, "sync"); err != nil {
		return err
	}
	defer f.backend.mu.Unlock()
	f.node.synced = slices.Clone(f.node.data)
	return nil
}

// Size implements storage.File.
func (f *memFile) Size() (int64, error) {
	f.backend.mu.Lock()
	defer f.backend.mu.Unlock()
	if f.closed.Load() {
		return 0, memError("size", f.name, fs.ErrClosed)
	}
	return int64(len(f.node.data)), nil
}

// Close implements storage.File.
func (f *memFile) Close() error {
	if f.closed.Swap(true) {
		return memError("close", f.name, fs.ErrClosed)
	}
	return nil
}

// CrashClone is a MemBackend with what a power failure now would leave, chosen
// by rng: everything that was synced, and of the rest any part. An operation on
// names happened or did not; of unsynced data each page is new, old or torn at
// a sector, and the size is either one. m is untouched.
func (m *MemBackend) CrashClone(rng *rand.Rand) *MemBackend {
	m.mu.Lock()
	defer m.mu.Unlock()
	after := map[*memNode]map[string]*memNode{} // folders that rng changed
	view := func(n *memNode) map[string]*memNode {
		if after[n] == nil {
			after[n] = map[string]*memNode{}
			for name, node := range n.safe {
				after[n][name] = node
			}
		}
		return after[n]
	}
	for _, op := range m.log {
		if rng.IntN(2) == 0 {
			op.apply(view)
		}
	}
	return &MemBackend{root: m.root.survive(rng, view, map[*memNode]*memNode{})}
}

// survive copies a node as it is after a crash. Names are taken in order, so
// that one rng gives one result.
func (n *memNode) survive(rng *rand.Rand, view func(*memNode) map[string]*memNode, seen map[*memNode]*memNode) *memNode {
	if c := seen[n]; c != nil {
		return c
	}
	c := &memNode{dir: n.dir}
	seen[n] = c
	if !n.dir {
		c.data = tear(rng, n.data, n.synced)
		c.synced = slices.Clone(c.data)
		return c
	}
	c.entries, c.safe = map[string]*memNode{}, map[string]*memNode{}
	names := view(n)
	sorted := make([]string, 0, len(names))
	for name := range names {
		sorted = append(sorted, name)
	}
	slices.Sort(sorted)
	for _, name := range sorted {
		child := names[name].survive(rng, view, seen)
		c.entries[name], c.safe[name] = child, child
	}
	return c
}

// tear mixes new data with what was synced.
func tear(rng *rand.Rand, data, synced []byte) []byte {
	const page, sector = 4096, 512
	size := len(data)
	if size != len(synced) && rng.IntN(2) == 0 {
		size = len(synced)
	}
	out := make([]byte, size)
	old := make([]byte, size)
	copy(old, synced)
	copy(out, data)
	for at := 0; at < size; at += page {
		end := min(at+page, size)
		if slices.Equal(out[at:end], old[at:end]) {
			continue
		}
		switch rng.IntN(3) {
		case 0:
			copy(out[at:end], old[at:end])
		case 1:
			cut := min(end, at+sector*rng.IntN(1+page/sector))
			copy(out[cut:end], old[cut:end])
		}
	}
	return out
}
