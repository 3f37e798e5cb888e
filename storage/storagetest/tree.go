package storagetest

import (
	"bytes"

	"ringfence/storage"
)

// tree is a persistent ordered map: a treap whose nodes are never changed once
// the edit that made them is over. Keeping an old root keeps the old state,
// which is what snapshots, pending batches and crashes are made of. The zero
// tree is empty.
type tree struct{ root *node }

type node struct {
	key, value  []byte
	prio        uint32 // from the key, so that equal contents have equal shapes
	edit        uint32 // the edit that made the node and may still change it
	left, right *node
}

// apply returns the tree after the batch. edit must be greater than that of any
// earlier call, so that nodes visible through older roots stay as they are.
func (t tree) apply(b *storage.Batch, edit uint32) tree {
	size := 0
	for _, op := range b.Ops {
		if op.Kind == storage.OpSet {
			size += len(op.Key) + len(op.Value)
		}
	}
	arena := make([]byte, 0, size) // one allocation for all keys and values
	keep := func(p []byte) []byte {
		at := len(arena)
		arena = append(arena, p...)
		return arena[at:len(arena):len(arena)]
	}
	for _, op := range b.Ops {
		switch op.Kind {
		case storage.OpSet:
			key := keep(op.Key)
			t.root = t.root.set(&node{key: key, value: keep(op.Value), prio: priority(key), edit: edit}, edit)
		case storage.OpDelete:
			t.root = t.root.remove(op.Key, edit)
		case storage.OpDeleteRange:
			if bytes.Compare(op.Key, op.Value) < 0 {
				low, rest := t.root.split(op.Key, edit)
				_, high := rest.split(op.Value, edit)
				t.root = merge(low, high, edit)
			}
		}
	}
	return t
}

func (t tree) get(key []byte) ([]byte, bool) {
	for n := t.root; n != nil; {
		switch c := bytes.Compare(key, n.key); {
		case c < 0:
			n = n.left
		case c > 0:
			n = n.right
		default:
			return n.value, true
		}
	}
	return nil, false
}

// own returns n itself if this edit made it, and a copy otherwise.
func (n *node) own(edit uint32) *node {
	if n.edit == edit {
		return n
	}
	c := *n
	c.edit = edit
	return &c
}

func (n *node) set(x *node, edit uint32) *node {
	if n == nil {
		return x
	}
	c := bytes.Compare(x.key, n.key)
	if c == 0 {
		n = n.own(edit)
		n.value = x.value
		return n
	}
	if x.prio > n.prio {
		// x's priority exceeds all below, so an equal key, which has an equal
		// priority, is not among them.
		x.left, x.right = n.split(x.key, edit)
		return x
	}
	n = n.own(edit)
	if c < 0 {
		n.left = n.left.set(x, edit)
	} else {
		n.right = n.right.set(x, edit)
	}
	return n
}

func (n *node) remove(key []byte, edit uint32) *node {
	if n == nil {
		return nil
	}
	switch c := bytes.Compare(key, n.key); {
	case c == 0:
		return merge(n.left, n.right, edit)
	case c < 0:
		if left := n.left.remove(key, edit); left != n.left {
			n = n.own(edit)
			n.left = left
		}
	default:
		if right := n.right.remove(key, edit); right != n.right {
			n = n.own(edit)
			n.right = right
		}
	}
	return n
}

// split gives the keys below key and those at or above it.
func (n *node) split(key []byte, edit uint32) (low, high *node) {
	if n == nil {
		return nil, nil
	}
	n = n.own(edit)
	if bytes.Compare(n.key, key) < 0 {
		n.right, high = n.right.split(key, edit)
		return n, high
	}
	low, n.left = n.left.split(key, edit)
	return low, n
}

// merge joins two trees; all keys of low are below those of high.
func merge(low, high *node, edit uint32) *node {
	switch {
	case low == nil:
		return high
	case high == nil:
		return low
	case low.prio >= high.prio:
		low = low.own(edit)
		low.right = merge(low.right, high, edit)
		return low
	default:
		high = high.own(edit)
		high.left = merge(low, high.left, edit)
		return high
	}
}

// priority is FNV-1a with a final mix: equal keys must get equal ones.
func priority(key []byte) uint32 {
	h := uint64(14695981039346656037)
	for _, c := range key {
		h = (h ^ uint64(c)) * 1099511628211
	}
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	return uint32(h)
}

// walk is a position in a tree.
type walk struct {
	tree   tree
	lo, hi []byte // hi nil: no bound
	stack  []*node
	placed bool
}

// seek moves to the first key >= key within the bounds.
func (w *walk) seek(key []byte) bool {
	if bytes.Compare(key, w.lo) < 0 {
		key = w.lo
	}
	w.placed = true
	w.stack = w.stack[:0]
	for n := w.tree.root; n != nil; {
		if bytes.Compare(n.key, key) < 0 {
			n = n.right
			continue
		}
		w.stack = append(w.stack, n)
		n = n.left
	}
	return w.bound()
}

func (w *walk) next() bool {
	if !w.placed {
		return w.seek(w.lo)
	}
	if len(w.stack) == 0 {
		return false
	}
	top := w.stack[len(w.stack)-1]
	w.stack = w.stack[:len(w.stack)-1]
	for n := top.right; n != nil; n = n.left {
		w.stack = append(w.stack, n)
	}
	return w.bound()
}

// bound ends the walk at hi.
func (w *walk) bound() bool {
	if len(w.stack) == 0 {
		return false
	}
	if w.hi != nil && bytes.Compare(w.at().key, w.hi) >= 0 {
		w.stack = w.stack[:0]
		return false
	}
	return true
}

func (w *walk) at() *node { return w.stack[len(w.stack)-1] }
