package erasure

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"ringfence/erasure/rs"
	"ringfence/internal/env"
	"ringfence/storage"
)

// dataOptions configures newData.
type dataOptions struct {
	Disks  []storage.Disk // of the set, by slot
	Parity int            // parity shards of every layout; see CheckParity
	Pool   *storage.Pool  // memory of all stripes in flight
	Env    env.Env        // zero: env.System()
	Log    zerolog.Logger
	// Damaged is told of a shard that a reader found wrong or gone on a disk
	// that answers. It is called on reading goroutines, at most once for a
	// shard and a reader, and must not block.
	Damaged func(b blob, shard uint8, err error)
	// SlowAfter is how long a write waits for the last disks when enough have
	// done their part, or twice as long as those took if that is longer; 0: 2 s.
	SlowAfter time.Duration
	// StallAfter is how long a write or read waits when not enough disks have;
	// 0: 30 s. A write that only disks hold up that parity would make good waits
	// for them twice as long as SlowAfter says, at most.
	StallAfter time.Duration
	// ReserveWait bounds the wait for memory; 0: 10 s.
	ReserveWait time.Duration
}

func (o dataOptions) withDefaults() dataOptions {
	if o.Env.IsZero() {
		o.Env = env.System()
	}
	if o.Damaged == nil {
		o.Damaged = func(blob, uint8, error) {}
	}
	if o.SlowAfter == 0 {
		o.SlowAfter = 2 * time.Second
	}
	if o.StallAfter == 0 {
		o.StallAfter = 30 * time.Second
	}
	if o.ReserveWait == 0 {
		o.ReserveWait = 10 * time.Second
	}
	return o
}

// data stores runs of bytes as shards on the disks of one set and reads them
// back. It decides nothing about objects: what a blob means, and whether it is
// still wanted, is the caller's to know. Its methods may be called
// concurrently.
type data struct {
	opts   dataOptions
	codecs rs.Cache
	reads  []pace // by slot
	writes []pace // by slot
	budget budget
	tasks  sync.WaitGroup
	count  dataCounters
}

// dataCounters are totals since newData.
type dataCounters struct {
	Hedged        atomic.Int64 // extra reads because another was late
	Retried       atomic.Int64 // extra reads because another failed
	Reconstructed atomic.Int64 // data blocks computed from others
	Damaged       atomic.Int64 // shards reported to Damaged
	Laggards      atomic.Int64 // shards left out of a write because the disk was slow
	Dropped       atomic.Int64 // shards left out of a write because the disk failed
	Narrowed      atomic.Int64 // writes with fewer shards than the set has disks
}

// newData makes the data path of one set. It starts nothing.
func newData(opts dataOptions) *data {
	opts = opts.withDefaults()
	return &data{
		opts:   opts,
		reads:  make([]pace, len(opts.Disks)),
		writes: make([]pace, len(opts.Disks)),
	}
}

// task runs f as the data path's own: wait waits for it. Work that a hung disk
// holds outlives the request that gave up on it.
func (d *data) task(f func()) {
	d.tasks.Add(1)
	d.opts.Env.Go(f)
}

