package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"ringfence/storage"
	"ringfence/storage/hybrid"
	"ringfence/storage/std"
	"ringfence/storage/uring"
)

// startRings starts the strategies that need io_uring.
func startRings(ctx context.Context, leg Leg, pool *storage.Pool) (engine, error) {
	if leg.Engine.Strategy == Hybrid {
		return startHybrid(ctx, leg, pool)
	}
	mode, err := uring.ParseMode(leg.Engine.Mode)
	if err != nil {
		return nil, usagef("mode: %v", err)
	}
	e := &rings{file: leg.File, random: leg.Load.Access != Warm}
	if leg.Engine.Direct {
		e.flags, e.align = unix.O_DIRECT, leg.Engine.Align
		if e.align == 0 {
			if e.align, err = directAlign(leg.File.Path); err != nil {
				return nil, err
			}
		}
	}
	e.driver, err = uring.Start(ctx, uring.Options{
		Dir: filepath.Dir(leg.File.Path), Pool: pool, Mode: mode, Shards: leg.Engine.Shards, Entries: leg.Engine.Entries,
		Bytes: mulSat(int64(leg.Load.ReadSize), int64(leg.Load.Concurrency)*int64(leg.Load.Depth)),
	})
	if err != nil {
		return nil, err
	}
	if leg.Engine.Strategy == UringCached {
		if e.cached, err = e.open(); err != nil {
			return nil, errors.Join(err, e.close(ctx))
		}
	}
	return e, nil
}

// entriesFor is room for so many reads.
func entriesFor(reads int) int {
	n := 128
	for n < reads && n < uring.EntriesMax {
		n *= 2
	}
	return n
}

// directAlign is what O_DIRECT reads of a file must be aligned to.
func directAlign(path string) (int, error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_DIOALIGN, &st); err != nil {
		return 0, fmt.Errorf("alignment of direct reads of %s: %w", path, err)
	}
	align := int(max(st.Dio_mem_align, st.Dio_offset_align))
	if st.Mask&unix.STATX_DIOALIGN == 0 || align < 512 || align&(align-1) != 0 {
		return pageBytes, nil
	}
	return align, nil
}

// rings reads through a driver, without tiers.
type rings struct {
	file   File
	driver *uring.Driver
	flags  int
	align  int
	random bool
	cached *descriptor // nil to open the file for every read
	opens  atomic.Int64
}

var _ submitter = (*rings)(nil)

func (e *rings) open() (*descriptor, error) {
	fd, err := open(e.file.Path, unix.O_RDONLY|e.flags, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", e.file.Path, err)
	}
	if e.random {
		if err := unix.Fadvise(fd, 0, 0, unix.FADV_RANDOM); err != nil {
			return nil, errors.Join(fmt.Errorf("advise: %w", err), unix.Close(fd))
		}
	}
	return newDescriptor(fd), nil
}

func (e *rings) read(ctx context.Context, bufs []*storage.Buf, off int64) error {
	fd := e.cached
	if fd == nil {
		var err error
		if fd, err = e.open(); err != nil {
			return err
		}
		e.opens.Add(1)
	}
	n, err := e.driver.Read(ctx, uring.Request{File: fd, Bufs: bufs, Off: off, Align: e.align})
	if e.cached == nil {
		err = errors.Join(err, fd.Release())
	}
	if want := sizeOf(bufs); err == nil && n != want {
		return short(n, want, off)
	}
	return err
}

func (e *rings) submit(bufs []*storage.Buf, off int64) (pending, error) {
	fd := e.cached
	if fd == nil {
		var err error
		if fd, err = e.open(); err != nil {
			return nil, err
		}
		e.opens.Add(1)
	}
	op, err := e.driver.TrySubmit(uring.Request{File: fd, Bufs: bufs, Off: off, Align: e.align})
	if e.cached == nil {
		err = errors.Join(err, fd.Release()) // the driver has its own reference
	}
	if err != nil {
		return nil, err
	}
	return ringOp{op, off, sizeOf(bufs)}, nil
}

// ringOp is a read under way.
type ringOp struct {
	op   *uring.Op
	off  int64
	want int
}

func (o ringOp) wait(ctx context.Context) error {
	n, err := o.op.Wait(ctx)
	if err == nil && n != o.want {
		return short(n, o.want, o.off)
	}
	return err
}

func (e *rings) counts(int64) Counts {
	return addRings(Counts{Opens: e.opens.Load(), InlineHits: -1, Syscalls: -1}, e.driver.Stats())
}

// addRings adds what a driver's shards counted.
func addRings(c Counts, s uring.Stats) Counts {
	for _, shard := range s.Shards {
		c.Enters += shard.Enters
		c.Wakes += shard.Wakes
	}
	c.Registered += s.RegisteredBytes
	return c
}

func (e *rings) close(ctx context.Context) error {
	var err error
	if e.cached != nil {
		err = e.cached.Release()
	}
	_, closing := e.driver.Close(ctx)
	return errors.Join(err, closing)
}

// startTimeout bounds the wait for a hybrid's rings.
const startTimeout = 10 * time.Second

// startHybrid starts what the store reads with.
func startHybrid(ctx context.Context, leg Leg, pool *storage.Pool) (engine, error) {
	dir := filepath.Dir(leg.File.Path)
	base, err := std.New(std.Options{Root: dir})
	if err != nil {
		return nil, err
	}
	knobs := hybrid.NewKnobs()
	knobs.Enable.Store(true)
	knobs.Inline.Store(leg.Engine.Inline)
	knobs.Shards.Store(int64(leg.Engine.Shards))
	knobs.Entries.Store(int64(leg.Engine.Entries))
	knobs.Direct.Store(leg.Engine.Direct)
	knobs.DirectThreshold.Store(0)
	knobs.Reclaim.Store(false) // a bench says itself what is in the page cache
	if err := knobs.Mode.Set(leg.Engine.Mode); err != nil {
		return nil, errors.Join(usagef("mode: %v", err), base.Close())
	}
	backend, err := hybrid.New(hybrid.Options{Base: base, Dir: dir, Pool: pool, Knobs: knobs})
	if err != nil {
		return nil, errors.Join(err, base.Close())
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		backend.Run(running)
	}()
	e := &backed{backend: backend,
		more: func(c *Counts) {
			s := backend.Status()
			*c = addRings(*c, s.Rings)
			c.InlineHits = s.Inline.Hits
			for _, n := range s.Fallbacks {
				c.Fallbacks += n
			}
		},
		stop: func(context.Context) error {
			stop()
			<-ended
			return nil
		},
	}
	if err := ringsServe(ctx, backend); err != nil {
		return nil, errors.Join(err, e.shut(ctx))
	}
	return openBacked(ctx, leg, e)
}

// ringsServe waits until a hybrid has rings.
func ringsServe(ctx context.Context, b *hybrid.Backend) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(100 * time.Microsecond)
	defer tick.Stop()
	for {
		s := b.Status()
		if s.Tier == "ring" {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the rings don't serve (%s): %w", s, context.Cause(ctx))
		}
	}
}
