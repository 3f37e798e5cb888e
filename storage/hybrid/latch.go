package hybrid

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// The kinds of latches. Each keeps one disk off one tier.
const (
	// LatchProbe: no driver could be started.
	LatchProbe = "probe"
	// LatchActive: a read said that io_uring is no longer allowed.
	LatchActive = "active"
	// LatchDirect: O_DIRECT through rings does not work.
	LatchDirect = "direct"
	// LatchShadow: a ring delivered other bytes than the reference.
	LatchShadow = "shadow"
	// LatchHung: the disk does not answer.
	LatchHung = "hung"
)

var latchKinds = []string{LatchProbe, LatchActive, LatchDirect, LatchShadow, LatchHung}

// latchTexts are what the log says of them.
var latchTexts = map[string]string{
	LatchProbe:  "rings can't be used; reads go on without",
	LatchActive: "rings may not be used any more; reads go on without",
	LatchDirect: "rings don't read with O_DIRECT here; large reads go another way",
	LatchShadow: "rings are not to be trusted; reads go on without until they are switched off and on",
	LatchHung:   "the disk does not answer; its reads fail at once until it does",
}

// Latch is the state of one latch.
type Latch struct {
	Kind   string
	On     bool
	Trips  int64     // how often it went on
	Since  time.Time // of the latest, if On
	Reason string    // of the latest, if On
}

// latches are those of one disk. Reads look at none of them: what a latch says
// is also in what they do look at.
type latches struct {
	mu    sync.Mutex
	state [5]Latch // by the order of latchKinds; protected by mu

	rings atomic.Bool // one of those that keep all reads off the rings is on
}

// noteLocked keeps what reads ask for where they need no lock.
func (l *latches) noteLocked() {
	l.rings.Store(l.ofLocked(LatchProbe).On || l.ofLocked(LatchActive).On || l.ofLocked(LatchShadow).On)
}

// trip switches a latch on, and reports whether it was off: whoever did so
// says it to the log, once.
func (l *latches) trip(kind, reason string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.ofLocked(kind)
	if s.On {
		return false
	}
	s.On, s.Since, s.Reason = true, now, reason
	s.Trips++
	l.noteLocked()
	return true
}

// reset switches latches off, and reports whether one of them was on.
func (l *latches) reset(kinds ...string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := false
	for _, kind := range kinds {
		s := l.ofLocked(kind)
		was = was || s.On
		s.On, s.Since, s.Reason = false, time.Time{}, ""
	}
	l.noteLocked()
	return was
}

// on returns the first of the kinds that is on.
func (l *latches) on(kinds ...string) (Latch, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, kind := range kinds {
		if s := *l.ofLocked(kind); s.On {
			s.Kind = kind
			return s, true
		}
	}
	return Latch{}, false
}

func (l *latches) all() []Latch {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]Latch, len(latchKinds))
	for i, kind := range latchKinds {
		all[i] = l.state[i]
		all[i].Kind = kind
	}
	return all
}

func (l *latches) ofLocked(kind string) *Latch { return &l.state[slices.Index(latchKinds, kind)] }
