package bench

import (
	"context"
	"fmt"

	"ringfence/storage"
)

// engine reads one file by one strategy. read may be called concurrently.
type engine interface {
	// read fills the buffers from off on, all of them.
	read(ctx context.Context, bufs []*storage.Buf, off int64) error
	// counts are totals so far, for a caller that made ops calls of read.
	counts(ops int64) Counts
	// close gives everything back.
	close(ctx context.Context) error
}

// submitter is an engine that begins a read and lets the caller wait for it
// later.
type submitter interface {
	engine
	submit(bufs []*storage.Buf, off int64) (pending, error)
}

// pending is a read under way.
type pending interface {
	wait(ctx context.Context) error
}

// Counts are what an engine did, or holds; -1 is unknown.
type Counts struct {
	Opens      int64 // files opened
	Enters     int64 // system calls that entered a ring
	Wakes      int64 // system calls that woke a ring's thread
	Syscalls   int64 // system calls of reading, all kinds together
	InlineHits int64 // reads that the page cache served on the caller
	Fallbacks  int64 // reads that rings should have made and did not
	Registered int64 // bytes of registered memory now; not a difference
}

// since is what was counted after an earlier snapshot.
func (c Counts) since(before Counts) Counts {
	less := func(a, b int64) int64 {
		if a < 0 || b < 0 {
			return -1
		}
		return a - b
	}
	return Counts{
		Opens: less(c.Opens, before.Opens), Enters: less(c.Enters, before.Enters), Wakes: less(c.Wakes, before.Wakes),
		Syscalls: less(c.Syscalls, before.Syscalls), InlineHits: less(c.InlineHits, before.InlineHits),
		Fallbacks: less(c.Fallbacks, before.Fallbacks), Registered: c.Registered,
	}
}

// start opens the file as the leg says. Buffers come from pool.
func start(ctx context.Context, leg Leg, pool *storage.Pool) (engine, error) {
	switch leg.Engine.Strategy {
	case StdOpen, StdCached, Nowait:
		return startPlain(leg)
	case Pool:
		return startPool(ctx, leg, pool)
	default:
		return startRings(ctx, leg, pool)
	}
}

// short is the error of a read that got less than it asked for: a bench never
// reads past the end.
func short(n, want int, off int64) error {
	return fmt.Errorf("read %d of %d bytes at %d", n, want, off)
}

// sizeOf is how much a read asks for.
func sizeOf(bufs []*storage.Buf) (n int) {
	for _, b := range bufs {
		n += len(b.Bytes())
	}
	return n
}
