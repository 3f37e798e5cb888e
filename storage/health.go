package storage

// State is how well a disk is.
type State uint8

// The states of a disk. Healing, slow and suspect join them with the features
// that tell them apart.
const (
	StateOK      State = iota
	StateFull          // reads and deletes, takes no new shards
	StateFailed        // I/O errors, a failed sync, a dead or corrupt metadata store
	StateOffline       // not there, replaced, closed
)

// String gives the lower-case word that metrics and answers use.
func (s State) String() string {
	switch s {
	case StateOK:
		return "ok"
	case StateFull:
		return "full"
	case StateFailed:
		return "failed"
	case StateOffline:
		return "offline"
	}
	return "unknown"
}

// Health is a snapshot of a disk.
type Health struct {
	State      State
	Reason     string // why, when State is not StateOK; for people
	TotalBytes int64
	FreeBytes  int64
	Reads      ReadCounts
}

// ReadCounts counts file reads by the tier that served them, since the disk
// was opened. A read is one call of the Backend, however many buffers it fills.
type ReadCounts struct {
	Inline     int64 // from the page cache on the caller, without a hand-off
	Pool       int64 // by the bounded pool, blocking
	Direct     int64 // O_DIRECT without a ring
	Ring       int64 // through a ring
	RingDirect int64 // O_DIRECT through a ring
}
