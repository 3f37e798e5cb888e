package erasure

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"ringfence/storage"
)

// This file is the only place that turns what happened to n disks into what
// happened to an object.

// errSlow is why a disk was left out when it did not fail but kept everyone
// waiting.
var errSlow = errors.New("disk too slow")

// shardError says what happened to one shard of a blob.
type shardError struct {
	Shard uint8 // index in the layout
	Slot  uint8 // of the disk in the set
	Err   error
}

func (e *shardError) Error() string {
	return fmt.Sprintf("shard %d in slot %d: %v", e.Shard, e.Slot, e.Err)
}

func (e *shardError) Unwrap() error { return e.Err }

// quorumError is a sentinel of this package with the disk errors behind it.
type quorumError struct {
	Kind  error // ErrUnavailable, ErrCorrupt, ErrFull or ErrOverload
	Op    string
	Have  int // shards that are fine
	Need  int
	Disks []error
}

func (e *quorumError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %v: %d shards, need %d", e.Op, e.Kind, e.Have, e.Need)
	for _, err := range e.Disks {
		b.WriteString("; ")
		b.WriteString(err.Error())
	}
	return b.String()
}

// Unwrap shows the sentinel and the disk errors.
func (e *quorumError) Unwrap() []error { return append([]error{e.Kind}, e.Disks...) }

// writeFailure judges a write of which have shards are fine and need had to be.
// It is ErrFull when the full disks are what it lacks.
func writeFailure(op string, have, need int, disks []error) error {
	kind := ErrUnavailable
	full := 0
	for _, err := range disks {
		if errors.Is(err, storage.ErrFull) {
			full++
		}
	}
	if full > 0 && have+full >= need {
		kind = ErrFull
	}
	return &quorumError{Kind: kind, Op: op, Have: have, Need: need, Disks: disks}
}

// readFailure judges a stripe of which have blocks verified and need had to.
// lost says how many of its n shards are damaged or gone on disks that answer:
// the bytes are lost when even the return of every disk that is away would not
// bring enough; otherwise they may come back.
func readFailure(op string, have, need, lost, n int, disks []error) error {
	kind := ErrCorrupt
	if n-lost >= need {
		kind = ErrUnavailable
	}
	return &quorumError{Kind: kind, Op: op, Have: have, Need: need, Disks: disks}
}

// isDamage reports whether err says that a shard itself is gone or wrong, while
// its disk answers. A disk with I/O errors may yet give its bytes.
func isDamage(err error) bool {
	return errors.Is(err, storage.ErrCorrupt) || errors.Is(err, storage.ErrNotFound)
}

// contextError gives ctx's error when it ended, and otherwise err.
func contextError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
