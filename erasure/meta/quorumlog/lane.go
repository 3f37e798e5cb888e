package quorumlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"ringfence/storage"
)

// A lane applies the batches of one disk, one after the other. It runs only
// while it has something to do. Its queue is bounded by LagTime and LagBytes: a
// disk that exceeds them is expelled and the queue dropped.
type lane struct {
	queue   []*job
	current []*job // being applied
	bytes   int64  // of both
	running bool
	hung    bool      // running, and somebody waited for it in vain
	since   time.Time // when the oldest job that is not yet done was queued
}

// idle reports whether there is nothing to write; who wrote last may still be
// leading.
func (l *lane) idle() bool { return len(l.queue) == 0 && len(l.current) == 0 }

// job is one batch for one disk.
type job struct {
	kv    storage.KV
	batch *storage.Batch
	bytes int64
	at    point      // what the disk has once it is applied; zero: doesn't move
	group *group     // to be told of the outcome; may be nil
	done  chan error // to be told of the outcome; buffered; may be nil
}

// laneBatchBytes bounds how much of a queue is merged into one Apply, and so
// shares one sync.
const laneBatchBytes = 8 << 20

// queueLocked appends a job and reports whether the lane has to be started,
// which the caller does by startLane after it released mu.
func (e *Engine) queueLocked(m *member, j *job) (start bool) {
	l := &m.lane
	if l.idle() {
		l.since = e.opts.Env.Now()
	}
	l.queue = append(l.queue, j)
	l.bytes += j.bytes
	start = !l.running
	if start {
		e.work.Add(1)
	}
	l.running = true
	return start
}

// startLane runs a lane that queueLocked said has to be started. The batches
// outlive the call that brought them.
func (e *Engine) startLane(ctx context.Context, m *member) {
	ctx = context.WithoutCancel(ctx)
	e.opts.Env.Go(func() {
		defer e.work.Done()
		e.drain(ctx, m)
	})
}

func (e *Engine) drain(ctx context.Context, m *member) {
	for {
		e.mu.Lock()
		jobs := takeLocked(&m.lane)
		if len(jobs) == 0 {
			m.lane.running, m.lane.hung = false, false
			e.ringLocked()
			e.mu.Unlock()
			return
		}
		e.mu.Unlock()
		err := jobs[0].kv.Apply(ctx, merge(jobs))
		e.settle(ctx, m, jobs, err)
	}
}

// takeLocked takes the jobs that go to disk together: those for one open store,
// up to laneBatchBytes. The lane's bytes go down when they are settled.
func takeLocked(l *lane) []*job {
	n, size := 0, int64(0)
	for n < len(l.queue) && (n == 0 || size+l.queue[n].bytes <= laneBatchBytes && l.queue[n].kv == l.queue[0].kv) {
		size += l.queue[n].bytes
		n++
	}
	jobs := l.queue[:n:n]
	l.current, l.queue = jobs, l.queue[n:]
	if len(l.queue) == 0 {
		l.queue = nil
	}
	return jobs
}

// merge keeps the order, so that the last cell wins.
func merge(jobs []*job) *storage.Batch {
	if len(jobs) == 1 {
		return jobs[0].batch
	}
	n := 0
	for _, j := range jobs {
		n += len(j.batch.Ops)
	}
	b := &storage.Batch{Ops: make([]storage.BatchOp, 0, n)}
	for _, j := range jobs {
		b.Ops = append(b.Ops, j.batch.Ops...)
	}
	return b
}

// settle counts the outcome of jobs and starts the next group if that decided
// one.
func (e *Engine) settle(ctx context.Context, m *member, jobs []*job, err error) {
	e.mu.Lock()
	for _, j := range jobs {
		m.lane.bytes -= j.bytes
	}
	m.lane.since, m.lane.current = e.opts.Env.Now(), nil
	// A job of a store that was replaced since says nothing about the member.
	current := m.state == stateInSync && m.kv == jobs[0].kv
	if err == nil && current {
		if at := jobs[len(jobs)-1].at; at.seq > 0 {
			m.applied.Store(at.seq)
			e.witness[m.slot] = at.mark()
		}
	}
	for _, j := range jobs {
		e.tellLocked(j, err)
	}
	if err != nil && current {
		e.expelLocked(m, stateOffline, fmt.Errorf("apply: %w", err))
	}
	lead := e.claimLocked()
	e.mu.Unlock()
	if lead {
		e.lead(ctx)
	}
}

