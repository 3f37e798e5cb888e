package quorumlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"ringfence/erasure/meta"
	"ringfence/storage"
)

// retryPause is the least time between two failed recoveries that calls ask
// for, so that a load of refused requests does not also load the disks.
const retryPause = 250 * time.Millisecond

// recovery is one that runs.
type recovery struct {
	done chan struct{}
	err  error // valid after done
}

// Recover brings the engine to serve if enough disks are there, and returns why
// not otherwise. It returns at once when the engine serves already.
func (e *Engine) Recover(ctx context.Context) error {
	e.mu.Lock()
	e.retryAt = time.Time{}
	e.mu.Unlock()
	return e.join(ctx, nil)
}

// ensure is Recover for a call that can't wait long.
func (e *Engine) ensure(ctx context.Context) error {
	timeout, stop := e.opts.Env.After(e.opts.CallWait)
	defer stop()
	return e.join(ctx, timeout)
}

// join starts a recovery or waits for the one that runs.
func (e *Engine) join(ctx context.Context, timeout <-chan time.Time) error {
	e.mu.Lock()
	r := e.recovery
	switch {
	case e.mode == modeServing:
		e.mu.Unlock()
		return nil
	case e.mode == modeClosed || r == nil && e.opts.Env.Now().Before(e.retryAt):
		defer e.mu.Unlock()
		return unavailable(e.why)
	}
	start := r == nil
	if start {
		r = &recovery{done: make(chan struct{})}
		e.recovery = r
		e.work.Add(1)
	}
	e.mu.Unlock()
	if start {
		detached := context.WithoutCancel(ctx) // others wait for it too
		e.opts.Env.Go(func() {
			defer e.work.Done()
			e.runRecovery(detached, r)
		})
	}
	select {
	case <-r.done:
		return r.err
	case <-timeout:
		return fmt.Errorf("%w: recovery is still running", meta.ErrUnavailable)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (e *Engine) runRecovery(ctx context.Context, r *recovery) {
	e.tending <- struct{}{}
	err := e.recover(ctx)
	<-e.tending
	e.mu.Lock()
	if err != nil {
		if !errors.Is(err, meta.ErrUnavailable) {
			err = unavailable(err)
		}
		e.retryAt = e.opts.Env.Now().Add(retryPause)
		if e.mode != modeClosed {
			e.why = err
			e.publishLocked(e.view.Load().undecided)
		}
	}
	r.err = err
	e.recovery = nil
	e.mu.Unlock()
	close(r.done)
}

// candidate is a disk that takes part in a recovery.
type candidate struct {
	m  *member
	kv storage.KV
	t  target
}

// recover decides what the log is. Nobody sequences while it runs: the mode is
// not serving, and no group is undecided in memory.
//
// A disk that has the longest log but can't give what is in it has no vote:
// recovery starts over without it, if enough voters are left.
func (e *Engine) recover(ctx context.Context) error {
	e.awaitLanes(ctx)
	var failure error
	for doubts := []doubt(nil); ; {
		reports := e.survey(ctx, doubts)
		e.mu.Lock()
		known := slices.Clone(e.witness)
		e.mu.Unlock()
		p, err := decide(reports, known, e.quorum, e.opts.Fresh, e.rules)
		if err != nil && failure != nil {
			return failure
		}
		e.noteStates(reports, p)
		if err != nil {
			return err
		}
		bad, err := e.follow(ctx, reports, p)
		if err == nil || len(bad) == 0 {
			return err
		}
		doubts, failure = append(doubts, bad...), err
	}
}

// follow carries out a plan. When that fails because the log can't be read from
// the disks that have it, it returns them.
func (e *Engine) follow(ctx context.Context, reports []report, p recoveryPlan) (bad []doubt, err error) {
	last := point{}
	if p.fresh && !e.opts.Fresh {
		if err := e.holdNothing(ctx); err != nil {
			return nil, err
		}
	}
	if !p.fresh {
		last = reports[p.leader].cell.at
		undecided, err := e.readTail(ctx, e.members[p.leader], reports[p.leader])
		if err != nil {
			err = fmt.Errorf("read the end of the log: %w", err)
			return []doubt{{p.leader, err}}, err
		}
		if err := e.serveReads(reports, p, undecided); err != nil {
			return nil, err
		}
		e.resetCorrupt(ctx, reports)
	}
	promised, err := e.promise(ctx, reports, p)
	if err != nil {
		return nil, err
	}
	ready, bad, err := e.gather(ctx, promised, p, last)
	if err != nil {
		return bad, err
	}
	barrier := link(last, p.epoch, last.seq+1, last.seq+1, nil)
	if e.rules.noBarrier && !p.fresh {
		barrier = last
	} else if ready, err = e.writeBarrier(ctx, ready, barrier, p.witness); err != nil {
		return nil, err
	}
	e.serve(ready, barrier, p)
	return nil, nil
}

// noteStates tells Health what was found. Disks that serve reads keep doing so.
func (e *Engine) noteStates(reports []report, p recoveryPlan) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, m := range e.members {
		if m.state != stateInSync {
			r := reports[m.slot]
			m.state, m.reason, m.behind = r.stand.state(), r.err, r.cell.at.mark()
			m.astray.Store(p.leader >= 0 && r.astray(reports[p.leader].cell.at))
		}
	}
}

// serveReads lets reads go on while recovery works, or if it fails for want of a
// quorum: enough voters know what was acknowledged. What follows the last group
// that is certainly decided is withheld. Such reads decide nothing: a commit of
// unknown outcome that only absent disks hold may still take place later.
func (e *Engine) serveReads(reports []report, p recoveryPlan, undecided *group) error {
	lead := reports[p.leader]
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mode == modeClosed {
		return errClosed
	}
	for _, m := range e.members {
		r := reports[m.slot]
		same := r.stand == standClean && r.cell.at == lead.cell.at
		switch {
		case same:
			m.state, m.reason, m.kv = stateInSync, nil, r.kv
			m.applied.Store(r.cell.at.seq)
		case m.state == stateInSync:
			m.state, m.reason, m.kv, m.behind = r.stand.state(), r.err, nil, r.cell.at.mark()
		}
	}
	if e.head.Load() < lead.cell.at.seq {
		e.head.Store(lead.cell.at.seq)
	}
	if before := e.view.Load().undecided; before != nil {
		for k, rev := range before.pending {
			undecided.pending[k] = rev // perhaps on disks that don't answer now
		}
	}
	e.mode, e.last, e.witness = modeReadOnly, lead.cell.at, p.witness
	e.publishLocked(undecided)
	return nil
}

// resetCorrupt wipes corrupt stores if a quorum can't be had without them: enough
// voters know all that was acknowledged, so that nothing is lost with them. Where
// they can be spared they are left for later.
func (e *Engine) resetCorrupt(ctx context.Context, reports []report) {
	usable := 0
	for _, r := range reports {
		if r.stand != standGone && r.stand != standCorrupt {
			usable++
		}
	}
	for _, m := range e.members {
		r := &reports[m.slot]
		if usable >= e.quorum {
			return
		}
		if r.stand != standCorrupt {
			continue
		}
		if err := e.reset(ctx, m, r.err); err != nil {
			e.opts.Log.Warn().Int("slot", m.slot).Err(err).Msg("corrupt metadata store could not be reset")
			continue
		}
		*r = report{stand: standEmpty, kv: m.disk.KV()}
		usable++
	}
}

// readTail is undecidedTail of a disk that may hang.
func (e *Engine) readTail(ctx context.Context, m *member, r report) (g *group, err error) {
	p := &pace{}
	var tail *group
	var failure error
	if err := e.attend(ctx, p, e.opts.CallWait, func() { tail, failure = undecidedTail(ctx, p, m, r) }, nil); err != nil {
		return nil, err
	}
	return tail, failure
}

// undecidedTail collects the keys of the groups at the end of a log that a later
// recovery could still drop: one group at most is undecided at any time, and a
// barrier decides what is before it only once it is decided itself.
func undecidedTail(ctx context.Context, p *pace, m *member, r report) (*group, error) {
	g := &group{pending: make(map[string]uint64)}
	for seq := r.cell.at.seq; seq > 0; {
		p.begin(m)
		raw, err := r.kv.Get(ctx, logKey(seq))
		p.end()
		if errors.Is(err, storage.ErrNotFound) {
			break // trimmed: long decided
		}
		if err != nil {
			return nil, err
		}
		en, err := decodeEntry(raw)
		if err != nil {
			return nil, err
		}
		for _, k := range en.keys {
			g.pending[string(k)] = en.at.seq
		}
		if !en.barrier {
			break
		}
		seq = en.first - 1
	}
	return g, nil
}

// promise has a quorum remember the new epoch before anything carries it, so
// that no two recoveries use one epoch.
func (e *Engine) promise(ctx context.Context, reports []report, p recoveryPlan) ([]candidate, error) {
	var all []candidate
	batches := make(map[int]*storage.Batch)
	for _, m := range e.members {
		r := reports[m.slot]
		if r.stand == standGone || r.stand == standCorrupt {
			continue
		}
		c := candidate{m: m, kv: r.kv, t: target{m: m, kv: r.kv, cell: r.cell, epoch: p.epoch, keys: e.stepKeys}}
		b := &storage.Batch{}
		if r.stand == standEmpty {
			c.t.cell = cell{phase: phaseCopying, witness: p.witness}
			if p.fresh || e.rules.blankVotes {
				c.t.cell.phase = phaseClean
			}
			b.Set(appliedKey(), c.t.cell.encode())
		}
		b.Set(promisedKey(), e.promiseOf(m, p.epoch))
		batches[m.slot] = b
		all = append(all, c)
	}
	if len(all) < e.quorum {
		return nil, fmt.Errorf("%w: %d of %d can take part, writing needs %d", errTooFew, len(all), len(e.members), e.quorum)
	}
	done := e.applyAll(ctx, all, func(c candidate) *storage.Batch { return batches[c.m.slot] })
	if len(done) < e.quorum {
		return nil, fmt.Errorf("%w: %d of %d promised the epoch, writing needs %d", errTooFew, len(done), len(e.members), e.quorum)
	}
	return done, nil
}

func (e *Engine) promiseOf(m *member, epoch uint64) []byte {
	return promise{epoch: epoch, slot: m.slot, set: m.disk.Identity().Set}.encode()
}

// gather returns the disks that stand at the end of the chosen log, brought
// there from the leader's copy if they are fewer than a quorum. The rest is
// caught up later, while serving. If none of those that have the log can be
// read, it returns them as bad.
func (e *Engine) gather(ctx context.Context, all []candidate, p recoveryPlan, last point) (ready []candidate, bad []doubt, err error) {
	var behind []candidate
	for _, c := range all {
		if c.t.cell.phase == phaseClean && c.t.cell.at == last {
			ready = append(ready, c)
			continue
		}
		behind = append(behind, c)
	}
	if len(ready) == 0 && !p.fresh {
		err := fmt.Errorf("the disk with the longest log failed during recovery: %w", storage.ErrOffline)
		return nil, []doubt{{p.leader, err}}, err
	}
	slices.SortStableFunc(behind, func(a, b candidate) int { return int(a.t.cell.phase) - int(b.t.cell.phase) })
	had := len(ready)
	for _, c := range behind {
		if len(ready) >= e.quorum {
			break
		}
		bad, err := e.bringFromAny(ctx, ready, &c.t)
		if err == nil {
			ready = append(ready, c)
			continue
		}
		e.opts.Log.Warn().Int("slot", c.m.slot).Err(err).Msg("disk could not be brought to the end of the metadata log")
		if len(bad) > 0 && len(ready) == had {
			return nil, bad, err
		}
	}
	if len(ready) < e.quorum {
		// No barrier then: a log must not grow by attempts to recover it.
		return nil, nil, fmt.Errorf("%w: %d of %d stand at the end of the log, writing needs %d", errTooFew, len(ready), len(e.members), e.quorum)
	}
	return ready, nil, nil
}

// bringFromAny tries one disk after the other to copy from, those that hung last.
// If no source can be read, it returns them all.
func (e *Engine) bringFromAny(ctx context.Context, ready []candidate, t *target) (bad []doubt, err error) {
	sources := slices.Clone(ready)
	slices.SortStableFunc(sources, func(a, b candidate) int { return int(a.m.slow.Load()) - int(b.m.slow.Load()) })
	var failure error
	for _, source := range sources {
		err := e.bring(ctx, joint{source.m, source.kv}, t)
		if !errors.Is(err, errSource) {
			return nil, err
		}
		bad = append(bad, doubt{source.m.slot, err})
		failure = errors.Join(failure, err)
	}
	return bad, failure
}

// writeBarrier makes the log's end as long as it is final: with it on a quorum,
// no recovery can choose another one.
func (e *Engine) writeBarrier(ctx context.Context, ready []candidate, at point, witness []mark) ([]candidate, error) {
	b := &storage.Batch{}
	b.Set(logKey(at.seq), entry{at: at, first: at.seq, barrier: true}.encode())
	b.Set(appliedKey(), cell{phase: phaseClean, at: at, witness: witness}.encode())
	done := e.applyAll(ctx, ready, func(candidate) *storage.Batch { return b })
	if len(done) < e.quorum {
		return nil, fmt.Errorf("%w: %d of %d have the barrier, writing needs %d", errTooFew, len(done), len(e.members), e.quorum)
	}
	return done, nil
}

// applyAll applies a batch per disk at once and returns those that have it. Once
// a quorum has, the others get as long again and a little more: they may be sick.
func (e *Engine) applyAll(ctx context.Context, all []candidate, batch func(candidate) *storage.Batch) []candidate {
	ctx, end := e.limit(ctx, e.opts.RecoverWait)
	defer end()
	type outcome struct {
		i   int
		err error
	}
	results := make(chan outcome, len(all))
	began := e.opts.Env.Now()
	for i, c := range all {
		e.opts.Env.Go(func() { results <- outcome{i, e.apply(ctx, c.m, c.kv, batch(c))} })
	}
	ok, acks := make([]bool, len(all)), 0
	var grace <-chan time.Time
	for n, open := 0, true; n < len(all) && open; n++ {
		select {
		case o := <-results: // apply ends with ctx at the latest
			if o.err != nil {
				e.opts.Log.Warn().Int("slot", all[o.i].m.slot).Err(o.err).Msg("disk failed during metadata recovery")
				continue
			}
			ok[o.i] = true
			if acks++; acks == e.quorum {
				timer, stop := e.opts.Env.After(stragglers*e.opts.HedgeAfter + e.opts.Env.Now().Sub(began))
				defer stop()
				grace = timer
			}
		case <-grace:
			open = false
		}
	}
	var done []candidate
	for i, c := range all {
		if ok[i] {
			done = append(done, c)
		}
	}
	return done
}

// stragglers is how many times HedgeAfter those wait who don't decide anything.
const stragglers = 5

// serve opens the engine for commits on the disks that are ready.
func (e *Engine) serve(ready []candidate, at point, p recoveryPlan) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mode == modeClosed {
		return
	}
	for _, m := range e.members {
		if m.state == stateInSync {
			m.state, m.reason, m.kv, m.behind = stateLagging, errors.New("missed the recovery"), nil, mark{at.epoch, m.applied.Load()}
		}
	}
	e.witness = p.witness
	for _, c := range ready {
		c.m.state, c.m.reason, c.m.kv = stateInSync, nil, c.kv
		c.m.applied.Store(at.seq)
		e.witness[c.m.slot] = at.mark()
	}
	e.mode, e.why, e.last, e.trimmed = modeServing, nil, at, 0
	e.head.Store(at.seq)
	e.publishLocked(nil)
	e.opts.Log.Info().Uint64("epoch", at.epoch).Uint64("head", at.seq).Int("disks", len(ready)).Msg("metadata log is serving")
	e.wake()
}
