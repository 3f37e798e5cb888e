package quorumlog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"ringfence/erasure/meta"
	"ringfence/internal/env"
	"ringfence/storage"
)

// MaxDisks bounds a set.
const MaxDisks = 16

// Options configures New.
type Options struct {
	// Disks of the set by slot, 1 to MaxDisks of them, none nil. A disk that
	// is missing is still a Disk: one that fails with storage.ErrOffline.
	Disks []storage.Disk
	// Env gives time and goroutines. Default: env.System.
	Env env.Env
	Log zerolog.Logger
	// Fresh says that the disks were just formatted: the log is started when
	// every disk that answers is blank, although not all answer or some hold
	// shards. Without it, it is started when all answer, all are blank, and none
	// holds a shard: metadata that got lost must not look like none.
	Fresh bool
	// LogKeep is how many commits the log keeps for disks that come back, while
	// all disks are in sync. Default 100,000.
	LogKeep uint64
	// LogMax is how many it keeps at most for a disk that is behind; a disk
	// farther behind is copied in full. Default 1,000,000.
	LogMax uint64
	// RecoverWait bounds how long a recovery waits for disks that don't answer.
	// It waits for all, not only for enough of them: more voters, more evidence
	// against a disk that forgot. Default 4 s.
	RecoverWait time.Duration
	// CallWait bounds how long a call waits for a recovery, or for a disk that it
	// reads from. Default 2 s.
	CallWait time.Duration
	// LagTime and LagBytes: a disk whose lane is farther behind leaves the set
	// until it is caught up. A group that needs a disk that hangs is undecided for
	// LagTime. Defaults 3 s and 64 MiB.
	LagTime  time.Duration
	LagBytes int64
	// TendEvery is how often Run looks after disks that are out of the set.
	// Default 500 ms.
	TendEvery time.Duration
	// HedgeAfter is how long a read waits for one disk before it also asks the
	// next. Default 100 ms.
	HedgeAfter time.Duration
}

func (o Options) withDefaults() Options {
	if o.Env.IsZero() {
		o.Env = env.System()
	}
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&o.RecoverWait, 4*time.Second)
	def(&o.CallWait, 2*time.Second)
	def(&o.LagTime, 3*time.Second)
	def(&o.TendEvery, 500*time.Millisecond)
	def(&o.HedgeAfter, 100*time.Millisecond)
	if o.LagBytes <= 0 {
		o.LagBytes = 64 << 20
	}
	if o.LogKeep == 0 {
		o.LogKeep = 100_000
	}
	if o.LogMax == 0 {
		o.LogMax = 1_000_000
	}
	o.LogMax = max(o.LogMax, o.LogKeep)
	return o
}

// rules switches single safety rules off. Only tests of the tests do that: a
// checker that doesn't notice the absence of a rule proves nothing.
type rules struct {
	blankVotes, noEpoch, noPromise, ackEarly, noRepair, noBarrier, readLagging, noWitness bool
}

// mode says what the engine can do.
type mode uint8

const (
	modeDown     mode = iota // nothing is known
	modeReadOnly             // reads, except of undecided keys
	modeServing
	modeClosed
)

// Engine is a meta.Engine over the disks of a set.
type Engine struct {
	opts     Options
	rules    rules
	quorum   int // disks that must have a group
	stepKeys int // bound of a step of catch-up; tests make it small

	// tending is held by whoever changes which disks take part: recovery, or
	// one step of catch-up at a time.
	tending chan struct{}
	kick    chan struct{} // wakes Run

	// Readers go by these three and never take mu.
	view     atomic.Pointer[view]
	head     atomic.Uint64         // last acknowledged commit
	inflight atomic.Pointer[group] // dispatched and undecided

	work sync.WaitGroup // lanes and recoveries that run

	// mu protects all below. Nothing blocks while it is held.
	mu sync.Mutex
	*sequencer
}

