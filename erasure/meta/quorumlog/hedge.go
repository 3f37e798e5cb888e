package quorumlog

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"ringfence/erasure/meta"
	"ringfence/storage"
)

// asked is one question to one disk.
type asked[T any] struct {
	joint
	state  atomic.Uint32
	answer T
	err    error
}

const (
	askRunning uint32 = iota
	askLate
	askOver
)

// hedge is a question to the disks of a view.
type hedge[T any] struct {
	e       *Engine
	v       *view
	head    uint64
	hash    uint64
	tried   uint32
	read    func(joint) (T, error)
	results chan *asked[T] // room for all
	running int
	current *asked[T] // the last one

	failed, corrupt int
	failure         error
}

// hedged asks one disk, the next if that fails, and more if it takes long. A disk
// that hangs keeps its goroutine, not the caller: with none left to ask the
// caller waits no longer than LagTime. drop, if not nil, gets answers that come
// too late.
func hedged[T any](ctx context.Context, e *Engine, v *view, hash uint64, read func(joint) (T, error), drop func(T)) (answer T, err error) {
	h := &hedge[T]{e: e, v: v, head: e.head.Load(), hash: hash, read: read, results: make(chan *asked[T], len(v.members))}
	if !h.ask() {
		return answer, fmt.Errorf("%w: no metadata disk in sync", meta.ErrUnavailable)
	}
	if drop != nil {
		defer h.drain(drop)
	}
	late, stop := e.opts.Env.After(e.opts.HedgeAfter)
	defer func() { stop() }()
	for all := false; ; {
		select {
		case a := <-h.results:
			h.running--
			if a.err == nil {
				return a.answer, nil
			}
			h.fail(a)
			if ctx.Err() != nil {
				return answer, ctx.Err()
			}
			if !h.ask() && h.running == 0 {
				return answer, exhausted(h.failure, h.corrupt == h.failed)
			}
		case <-late:
			h.current.late()
			wait := e.opts.HedgeAfter
			if !h.ask() {
				if all {
					return answer, unavailable(errors.Join(h.failure, errNoAnswer))
				}
				all, wait = true, e.opts.LagTime
			}
			stop()
			late, stop = e.opts.Env.After(wait)
		case <-ctx.Done():
			return answer, ctx.Err()
		}
	}
}

// ask puts the question to one more disk, if there is one.
func (h *hedge[T]) ask() bool {
	i := h.e.pick(h.v, h.head, h.hash, h.tried)
	if i < 0 {
		return false
	}
	h.tried |= 1 << i
	h.running++
	a := &asked[T]{joint: joint{h.v.members[i], h.v.kvs[i]}}
	h.current = a
	read, results := h.read, h.results
	h.e.opts.Env.Go(func() {
		a.answer, a.err = read(a.joint)
		if a.state.Swap(askOver) == askLate {
			a.m.slow.Add(-1)
		}
		results <- a
	})
	return true
}

// late counts a disk as slow until it answers.
func (a *asked[T]) late() {
	a.m.slow.Add(1)
	if !a.state.CompareAndSwap(askRunning, askLate) {
		a.m.slow.Add(-1)
	}
}

func (h *hedge[T]) fail(a *asked[T]) {
	h.failed++
	if errors.Is(a.err, storage.ErrCorrupt) {
		h.corrupt++
	}
	h.failure = errors.Join(h.failure, a.err)
	h.e.suspect(a.m, a.kv, a.err)
}

// drain waits for the answers that nobody waits for any longer.
func (h *hedge[T]) drain(drop func(T)) {
	if h.running == 0 {
		return
	}
	h.e.opts.Env.Go(func() {
		for range h.running {
			if a := <-h.results; a.err == nil {
				drop(a.answer)
			}
		}
	})
}

// exhausted is the failure of a read that no disk could serve. Only if all of
// them have it damaged is it more than a matter of time.
func exhausted(failure error, damaged bool) error {
	if damaged {
		return fmt.Errorf("%w: %w", meta.ErrUnavailable, failure)
	}
	return unavailable(failure)
}
