package quorumlog

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"ringfence/erasure/meta"
	"ringfence/storage"
)

// Bounds of a group, and of what may wait to be in the next. A full queue
// refuses further commits at once.
const (
	groupOps     = 2048
	groupBytes   = 4 << 20
	queueCommits = 8192
	queueBytes   = 64 << 20
)

// trimStep is how many commits the log grows beyond its bound before a group
// also trims it.
const trimStep = 1024

// commit is one call of Commit on its way through the sequencer.
type commit struct {
	conds  []meta.Cond
	ops    []meta.Op
	bytes  int64
	note   bool // takes a place in the log although it writes nothing
	queued bool // Engine.mu: still in the queue
	done   chan struct{}
	rev    meta.Rev // valid after done
	err    error
}

func (c *commit) finish(rev meta.Rev, err error) {
	c.rev, c.err = rev, err
	close(c.done)
}

// group is what becomes durable by one batch per disk.
type group struct {
	base    point // where the log ended when the group was formed
	entry   entry
	commits []*commit
	// refused depend on what the group writes: they are refused only if it is
	// done.
	refused []refusal
	pending map[string]uint64 // revision of each touched key after the group; 0: deleted
	batch   *storage.Batch
	bytes   int64

	done chan struct{} // closed when decided

	// Engine.mu protects these until done is closed.
	decided bool
	waiting int // lanes that have not reported
	acks    int
	need    int
	failure error // after done: why the outcome is unknown
}

type refusal struct {
	c   *commit
	err error
}

// touches may be called on nil.
func (g *group) touches(key []byte) bool {
	if g == nil {
		return false
	}
	_, ok := g.pending[string(key)]
	return ok
}

// touchesRange reports whether a key in lo <= key < hi is touched.
func (g *group) touchesRange(lo, hi []byte) bool {
	if g == nil {
		return false
	}
	for k := range g.pending {
		if k >= string(lo) && (hi == nil || k < string(hi)) {
			return true
		}
	}
	return false
}

// Commit is meta.Engine's.
func (e *Engine) Commit(ctx context.Context, _ meta.Group, conds []meta.Cond, ops []meta.Op) (meta.Rev, error) {
	bytes, err := measure(conds, ops)
	if err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	c := &commit{conds: conds, ops: ops, bytes: bytes, done: make(chan struct{})}
	if err := e.submit(ctx, c); err != nil {
		return 0, err
	}
	select {
	case <-c.done:
		return c.rev, c.err
	case <-ctx.Done():
		return e.abandon(ctx, c)
	}
}

// measure enforces the limits of package meta.
func measure(conds []meta.Cond, ops []meta.Op) (int64, error) {
	if len(conds)+len(ops) > meta.MaxOps {
		return 0, fmt.Errorf("%w: %d conditions and operations, at most %d", meta.ErrTooLarge, len(conds)+len(ops), meta.MaxOps)
	}
	bytes := 0
	for _, c := range conds {
		if len(c.Key) > meta.MaxKey {
			return 0, fmt.Errorf("%w: key of %d bytes, at most %d", meta.ErrTooLarge, len(c.Key), meta.MaxKey)
		}
		bytes += len(c.Key)
	}
	for _, op := range ops {
		if len(op.Key) > meta.MaxKey {
			return 0, fmt.Errorf("%w: key of %d bytes, at most %d", meta.ErrTooLarge, len(op.Key), meta.MaxKey)
		}
		if len(op.Val) > meta.MaxValue {
			return 0, fmt.Errorf("%w: value of %d bytes, at most %d", meta.ErrTooLarge, len(op.Val), meta.MaxValue)
		}
		bytes += len(op.Key) + len(op.Val)
	}
	if bytes > meta.MaxCommit {
		return 0, fmt.Errorf("%w: commit of %d bytes, at most %d", meta.ErrTooLarge, bytes, meta.MaxCommit)
	}
	return int64(bytes), nil
}