// sequencer is the state that mu protects.
type sequencer struct {
	mode     mode
	why      error // why mode is not serving
	last     point // of the last group dispatched or recovered
	trimmed  uint64
	restedAt uint64 // seq of a note with which the log ends well
	witness  []mark // by slot: the highest point that each disk acknowledged
	members  []*member
	queue    []*commit
	queued   int64 // bytes in queue
	leading  bool  // somebody forms a group, or one is undecided
	joins    []*admission
	endTend  context.CancelFunc // of the catch-up that runs, or nil
	recovery *recovery          // running, or nil
	retryAt  time.Time          // no new recovery before
	bell     chan struct{}      // closed when a lane falls idle; nil when nobody waits
}

// member is a disk of the set. Engine.mu protects the last group of fields.
type member struct {
	slot    int
	disk    storage.Disk
	applied atomic.Uint64 // last seq that the disk has durably, while in sync
	slow    atomic.Int32  // reads that outlived HedgeAfter and still run
	probing atomic.Bool   // a look at its cells runs
	bad     atomic.Bool   // has a value that did not verify, and could not be spared
	astray  atomic.Bool   // its log was seen to have left the common one

	copyFrom atomic.Uint64 // turns through the disks to catch up from

	state  memberState
	reason error
	kv     storage.KV // while in sync
	behind mark       // what a disk that is catching up has, for trimming
	lane   lane
}

// memberState is where a disk stands.
type memberState uint8

const (
	stateOffline memberState = iota
	stateBlank
	stateLagging
	stateDivergent // for Health only: lagging, and its log is to be repaired
	stateCorrupt
	stateInSync
)

func (s memberState) String() string {
	return [...]string{"offline", "blank", "lagging", "divergent", "corrupt", "insync"}[s]
}

// view is what readers see of the set: immutable, replaced when it changes.
type view struct {
	mode      mode
	why       error
	members   []*member
	kvs       []storage.KV // of members
	undecided *group       // modeReadOnly: its keys can't be read; may be nil
}

var errClosed = errors.New("engine closed")

// New makes an engine. It touches no disk: the first call does, or Run, which
// must run for lagging and returned disks to be looked after.
func New(opts Options) (*Engine, error) {
	opts = opts.withDefaults()
	n := len(opts.Disks)
	if n < 1 || n > MaxDisks {
		return nil, fmt.Errorf("quorumlog: a set has 1 to %d disks, got %d", MaxDisks, n)
	}
	e := &Engine{
		opts:     opts,
		quorum:   n/2 + 1,
		stepKeys: stepKeys,
		tending:  make(chan struct{}, 1),
		kick:     make(chan struct{}, 1),
		sequencer: &sequencer{
			why:     errors.New("not yet recovered"),
			witness: make([]mark, n),
		},
	}
	for i, d := range opts.Disks {
		if d == nil {
			return nil, fmt.Errorf("quorumlog: disk of slot %d is nil", i)
		}
		e.members = append(e.members, &member{slot: i, disk: d, reason: errors.New("not yet looked at")})
	}
	e.publishLocked(nil)
	return e, nil
}

// publishLocked replaces the view.
func (e *Engine) publishLocked(undecided *group) {
	v := &view{mode: e.mode, why: e.why, undecided: undecided}
	for _, m := range e.members {
		switch {
		case m.state == stateInSync:
			v.members, v.kvs = append(v.members, m), append(v.kvs, m.kv)
		case e.rules.readLagging:
			v.members, v.kvs = append(v.members, m), append(v.kvs, m.disk.KV())
		}
	}
	e.view.Store(v)
}

// inSyncLocked counts the disks that take part.
func (e *Engine) inSyncLocked() int {
	n := 0
	for _, m := range e.members {
		if m.state == stateInSync {
			n++
		}
	}
	return n
}

