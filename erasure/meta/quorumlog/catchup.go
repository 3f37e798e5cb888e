package quorumlog

import (
	"context"
	"errors"
	"fmt"
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

// bring steps target to where source stands, while nobody commits.
func (e *Engine) bring(ctx context.Context, source storage.KV, t *target) error {
	for {
		done, err := e.advance(ctx, source, t)
		if err != nil || done {
			return err
		}
	}
}

// advance makes one step and reports whether it was the last for now.
func (e *Engine) advance(ctx context.Context, source storage.KV, t *target) (done bool, err error) {
	s, err := openSnapshot(ctx, source)
	if err != nil {
		return false, err
	}
	st, err := t.plan(ctx, s, e.rules)
	if err := errors.Join(err, s.close()); err != nil {
		return false, err
	}
	timeout, stop := e.opts.Env.After(e.opts.LagTime)
	defer stop()
	if err := e.apply(ctx, t.m, t.kv, st.batch, timeout); err != nil {
		return false, err
	}
	t.cell = st.cell
	return st.done, nil
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
		source, head, err := e.source(m)
		if err != nil {
			return false, err
		}
		if t.cell.phase == phaseClean && t.cell.at.seq+joinDistance >= head && joins < joinAttempts {
			joined, err := e.joinSet(ctx, t)
			if joined || err != nil {
				return false, err
			}
			joins++
		}
		_, err = e.advance(ctx, source.kv, t)
		if err != nil {
			return false, e.blame(source, m, err)
		}
		e.mu.Lock()
		m.behind = t.cell.at.mark()
		e.mu.Unlock()
	}
	return true, nil
}

// admissible looks at a disk and gets it ready to be caught up.
func (e *Engine) admissible(ctx context.Context, m *member) (*target, error) {
	r := e.lookAt(ctx, m)
	if r.stand == standCorrupt {
		timeout, stop := e.opts.Env.After(e.opts.RecoverWait)
		defer stop()
		if err := e.reset(ctx, m, r.err, timeout); err != nil {
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
	timeout, stop := e.opts.Env.After(e.opts.CallWait)
	defer stop()
	r := e.ask(ctx, []*member{m}, timeout)[m.slot]
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
func (e *Engine) blame(source joint, m *member, err error) error {
	if !errors.Is(err, errSource) {
		return err
	}
	m.copyFrom++
	e.suspect(source.m, source.kv, err)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mode == modeServing && e.inSyncLocked() < e.quorum {
		e.stopLocked(modeReadOnly, fmt.Errorf("no good disk to catch up from: %w", err), nil)
	}
	return err
}

// source picks a disk that has all that was acknowledged, for m to copy from.
func (e *Engine) source(m *member) (joint, uint64, error) {
	v, head := e.view.Load(), e.head.Load()
	if v.mode != modeServing {
		return joint{}, 0, errors.New("not serving")
	}
	i := e.pick(v, head, m.copyFrom, 0)
	if i < 0 {
		return joint{}, 0, errors.New("no disk to copy from")
	}
	return joint{v.members[i], v.kvs[i]}, head, nil
}

// joinSet makes the last step between two groups. It reports false when the disk
// is too far behind for that, or the sequencer could not wait.
func (e *Engine) joinSet(ctx context.Context, t *target) (bool, error) {
	type outcome struct {
		joined bool
		err    error
	}
	result := make(chan outcome, 1)
	e.mu.Lock()
	if e.mode != modeServing {
		e.mu.Unlock()
		return false, errors.New("not serving")
	}
	e.tasks = append(e.tasks, func(ctx context.Context) {
		joined, err := e.joinBetweenGroups(ctx, t)
		result <- outcome{joined, err}
	})
	lead := e.claimLocked()
	e.mu.Unlock()
	if lead {
		e.lead(context.WithoutCancel(ctx))
	}
	// The task is dropped when the engine stops serving.
	timeout, stop := e.opts.Env.After(e.opts.LagTime + joinWait)
	defer stop()
	select {
	case o := <-result:
		return o.joined, o.err
	case <-timeout:
		return false, errors.New("the sequencer stopped")
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// joinBetweenGroups runs with the lead: nothing is in flight.
func (e *Engine) joinBetweenGroups(ctx context.Context, t *target) (bool, error) {
	src, _, err := e.source(t.m)
	if err != nil {
		return false, err
	}
	type planned struct {
		st  step
		err error
	}
	result := make(chan planned, 1)
	e.opts.Env.Go(func() {
		s, err := openSnapshot(ctx, src.kv)
		if err != nil {
			result <- planned{err: err}
			return
		}
		st, err := t.plan(ctx, s, e.rules)
		result <- planned{st, errors.Join(err, s.close())}
	})
	timeout, stop := e.opts.Env.After(joinWait)
	defer stop()
	select {
	case p := <-result:
		if p.err != nil {
			return false, e.blame(src, t.m, p.err)
		}
		if !p.st.done {
			return false, nil
		}
		return e.admit(ctx, t, p.st)
	case <-timeout:
		return false, errors.New("the last step took too long")
	}
}

// admit makes the disk a member whose lane begins with the last step.
func (e *Engine) admit(ctx context.Context, t *target, st step) (bool, error) {
	e.mu.Lock()
	m := t.m
	if e.mode != modeServing || m.lane.running || st.cell.at != e.last {
		e.mu.Unlock()
		return false, nil
	}
	m.state, m.reason, m.kv = stateInSync, nil, t.kv
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
