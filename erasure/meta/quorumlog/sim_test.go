package quorumlog

import (
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"ringfence/erasure/meta"
	"ringfence/internal/env"
	"ringfence/storage"
	"ringfence/storage/storagetest"
)

// The simulation runs the real engine on simulated disks in one goroutine, hurts
// it, and checks every answer against all states that could explain it.
//
// Replay: go test -run TestSim/holds -seed N -runs 1 -v

// sim is one run.
type sim struct {
	t      testing.TB
	rng    *rand.Rand
	rules  rules
	world  *world
	engine *Engine
	clock  time.Time
	trace  hash.Hash64
	log    *zerolog.Logger // of a replay; nil otherwise

	worlds  worlds
	pending []*commit // of unknown outcome, until the engine serves again
	wrong   error     // what must not have happened

	hurt  []harm // by slot
	liar  int    // slot of the disk whose syncs do nothing; -1: none
	count counts
}

// harm is what was done to a disk and not made good yet.
type harm struct {
	weak   bool // may lack, or have lost, what was acknowledged
	forgot bool // and doesn't know it

	saved   *storagetest.Snapshot // an old image
	savedAt mark
}

type counts struct{ commits, crashes, acked, unknown int }

// simKeys are few, so that commits collide.
var simKeys = []string{"a", "b", "c", "d"}

// newSim is a set of a size that the seed chooses.
func newSim(t testing.TB, seed uint64, r rules) *sim {
	rng := rand.New(rand.NewPCG(seed, 1))
	n := []int{1, 2, 3, 4, 4, 5, 6, 6}[rng.IntN(8)]
	s := newQuietSim(t, n, r)
	s.rng = rng
	return s
}

// newQuietSim is a set of n disks to which nothing happens by chance.
func newQuietSim(t testing.TB, n int, r rules) *sim {
	s := &sim{t: t, rules: r, liar: -1, clock: time.Unix(1e9, 0), trace: fnv.New64a(), worlds: worlds{{}}}
	s.hurt = make([]harm, n)
	s.world = &world{steps: &storagetest.Steps{}}
	for i := range n {
		s.world.bays = append(s.world.bays, &bay{id: s.world.identity(i), sim: storagetest.NewSim(storagetest.SimOptions{
			Name: fmt.Sprint(i), Steps: s.world.steps, Trace: s.note,
			Hook: func(op storagetest.Op) storagetest.Fault { return s.fault(i, op) },
		})})
		s.hurt[i].weak = true // blank
	}
	s.world.openAll(t)
	s.restart()
	return s
}

// note adds a step to the trace.
func (s *sim) note(op storagetest.Op, err error) {
	ok := byte(0)
	if err != nil {
		ok = 1
	}
	_, _ = s.trace.Write([]byte{byte(op.Kind), op.Disk[0], ok, byte(op.N), byte(op.N >> 8)})
}

// fault is the hook of a disk: syncs of the liar do nothing.
func (s *sim) fault(slot int, op storagetest.Op) storagetest.Fault {
	if slot == s.liar && op.Kind == storagetest.OpApply {
		return storagetest.Fault{Kind: storagetest.FaultLie}
	}
	return storagetest.Fault{}
}

func (s *sim) env() env.Env {
	return env.Env{
		Now: func() time.Time {
			s.clock = s.clock.Add(retryPause)
			return s.clock
		},
		Rand:  func(p []byte) { clear(p) },
		Go:    func(f func()) { f() },
		After: func(time.Duration) (<-chan time.Time, func()) { return nil, func() {} },
	}
}

func (s *sim) logger() zerolog.Logger {
	if s.log == nil {
		return zerolog.Nop()
	}
	return *s.log
}

// restart begins a new process on the disks as they are.
func (s *sim) restart() {
	e, err := New(Options{Disks: s.world.disks(), Env: s.env(), Log: s.logger(), LogKeep: 8, LogMax: 32})
	if err != nil {
		s.t.Fatal(err)
	}
	e.rules = s.rules
	e.stepKeys = 2 + len(s.hurt)%2*stepKeys // catch-ups of many steps, or of few
	s.engine = e
}

// run takes steps until something is wrong. It ends with all disks back.
func (s *sim) run(steps int) error {
	for range steps {
		s.step()
		if s.wrong != nil {
			return s.wrong
		}
	}
	s.settle()
	return s.wrong
}

func (s *sim) step() {
	switch p := s.rng.IntN(100); {
	case p < 40:
		s.commit()
	case p < 50:
		s.get()
	case p < 54:
		s.scan()
	case p < 62:
		s.engine.Tend(s.t.Context())
	case p < 82:
		s.crash()
	default:
		s.disturb()
	}
}

func (s *sim) slot() int { return s.rng.IntN(len(s.world.bays)) }

func (s *sim) fail(format string, args ...any) {
	if s.wrong == nil {
		s.wrong = fmt.Errorf(format, args...)
	}
}

// tell adds a line to the log of a replay.
func (s *sim) tell(format string, args ...any) {
	if s.log != nil {
		s.t.Logf(format, args...)
	}
}

// keepWorlds takes over the worlds that an answer left.
func (s *sim) keepWorlds(left worlds, format string, args ...any) {
	s.tell(format, args...)
	forgetful := slices.ContainsFunc(s.hurt, func(h harm) bool { return h.forgot })
	if s.engine.mode == modeReadOnly && forgetful {
		return // too few disks for a quorum, and one of them forgot: out of budget
	}
	if len(left) == 0 {
		s.fail("%s contradicts all of:%v", fmt.Sprintf(format, args...), s.worlds)
	}
	s.worlds = left
	if s.engine.mode == modeServing {
		s.pending = nil
	}
	if len(s.pending) > 0 {
		s.worlds = left.unknown(s.pending) // a read without a quorum decides nothing
	}
}