// stopLocked ends serving: nothing is sequenced until a recovery. Commits that
// wait in the queue were never written anywhere.
func (e *Engine) stopLocked(to mode, why error, undecided *group) {
	e.mode, e.why = to, why
	for _, c := range e.queue {
		c.finish(0, unavailable(why))
	}
	for _, a := range e.joins {
		a.result <- admitted{err: fmt.Errorf("not serving: %w", why)}
	}
	e.queue, e.queued, e.joins = nil, 0, nil
	if e.endTend != nil {
		e.endTend() // a recovery waits for its end
	}
	e.publishLocked(undecided)
}

// expelLocked takes a disk out of the set. What its lane has queued is dropped.
func (e *Engine) expelLocked(m *member, to memberState, why error) {
	if m.state == stateInSync {
		e.opts.Log.Warn().Int("slot", m.slot).Stringer("state", to).Err(why).Msg("disk left the metadata set")
		m.behind = mark{e.last.epoch, m.applied.Load()}
	}
	m.state, m.reason, m.kv = to, why, nil
	m.bad.Store(false)
	e.dropLaneLocked(m, why)
	if serves := e.mode == modeServing || e.mode == modeReadOnly; serves && e.inSyncLocked() == 0 {
		// Nobody is left to catch the others up from: start over with what they have.
		e.stopLocked(modeDown, fmt.Errorf("no disk in sync, the last: %w", why), nil)
	}
	e.publishLocked(e.view.Load().undecided)
	e.wake()
}

// wake makes Run look at once.
func (e *Engine) wake() {
	select {
	case e.kick <- struct{}{}:
	default: // it is already due
	}
}

// Kick makes Run look after disks now, for a caller that knows that one came
// back.
func (e *Engine) Kick() { e.wake() }

// Health is a cheap snapshot.
func (e *Engine) Health() meta.Health {
	e.mu.Lock()
	defer e.mu.Unlock()
	in := e.inSyncLocked()
	h := meta.Health{
		Readable: in > 0 && (e.mode == modeServing || e.mode == modeReadOnly),
		Writable: in >= e.quorum && e.mode == modeServing,
		Epoch:    e.last.epoch,
		Head:     meta.Rev(e.head.Load()),
	}
	switch {
	case e.mode != modeServing:
		h.Reason = e.why.Error()
	case in < e.quorum:
		h.Reason = fmt.Sprintf("%d of %d metadata disks in sync, writing needs %d", in, len(e.members), e.quorum)
	}
	for _, m := range e.members {
		at, state := m.behind.seq, m.state
		switch {
		case state == stateInSync:
			at = m.applied.Load()
		case state == stateLagging && m.astray.Load():
			state = stateDivergent
		}
		h.Disks = append(h.Disks, meta.DiskHealth{Slot: m.slot, State: state.String(), Applied: meta.Rev(at)})
	}
	return h
}

// Close ends the engine: it waits for a group in flight to be decided and for
// the lanes, at most CallWait for disks that hang. The disks stay open.
func (e *Engine) Close() error {
	e.mu.Lock()
	if e.mode == modeClosed {
		e.mu.Unlock()
		return nil
	}
	e.stopLocked(modeClosed, errClosed, nil)
	e.mu.Unlock()
	done := make(chan struct{})
	e.opts.Env.Go(func() {
		e.work.Wait()
		close(done)
	})
	timeout, stop := e.opts.Env.After(e.opts.CallWait)
	defer stop()
	select {
	case <-done:
		return nil
	case <-timeout:
		return fmt.Errorf("close: %w: a disk does not answer", storage.ErrOffline)
	}
}

// await blocks until ok, called under mu, is true, or ctx ends.
func (e *Engine) await(ctx context.Context, ok func() bool) bool {
	for {
		e.mu.Lock()
		if ok() {
			e.mu.Unlock()
			return true
		}
		if e.bell == nil {
			e.bell = make(chan struct{})
		}
		bell := e.bell
		e.mu.Unlock()
		select {
		case <-bell:
		case <-ctx.Done():
			return false
		}
	}
}

// ringLocked wakes everybody in await.
func (e *Engine) ringLocked() {
	if e.bell != nil {
		close(e.bell)
		e.bell = nil
	}
}
