package bench

import (
	"context"
	"errors"
	"fmt"

	"ringfence/storage"
	"ringfence/storage/uring"
)

// scanRings reads through rings: a driver per device, as the store has.
type scanRings struct {
	drivers []*uring.Driver
	align   []int // of the devices' direct reads; nil without
}

func startScanRings(ctx context.Context, leg ScanLeg, pool *storage.Pool) (scanEngine, error) {
	mode, err := uring.ParseMode(leg.Engine.Mode)
	if err != nil {
		return nil, usagef("mode: %v", err)
	}
	e := &scanRings{}
	for device := range devices(leg.Files) {
		d, err := uring.Start(ctx, uring.Options{
			Dir: leg.Load.TempDir, Pool: pool, Mode: mode, Shards: leg.Engine.Shards,
			Entries: entriesFor(leg.Load.Threads * leg.Load.Depth), Bytes: mulSat(int64(leg.Load.RequestBytes), int64(leg.Load.Threads)*int64(leg.Load.Depth)),
		})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("rings of device %d: %w", device, err), e.close(ctx))
		}
		e.drivers = append(e.drivers, d)
		if leg.Engine.Direct {
			align, err := deviceAlign(leg.Files, device)
			if err != nil {
				return nil, errors.Join(err, e.close(ctx))
			}
			e.align = append(e.align, align)
		}
	}
	return e, nil
}

// deviceAlign asks the file system of a device.
func deviceAlign(files []ScanFile, device int) (int, error) {
	for _, f := range files {
		if f.Device == device {
			return directAlign(f.Path)
		}
	}
	return pageBytes, nil
}

// run keeps as many requests in flight as there are buffers. One goroutine
// does: a wake-up for each request would cost more than the request.
func (e *scanRings) run(ctx context.Context, t *thread, bufs []*storage.Buf, got func(request, *storage.Buf)) error {
	type flight struct {
		op  *uring.Op
		req request
	}
	flights := make([]flight, len(bufs))
	var failed error
	finish := func(slot int) {
		f := flights[slot]
		flights[slot] = flight{}
		n, err := f.op.Wait(ctx)
		if err == nil && n < f.req.n {
			err = short(n, f.req.n, f.req.off)
		}
		if err = errors.Join(err, f.req.fd.Release()); err != nil {
			failed = errors.Join(failed, err)
			return
		}
		got(f.req, bufs[slot])
	}
	slot := 0
	for failed == nil {
		if flights[slot].op != nil {
			finish(slot) // the oldest
			continue
		}
		r, ok, err := t.take()
		if err != nil || !ok {
			failed = err
			break
		}
		bufs[slot].SetLen(r.n)
		op, err := e.submit(r, bufs[slot])
		for n := (slot + 1) % len(flights); errors.Is(err, uring.ErrSaturated) && n != slot; n = (n + 1) % len(flights) {
			if flights[n].op != nil {
				finish(n)
				op, err = e.submit(r, bufs[slot])
			}
		}
		if err != nil {
			failed = errors.Join(failed, err, r.fd.Release())
			break
		}
		flights[slot] = flight{op, r}
		slot = (slot + 1) % len(flights)
	}
	for i := range flights {
		if n := (slot + i) % len(flights); flights[n].op != nil {
			finish(n)
		}
	}
	return failed
}

func (e *scanRings) submit(r request, b *storage.Buf) (*uring.Op, error) {
	req := uring.Request{File: r.fd, Bufs: []*storage.Buf{b}, Off: r.off}
	if e.align != nil {
		req.Align = e.align[r.device]
	}
	return e.drivers[r.device].TrySubmit(req)
}

func (e *scanRings) counts(int64) Counts {
	c := Counts{Opens: -1, Syscalls: -1, InlineHits: -1}
	for _, d := range e.drivers {
		c = addRings(c, d.Stats())
	}
	return c
}

func (e *scanRings) close(ctx context.Context) (err error) {
	for _, d := range e.drivers {
		_, closing := d.Close(ctx)
		err = errors.Join(err, closing)
	}
	return err
}
