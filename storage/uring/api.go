package uring

import (
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"ringfence/internal/env"
	"ringfence/storage"
	"ringfence/storage/uring/ring"
)

// Limits of the settings.
const (
	ShardsMax  = 16
	EntriesMin = 1
	EntriesMax = 32768
	ReadMax    = 0x7ffff000 // bytes that the kernel reads at once
)

// Errors of a driver, beside bare unix.Errno values of operations that the
// kernel failed.
var (
	// ErrClosed: the driver, or the shard that had the operation, was shut
	// down. The read may be made by another engine.
	ErrClosed = errors.New("ring driver is closed")
	// ErrSaturated: all permits are out. Only Try calls give it.
	ErrSaturated = errors.New("ring is saturated")
	// ErrInvalid: the arguments can't be read with; nothing was submitted.
	ErrInvalid = errors.New("invalid read")
	// ErrShort: an O_DIRECT read ended inside the file where it must not.
	ErrShort = errors.New("direct read ended early")
)

// Mode is how a driver treats buffer memory.
type Mode uint8

// The modes. All read the same bytes.
const (
	ModeNonFixed Mode = iota // ordinary reads into the caller's buffers
	ModeLegacy               // two registered regions per shard, used in turn, copied from
	ModeDynamic              // the pool's slabs are registered as they are met
	ModeStatic               // the pool's whole budget is mapped and registered at the start
)

var modeNames = [...]string{"non-fixed", "legacy", "dynamic", "static"}

func (m Mode) String() string { return modeNames[m] }

// ParseMode is the reverse of String.
func ParseMode(s string) (Mode, error) {
	for m, name := range modeNames {
		if s == name {
			return Mode(m), nil
		}
	}
	return 0, fmt.Errorf("%q is none of %q", s, modeNames)
}

// Options configures Start. Dir is required.
type Options struct {
	// Dir is the disk's own directory; the probe reads a file that it makes
	// there, without a name where possible, and that is gone afterwards.
	Dir string
	// Shards is the number of rings; 0 is raised to 1.
	Shards int
	// Entries per shard: a power of two, EntriesMin to EntriesMax; 0 means 128.
	// So many reads may be in flight on a shard.
	Entries int
	// Bytes bounds what the reads in flight on one shard may fill; 0 means
	// 64 MiB. A single read beyond it is let through alone.
	Bytes int64
	// Mode of buffer memory.
	Mode Mode
	// Pool is where the buffers come from: for ModeDynamic and ModeStatic, and
	// for reads that need other alignment than their buffers have.
	Pool *storage.Pool
	// Setup makes rings; ring.New if nil.
	Setup ring.Setup
	// ProbeTimeout bounds the probe; 0 means 2 s.
	ProbeTimeout time.Duration
	// DrainTimeout bounds Close; 0 means 5 s.
	DrainTimeout time.Duration
	// Restarts is how often a shard that died is started again; 0 means 3.
	Restarts int
	Log      zerolog.Logger
	Env      env.Env
}

// Request is one read of a contiguous range.
type Request struct {
	File storage.Descriptor
	Bufs []*storage.Buf // filled in turn, each to the length of its Bytes
	Off  int64          // bytes
	// Align is 0 for a descriptor without O_DIRECT; else the alignment that its
	// reads need. The range itself needs none.
	Align int
}

// ProbeError is why Start failed.
type ProbeError struct {
	// Restricted: the environment does not allow io_uring, and will not later
	// (seccomp, sysctl, an old kernel). Otherwise another attempt may succeed.
	Restricted bool
	Err        error
}

func (e *ProbeError) Error() string { return "io_uring: " + e.Err.Error() }

func (e *ProbeError) Unwrap() error { return e.Err }

// ShardStats are counters of one shard since it was first started, restarts
// included. Submitted = Delivered + Orphans + InFlight at every moment.
type ShardStats struct {
	Submitted     int64 // reads that were accepted
	Delivered     int64 // outcomes that a caller took, errors included
	Orphans       int64 // outcomes whose caller had left
	OrphanBytes   int64 // read for nobody
	InFlight      int64
	InFlightBytes int64
	Cancels       CancelStats
	SubmitErrors  int64
	Overflow      int64
	Enters        int64 // system calls that entered the ring
	Wakes         int64 // system calls that woke its thread
	Fixed         int64 // reads into registered memory
	Leaked        int64 // operations that never came to an end, given up
	Restarts      int64
	Dead          bool          // and not started again
	Oldest        time.Duration // age of the oldest operation in flight
}

// CancelStats counts cancellations by what the kernel said to them.
type CancelStats struct {
	Succeeded int64
	NotFound  int64 // the read ended first, or can't be recalled any more
	Already   int64 // it is being executed: rising means that the device hangs
}

// Stats is a snapshot of a Driver.
type Stats struct {
	Shards          []ShardStats
	Setup           string // "defer-taskrun", "coop-taskrun" or "plain"
	Mode            Mode   // in effect: non-fixed if registration was refused
	RegisteredBytes int64
}
