package ringtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"ringfence/storage/uring/ring"
)

// SimOptions configures NewSim.
type SimOptions struct {
	// Seed decides everything that is left to chance.
	Seed uint64
	// Manual: nothing completes but by Step. Otherwise an Enter completes some
	// of what can be, in any order; as much as it waits for if it waits.
	Manual bool
	// Idle is called instead of waiting, without a lock, by an Enter that has
	// not what it waits for; it returns then. A test that runs in one goroutine
	// needs it, and may Step in it.
	Idle func()
	// Features and Flags are what rings say of themselves; what the driver
	// needs, and DEFER_TASKRUN, if 0.
	Features, Flags uint32
}

// Faults are chances, from 0 to 1, of what the kernel may do to an operation.
// Reads of an eventfd are left alone.
type Faults struct {
	Short     float64 // a read gives a part of what it could
	Ragged    float64 // a short direct read ends anywhere, not only at a block
	Transient float64 // a read gives EINTR or EAGAIN
	Fail      float64 // a read gives Errno
	Errno     unix.Errno
	Hang      float64 // a read does not complete before Unhang
	Late      float64 // a cancel gives ENOENT, and the read goes on
	Busy      float64 // a cancel gives EALREADY, and the read goes on
	Enter     float64 // an Enter gives EINTR, EBUSY or EAGAIN and takes nothing
	Partial   float64 // an Enter takes only some of the entries
	// Scribble fills what a failed or short read did not give with ScribbleByte:
	// kernels may write there.
	Scribble bool
}

// ScribbleByte is what Scribble writes.
const ScribbleByte = 0x5c

// Sim is a kernel of its own with files in memory, for one or more rings. Real
// descriptors work too: what is read from them is read when the operation
// completes, eventfds and pipes once they have something. All methods may be
// called by any goroutine. It watches how its rings are used; Err says what was
// wrong.
type Sim struct {
	opts SimOptions

	mu sync.Mutex
	// mu protects the fields below, all rings and all files
	rng    *rand.Rand
	faults Faults
	files  map[int]*SimFile
	nextFD int
	rings  []*simRing
	hangs  []*stall
	wrong  []error
	counts SimCounts
}

// SimCounts is what a Sim did.
type SimCounts struct {
	Setups, Enters, Submitted, Completed int
	Short, Transient, Failed, Hung       int // reads
	Cancelled, NotFound, Already         int // cancels, by outcome
}

// wrongMax bounds what is kept of what was wrong.
const wrongMax = 20

// NewSim makes one without faults.
func NewSim(o SimOptions) *Sim {
	if o.Features == 0 {
		o.Features = ring.FeatSingleMmap | ring.FeatNoDrop | ring.FeatExtArg
	}
	if o.Flags == 0 {
		o.Flags = ring.SetupCQSize | ring.SetupSingleIssuer | ring.SetupDeferTaskrun | ring.SetupSubmitAll
	}
	return &Sim{opts: o, rng: rand.New(rand.NewPCG(o.Seed, 0x51)), files: map[int]*SimFile{}, nextFD: simFirstFD}
}

// Setup is a ring.Setup.
func (s *Sim) Setup(o ring.Options) (ring.Ring, error) {
	if o.Entries < ring.EntriesMin || o.Entries > ring.EntriesMax || o.Entries&(o.Entries-1) != 0 {
		return nil, ring.ErrEntries
	}
	kick, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.Setups++
	r := &simRing{s: s, kick: kick, info: ring.Info{
		FD: kick, SQEntries: o.Entries, CQEntries: 2 * o.Entries, Features: s.opts.Features, Setup: s.opts.Flags,
	}}
	s.rings = append(s.rings, r)
	return r, nil
}

// SetFaults replaces the faults; operations that hang already go on hanging.
func (s *Sim) SetFaults(f Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.Errno == 0 {
		f.Errno = unix.EIO
	}
	s.faults = f
}

// Unhang ends what Faults.Hang began.
func (s *Sim) Unhang() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.rings {
		for _, op := range r.pending {
			op.hung = false
		}
	}
	s.kickLocked()
}

// Hang lets reads of a file, or of all with AnyFD, not complete before release.
// Cancelling them gives EALREADY. Reads of an eventfd go on.
func (s *Sim) Hang(fd int) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := &stall{fd: fd}
	s.hangs = append(s.hangs, h)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.hangs = slices.DeleteFunc(s.hangs, func(other *stall) bool { return other == h })
		s.kickLocked()
	}
}

// Step completes one operation of any ring, and reports whether there was one
// that could be.
func (s *Sim) Step() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ready []*simOp
	for _, r := range s.rings {
		ready = append(ready, r.readyLocked()...)
	}
	if len(ready) == 0 {
		return false
	}
	op := ready[s.rng.IntN(len(ready))]
	op.ring.completeLocked(op)
	s.kickLocked()
	return true
}

// InFlight is the number of operations that the rings have taken and not
// completed; their wakes are among them.
func (s *Sim) InFlight() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, r := range s.rings {
		n += len(r.pending)
	}
	return n
}

// Counts gives the counters.
func (s *Sim) Counts() SimCounts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

// Err is what was wrong with how the rings were used: memory given to two
// operations at once, files closed under an operation, two operations of one
// name, an operation cancelled twice, a ring closed while it had work.
func (s *Sim) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.wrong...)
}

func (s *Sim) wrongLocked(format string, args ...any) {
	if len(s.wrong) < wrongMax {
		s.wrong = append(s.wrong, fmt.Errorf(format, args...))
	}
}

// kickLocked makes waiting Enters look again.
func (s *Sim) kickLocked() {
	if s.opts.Idle != nil {
		return // nobody waits
	}
	one := [8]byte{1}
	for _, r := range s.rings {
		// It fails when the counter is full: then it is awake anyway.
		_, _ = unix.Write(r.kick, one[:])
	}
}

// chance draws.
func (s *Sim) chance(p float64) bool { return p > 0 && s.rng.Float64() < p }

func (s *Sim) hangsLocked(e entry) bool {
	if !e.read() {
		return false
	}
	for _, h := range s.hangs {
		if h.fd == AnyFD || h.fd == int(e.FD) {
			return true
		}
	}
	return false
}
