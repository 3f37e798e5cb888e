package local

import (
	"context"
	"sync"
)

// dirSync shares directory syncs: everyone who asks while one is running gets
// the next one, together. Waiters are bounded by the callers there are.
type dirSync struct {
	// sync makes the entries of a folder durable.
	sync func(ctx context.Context, name string) error

	mu   sync.Mutex // protects the fields below
	dirs map[string]*dirState
}

// dirState is one of at most 258 folders.
type dirState struct {
	running sync.Mutex // held while a sync runs
	next    *dirBatch  // to be joined; under dirSync.mu
}

type dirBatch struct {
	done chan struct{}
	err  error // set before done is closed
}

// Sync returns when a sync that began after the call has ended. A caller that
// goes away doesn't take the sync of the others with it.
func (d *dirSync) Sync(ctx context.Context, name string) error {
	d.mu.Lock()
	if d.dirs == nil {
		d.dirs = make(map[string]*dirState)
	}
	st := d.dirs[name]
	if st == nil {
		st = &dirState{}
		d.dirs[name] = st
	}
	leader := st.next == nil
	if leader {
		st.next = &dirBatch{done: make(chan struct{})}
	}
	b := st.next
	d.mu.Unlock()

	if !leader {
		<-b.done // the leader always gets there: it waits for hardware only
		return b.err
	}
	st.running.Lock()
	defer st.running.Unlock()
	d.mu.Lock()
	st.next = nil // from here on it is too late to join
	d.mu.Unlock()
	defer close(b.done)
	b.err = d.sync(context.WithoutCancel(ctx), name)
	return b.err
}
