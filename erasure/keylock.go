package erasure

import (
	"context"
	"fmt"
	"sync"

	"ringfence/storage"
)

// keyLock is a set of locks by name that exist while someone wants them. It
// puts the writers of one key in a row in front of the engine, which would
// otherwise refuse all but one of them and make them try again. It decides
// nothing: what may be written is the business of the commit's conditions. It
// is held around a commit, never while a client sends.
//
// Locks are exact, not striped: writers of two keys that shared a stripe would
// wait for each other's fsync and so miss the same group commit.
type keyLock struct {
	mu   sync.Mutex // protects held and the counts inside
	held map[lockName]*lockEntry
}

// lockName is the name of a lock. Part keeps the parts of an upload apart.
type lockName struct {
	ID   storage.UUID // bucket or upload
	Key  string
	Part int
}

type lockEntry struct {
	holder chan struct{} // capacity 1; full while the lock is held
	users  int           // holder and waiters
}

// lock waits for name, or until ctx ends. The caller calls unlock once.
func (l *keyLock) lock(ctx context.Context, name lockName) (unlock func(), err error) {
	l.mu.Lock()
	if l.held == nil {
		l.held = make(map[lockName]*lockEntry)
	}
	e := l.held[name]
	if e == nil {
		e = &lockEntry{holder: make(chan struct{}, 1)}
		l.held[name] = e
	}
	e.users++
	l.mu.Unlock()

	select {
	case e.holder <- struct{}{}:
		return func() { <-e.holder; l.leave(name, e) }, nil
	case <-ctx.Done():
		l.leave(name, e)
		return nil, fmt.Errorf("wait for key: %w", ctx.Err())
	}
}

func (l *keyLock) leave(name lockName, e *lockEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.users--; e.users == 0 {
		delete(l.held, name)
	}
}