// tellLocked reports one job's outcome, once, to whoever waits for it.
func (e *Engine) tellLocked(j *job, err error) {
	if j.done != nil {
		j.done <- err
		j.done = nil
	}
	if g := j.group; g != nil {
		j.group = nil
		e.countLocked(g, err)
	}
}

// dropLaneLocked forgets what a lane has queued. What it is applying now counts
// as failed, since nobody waits for it any longer; but it goes on, and until it
// returns the disk can't come back.
func (e *Engine) dropLaneLocked(m *member, why error) {
	dropped := m.lane.queue
	m.lane.queue = nil
	for _, j := range dropped {
		m.lane.bytes -= j.bytes
	}
	for _, j := range append(dropped, m.lane.current...) {
		e.tellLocked(j, fmt.Errorf("dropped: %w", why))
	}
}

// expelLaggards takes disks out of the set that are too far behind, and those
// with a bad value that can be spared by now. Run calls it; a disk that hangs
// would otherwise keep a group undecided for ever.
func (e *Engine) expelLaggards(ctx context.Context) {
	e.mu.Lock()
	now := e.opts.Env.Now()
	for _, m := range e.members {
		if m.state != stateInSync {
			continue
		}
		if m.bad.Load() && e.sparesLocked() {
			e.expelLocked(m, stateCorrupt, fmt.Errorf("a value did not verify: %w", storage.ErrCorrupt))
		} else if !m.lane.idle() && now.Sub(m.lane.since) > e.opts.LagTime {
			m.lane.hung = true
			e.expelLocked(m, stateLagging, fmt.Errorf("no progress in %v", e.opts.LagTime))
			e.ringLocked()
		}
	}
	lead := e.claimLocked()
	if lead {
		e.work.Add(1)
	}
	e.mu.Unlock()
	if lead { // which may take longer than the next laggard should
		ctx = context.WithoutCancel(ctx)
		e.opts.Env.Go(func() {
			defer e.work.Done()
			e.lead(ctx)
		})
	}
}

// apply runs one batch through a disk's lane and waits for it until ctx ends;
// the batch goes on.
func (e *Engine) apply(ctx context.Context, m *member, kv storage.KV, b *storage.Batch) error {
	done := make(chan error, 1)
	j := &job{kv: kv, batch: b, bytes: batchBytes(b), done: done}
	e.mu.Lock()
	if e.mode == modeClosed {
		e.mu.Unlock()
		return errClosed
	}
	start := e.queueLocked(m, j)
	e.mu.Unlock()
	if start {
		e.startLane(ctx, m)
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		if cause := context.Cause(ctx); errors.Is(cause, errNoAnswer) {
			e.mu.Lock()
			m.lane.hung = m.lane.running
			e.mu.Unlock()
			return fmt.Errorf("apply: %w", cause)
		}
		return ctx.Err()
	}
}

// awaitLanes waits until no lane writes, but for those known to hang, and
// remembers which do.
func (e *Engine) awaitLanes(ctx context.Context) {
	ctx, end := e.limit(ctx, e.opts.LagTime)
	defer end()
	writes := func(m *member) bool { return m.lane.running && !m.lane.hung }
	if e.await(ctx, func() bool { return !slices.ContainsFunc(e.members, writes) }) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, m := range e.members {
		m.lane.hung = m.lane.running
	}
}

func batchBytes(b *storage.Batch) int64 {
	n := int64(0)
	for _, op := range b.Ops {
		n += int64(len(op.Key) + len(op.Value))
	}
	return n
}
