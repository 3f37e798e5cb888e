package erasure

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"ringfence/erasure/frame"
	"ringfence/storage"
)

// errAborted is why a lane stops when its whole write does.
var errAborted = errors.New("write aborted")

// step is one thing for a lane to do. A lane has at most writeWindow+2 of them
// before it: the writer waits for a free stripe before it sends the next.
type step struct {
	kind   stepKind
	stripe *stripe         // stepAppend: a reference that goes with the step
	ctx    context.Context // stepSeal: the caller's
}

type stepKind uint8

const (
	stepCreate stepKind = iota
	stepAppend
	stepSeal
)

// lane is one disk's part in a write: a queue of steps, done in order by a task
// that lives only while there is something to do. So a lane waits for nothing,
// and a disk that hangs holds up its lane alone. Whoever cleans up after a
// failed lane is that same task, which is the only one to touch the shard.
type lane struct {
	w      *stagedBlob
	d      *data
	id     storage.ShardID
	shard  uint8
	slot   uint8
	info   storage.ShardInfo
	ctx    context.Context // of create and append
	cancel context.CancelFunc
	run    func()              // l.drain, made once
	writer storage.ShardWriter // the task's; nil before create and when it is over
	spent  bool                // the task's: Seal was called
	sealed bool                // the task's: the shard is durable

	mu struct {
		sync.Mutex
		queue   []step
		running bool
		done    int   // steps
		err     error // why the lane was left out
		remove  bool  // what it wrote must go, even when sealed
		cleaned bool
	}
}

func newLane(ctx context.Context, w *stagedBlob, shard, slot uint8, info storage.ShardInfo) *lane {
	l := &lane{w: w, d: w.d, id: w.id, shard: shard, slot: slot, info: info}
	l.ctx, l.cancel = context.WithCancel(ctx)
	l.run = l.drain
	return l
}

// push gives the lane a step, or nothing when it was left out.
func (l *lane) push(s step) {
	l.mu.Lock()
	if l.mu.err != nil {
		l.mu.Unlock()
		return
	}
	if s.stripe != nil {
		s.stripe.retain()
	}
	l.mu.queue = append(l.mu.queue, s)
	start := l.startLocked()
	l.mu.Unlock()
	if start {
		l.d.task(l.run)
	}
}

// startLocked reports whether the caller has to start the task.
func (l *lane) startLocked() bool {
	start := !l.mu.running
	l.mu.running = true
	return start
}

// drop leaves the lane out from now on: what it does not need to do any more is
// forgotten, what it does is cancelled, and its task cleans up. With remove a
// shard that is sealed goes, too.
func (l *lane) drop(why error, remove bool) {
	l.mu.Lock()
	if l.mu.err == nil {
		l.mu.err = why
	}
	l.forgetLocked()
	start := false
	if remove && !l.mu.remove {
		l.mu.remove, l.mu.cleaned = true, false
	}
	if !l.mu.cleaned {
		start = l.startLocked()
	}
	l.mu.Unlock()
	l.cancel()
	if start {
		l.d.task(l.run)
	}
}

// forgetLocked empties the queue.
func (l *lane) forgetLocked() {
	for _, s := range l.mu.queue {
		if s.stripe != nil {
			s.stripe.release()
		}
	}
	clear(l.mu.queue)
	l.mu.queue = l.mu.queue[:0]
}

// drain is the task: it does what is queued, then ends.
func (l *lane) drain() {
	defer l.d.tasks.Done()
	for {
		l.mu.Lock()
		if l.mu.err != nil {
			if l.mu.cleaned {
				l.mu.running = false
				l.mu.Unlock()
				l.signal()
				return
			}
			l.mu.cleaned = true
			remove := l.mu.remove
			l.mu.Unlock()
			l.clean(remove)
			continue
		}
		if len(l.mu.queue) == 0 {
			l.mu.running = false
			l.mu.Unlock()
			return
		}
		s := l.mu.queue[0]
		copy(l.mu.queue, l.mu.queue[1:])
		l.mu.queue = l.mu.queue[:len(l.mu.queue)-1]
		l.mu.Unlock()

		err := l.do(s)
		if s.stripe != nil {
			s.stripe.release()
		}
		l.finish(err)
		l.signal()
	}
}

// finish counts a step, or leaves the lane out.
func (l *lane) finish(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.mu.done++
		return
	}
	if l.mu.err == nil {
		l.mu.err = err
	}
	l.forgetLocked()
}

// signal wakes the writer up. One signal stands for any number.
func (l *lane) signal() {
	select {
	case l.w.wake <- struct{}{}:
	default:
	}
}

func (l *lane) do(s step) error {
	switch s.kind {
	case stepCreate:
		w, err := l.d.opts.Disks[l.slot].CreateShard(l.ctx, l.id, l.info)
		if err != nil {
			return fmt.Errorf("create: %w", err)
		}
		l.writer = w
	case stepAppend:
		block := s.stripe.blocks[l.shard]
		sum := frame.Sum(l.id.UUID, l.id.Part, l.shard, uint32(s.stripe.number), block)
		if err := l.writer.Append(l.ctx, block, sum); err != nil {
			return fmt.Errorf("append block %d: %w", s.stripe.number, err)
		}
	case stepSeal:
		// Both contexts end a seal: the one of this call, and the lane's when
		// the lane is left out.
		ctx, cancel := context.WithCancel(s.ctx)
		defer cancel()
		stop := context.AfterFunc(l.ctx, cancel)
		defer stop()
		l.spent = true
		if err := l.writer.Seal(ctx); err != nil {
			return fmt.Errorf("seal: %w", err)
		}
		l.sealed = true
		l.d.writes[l.slot].pardon()
	}
	return nil
}