// attempt runs f, which belongs to one disk, as the data path's own. It returns
// what f does, or errSlow when that takes very long, or ctx's error; then f may
// still run, and what it writes must not be looked at.
func (d *data) attempt(ctx context.Context, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	d.task(func() {
		defer d.tasks.Done()
		ended <- f(ctx)
	})
	late, stop := d.opts.Env.After(d.opts.StallAfter)
	defer stop()
	select {
	case err := <-ended:
		return err
	case <-late:
		return errSlow
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// wait returns when all work that outlived its request has ended, or with ctx's
// error. Call it after the last request.
func (d *data) wait(ctx context.Context) error {
	idle := make(chan struct{})
	d.opts.Env.Go(func() {
		d.tasks.Wait()
		close(idle)
	})
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for disks: %w", context.Cause(ctx))
	}
}

// reserve sets memory aside, waiting a bounded time for others to finish.
// ErrOverload, or ctx's error.
func (d *data) reserve(ctx context.Context, bytes int64) (*storage.Reservation, error) {
	bounded, cancel := context.WithTimeout(ctx, d.opts.ReserveWait)
	defer cancel()
	res, err := d.opts.Pool.Reserve(bounded, bytes)
	if err != nil {
		return nil, contextError(ctx, fmt.Errorf("%w: %w", ErrOverload, err))
	}
	return res, nil
}

// diskUse says what one disk is good for right now.
type diskUse struct {
	Slot    uint8
	Health  storage.Health
	Read    bool // reads are sent there first
	Write   bool // new shards are put there
	Avoided bool // set aside because it kept requests waiting or failed them
}

// health says which disks are used. It is cheap.
func (d *data) health() []diskUse {
	uses := make([]diskUse, len(d.opts.Disks))
	now := d.opts.Env.Now()
	for i, disk := range d.opts.Disks {
		h := disk.Health()
		slowRead, slowWrite := d.reads[i].aside(now), d.writes[i].aside(now)
		uses[i] = diskUse{
			Slot:    uint8(i),
			Health:  h,
			Read:    (h.State == storage.StateOK || h.State == storage.StateFull) && !slowRead,
			Write:   h.State == storage.StateOK && !slowWrite,
			Avoided: slowRead || slowWrite,
		}
	}
	return uses
}

// suspect sets a disk aside for reads and writes, since it held up a request
// for very long.
func (d *data) suspect(slot uint8, op string) {
	now := d.opts.Env.Now()
	first := d.reads[slot].avoid(now)
	if d.writes[slot].avoid(now) || first {
		d.opts.Log.Warn().Uint8("slot", slot).Str("op", op).Msg("disk is set aside: it keeps requests waiting")
	}
}

// removeError says which shards of a blob could not be removed.
type removeError struct {
	Slots []uint8 // of the disks to try again
	Errs  []error
}

func (e *removeError) Error() string {
	return fmt.Sprintf("remove shards in slots %v: %v", e.Slots, errors.Join(e.Errs...))
}

func (e *removeError) Unwrap() []error { return e.Errs }

// remove deletes the blob's shards on all disks of its layout, the missing ones
// too. It is idempotent. A *removeError names the disks that could not say that
// theirs is gone.
func (d *data) remove(ctx context.Context, b blob) error {
	if err := b.check(); err != nil {
		return fmt.Errorf("remove blob: %w", err)
	}
	return d.removeFrom(ctx, b, b.Layout.Slots)
}

// removeFrom is remove for the disks in slots only.
func (d *data) removeFrom(ctx context.Context, b blob, slots []uint8) error {
	type answer struct {
		slot uint8
		err  error
	}
	answers := make(chan answer, len(slots))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	waiting := make(map[uint8]bool, len(slots))
	for _, slot := range slots {
		waiting[slot] = true
		d.task(func() {
			defer d.tasks.Done()
			if int(slot) >= len(d.opts.Disks) {
				answers <- answer{slot, fmt.Errorf("slot %d: %w", slot, storage.ErrOffline)}
				return
			}
			answers <- answer{slot, d.opts.Disks[slot].RemoveShard(ctx, b.id())}
		})
	}
	var failed removeError
	slow, stop := d.opts.Env.After(d.opts.SlowAfter)
	defer stop()
	for len(waiting) > 0 {
		select {
		case a := <-answers:
			delete(waiting, a.slot)
			if a.err != nil {
				failed.Slots = append(failed.Slots, a.slot)
				failed.Errs = append(failed.Errs, a.err)
			}
			continue
		case <-ctx.Done():
		case <-slow:
		}
		for _, slot := range slots {
			if waiting[slot] {
				failed.Slots = append(failed.Slots, slot)
				failed.Errs = append(failed.Errs, contextError(ctx, errSlow))
			}
		}
		break
	}
	if len(failed.Slots) > 0 {
		return &failed
	}
	return nil
}