// commit sends one to four commits that share a group.
func (s *sim) commit() {
	var all []*commit
	for range 1 + s.rng.IntN(2)*s.rng.IntN(4) {
		all = append(all, s.randomCommit())
	}
	s.submit(all)
	for _, c := range all {
		s.tell("commit %v %v: %d %v", c.conds, c.ops, c.rev, c.err)
	}
	var lost []*commit
	for _, c := range all {
		select {
		case <-c.done:
		default:
			s.fail("a commit has no outcome")
			return
		}
		ce, refused := errors.AsType[*meta.CondError](c.err)
		switch {
		case c.err == nil:
			s.count.acked++
			s.keepWorlds(s.worlds.done(c, c.rev), "commit %d of %v", c.rev, c.ops)
		case refused:
			s.keepWorlds(s.worlds.refused(c, ce), "refusal %v of %v", ce, c.conds)
		case errors.Is(c.err, meta.ErrUnknown):
			s.count.unknown++
			lost = append(lost, c)
		case !errors.Is(c.err, meta.ErrUnavailable):
			s.fail("commit: %w", c.err)
		}
	}
	if len(lost) > 0 {
		s.pending = lost
		s.worlds = s.worlds.unknown(lost)
	}
}

// submit queues all before anybody leads, as concurrent callers would.
func (s *sim) submit(all []*commit) {
	e := s.engine
	if err := e.ensure(s.t.Context()); err != nil {
		for _, c := range all {
			c.finish(0, err)
		}
		return
	}
	e.mu.Lock()
	for _, c := range all {
		if err := e.enqueueLocked(c); err != nil {
			c.finish(0, err)
		}
	}
	lead := e.claimLocked()
	e.mu.Unlock()
	if lead {
		e.lead(s.t.Context())
	}
}

func (s *sim) key() []byte { return []byte(simKeys[s.rng.IntN(len(simKeys))]) }

func (s *sim) randomCommit() *commit {
	s.count.commits++
	c := &commit{done: make(chan struct{})}
	for range s.rng.IntN(3) {
		cond := meta.Cond{Key: s.key()}
		switch s.rng.IntN(3) {
		case 0:
			cond.Rev = meta.AnyRev
		case 1:
			cond.Rev = s.worlds[0][string(cond.Key)].rev
		}
		c.conds = append(c.conds, cond)
	}
	for range 1 + s.rng.IntN(3) {
		op := meta.Op{Key: s.key(), Delete: s.rng.IntN(3) == 0}
		if !op.Delete {
			op.Val = fmt.Append(nil, s.count.commits)
		}
		c.ops = append(c.ops, op)
	}
	return c
}

func (s *sim) get() {
	key := s.key()
	item, err := s.engine.Get(s.t.Context(), key)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		s.keepWorlds(s.worlds.sawItem(string(key), false, "", 0), "get %s: nothing", key)
	case err == nil:
		s.keepWorlds(s.worlds.sawItem(string(key), true, string(item.Val), item.Rev), "get %s: %s at %d", key, item.Val, item.Rev)
	case !errors.Is(err, meta.ErrUnavailable):
		s.fail("get: %w", err)
	}
}

// scan reads everything and reports whether that was possible.
func (s *sim) scan() bool {
	all := possible{}
	c, err := s.engine.Scan(s.t.Context(), nil, nil)
	if err == nil {
		for c.Next() {
			item := c.Item()
			all[string(item.Key)] = held{string(item.Val), item.Rev}
		}
		err = errors.Join(c.Err(), c.Close())
	}
	switch {
	case err == nil:
		s.keepWorlds(s.worlds.sawAll(all), "scan: %v", all)
	case !errors.Is(err, meta.ErrUnavailable):
		s.fail("scan: %w", err)
	}
	return err == nil
}

// settle ends all faults and demands that the engine gets well, with all disks
// alike.
func (s *sim) settle() {
	s.liar = -1
	for _, b := range s.world.bays {
		b.sim.Return()
		if err := b.open(); err != nil {
			s.fail("open: %w", err)
			return
		}
	}
	s.untilWell()
	if _, err := s.engine.Scrub(s.t.Context()); err != nil {
		s.fail("scrub: %w", err)
	}
	s.untilWell() // without what the scrub found
	clear(s.hurt)
	lo, hi := []byte{userSpace}, []byte{userSpace + 1}
	for _, b := range s.world.bays {
		if got, want := b.sim.KVDigest(lo, hi), s.world.bays[0].sim.KVDigest(lo, hi); got != want {
			s.fail("disks in sync differ: %x, %x", got, want)
		}
	}
	if s.wrong == nil {
		s.commit()
	}
}

// untilWell tends the engine until all disks are in sync and everything can be
// read.
func (s *sim) untilWell() {
	for rounds := 0; s.wrong == nil && (inSync(s.engine) < len(s.world.bays) || !s.scan()); rounds++ {
		if rounds == 200 {
			s.fail("not well again: %+v", s.engine.Health())
		}
		s.engine.Tend(s.t.Context())
		for _, b := range s.world.bays { // as a watcher of the disks would
			if b.disk.Load().Health().State != storage.StateOK {
				if err := b.open(); err != nil {
					s.fail("open: %w", err)
				}
			}
		}
	}
}