// submit queues c and leads if nobody does. When the engine is not serving it
// first waits for a recovery.
func (e *Engine) submit(ctx context.Context, c *commit) error {
	for range 3 {
		e.mu.Lock()
		if e.mode == modeServing {
			err := e.enqueueLocked(c)
			lead := e.claimLocked()
			e.mu.Unlock()
			if lead {
				e.lead(context.WithoutCancel(ctx))
			}
			return err
		}
		e.mu.Unlock()
		if err := e.ensure(ctx); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: recovered, but not for long", meta.ErrUnavailable)
}

func (e *Engine) enqueueLocked(c *commit) error {
	if n := e.inSyncLocked(); n < e.needLocked() {
		return fmt.Errorf("%w: %d of %d metadata disks in sync, writing needs %d", meta.ErrUnavailable, n, len(e.members), e.quorum)
	}
	if len(e.queue) >= queueCommits || e.queued+c.bytes > queueBytes {
		return fmt.Errorf("%w: %d commits wait already", meta.ErrUnavailable, len(e.queue))
	}
	c.queued = true
	e.queue = append(e.queue, c)
	e.queued += c.bytes
	return nil
}

func (e *Engine) needLocked() int {
	if e.rules.ackEarly {
		return e.quorum - 1
	}
	return e.quorum
}

// abandon ends a Commit whose caller has gone.
func (e *Engine) abandon(ctx context.Context, c *commit) (meta.Rev, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case <-c.done:
		return c.rev, c.err
	default:
	}
	if c.queued {
		i := slices.Index(e.queue, c)
		e.queue = slices.Delete(e.queue, i, i+1)
		e.queued -= c.bytes
		c.queued = false
		return 0, ctx.Err()
	}
	return 0, fmt.Errorf("%w: %w", meta.ErrUnknown, ctx.Err())
}

// claimLocked takes the lead if there is something to do and nobody has it.
func (e *Engine) claimLocked() bool {
	if e.leading || e.mode != modeServing || len(e.queue) == 0 && len(e.joins) == 0 {
		return false
	}
	e.leading = true
	return true
}

// lead forms groups until one is dispatched or nothing is left to do. Whoever
// calls it has the lead; a dispatched group keeps it until it is decided.
func (e *Engine) lead(ctx context.Context) {
	for {
		e.mu.Lock()
		if e.mode != modeServing || len(e.queue) == 0 && len(e.joins) == 0 {
			e.leading = false
			e.ringLocked()
			e.mu.Unlock()
			return
		}
		if len(e.joins) > 0 {
			a := e.joins[0]
			e.joins = e.joins[1:]
			e.mu.Unlock()
			joined, err := e.joinBetweenGroups(ctx, a)
			a.result <- admitted{joined, err}
			continue
		}
		commits := e.takeCommitsLocked()
		e.mu.Unlock()
		if g := e.form(ctx, commits); g != nil && e.dispatch(ctx, g) {
			return
		}
	}
}

func (e *Engine) takeCommitsLocked() []*commit {
	n, ops, bytes := 0, 0, int64(0)
	for n < len(e.queue) {
		c := e.queue[n]
		if n > 0 && (ops+len(c.ops) > groupOps || bytes+c.bytes > groupBytes) {
			break
		}
		ops, bytes = ops+len(c.ops), bytes+c.bytes
		c.queued = false
		n++
	}
	taken := e.queue[:n:n]
	e.queue = e.queue[n:]
	e.queued -= bytes
	if len(e.queue) == 0 {
		e.queue = nil
	}
	return taken
}

