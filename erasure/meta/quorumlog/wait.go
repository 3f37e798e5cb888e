package quorumlog

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"ringfence/storage"
)

// Nothing here waits for a disk without an end: a disk that hangs answers
// neither yes nor no, and whoever waits for it holds up the whole set.

// errNoAnswer is why a wait ended.
var errNoAnswer = fmt.Errorf("%w: no answer in time", storage.ErrOffline)

// limit ends a context after d, for all who look at it: the channel of a timer
// would wake only one of them. end must be called.
func (e *Engine) limit(ctx context.Context, d time.Duration) (limited context.Context, end func()) {
	limited, cancel := context.WithCancelCause(ctx)
	timer, stop := e.opts.Env.After(d)
	if timer != nil { // there is none in simulation
		e.opts.Env.Go(func() {
			select {
			case <-timer:
				cancel(errNoAnswer)
			case <-limited.Done():
			}
		})
	}
	return limited, func() {
		stop()
		cancel(nil)
	}
}

// pace tells whoever waits for reads whether they get on, and which disk they
// are at: slow is not the same as stuck.
type pace struct {
	reads atomic.Uint64 // that ended
	at    atomic.Pointer[member]
}

func (p *pace) begin(m *member) { p.at.Store(m) }
func (p *pace) end()            { p.reads.Add(1) }

// iter opens an iterator of m whose moves are seen in p.
func (p *pace) iter(ctx context.Context, m *member, kv storage.KV, lo, hi []byte) (storage.Iter, error) {
	p.begin(m)
	defer p.end()
	it, err := kv.Iter(ctx, lo, hi)
	if err != nil {
		return nil, err
	}
	return &paced{it, p, m}, nil
}

type paced struct {
	storage.Iter
	p *pace
	m *member
}

func (it *paced) SeekGE(key []byte) bool {
	it.p.begin(it.m)
	defer it.p.end()
	return it.Iter.SeekGE(key)
}

func (it *paced) Next() bool {
	it.p.begin(it.m)
	defer it.p.end()
	return it.Iter.Next()
}

func (it *paced) Value() ([]byte, error) {
	it.p.begin(it.m)
	defer it.p.end()
	return it.Iter.Value()
}

// stuckError is a wait that ended because a disk hangs.
type stuckError struct{ m *member }

func (e *stuckError) Error() string {
	return fmt.Sprintf("a read of the disk of slot %d hangs", e.m.slot)
}

// Unwrap makes it a disk that is not there.
func (e *stuckError) Unwrap() error { return storage.ErrOffline }

// stuckOn reports whether err is a wait that a read of m ended.
func stuckOn(err error, m *member) bool {
	s, ok := errors.AsType[*stuckError](err)
	return ok && s.m == m
}

// attend runs f, which reads disks by p, and waits for it as long as a read ends
// within every d. If none does, or ctx ends, it leaves f behind: *stuckError or
// ctx's error. What f works on then belongs to f alone. The disk that it is at
// counts as slow until f returns; then left, if not nil, runs.
func (e *Engine) attend(ctx context.Context, p *pace, d time.Duration, f, left func()) error {
	returned := &member{slot: -1}
	var stuck atomic.Pointer[member] // where f was left behind, or returned
	done := make(chan struct{})
	e.opts.Env.Go(func() {
		f()
		if m := stuck.Swap(returned); m != nil {
			m.slow.Add(-1)
			if left != nil {
				left()
			}
		}
		close(done)
	})
	if e.pause(ctx, p, d, done) {
		return nil
	}
	m := p.at.Load()
	if m == nil { // nothing was asked yet
		m = &member{slot: -1}
	}
	m.slow.Add(1)
	if !stuck.CompareAndSwap(nil, m) {
		m.slow.Add(-1)
		<-done // it returned this moment
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return &stuckError{m}
}

// pause waits until done. It reports false when no read ends within d, or ctx
// does. It looks often, to be late by little.
func (e *Engine) pause(ctx context.Context, p *pace, d time.Duration, done <-chan struct{}) bool {
	const looks = 4
	before := p.reads.Load()
	for quiet := 0; ; {
		timer, stop := e.opts.Env.After(d / looks)
		select {
		case <-done:
			stop()
			return true
		case <-timer:
			now := p.reads.Load()
			if quiet++; now != before {
				before, quiet = now, 0
			}
			if quiet == looks {
				return false
			}
		case <-ctx.Done():
			stop()
			return false
		}
	}
}
