package quorumlog

import (
	"context"
	"errors"
	"sync"

	"ringfence/storage"
)

// Run keeps the engine well until ctx ends: it recovers when that is needed,
// takes disks out of the set that hang, and brings back those that return. At
// the end it leaves the log such that a start without a quorum can read all.
func (e *Engine) Run(ctx context.Context) error {
	var watching sync.WaitGroup
	defer watching.Wait()
	watched, end := context.WithCancel(ctx)
	defer end()
	watching.Go(func() { e.watchLanes(watched) })
	for {
		more := e.Tend(ctx)
		if more {
			e.wake()
		}
		timer, stop := e.opts.Env.After(e.opts.TendEvery)
		select {
		case <-e.kick:
		case <-timer:
		case <-ctx.Done():
			stop()
			e.rest(context.WithoutCancel(ctx))
			return nil
		}
		stop()
		e.mu.Lock()
		closed := e.mode == modeClosed
		e.mu.Unlock()
		if closed {
			return nil
		}
	}
}

// watchLanes expels laggards until ctx ends, whatever else Run is at.
func (e *Engine) watchLanes(ctx context.Context) {
	for {
		timer, stop := e.opts.Env.After(e.opts.TendEvery)
		select {
		case <-timer:
			e.expelLaggards(ctx)
		case <-ctx.Done():
			stop()
			return
		}
	}
}

// Tend is one round of Run: a recovery if the engine is not serving, then a
// slice of catch-up for every disk that is out of the set. It reports whether
// more of that can be done at once.
func (e *Engine) Tend(ctx context.Context) (more bool) {
	e.expelLaggards(ctx)
	e.mu.Lock()
	serving := e.mode == modeServing
	e.mu.Unlock()
	if !serving {
		if err := e.Recover(ctx); err != nil {
			e.opts.Log.Debug().Err(err).Msg("metadata recovery")
			return false
		}
	}
	for _, m := range e.outsiders() {
		again, err := e.tendAlone(ctx, m)
		more = more || again
		if err != nil && !errors.Is(err, storage.ErrOffline) {
			e.opts.Log.Debug().Int("slot", m.slot).Err(err).Msg("metadata catch-up")
		}
	}
	return more
}

// tendAlone is tend while nobody else changes the set. It is cut short when the
// engine stops serving: a recovery is more urgent.
func (e *Engine) tendAlone(ctx context.Context, m *member) (more bool, err error) {
	select {
	case e.tending <- struct{}{}:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	defer func() { <-e.tending }()
	ctx, end := context.WithCancel(ctx)
	defer end()
	e.mu.Lock()
	if e.mode != modeServing {
		defer e.mu.Unlock()
		return false, e.why
	}
	e.endTend = end
	e.mu.Unlock()
	more, err = e.tend(ctx, m)
	e.mu.Lock()
	e.endTend = nil
	e.mu.Unlock()
	return more, err
}

// outsiders are the disks out of the set that no write is stuck on, and not too
// many reads.
func (e *Engine) outsiders() (out []*member) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, m := range e.members {
		if m.state != stateInSync && !m.lane.running && m.slow.Load() <= mostStuck {
			out = append(out, m)
		}
	}
	return out
}

// rest appends a group that touches no key. It shows whoever finds it at the end
// of the log that all before it was decided; without it the keys of the last
// group could not be read by a process that has no quorum to decide it.
func (e *Engine) rest(ctx context.Context) {
	e.mu.Lock()
	idle := e.mode != modeServing || e.restedAt == e.last.seq
	e.mu.Unlock()
	if idle {
		return
	}
	c := &commit{note: true, done: make(chan struct{})}
	if err := e.submit(ctx, c); err != nil {
		e.opts.Log.Debug().Err(err).Msg("metadata log not closed")
		return
	}
	timeout, stop := e.opts.Env.After(e.opts.CallWait)
	defer stop()
	select {
	case <-c.done:
	case <-timeout:
		return
	}
	e.mu.Lock()
	e.restedAt = uint64(c.rev)
	e.mu.Unlock()
}
