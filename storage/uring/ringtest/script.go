package ringtest

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"ringfence/storage/uring/ring"
)

// Hooks see, change and fail what happens on wrapped rings. Any may be nil.
// They run on the thread of the ring, without a lock of this package, and may
// use the Script. Rings are told apart by n, the number of their Setup call,
// from 1.
type Hooks struct {
	// Setup runs before a ring is made; its error is given instead.
	Setup func(n int, o ring.Options) error
	// Info changes what the ring says of itself.
	Info func(n int, i ring.Info) ring.Info
	// Push sees and may change an entry; false: the queue is full.
	Push func(n int, e *ring.SQE) bool
	// Enter runs before the call; its error is given instead, and the entries
	// stay queued.
	Enter func(n, queued, wait int) error
	// Complete sees the completion of an entry and may change it; true holds
	// it back until ReleaseAll.
	Complete func(n int, e ring.SQE, c *ring.CQE) (hold bool)
	// Buffers and SetBuffer run before the calls; their errors are given
	// instead.
	Buffers   func(n, places int) error
	SetBuffer func(n, place int, mem []byte) error
	// Overflow changes the count.
	Overflow func(n int, count uint32) uint32
}

// Counts are calls on all wrapped rings.
type Counts struct {
	Setups, Open     int // rings asked for; those neither refused nor closed
	Pushed, Enters   int
	Reads, Fixed     int // entries pushed, of those
	Cancels, Wakes   int // wakes are reads of an eventfd
	Completed, Held  int // completions given; held back now
	Buffers, Updates int // tables set up and places changed
}

// Script says how wrapped rings misbehave; the zero Script lets them behave.
// All methods may be called at any time by any goroutine, and take effect at
// the next call on a ring.
type Script struct {
	mu sync.Mutex
	// mu protects the fields below
	hooks   Hooks
	counts  Counts
	enters  []error // for the next Enters
	broken  error   // for all Enters
	results []func(e ring.SQE, res int32) int32
	stalls  []*stall
	freed   int // generations of ReleaseAll
}

// stall holds back completions of reads.
type stall struct{ fd int }

// AnyFD stalls every file.
const AnyFD = -1

// Wrap gives a Setup whose rings are those of setup, under the script.
func Wrap(setup ring.Setup, s *Script) ring.Setup {
	return func(o ring.Options) (ring.Ring, error) {
		s.mu.Lock()
		s.counts.Setups++
		n, hook := s.counts.Setups, s.hooks.Setup
		s.mu.Unlock()
		if hook != nil {
			if err := hook(n, o); err != nil {
				return nil, err
			}
		}
		inner, err := setup(o)
		if err != nil {
			return nil, err
		}
		s.mu.Lock()
		s.counts.Open++
		s.mu.Unlock()
		return &wrapped{n: n, s: s, inner: inner, pending: map[uint64][]entry{}}, nil
	}
}

// Hook replaces all hooks.
func (s *Script) Hook(h Hooks) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hooks = h
}

// Counts gives the counters.
func (s *Script) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

// FailEnters gives errs, one each, to the next Enters that would submit
// something; nil lets one pass.
func (s *Script) FailEnters(errs ...error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enters = append(s.enters, errs...)
}

// BreakEnters gives err to all Enters from now on, or lets them pass if nil.
func (s *Script) BreakEnters(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = err
}

// Results passes the results of reads through f, after those of earlier calls,
// until stop is called. Reads of an eventfd are left alone.
func (s *Script) Results(f func(e ring.SQE, res int32) int32) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := len(s.results)
	s.results = append(s.results, f)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.results = slices.Clone(s.results) // rings may be using the old one
		s.results[i] = nil
	}
}

// FailReads gives the error number to the next n reads instead of what they
// got; n < 0: to all.
func (s *Script) FailReads(n int, errno int32) (stop func()) {
	var mu sync.Mutex // rings have threads of their own
	return s.Results(func(_ ring.SQE, res int32) int32 {
		mu.Lock()
		defer mu.Unlock()
		if n == 0 {
			return res
		}
		n--
		return -errno
	})
}

// Truncate makes reads shorter: size gives 1 to res for a result of res > 1.
// What lies beyond was written to memory all the same, as kernels may.
func (s *Script) Truncate(size func(res int32) int32) (stop func()) {
	return s.Results(func(_ ring.SQE, res int32) int32 {
		if res > 1 {
			return min(max(size(res), 1), res)
		}
		return res
	})
}

// Corrupt flips the first bit of what reads got.
func (s *Script) Corrupt() (stop func()) {
	return s.Results(func(e ring.SQE, res int32) int32 {
		if res > 0 && (e.Opcode == ring.OpRead || e.Opcode == ring.OpReadFixed) {
			memory(e.Addr, 1)[0] ^= 1
		}
		return res
	})
}

// Stall holds back the completions of reads of a file, or of all with AnyFD,
// as if the disk hung. release lets go of what was held, in order. Reads of an
// eventfd, by which threads are woken, go on. Cancelling a read that is held
// gives EALREADY, as where a device hangs.
func (s *Script) Stall(fd int) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := &stall{fd: fd}
	s.stalls = append(s.stalls, st)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.stalls = slices.DeleteFunc(s.stalls, func(other *stall) bool { return other == st })
	}
}

// ReleaseAll lets go of all completions that the Complete hook held back.
func (s *Script) ReleaseAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.freed++
}

func (s *Script) current() Hooks {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hooks
}

func (s *Script) count(f func(c *Counts)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.counts)
}

// enterError is what an Enter is to fail with.
func (s *Script) enterError(queued int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.Enters++
	if s.broken != nil || queued == 0 || len(s.enters) == 0 {
		return s.broken
	}
	err := s.enters[0]
	s.enters = s.enters[1:]
	return err
}

// stalled reports whether a completion of e is to be held back.
func (s *Script) stalled(e entry) bool {
	if !e.read() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.stalls {
		if st.fd == AnyFD || st.fd == int(e.FD) {
			return true
		}
	}
	return false
}

// result passes a result through the functions of Results.
func (s *Script) result(e entry, res int32) int32 {
	if !e.read() {
		return res
	}
	s.mu.Lock()
	results := s.results
	s.mu.Unlock()
	for _, f := range results {
		if f != nil {
			res = f(e.SQE, res)
		}
	}
	return res
}

func (s *Script) generation() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.freed
}

// entry is an SQE that was pushed.
type entry struct {
	ring.SQE
	wake bool // reads an eventfd
}

// read says that it reads data.
func (e entry) read() bool {
	switch e.Opcode {
	case ring.OpRead, ring.OpReadFixed, ring.OpReadv:
		return !e.wake
	}
	return false
}

func newEntry(e ring.SQE) entry {
	return entry{SQE: e, wake: (e.Opcode == ring.OpRead || e.Opcode == ring.OpReadFixed) && e.Len == 8 && isEventFD(int(e.FD))}
}

// simFirstFD is where a Sim's descriptors begin, above all real ones.
const simFirstFD = 1 << 24

func isEventFD(fd int) bool {
	if fd >= simFirstFD {
		return false
	}
	name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	return err == nil && strings.Contains(name, "[eventfd]")
}

// heldPoll is how often a ring that holds completions looks whether it still
// has to: the kernel can't be waited for together with the script.
const heldPoll = time.Millisecond
