package quorumlog

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"ringfence/storage"
)

// doubt is a disk that failed a recovery, and how.
type doubt struct {
	slot int
	err  error
}

// survey asks all disks what they hold and waits for every one, at most for
// RecoverWait: any voter that is left out is evidence that is left out. Disks in
// doubt have no vote.
func (e *Engine) survey(ctx context.Context, doubts []doubt) []report {
	ctx, end := e.limit(ctx, e.opts.RecoverWait)
	defer end()
	all := slices.Clone(e.members)
	for _, d := range doubts {
		if !errors.Is(d.err, storage.ErrCorrupt) {
			all = slices.DeleteFunc(all, func(m *member) bool { return m.slot == d.slot })
		}
	}
	reports := e.ask(ctx, all)
	for _, d := range doubts {
		r := &reports[d.slot]
		if r.err = d.err; errors.Is(d.err, storage.ErrCorrupt) && r.stand != standGone {
			r.stand = standCorrupt
		}
	}
	return reports
}

// ask returns reports by slot; disks not asked, and those that don't answer
// until ctx ends, are gone.
func (e *Engine) ask(ctx context.Context, members []*member) []report {
	reports := make([]report, len(e.members))
	for i := range reports {
		reports[i].err = errors.New("no answer")
	}
	type numbered struct {
		slot int
		report
	}
	results := make(chan numbered, len(members))
	running := 0
	for _, m := range members {
		if e.busy(m) {
			reports[m.slot].err = errors.New("a write to it hangs")
			continue
		}
		if !m.probing.CompareAndSwap(false, true) {
			reports[m.slot].err = errors.New("a read of it hangs")
			continue
		}
		running++
		e.opts.Env.Go(func() {
			r := e.read(ctx, m)
			m.probing.Store(false)
			results <- numbered{m.slot, r}
		})
	}
	for range running {
		select {
		case r := <-results:
			reports[r.slot] = r.report
		case <-ctx.Done():
			return reports
		}
	}
	return reports
}

// reset wipes a disk's store and waits for that, at most for RecoverWait.
func (e *Engine) reset(ctx context.Context, m *member, why error) error {
	if !m.probing.CompareAndSwap(false, true) {
		return errors.New("a read of it hangs")
	}
	e.opts.Log.Warn().Int("slot", m.slot).Err(why).Msg("metadata of a disk is wiped, to be rebuilt from the others")
	result := make(chan error, 1)
	begun := context.WithoutCancel(ctx) // half a reset helps nobody
	ctx, end := e.limit(ctx, e.opts.RecoverWait)
	defer end()
	e.opts.Env.Go(func() {
		err := m.disk.ResetKV(begun)
		if err == nil {
			m.bad.Store(false)
		}
		m.probing.Store(false)
		result <- err
	})
	select {
	case err := <-result:
		if err != nil {
			return fmt.Errorf("reset: %w", err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("reset: %w", context.Cause(ctx))
	}
}

// holdNothing makes sure that no disk has a shard. A store whose metadata got
// lost on all disks can be rebuilt from its shards, as long as nobody starts
// over and then collects them as orphans.
func (e *Engine) holdNothing(ctx context.Context) error {
	ctx, end := e.limit(ctx, e.opts.RecoverWait)
	defer end()
	results := make(chan error, len(e.members))
	for _, m := range e.members {
		e.opts.Env.Go(func() {
			ids, err := m.disk.ListShards(ctx, storage.ShardID{}, 1)
			if err == nil && len(ids) > 0 {
				err = fmt.Errorf("the disk of slot %d holds shards, but no disk has metadata", m.slot)
			}
			results <- err
		})
	}
	for range e.members {
		select {
		case err := <-results:
			if err != nil {
				return fmt.Errorf("start the metadata log: %w", err)
			}
		case <-ctx.Done():
			return fmt.Errorf("start the metadata log: %w", context.Cause(ctx))
		}
	}
	return nil
}

// busy reports whether a batch is being applied to the disk: its contents may
// change under whoever looks.
func (e *Engine) busy(m *member) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return m.lane.running
}

// read looks at the store of a disk as it is open now.
func (e *Engine) read(ctx context.Context, m *member) report {
	kv := m.disk.KV()
	if kv == nil {
		return report{err: storage.ErrOffline}
	}
	r := report{kv: kv}
	if r.err = e.readCells(ctx, m, &r); r.err != nil {
		r.stand = standGone
		if errors.Is(r.err, storage.ErrCorrupt) {
			r.stand = standCorrupt
		}
	}
	return r
}

func (e *Engine) readCells(ctx context.Context, m *member, r *report) error {
	raw, err := r.kv.Get(ctx, appliedKey())
	if errors.Is(err, storage.ErrNotFound) {
		return e.readBlank(ctx, r)
	}
	if err != nil {
		return err
	}
	if r.cell, err = decodeCell(raw); err != nil {
		return err
	}
	if raw, err = r.kv.Get(ctx, promisedKey()); err != nil {
		if errors.Is(err, storage.ErrNotFound) {
			return fmt.Errorf("no promise beside the cell: %w", storage.ErrCorrupt)
		}
		return err
	}
	p, err := decodePromise(raw)
	if err != nil {
		return err
	}
	if p.slot != m.slot || p.set != m.disk.Identity().Set {
		return fmt.Errorf("metadata of slot %d of set %s: %w", p.slot, p.set, storage.ErrCorrupt)
	}
	r.promised = p.epoch
	switch {
	case r.cell.phase == phaseClean:
		r.stand = standClean
		return checkTail(ctx, r.kv, r.cell.at)
	case r.cell.phase == phaseCopying && r.cell.at.seq == 0:
		r.stand = standEmpty
	default:
		r.stand = standPartial
	}
	return nil
}

// readBlank tells a blank store from one that lost its cell.
func (e *Engine) readBlank(ctx context.Context, r *report) error {
	it, err := r.kv.Iter(ctx, nil, nil)
	if err != nil {
		return err
	}
	found := it.SeekGE(nil)
	if err := errors.Join(it.Err(), it.Close()); err != nil {
		return err
	}
	if found {
		return fmt.Errorf("keys but no cell: %w", storage.ErrCorrupt)
	}
	r.stand = standEmpty
	return nil
}

// checkTail makes sure that the last log entry is the one that the cell names.
func checkTail(ctx context.Context, kv storage.KV, at point) error {
	if at.seq == 0 {
		return nil // it was there when the log was started
	}
	raw, err := kv.Get(ctx, logKey(at.seq))
	if errors.Is(err, storage.ErrNotFound) {
		return fmt.Errorf("no log entry %d although applied: %w", at.seq, storage.ErrCorrupt)
	}
	if err != nil {
		return err
	}
	en, err := decodeEntry(raw)
	if err != nil {
		return err
	}
	if en.at != at {
		return fmt.Errorf("log entry %d is of another history: %w", at.seq, storage.ErrCorrupt)
	}
	return nil
}