// form judges the conditions of commits in order, each against what those
// before it leave behind, and makes a group of those that hold. The rest is
// told its refusal. It returns nil if nothing is to be written.
func (e *Engine) form(ctx context.Context, commits []*commit) *group {
	found, err := e.condRevs(ctx, commits)
	e.mu.Lock()
	last := e.last
	e.mu.Unlock()
	g := &group{
		pending: make(map[string]uint64, 2*len(commits)),
		batch:   &storage.Batch{},
		done:    make(chan struct{}),
		base:    last,
		entry:   entry{first: last.seq + 1},
	}
	seq, ops := last.seq, []meta.Op(nil)
	for _, c := range commits {
		if err != nil && len(c.conds) > 0 {
			c.finish(0, err)
			continue
		}
		refused, depends := judge(c.conds, found, g.pending)
		switch {
		case refused != nil && depends:
			g.refused = append(g.refused, refusal{c, refused})
		case refused != nil:
			c.finish(0, refused)
		case len(c.ops) == 0 && !c.note && len(g.commits) == 0:
			c.finish(meta.Rev(seq), nil)
		case len(c.ops) == 0 && !c.note:
			c.rev = meta.Rev(seq)
			g.commits = append(g.commits, c)
		default:
			seq++
			c.rev = meta.Rev(seq)
			g.add(c, seq)
			ops = append(ops, c.ops...)
		}
	}
	if seq == last.seq {
		return nil
	}
	g.entry.at = link(last, last.epoch, g.entry.first, seq, ops)
	return g
}

// add puts a commit's writes into the group's batch.
func (g *group) add(c *commit, seq uint64) {
	g.commits = append(g.commits, c)
	for _, op := range c.ops {
		if _, again := g.pending[string(op.Key)]; !again {
			g.entry.keys = append(g.entry.keys, op.Key)
		}
		if op.Delete {
			g.batch.Delete(userKey(op.Key))
			g.pending[string(op.Key)] = 0
			continue
		}
		g.batch.Set(userKey(op.Key), encodeValue(op.Key, seq, op.Val))
		g.pending[string(op.Key)] = seq
	}
}

// judge returns the first condition that does not hold, and whether saying so
// relies on writes that are not decided yet.
func judge(conds []meta.Cond, found map[string]uint64, pending map[string]uint64) (refused error, depends bool) {
	for i, c := range conds {
		rev, undecided := pending[string(c.Key)]
		if !undecided {
			rev = found[string(c.Key)]
		}
		depends = depends || undecided
		if holds := rev == uint64(c.Rev) || c.Rev == meta.AnyRev && rev != 0; !holds {
			return &meta.CondError{Index: i, Found: meta.Rev(rev)}, depends
		}
	}
	return nil, depends
}

// condRevs reads the revisions of all keys that conditions name, at the head:
// whoever has the lead knows that nothing is being written.
func (e *Engine) condRevs(ctx context.Context, commits []*commit) (map[string]uint64, error) {
	var found map[string]uint64
	var keys [][]byte
	for _, c := range commits {
		for _, cond := range c.conds {
			if found == nil {
				found = make(map[string]uint64)
			}
			if _, again := found[string(cond.Key)]; !again {
				found[string(cond.Key)] = 0
				keys = append(keys, cond.Key)
			}
		}
	}
	if len(keys) == 0 {
		return nil, nil
	}
	answers, err := e.fetch(ctx, e.view.Load(), keys)
	if err != nil {
		return nil, err
	}
	for i, a := range answers {
		found[string(keys[i])] = a.rev
	}
	return found, nil
}

// dispatch sends a group to every disk in sync. It reports false, with all
// commits refused, if there are too few.
func (e *Engine) dispatch(ctx context.Context, g *group) bool {
	e.mu.Lock()
	for _, m := range e.members {
		if m.state == stateInSync && m.lane.bytes > e.opts.LagBytes {
			e.expelLocked(m, stateLagging, fmt.Errorf("%d bytes behind", m.lane.bytes))
		}
	}
	// After a recovery in between, the conditions were judged on another state.
	if in := e.inSyncLocked(); e.mode != modeServing || in < e.needLocked() || g.base != e.last {
		err := fmt.Errorf("%w: %d of %d metadata disks in sync, writing needs %d", meta.ErrUnavailable, in, len(e.members), e.quorum)
		e.mu.Unlock()
		g.refuse(err)
		return false
	}
	e.finalizeLocked(g)
	e.last = g.entry.at
	e.inflight.Store(g)
	start := e.fanOutLocked(g)
	e.mu.Unlock()
	for _, m := range start {
		e.startLane(ctx, m)
	}
	return true
}