// clean ends the shard of a lane that was left out. One whose seal failed is
// removed: nobody knows what of it is durable. One that was sealed too late to
// count stays: it is whole, and whoever repairs the blob will find it under its
// name. The context is not the request's, which may be why we are here.
func (l *lane) clean(remove bool) {
	var err error
	switch {
	case l.writer == nil:
	case !l.spent:
		err = l.writer.Abort()
	case !l.sealed || remove:
		err = l.d.opts.Disks[l.slot].RemoveShard(context.WithoutCancel(l.ctx), l.id)
	}
	if err != nil {
		// An orphan on a disk in trouble: the sweep of unreferenced shards
		// finds it when the disk is back.
		l.d.opts.Log.Warn().Stringer("shard", l.id).Uint8("slot", l.slot).Err(err).Msg("clean up after a write")
	}
}

// failure is why the lane was left out, or nil.
func (l *lane) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.err
}

// busy reports whether the lane's task runs.
func (l *lane) busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.running
}

// at says whether the lane is still in, and has done n steps.
func (l *lane) at(n int) (in, done bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.err == nil, l.mu.err == nil && l.mu.done >= n
}

// patience is how long a wait for lanes lasts: each level ends sooner than the
// one below it, as it takes fewer disks to be at fault.
type patience uint8

const (
	patient   patience = iota // more disks are late than parity makes good
	worried                   // parity makes them good, but the write fails without them
	impatient                 // enough lanes are done; the rest is a courtesy
)

// patience judges a wait in which done lanes are over and need must be.
func (w *stagedBlob) patience(done, need int) patience {
	switch {
	case done >= need:
		return impatient
	case done >= int(w.layout.K):
		return worried
	}
	return patient
}

// limit is how much longer to wait when the lanes that are done took so long.
// Late is late beside the others: when all disks are busy and enough of them
// took long, the last may take longer before a shard is given up for it. A
// write that fails for it may as well fail soon: disks that hang are set aside
// then, and the client's next try does without them.
func (w *stagedBlob) limit(p patience, took time.Duration) time.Duration {
	switch p {
	case impatient:
		return max(w.d.opts.SlowAfter, 2*took)
	case worried:
		return min(max(2*w.d.opts.SlowAfter, 2*took), w.d.opts.StallAfter)
	}
	return w.d.opts.StallAfter
}

// awaitStep is await for the first n steps.
func (w *stagedBlob) awaitStep(ctx context.Context, n, need int) error {
	var timer <-chan time.Time
	stop := func() {}
	defer func() { stop() }()
	armed := patient // what the timer is for
	began := w.d.opts.Env.Now()
	for {
		in, done := w.progress(n)
		if in < need {
			return contextError(ctx, w.failed(in, need))
		}
		if done == in {
			return nil
		}
		if p := w.patience(done, need); timer == nil || p > armed {
			stop()
			armed = p
			timer, stop = w.d.opts.Env.After(w.limit(p, w.d.opts.Env.Now().Sub(began)))
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer:
			w.dropLate(n)
			timer = nil
		}
	}
}

// progress counts the lanes that are still in, and those of them that have done
// n steps.
func (w *stagedBlob) progress(n int) (in, done int) {
	for _, l := range w.lanes {
		i, d := l.at(n)
		if i {
			in++
		}
		if d {
			done++
		}
	}
	return in, done
}

// dropLate leaves out every lane that has not done n steps.
func (w *stagedBlob) dropLate(n int) {
	for _, l := range w.lanes {
		if in, done := l.at(n); in && !done {
			l.drop(errSlow, false)
			w.d.count.Laggards.Add(1)
			w.d.suspect(l.slot, "write")
		}
	}
}

// failed is the error of a write with too few lanes left.
func (w *stagedBlob) failed(have, need int) error {
	var disks []error
	for _, f := range w.failures() {
		disks = append(disks, f)
	}
	return writeFailure("write", have, need, disks)
}

// nextStripe gives a stripe to fill as number s, when the disks are done with
// the one before it in its place of the ring. A lane that hangs takes its
// stripe with it; another is borrowed for it if there is memory.
func (w *stagedBlob) nextStripe(ctx context.Context, s int64) (*stripe, error) {
	place := &w.ring[s%int64(w.window)]
	if *place == nil {
		st, err := newStripe(w.layout, w.res.Get)
		if err != nil {
			return nil, fmt.Errorf("write: %w: %w", ErrOverload, err)
		}
		*place = st
		return st, nil
	}
	if err := w.awaitStep(ctx, w.steps-w.window+1, w.layout.quorum()); err != nil {
		return nil, err
	}
	if (*place).shared() {
		(*place).release()
		*place = nil
		st, err := newStripe(w.layout, w.d.opts.Pool.Get)
		if err != nil {
			return nil, fmt.Errorf("write: %w: %w", ErrOverload, err)
		}
		*place = st
	}
	return *place, nil
}

// releaseRing drops the writer's references.
func (w *stagedBlob) releaseRing() {
	for i, st := range w.ring {
		if st != nil {
			st.release()
			w.ring[i] = nil
		}
	}
}
