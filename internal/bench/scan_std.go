package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"ringfence/storage"
)

// startScan makes the engine of a scan.
func startScan(ctx context.Context, leg ScanLeg, pool *storage.Pool) (scanEngine, error) {
	if leg.Engine.Scanner == ScanStd {
		return scanStd{}, nil
	}
	return startScanRings(ctx, leg, pool)
}

// scanStd reads by pread, with a goroutine for each request in flight.
type scanStd struct{}

func (scanStd) run(ctx context.Context, t *thread, bufs []*storage.Buf, got func(request, *storage.Buf)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var done sync.WaitGroup
	for _, b := range bufs {
		done.Go(func() {
			for ctx.Err() == nil {
				r, ok, err := t.take()
				if err == nil && !ok {
					return
				}
				if err == nil {
					err = errors.Join(r.pread(b), r.fd.Release())
				}
				if err != nil {
					cancel(err)
					return
				}
				got(r, b)
			}
		})
	}
	done.Wait()
	return context.Cause(ctx)
}

// pread fills b. A direct read asks for whole blocks, and the end of the file
// cuts it short.
func (r request) pread(b *storage.Buf) error {
	b.SetLen(min(b.Cap(), (r.n+pageBytes-1)&^(pageBytes-1)))
	for have := 0; have < r.n; {
		n, err := unix.Pread(r.fd.FD(), b.Bytes()[have:], r.off+int64(have))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("read at %d: %w", r.off, err)
		case n == 0:
			return short(have, r.n, r.off)
		default:
			have += n
		}
	}
	return nil
}

func (scanStd) counts(requests int64) Counts {
	return Counts{Opens: -1, Syscalls: requests, InlineHits: -1}
}

func (scanStd) close(context.Context) error { return nil }
