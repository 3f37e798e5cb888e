package erasure

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sort"
	"sync"

	"ringfence/erasure/meta"
	"ringfence/storage"
)

// fakeEngine is a meta.Engine in memory that loses nothing. Every commit
// replaces the list of items, so a cursor is a slice.
type fakeEngine struct {
	mu    sync.Mutex
	rev   meta.Rev
	items []meta.Item // by key; never changed in place
	epoch uint64
	// fate, if set, decides what becomes of a commit whose conditions hold.
	fate func(g meta.Group, ops []meta.Op) fate
	// gets counts calls of Get by key, when not nil.
	gets map[string]int
}

type fate struct {
	lost bool // don't apply
	err  error
}

func (e *fakeEngine) find(key []byte) (int, bool) {
	return slices.BinarySearchFunc(e.items, key, func(it meta.Item, k []byte) int { return bytes.Compare(it.Key, k) })
}

func (e *fakeEngine) Commit(ctx context.Context, g meta.Group, conds []meta.Cond, ops []meta.Op) (meta.Rev, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := limits(conds, ops); err != nil {
		return 0, err
	}
	for i, c := range conds {
		found := meta.Rev(0)
		if at, ok := e.find(c.Key); ok {
			found = e.items[at].Rev
		}
		if c.Rev == meta.AnyRev && found == 0 || c.Rev != meta.AnyRev && c.Rev != found {
			return 0, &meta.CondError{Index: i, Found: found}
		}
	}
	var f fate
	if e.fate != nil {
		f = e.fate(g, ops)
	}
	if f.lost {
		return 0, f.err
	}
	e.rev++
	e.items = apply(e.items, ops, e.rev)
	return e.rev, f.err
}

// apply makes a new list of items, in one pass.
func apply(old []meta.Item, ops []meta.Op, rev meta.Rev) []meta.Item {
	last := make(map[string]meta.Op, len(ops))
	for _, op := range ops {
		last[string(op.Key)] = op
	}
	items := make([]meta.Item, 0, len(old)+len(ops))
	for _, it := range old {
		if _, changed := last[string(it.Key)]; !changed {
			items = append(items, it)
		}
	}
	for _, op := range last {
		if op.Delete {
			continue
		}
		item := meta.Item{Key: bytes.Clone(op.Key), Val: bytes.Clone(op.Val), Rev: rev}
		at, _ := slices.BinarySearchFunc(items, item.Key, func(it meta.Item, k []byte) int { return bytes.Compare(it.Key, k) })
		items = slices.Insert(items, at, item)
	}
	return items
}

func limits(conds []meta.Cond, ops []meta.Op) error {
	total := 0
	for _, op := range ops {
		if len(op.Key) > meta.MaxKey || len(op.Val) > meta.MaxValue {
			return meta.ErrTooLarge
		}
		total += len(op.Key) + len(op.Val)
	}
	if total > meta.MaxCommit || len(ops)+len(conds) > meta.MaxOps {
		return meta.ErrTooLarge
	}
	return nil
}

func (e *fakeEngine) Get(ctx context.Context, key []byte) (meta.Item, error) {
	if err := ctx.Err(); err != nil {
		return meta.Item{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.gets != nil {
		e.gets[string(key[:2])]++
	}
	at, ok := e.find(key)
	if !ok {
		return meta.Item{}, storage.ErrNotFound
	}
	it := e.items[at]
	return meta.Item{Key: bytes.Clone(it.Key), Val: bytes.Clone(it.Val), Rev: it.Rev}, nil
}

func (e *fakeEngine) Scan(ctx context.Context, lo, hi []byte) (meta.Cursor, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	from, _ := e.find(lo)
	to := len(e.items)
	if hi != nil {
		to, _ = e.find(hi)
	}
	return &fakeCursor{items: e.items[from:max(from, to)], at: -1}, nil
}

func (e *fakeEngine) Health() meta.Health {
	e.mu.Lock()
	defer e.mu.Unlock()
	return meta.Health{Readable: true, Writable: true, Epoch: e.epoch, Head: e.rev}
}

func (e *fakeEngine) Close() error { return nil }

type fakeCursor struct {
	items  []meta.Item
	at     int
	closed bool
}

func (c *fakeCursor) SeekGE(key []byte) bool {
	c.at = sort.Search(len(c.items), func(i int) bool { return bytes.Compare(c.items[i].Key, key) >= 0 })
	return c.at < len(c.items)
}

func (c *fakeCursor) Next() bool {
	c.at++
	return c.at < len(c.items)
}

func (c *fakeCursor) Item() meta.Item { return c.items[c.at] }
func (c *fakeCursor) Err() error      { return nil }

func (c *fakeCursor) Close() error {
	if c.closed {
		return errors.New("cursor closed twice")
	}
	c.closed = true
	return nil
}

// keys lists what is under a space, for tests that look for leftovers.
func (e *fakeEngine) keys(space string) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var found []string
	for _, it := range e.items {
		if bytes.HasPrefix(it.Key, []byte(space)) {
			found = append(found, string(it.Key))
		}
	}
	return found
}
