package quorumlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"ringfence/storage"
)

// A catch-up works in steps while the sequencer goes on. Only the last one,
// which is small, is planned between two groups: it is queued on the disk's lane
// and the disk joins in the same moment, so that nothing comes in between and
// nobody waits for the disk to write it.
const (
	sliceSteps   = 64   // steps for one disk before the next gets its turn
	joinDistance = 1024 // commits that the last step may have to bring
	joinAttempts = 4
)

// joinWait bounds how long the sequencer waits for the last step to be planned,
// which reads a disk that may hang.
const joinWait = time.Second

// mostStuck bounds the reads of a disk that hang, before no more are begun for
// the sake of a catch-up.
const mostStuck = 16

// bring steps target to where source stands, while nobody commits.
func (e *Engine) bring(ctx context.Context, source joint, t *target) error {
	for {
		st, err := e.planFrom(ctx, source, t)
		if err == nil {
			err = e.take(ctx, t, st)
		}
		if err != nil || st.done {
			return err
		}
	}
}

// planFrom makes the next step. It reads as long as it takes, but gives up on a
// disk that hangs.
func (e *Engine) planFrom(ctx context.Context, source joint, t *target) (step, error) {
	var st step
	var failure error
	p, of := &pace{}, *t // its own copy: it may be left behind
	err := e.attend(ctx, p, e.opts.CallWait, func() { st, failure = of.planFrom(ctx, p, source, e.rules) }, nil)
	switch {
	case err == nil:
		return st, failure
	case stuckOn(err, source.m):
		return step{}, fmt.Errorf("%w: %w", errSource, err)
	}
	return step{}, err
}

func (t *target) planFrom(ctx context.Context, p *pace, source joint, r rules) (step, error) {
	s, err := openSnapshot(ctx, p, source.m, source.kv)
	if err != nil {
		return step{}, err
	}
	st, err := t.plan(ctx, s, r)
	return st, errors.Join(err, s.close())
}

// take has the target make a step.
func (e *Engine) take(ctx context.Context, t *target, st step) error {
	ctx, end := e.limit(ctx, e.opts.LagTime)
	defer end()
	if err := e.apply(ctx, t.m, t.kv, st.batch); err != nil {
		return err
	}
	t.cell = st.cell
	return nil
}

// tend looks after one disk that is out of the set. It reports whether there is
// more to do for it right away.
func (e *Engine) tend(ctx context.Context, m *member) (more bool, err error) {
	t, err := e.admissible(ctx, m)
	if err != nil {
		return false, err
	}
	joins := 0
	for range sliceSteps {
		if t.cell.phase == phaseClean && t.cell.at.seq+joinDistance >= e.head.Load() && joins < joinAttempts {
			joined, err := e.joinSet(ctx, t)
			if joined || err != nil {
				return false, err
			}
			joins++
		}
		source, err := e.source(m)
		if err != nil {
			return false, err
		}
		if err := e.advance(ctx, source, t); err != nil {
			return false, e.blame(ctx, source, m, err)
		}
	}
	return true, nil
}

// advance makes one step.
func (e *Engine) advance(ctx context.Context, source joint, t *target) error {
	st, err := e.planFrom(ctx, source, t)
	if err != nil {
		return err
	}
	if st.restart && !e.decided(ctx, st.cell.at) {
		return errors.New("the copy would begin with a group that is not decided")
	}
	if err := e.take(ctx, t, st); err != nil {
		return err
	}
	e.mu.Lock()
	t.m.behind = t.cell.at.mark()
	e.mu.Unlock()
	return nil
}

