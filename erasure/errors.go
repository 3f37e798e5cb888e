package erasure

import "errors"

// What can happen to an object. Callers compare with errors.Is; quorum.go is
// the only place that turns disk errors into one of these.
var (
	ErrNoBucket       = errors.New("no such bucket")
	ErrBucketExists   = errors.New("bucket exists")
	ErrBucketNotEmpty = errors.New("bucket not empty")
	ErrNoObject       = errors.New("no such object")
	ErrNoVersion      = errors.New("no such version")
	ErrNoUpload       = errors.New("no such upload")
	ErrNoPart         = errors.New("no such part") // Complete names a part that was never uploaded
	ErrKeyTooLong     = errors.New("key too long")
	ErrMetaTooLarge   = errors.New("metadata too large")
	ErrBodyTooLong    = errors.New("body longer than announced")
	// ErrUnavailable: too few disks to read or write. Nothing was changed.
	ErrUnavailable = errors.New("too few disks")
	// ErrUnknown: the write may or may not have happened.
	ErrUnknown = errors.New("outcome unknown")
	// ErrOverload: a budget is used up. Try again.
	ErrOverload = errors.New("overloaded")
	// ErrFull: too few disks with space. Reads and deletes work.
	ErrFull = errors.New("disks full")
	// ErrCorrupt: more shards are damaged than parity can make good.
	ErrCorrupt = errors.New("object damaged beyond repair")
)