// finalizeLocked adds to the batch what the log itself needs: the entry, the
// cell, and now and then the removal of old entries.
func (e *Engine) finalizeLocked(g *group) {
	at := g.entry.at
	g.batch.Set(logKey(at.seq), g.entry.encode())
	c := cell{phase: phaseClean, at: at, witness: slices.Clone(e.witness)}
	g.batch.Set(appliedKey(), c.encode())
	if to := e.trimPointLocked(at.seq); to >= e.trimmed+trimStep {
		g.batch.DeleteRange(logKey(0), logKey(to))
		e.trimmed = to
	}
	g.bytes = batchBytes(g.batch)
	g.need = e.needLocked()
}

// trimPointLocked is the first seq that the log should keep.
func (e *Engine) trimPointLocked(end uint64) uint64 {
	keep := end
	for _, m := range e.members {
		if m.state != stateInSync {
			keep = min(keep, m.behind.seq)
		}
	}
	back := func(n uint64) uint64 { return end - min(end, n) }
	return max(min(keep, back(e.opts.LogKeep)), back(e.opts.LogMax))
}

// fanOutLocked queues a group on all lanes at once, so that every disk sees
// groups in one order, and returns those to start.
func (e *Engine) fanOutLocked(g *group) (start []*member) {
	for _, m := range e.members {
		if m.state != stateInSync {
			continue
		}
		g.waiting++
		if e.queueLocked(m, &job{kv: m.kv, batch: g.batch, bytes: g.bytes, at: g.entry.at, group: g}) {
			start = append(start, m)
		}
	}
	return start
}

// countLocked counts a lane's report and decides the group when that is
// possible.
func (e *Engine) countLocked(g *group, err error) {
	if g.decided {
		return
	}
	g.waiting--
	if err == nil {
		g.acks++
	} else {
		g.failure = errors.Join(g.failure, err)
	}
	switch {
	case g.acks >= g.need:
		g.failure = nil
		e.head.Store(g.entry.at.seq)
		e.inflight.Store(nil)
		e.leading = false
		g.decided = true
		g.finish(nil)
	case g.acks+g.waiting < g.need:
		// It may be on some disks: neither done nor undone. Recovery decides.
		e.opts.Log.Error().Uint64("seq", g.entry.at.seq).Int("acks", g.acks).Int("need", g.need).Err(g.failure).Msg("metadata commit missed its quorum")
		g.decided = true
		e.leading = false
		e.stopLocked(modeReadOnly, fmt.Errorf("a commit missed its quorum: %w", g.failure), g)
		e.inflight.Store(nil)
		g.finish(g.failure)
		e.wake()
	}
}

// finish tells everybody in the group its outcome: done, or for the given reason
// unknown. Refusals that depend on an outcome that is not known are withdrawn:
// those commits wrote nothing.
func (g *group) finish(failure error) {
	close(g.done)
	for _, c := range g.commits {
		if failure == nil {
			c.finish(c.rev, nil)
		} else {
			c.finish(0, fmt.Errorf("%w: %w", meta.ErrUnknown, failure))
		}
	}
	for _, r := range g.refused {
		if failure == nil {
			r.c.finish(0, r.err)
		} else {
			r.c.finish(0, unavailable(failure))
		}
	}
}

// refuse ends a group that was never dispatched.
func (g *group) refuse(err error) {
	for _, c := range g.commits {
		c.finish(0, err)
	}
	for _, r := range g.refused {
		r.c.finish(0, err)
	}
}
