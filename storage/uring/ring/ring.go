package ring

import (
	"errors"
	"fmt"
	"time"
)

// SQE is a submission queue entry (linux/io_uring.h: struct io_uring_sqe).
type SQE struct {
	Opcode   uint8
	Flags    uint8
	IOPrio   uint16
	FD       int32
	Off      uint64
	Addr     uint64
	Len      uint32
	OpFlags  uint32
	UserData uint64
	BufIndex uint16
	Persona  uint16
	FileIdx  uint32
	Addr3    uint64
	_        uint64
}

// CQE is a completion queue entry (struct io_uring_cqe).
type CQE struct {
	UserData uint64
	Res      int32
	Flags    uint32
}

// Ring is one io_uring. All methods belong to the thread that made it, which
// must live as long as any of its operations: the kernel cancels what a thread
// submitted when it exits.
type Ring interface {
	// Info says what the kernel granted.
	Info() Info
	// Push puts an entry into the submission queue, for the next Enter. It
	// reports false when the queue is full.
	Push(e SQE) bool
	// Queued is the number of entries that the kernel has not taken yet. After
	// a failed Enter they are still there, and still owned.
	Queued() int
	// Enter hands the queued entries to the kernel and runs completions; with
	// wait > 0 it returns when so many are there, taken by Next or not, or
	// after timeout; a negative timeout never ends. The error is a bare
	// unix.Errno, or nil: a timeout is none. It may return early.
	Enter(wait int, timeout time.Duration) error
	// Next takes one completion. It makes no system call.
	Next() (CQE, bool)
	// Overflow counts completions that found no room: those that the kernel
	// lost, and the Enters that left some waiting for room, which is no loss.
	Overflow() uint32
	// Buffers sets up a table of n empty places for registered memory, instead
	// of any former one; 0 takes the table away.
	Buffers(n int) error
	// SetBuffer puts memory into a place of the table, or nil to empty it.
	// Operations under way keep what they began with.
	SetBuffer(place int, mem []byte) error
	// Close gives the ring back. Nothing may be in flight, except for what waits
	// and so can be taken down, if its memory is never used again. A second call
	// does nothing.
	Close() error
}

// Numbers of entries that a ring may have, powers of two all.
const (
	EntriesMin = 1
	EntriesMax = 32768
)

// ErrEntries refuses a number of entries before the kernel is asked: its EINVAL
// would pass for a kernel without io_uring.
var ErrEntries = errors.New("ring entries must be a power of two from 1 to 32768")

// Info describes a Ring.
type Info struct {
	FD        int
	SQEntries int
	CQEntries int
	Features  uint32
	Setup     uint32 // flags that it was set up with
}

// Options configures a Setup.
type Options struct {
	// Entries of the submission queue, a power of two from 1 to 32768. The
	// completion queue has twice as many.
	Entries int
	// Workers caps the kernel's threads for operations that block; less than 1
	// means 16.
	Workers int
}

const workersDefault = 16

func (o Options) withDefaults() (Options, error) {
	if o.Entries < EntriesMin || o.Entries > EntriesMax || o.Entries&(o.Entries-1) != 0 {
		return o, fmt.Errorf("%w: %d", ErrEntries, o.Entries)
	}
	if o.Workers < 1 {
		o.Workers = workersDefault
	}
	return o, nil
}

// Setup makes a ring on the calling thread. New does it in the kernel; tests
// put others in its place. Errors are bare unix.Errno values where the kernel
// refused.
type Setup func(o Options) (Ring, error)
