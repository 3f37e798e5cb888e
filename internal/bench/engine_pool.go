package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"ringfence/internal/knob"
	"ringfence/storage"
	"ringfence/storage/std"
)

// backed reads through a storage.Backend, as the store does.
type backed struct {
	backend storage.Backend
	file    storage.File
	more    func(*Counts)               // what else is known
	stop    func(context.Context) error // after the backend was closed; may be nil
}

func startPool(ctx context.Context, leg Leg, pool *storage.Pool) (engine, error) {
	direct := knob.NewBool("", leg.Engine.Direct, "")
	backend, err := std.New(std.Options{
		Root: filepath.Dir(leg.File.Path), Pool: pool, Direct: direct, DirectThreshold: knob.NewSize("", 0, 0, 0, ""),
	})
	if err != nil {
		return nil, err
	}
	return openBacked(ctx, leg, &backed{backend: backend, more: func(c *Counts) {
		c.InlineHits = backend.Stats().Reads.Inline
	}})
}

// openBacked opens the file through the backend, which it closes if that fails.
func openBacked(ctx context.Context, leg Leg, e *backed) (engine, error) {
	file, err := e.backend.Open(ctx, filepath.Base(leg.File.Path))
	if err != nil {
		return nil, errors.Join(err, e.shut(ctx))
	}
	e.file = file
	if leg.Load.Access == Warm {
		return e, nil
	}
	if err := adviseRandom(file); err != nil {
		return nil, errors.Join(err, e.close(ctx))
	}
	return e, nil
}

// adviseRandom switches readahead off for the descriptor under a file.
func adviseRandom(file storage.File) error {
	raw, ok := file.(storage.RawFile)
	if !ok {
		return fmt.Errorf("%T does not show its descriptor", file)
	}
	d := raw.Descriptor()
	if err := d.Acquire(); err != nil {
		return err
	}
	err := unix.Fadvise(d.FD(), 0, 0, unix.FADV_RANDOM)
	return errors.Join(err, d.Release())
}

func (e *backed) read(ctx context.Context, bufs []*storage.Buf, off int64) error {
	var n int
	var err error
	if len(bufs) == 1 {
		n, err = e.file.ReadAt(ctx, bufs[0], off)
	} else {
		n, err = storage.ReadFull(ctx, e.file, bufs, off)
	}
	if want := sizeOf(bufs); err == nil && n != want {
		return short(n, want, off)
	}
	return err
}

func (e *backed) counts(int64) Counts {
	c := Counts{Syscalls: -1, InlineHits: -1}
	e.more(&c)
	return c
}

func (e *backed) close(ctx context.Context) error {
	return errors.Join(e.file.Close(), e.shut(ctx))
}

func (e *backed) shut(ctx context.Context) error {
	err := e.backend.Close()
	if e.stop != nil {
		err = errors.Join(err, e.stop(ctx))
	}
	return err
}
