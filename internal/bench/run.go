package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"ringfence/storage"
)

// Run makes one measurement. The file must exist. Give each leg a process of
// its own: threads, memory and counters of an earlier one would show in its
// row.
func Run(ctx context.Context, leg Leg) (row Row, err error) {
	leg = leg.WithDefaults()
	leg.Procs = runtime.GOMAXPROCS(0)
	if err := leg.Check(); err != nil {
		return Row{}, err
	}
	fd, err := leg.File.open(0)
	if err != nil {
		return Row{}, err
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	bufs, err := newBuffers(leg.Load.Concurrency*leg.Load.Depth, leg.Load.ReadSize, leg.Engine.SmallPages)
	if err != nil {
		return Row{}, err
	}
	defer func() { err = errors.Join(err, bufs.close()) }()

	r := &runner{leg: leg, plan: newPlan(leg.Load, leg.File.Size), bufs: bufs}
	begun := time.Now()
	if r.engine, err = start(ctx, leg, bufs.pool); err != nil {
		return Row{}, err
	}
	defer func() { err = errors.Join(err, r.engine.close(context.WithoutCancel(ctx))) }()
	row = Row{Leg: leg, Setup: Setup{Init: time.Since(begun)}}
	if leg.Verify {
		return row, r.verify(ctx)
	}
	begun = time.Now()
	if err := r.engine.read(ctx, bufs.sets[0], 0); err != nil {
		return Row{}, fmt.Errorf("first read: %w", err)
	}
	row.Setup.FirstRead = time.Since(begun)
	if err := prepareCache(ctx, fd, r.plan); err != nil {
		return Row{}, err
	}
	row.Leg.Load.Ops = r.plan.ops
	return row, r.measure(ctx, fd, &row)
}

// runner is a leg that runs.
type runner struct {
	leg    Leg
	plan   plan
	bufs   *buffers
	engine engine

	next atomic.Int64 // the read that nobody has taken yet
}

// measure makes the reads and fills in the row.
func (r *runner) measure(ctx context.Context, fd int, row *Row) (err error) {
	if row.Cost.ResidentBefore, err = resident(fd, r.leg.File.Size); err != nil {
		return err
	}
	runtime.GC()
	watch := watchThreads(ctx)
	counted := r.engine.counts(0)
	before, err := usageNow()
	if err != nil {
		return err
	}
	times, elapsed, err := r.all(ctx)
	after, usageErr := usageNow()
	row.Counts = r.engine.counts(r.plan.ops).since(counted)
	var threadErr, memoryErr, residentErr error
	row.Cost.Threads, threadErr = watch.end()
	row.Cost.Memory, memoryErr = residentMemory()
	row.Cost.ResidentAfter, residentErr = resident(fd, r.leg.File.Size)
	row.Cost.CPU, row.Cost.DeviceBytes = after.cpu-before.cpu, after.device-before.device
	row.Timing = Timing{
		Elapsed: elapsed,
		P50:     times.quantile(0.5), P99: times.quantile(0.99), P999: times.quantile(0.999), P9999: times.quantile(0.9999),
		Max: times.most,
	}
	return errors.Join(err, usageErr, threadErr, memoryErr, residentErr)
}

// all makes the reads of the plan with all goroutines at once.
func (r *runner) all(ctx context.Context) (*histogram, time.Duration, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l := r.leg.Load
	work, each := r.one, 1
	if _, ok := r.engine.(submitter); ok && l.Depth > 1 {
		work, each = r.deep, l.Depth
	}
	gate := make(chan struct{})
	results := make([]histogram, len(r.bufs.sets)/each)
	var ready, done sync.WaitGroup
	for i := range results {
		sets := r.bufs.sets[i*each : (i+1)*each]
		ready.Add(1)
		done.Go(func() {
			ready.Done()
			<-gate
			if err := work(ctx, sets, &results[i]); err != nil {
				cancel(err)
			}
		})
	}
	ready.Wait()
	begun := time.Now()
	close(gate)
	done.Wait()
	elapsed := time.Since(begun)
	sum := &histogram{}
	for i := range results {
		sum.merge(&results[i])
	}
	err := context.Cause(ctx)
	if err == nil && sum.total != uint64(r.plan.ops) {
		err = fmt.Errorf("%d reads ended of %d", sum.total, r.plan.ops)
	}
	return sum, elapsed, err
}

// one makes one read after the other.
func (r *runner) one(ctx context.Context, sets [][]*storage.Buf, times *histogram) error {
	set, done := sets[0], ctx.Done()
	for last := time.Now(); ; {
		i := r.next.Add(1) - 1
		if i >= r.plan.ops {
			return nil
		}
		select {
		case <-done:
			return nil // somebody else has the reason
		default:
		}
		off := r.plan.at(i)
		if err := r.engine.read(ctx, set, off); err != nil {
			return fmt.Errorf("read %d, at %d: %w", i, off, err)
		}
		now := time.Now()
		times.add(now.Sub(last))
		last = now
	}
}

// deep keeps a read in flight for each set of buffers, so that a goroutine is
// woken once for many of them.
func (r *runner) deep(ctx context.Context, sets [][]*storage.Buf, times *histogram) error {
	e, _ := r.engine.(submitter)
	type flight struct {
		op    pending
		begun time.Time
	}
	flights := make([]flight, len(sets))
	begin := func(slot int) error {
		i := r.next.Add(1) - 1
		if i >= r.plan.ops {
			return nil
		}
		op, err := e.submit(sets[slot], r.plan.at(i))
		if err != nil {
			return fmt.Errorf("submit read %d: %w", i, err)
		}
		flights[slot] = flight{op, time.Now()}
		return nil
	}
	var failed error
	for slot := range flights {
		if failed = begin(slot); failed != nil {
			break
		}
	}
	// Waiting is in the order of submission; on failure, for all that are left.
	for slot := 0; flights[slot].op != nil; slot = (slot + 1) % len(flights) {
		f := flights[slot]
		flights[slot] = flight{}
		if err := f.op.wait(ctx); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		times.add(time.Since(f.begun))
		if failed == nil {
			failed = begin(slot)
		}
	}
	return failed
}
