package erasure

import (
	"context"
	"fmt"
	"sync"

	"ringfence/storage"
)

// pins keep bytes from being collected while someone reads them.
//
// A reader takes a record and then pins what it names; in between the bytes
// are named by nobody. So a reader enters before it looks at the record, and
// the collector, which finds garbage in an entry that was committed with the
// replacement, waits until everyone who entered before it looked has left:
// whoever enters later sees the new record. Waiting takes no longer than
// reading a record.
type pins struct {
	mu      sync.Mutex // protects the fields below
	held    map[storage.UUID]int
	round   uint
	inside  [2]int        // readers who entered in an even, an odd round
	drained chan struct{} // closed when the previous round is empty; nil if nobody waits
}

// pinned is a reader between enter and unpin.
type pinned struct {
	round uint
	id    storage.UUID // zero: nothing is pinned
}

// enter begins a look at a record.
func (p *pins) enter() pinned {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inside[p.round&1]++
	return pinned{round: p.round}
}

// pin ends the look: what the record names, if anything, stays until unpin.
func (p *pins) pin(r *pinned, id storage.UUID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !id.IsZero() {
		if p.held == nil {
			p.held = make(map[storage.UUID]int)
		}
		p.held[id]++
		r.id = id
	}
	p.leaveLocked(r.round)
}

// leave ends the look without pinning.
func (p *pins) leave(r pinned) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leaveLocked(r.round)
}

func (p *pins) leaveLocked(round uint) {
	p.inside[round&1]--
	if p.inside[round&1] == 0 && round != p.round && p.drained != nil {
		close(p.drained)
		p.drained = nil
	}
}

// unpin lets the bytes go. Calling it again does nothing.
func (p *pins) unpin(r *pinned) {
	if r.id.IsZero() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held[r.id]--; p.held[r.id] == 0 {
		delete(p.held, r.id)
	}
	r.id = storage.UUID{}
}

// barrier waits until every reader who entered before it has pinned or left.
// Only one goroutine may wait at a time.
func (p *pins) barrier(ctx context.Context) error {
	p.mu.Lock()
	if p.inside[(p.round+1)&1] > 0 { // an earlier barrier gave up
		p.mu.Unlock()
		return fmt.Errorf("wait for readers: %w", errBusy)
	}
	old := p.round
	p.round++
	if p.inside[old&1] == 0 {
		p.mu.Unlock()
		return nil
	}
	done := make(chan struct{})
	p.drained = done
	p.mu.Unlock()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for readers: %w", ctx.Err())
	}
}

// busy reports whether someone reads id.
func (p *pins) busy(id storage.UUID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held[id] > 0
}