// decided waits until it is known whether the log keeps the point that a disk in
// sync stands at. A copy that begins with a group which is dropped later would
// have its disk vote for a log that no longer exists.
func (e *Engine) decided(ctx context.Context, at point) bool {
	if g := e.inflight.Load(); g != nil {
		ctx, end := e.limit(ctx, e.opts.LagTime)
		defer end()
		select {
		case <-g.done:
		case <-ctx.Done():
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mode == modeServing && e.last.epoch == at.epoch && e.head.Load() >= at.seq
}

// admissible looks at a disk and gets it ready to be caught up.
func (e *Engine) admissible(ctx context.Context, m *member) (*target, error) {
	r := e.lookAt(ctx, m)
	if r.stand == standCorrupt {
		if err := e.reset(ctx, m, r.err); err != nil {
			return nil, err
		}
		r = e.lookAt(ctx, m)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mode != modeServing {
		return nil, e.why
	}
	m.state, m.reason, m.behind = r.stand.state(), r.err, r.cell.at.mark()
	if r.stand == standGone || r.stand == standCorrupt {
		return nil, r.err
	}
	t := &target{m: m, kv: r.kv, cell: r.cell, epoch: e.last.epoch, keys: e.stepKeys}
	if r.stand == standEmpty {
		t.cell = cell{phase: phaseCopying}
	}
	return t, nil
}

// lookAt asks one disk, and remembers against it what it acknowledged.
func (e *Engine) lookAt(ctx context.Context, m *member) report {
	limited, end := e.limit(ctx, e.opts.CallWait)
	defer end()
	r := e.ask(limited, []*member{m})[m.slot]
	e.mu.Lock()
	had := e.witness[m.slot]
	suspected := m.state == stateCorrupt
	e.mu.Unlock()
	switch at := r.cell.at.mark(); {
	case r.stand == standClean && at.compare(had) < 0 && !e.rules.noWitness:
		r.stand, r.err = standCorrupt, forgot(at, had)
	case suspected && (r.stand == standClean || r.stand == standPartial && r.cell.phase == phasePartial):
		r.stand, r.err = standCorrupt, fmt.Errorf("a value did not verify: %w", storage.ErrCorrupt)
	}
	return r
}

// joint is a disk in sync, to copy from.
type joint struct {
	m  *member
	kv storage.KV
}

// blame draws the consequence of a failed step: if it was the source's fault,
// the next attempt is from another disk. If so few disks are in sync that
// nothing can be written anyway, there may be no other: then a recovery finds
// out who has the log, since disks out of the set may have all of it.
//
// A source that hangs stays in the set: whether it is good for writing is for
// its lane to find out.
func (e *Engine) blame(ctx context.Context, source joint, m *member, err error) error {
	if !errors.Is(err, errSource) || ctx.Err() != nil {
		return err
	}
	m.copyFrom.Add(1)
	hangs := stuckOn(err, source.m)
	if !hangs {
		e.suspect(source.m, source.kv, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if hangs && slices.ContainsFunc(e.members, func(o *member) bool { return o.state == stateInSync && o.slow.Load() == 0 }) {
		return err
	}
	if e.mode == modeServing && e.inSyncLocked() < e.quorum {
		e.stopLocked(modeReadOnly, fmt.Errorf("no good disk to catch up from: %w", err), nil)
	}
	return err
}

// source picks a disk that has all that was acknowledged, for m to copy from.
func (e *Engine) source(m *member) (joint, error) {
	v := e.view.Load()
	if v.mode != modeServing {
		return joint{}, errors.New("not serving")
	}
	i := e.pick(v, e.head.Load(), m.copyFrom.Load(), 0)
	if i < 0 || v.members[i].slow.Load() > mostStuck {
		return joint{}, errors.New("no disk to copy from")
	}
	return joint{v.members[i], v.kvs[i]}, nil
}

// admission is a last step that waits for its place between two groups.
type admission struct {
	t      *target
	over   bool          // Engine.mu: nobody waits any longer, so it must not happen
	result chan admitted // told once
}

type admitted struct {
	joined bool
	err    error
}

// joinSet makes the last step between two groups. It reports false when the disk
// is too far behind for that, or the sequencer could not wait.
func (e *Engine) joinSet(ctx context.Context, t *target) (bool, error) {
	a := &admission{t: t, result: make(chan admitted, 1)}
	e.mu.Lock()
	if e.mode != modeServing {
		e.mu.Unlock()
		return false, errors.New("not serving")
	}
	e.joins = append(e.joins, a)
	lead := e.claimLocked()
	e.mu.Unlock()
	if lead {
		e.lead(context.WithoutCancel(ctx))
	}
	ctx, end := e.limit(ctx, e.opts.LagTime+joinWait)
	defer end()
	select {
	case o := <-a.result:
		return o.joined, o.err
	case <-ctx.Done():
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	a.over = true
	e.joins = slices.DeleteFunc(e.joins, func(o *admission) bool { return o == a })
	return false, fmt.Errorf("join between two groups: %w", context.Cause(ctx))
}

// joinBetweenGroups runs with the lead: nothing is in flight. It plans on a copy
// of the target, since what is left behind goes on reading it.
func (e *Engine) joinBetweenGroups(ctx context.Context, a *admission) (bool, error) {
	src, err := e.source(a.t.m)
	if err != nil {
		return false, err
	}
	var st step
	var failure error
	p, of := &pace{}, *a.t
	limited, end := e.limit(ctx, joinWait)
	defer end()
	if e.attend(limited, p, joinWait, func() { st, failure = of.planFrom(ctx, p, src, e.rules) }, nil) != nil {
		// Another source may be faster, and a step beforehand makes this one smaller.
		a.t.m.copyFrom.Add(1)
		return false, nil
	}
	if failure != nil {
		return false, e.blame(ctx, src, a.t.m, failure)
	}
	if !st.done {
		return false, nil
	}
	return e.admit(ctx, a, st)
}

// admit makes the disk a member whose lane begins with the last step.
func (e *Engine) admit(ctx context.Context, a *admission, st step) (bool, error) {
	e.mu.Lock()
	m := a.t.m
	if a.over || e.mode != modeServing || m.lane.running || st.cell.at != e.last {
		e.mu.Unlock()
		return false, nil
	}
	m.state, m.reason, m.kv = stateInSync, nil, a.t.kv
	m.applied.Store(0) // not to be read from before the step is on it
	e.publishLocked(nil)
	start := e.queueLocked(m, &job{kv: m.kv, batch: st.batch, bytes: batchBytes(st.batch), at: st.cell.at})
	e.mu.Unlock()
	if start {
		e.startLane(ctx, m)
	}
	e.opts.Log.Info().Int("slot", m.slot).Uint64("at", st.cell.at.seq).Msg("disk joined the metadata set")
	return true, nil
}
