// Package meta is the seam between redundancy and agreement: what an object is,
// is whatever the engine's order of commits says.
//
// An Engine is a linearizable, ordered key-value store with conditional
// commits. Package quorumlog builds one from the disks of a set; engines for
// many machines come later behind the same interface and the same conformance
// suite (enginetest). Nothing above this seam compares timestamps to decide
// who wins.
//
// A commit has three outcomes that must never be confused: done, refused
// because a condition did not hold, and unknown. Unknown means that a crash or
// a lost quorum came in between: the commit may show up, or never.
package meta

import (
	"context"
	"errors"
	"fmt"

	"ringfence/storage"
)

// Rev is the place of a commit in the total order of its engine. It is never a
// wall clock. 0 is before all commits.
type Rev uint64

// AnyRev in a Cond means that the key must exist, at whatever revision.
const AnyRev = ^Rev(0)

// Limits that every engine enforces, so that a program that works on one works
// on all.
const (
	MaxKey    = 3 << 10  // bytes of a key: an object key of 1,024 zero bytes escapes to twice its length
	MaxValue  = 64 << 10 // bytes of a value
	MaxOps    = 100      // operations and conditions of a commit
	MaxCommit = 1 << 20  // bytes of all keys and values of a commit
)

// Group is the atomic unit: all keys of a commit belong to one (bucket, key),
// or to the system's own indexes beside it.
type Group struct {
	Bucket storage.UUID
	Key    string
}

// Cond must hold at the commit, or nothing is written.
type Cond struct {
	Key []byte
	// Rev is the revision that the key must have: 0, it must not exist; AnyRev,
	// it must exist.
	Rev Rev
}

// Op sets a key, or deletes it when Delete is true. Deleting what is not there
// is no error.
type Op struct {
	Key    []byte
	Val    []byte
	Delete bool
}

// Item is a key with its value and the revision of the commit that wrote it.
type Item struct {
	Key []byte
	Val []byte
	Rev Rev
}

// Engine decides the order of commits. All methods may be called concurrently.
type Engine interface {
	// Commit checks all conditions and applies all operations at one point of
	// the order, durably, or not at all. Errors: *CondError, ErrUnavailable
	// (nothing was written), ErrUnknown, ErrTooLarge, or ctx's error before
	// the commit was submitted. When ctx ends later the outcome is ErrUnknown.
	Commit(ctx context.Context, g Group, conds []Cond, ops []Op) (Rev, error)
	// Get returns the item under key. It reflects every commit that was
	// acknowledged before the call. storage.ErrNotFound, ErrUnavailable.
	Get(ctx context.Context, key []byte) (Item, error)
	// Scan walks lo <= key < hi in byte order, over one state that reflects
	// every commit acknowledged before the call. A nil hi means no bound.
	Scan(ctx context.Context, lo, hi []byte) (Cursor, error)
	// Health says whether the engine can read and write, and why not.
	Health() Health
	// Close ends the engine; commits in flight return ErrUnknown or finish.
	Close() error
}

// Cursor walks a Scan. It belongs to one goroutine. Item's slices are valid
// until the next move.
type Cursor interface {
	// SeekGE moves to the first key that is at least key.
	SeekGE(key []byte) bool
	// Next moves on; the first call moves to the first key.
	Next() bool
	// Item is the current item.
	Item() Item
	// Err is why the walk ended early, or nil at its true end.
	Err() error
	// Close releases the snapshot.
	Close() error
}

// Health is a snapshot of an engine.
type Health struct {
	Readable bool
	Writable bool
	Reason   string // why not, for people
	Epoch    uint64
	Head     Rev // last acknowledged commit
	Disks    []DiskHealth
}

// DiskHealth says where one disk of the set stands in the log.
type DiskHealth struct {
	Slot    int
	State   string // insync, lagging, blank, divergent, corrupt, offline
	Applied Rev
}

// Outcomes other than done and refused.
var (
	// ErrUnavailable: too few disks; nothing was written.
	ErrUnavailable = errors.New("metadata unavailable")
	// ErrUnknown: the commit may or may not have happened.
	ErrUnknown = errors.New("outcome of the commit is unknown")
	// ErrTooLarge: a limit of this package was exceeded; nothing was written.
	ErrTooLarge = errors.New("commit exceeds a limit")
)

// CondError says which condition did not hold and what was found instead.
type CondError struct {
	Index int // in the commit's conditions
	Found Rev // 0: the key does not exist
}

func (e *CondError) Error() string {
	return fmt.Sprintf("condition %d does not hold: found revision %d", e.Index, e.Found)
}
