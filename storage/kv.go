package storage

import "context"

// KV is the ordered metadata store of one disk.
//
// After a failed Apply nobody knows whether the batch is on disk. The store is
// dead then: every later call fails with ErrFailed, reads too, since it could
// show a write that was never durable.
type KV interface {
	// Get returns a copy of the value, or ErrNotFound.
	Get(ctx context.Context, key []byte) ([]byte, error)
	// Apply writes the batch atomically and returns when it is durable and the
	// disk is still there. Calls are ordered: an Apply that starts after another
	// returned is never durable without it.
	Apply(ctx context.Context, b *Batch) error
	// Iter walks lo <= key < hi in byte order over the state at this moment. A
	// nil hi means no bound. The iterator is not positioned.
	Iter(ctx context.Context, lo, hi []byte) (Iter, error)
}

// Iter walks a consistent snapshot of a KV. It belongs to one goroutine. Key
// and Value are valid until the next move.
type Iter interface {
	// SeekGE moves to the first key that is at least key and reports whether
	// there is one.
	SeekGE(key []byte) bool
	// Next moves on and reports whether there is a key.
	Next() bool
	// Key is the current key.
	Key() []byte
	// Value reads the current value.
	Value() ([]byte, error)
	// Err is the error that ended the walk, if one did. Check it when SeekGE or
	// Next report false: a walk cut short is not an end.
	Err() error
	// Close releases the snapshot.
	Close() error
}

// BatchOp is one write of a Batch.
type BatchOp struct {
	Kind  OpKind
	Key   []byte
	Value []byte // OpSet: the value; OpDeleteRange: the exclusive end
}

// OpKind says what a BatchOp does.
type OpKind uint8

// The kinds of BatchOp.
const (
	OpSet OpKind = iota + 1
	OpDelete
	OpDeleteRange
)

// Batch is a list of writes that become durable together, in order. The zero
// value is empty. Key and value slices are not copied: leave them alone until
// Apply returns.
type Batch struct{ Ops []BatchOp }

// Set adds a write of value under key.
func (b *Batch) Set(key, value []byte) {
	b.Ops = append(b.Ops, BatchOp{Kind: OpSet, Key: key, Value: value})
}

// Delete adds the removal of key.
func (b *Batch) Delete(key []byte) { b.Ops = append(b.Ops, BatchOp{Kind: OpDelete, Key: key}) }

// DeleteRange adds the removal of lo <= key < hi.
func (b *Batch) DeleteRange(lo, hi []byte) {
	b.Ops = append(b.Ops, BatchOp{Kind: OpDeleteRange, Key: lo, Value: hi})
}
