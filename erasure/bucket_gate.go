package erasure

import (
	"context"
	"fmt"
	"sync"
)

// gate lets many in, or one alone. It is a read-write lock whose waits end with
// their contexts and which can be shut for good.
type gate struct {
	mu     sync.Mutex // protects the fields below
	inside int
	gone   error         // not nil: shut for good, and why
	moved  chan struct{} // closed at the next change that waiters wait for; nil: nobody waits
	closed bool          // somebody is alone, or waits to be
}

// changed returns a channel that is closed when the gate's state changes.
func (g *gate) changedLocked() <-chan struct{} {
	if g.moved == nil {
		g.moved = make(chan struct{})
	}
	return g.moved
}

func (g *gate) notifyLocked() {
	if g.moved != nil {
		close(g.moved)
		g.moved = nil
	}
}

// enter waits until the gate is open. leave must follow.
func (g *gate) enter(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.closed {
		if err := g.waitLocked(ctx); err != nil {
			return err
		}
	}
	if g.gone != nil {
		return g.gone
	}
	g.inside++
	return nil
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside--; g.inside == 0 {
		g.notifyLocked()
	}
}

// shut closes the gate and waits until everyone inside left. open or remove
// must follow.
func (g *gate) shut(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.closed {
		if err := g.waitLocked(ctx); err != nil {
			return err
		}
	}
	if g.gone != nil {
		return g.gone
	}
	g.closed = true
	for g.inside > 0 {
		if err := g.waitLocked(ctx); err != nil {
			g.closed = false
			g.notifyLocked()
			return err
		}
	}
	return nil
}

// open ends shut.
func (g *gate) open() { g.remove(nil) }

// remove ends shut; with an error, nobody ever enters again and gets it.
func (g *gate) remove(gone error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed, g.gone = false, gone
	g.notifyLocked()
}

// waitLocked lets go of the lock until something changes or ctx ends.
func (g *gate) waitLocked(ctx context.Context) error {
	moved := g.changedLocked()
	g.mu.Unlock()
	defer g.mu.Lock()
	select {
	case <-moved:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for bucket: %w", ctx.Err())
	}
}
