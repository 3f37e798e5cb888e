package bench

import (
	"context"
	"fmt"
	"sync"

	"ringfence/storage"
)

// verifyReads is how many reads at the plan's offsets a verification makes
// beside the one pass over the whole file.
const verifyReads = 2000

// verify reads every byte of the file once, and then ranges as a measurement
// does, and compares all of them with what the file must hold. It is never
// timed: comparing costs more than reading.
func (r *runner) verify(ctx context.Context) error {
	step := int64(r.leg.Load.ReadSize)
	last := r.leg.File.Size - step
	if r.leg.Engine.Direct && !r.leg.Engine.Strategy.rings() {
		last &^= pageBytes - 1 // system calls can't read the rest of a block
	}
	whole := (last + step - 1) / step
	total := whole + 1 + min(r.plan.ops, verifyReads)
	at := func(i int64) int64 {
		switch {
		case i < whole:
			return i * step
		case i == whole:
			return last // the tail, at whatever offset that is
		}
		return r.plan.at(i - whole - 1)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var readers sync.WaitGroup
	for _, set := range r.bufs.sets {
		readers.Go(func() {
			for ctx.Err() == nil {
				i := r.next.Add(1) - 1
				if i >= total {
					return
				}
				if err := r.verifyOne(ctx, set, at(i)); err != nil {
					cancel(fmt.Errorf("%s: %w", r.leg.Engine.Strategy, err))
					return
				}
			}
		})
	}
	readers.Wait()
	return context.Cause(ctx)
}

// stale marks memory before a read: what an earlier one left there must not
// pass for this one's.
const stale = 0xa5

func (r *runner) verifyOne(ctx context.Context, set []*storage.Buf, off int64) error {
	for _, b := range set {
		p := b.Bytes()
		for i := range p {
			p[i] = stale
		}
	}
	if err := r.engine.read(ctx, set, off); err != nil {
		return err
	}
	for _, b := range set {
		if err := compare(b.Bytes(), off); err != nil {
			return err
		}
		off += int64(len(b.Bytes()))
	}
	return nil
}
