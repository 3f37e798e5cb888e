package uring

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ringfence/storage"
	"ringfence/storage/uring/ringtest"
)

// TestManyOnASimulatedKernel is the model with threads: callers of all kinds on
// a kernel that does what kernels may, until the driver is closed under them.
func TestManyOnASimulatedKernel(t *testing.T) {
	rounds := 6
	if required("million") {
		rounds = 500
	}
	for range rounds {
		manyOnASimulatedKernel(t, rand.Uint64())
	}
}

func manyOnASimulatedKernel(t *testing.T, seed uint64) {
	sim := ringtest.NewSim(ringtest.SimOptions{Seed: seed})
	pool := newPool(t, 16<<20)
	d, err := Start(t.Context(), Options{
		Dir: t.TempDir(), Setup: sim.Setup, Shards: 2, Entries: 8, Pool: pool, Mode: Mode(seed % 4), DrainTimeout: 30 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	d.sizeOf = func(int) (int64, error) { return int64(len(modelData)), nil }
	sim.SetFaults(ringtest.Faults{
		Short: 0.3, Ragged: 0.3, Transient: 0.2, Fail: 0.05, Late: 0.3, Busy: 0.2, Enter: 0.2, Partial: 0.3, Scribble: true,
	})
	files := []modelFile{
		{SimFile: sim.File(modelData)}, {SimFile: sim.Direct(modelData, 512), align: 512}, {SimFile: sim.Direct(modelData, 4096), align: 4096},
	}
	var wg sync.WaitGroup
	for c := range uint64(6) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, c))
			for done := false; !done; {
				done = oneOnASimulatedKernel(t, d, pool, files[rng.IntN(len(files))], rng)
			}
		})
	}
	eventually(t, "reads are made", func() bool { s := d.Stats(); conserved(t, s); return s.Total().Submitted > 300 })
	s, err := d.Close(t.Context())
	wg.Wait()
	if err != nil || s.Total().InFlight != 0 || s.Total().Overflow != 0 {
		t.Errorf("seed %d: %+v, %v", seed, s.Total(), err)
	}
	conserved(t, s)
	if err := sim.Err(); err != nil {
		t.Errorf("seed %d: %v", seed, err)
	}
	for i, f := range files {
		if f.Refs() != 1 {
			t.Errorf("seed %d: file %d has %d references", seed, i, f.Refs())
		}
	}
	if pool.InUse() != 0 {
		t.Errorf("seed %d: %d bytes in use", seed, pool.InUse())
	}
}

// oneOnASimulatedKernel reports that the driver is closed.
func oneOnASimulatedKernel(t *testing.T, d *Driver, pool *storage.Pool, f modelFile, rng *rand.Rand) bool {
	off := rng.IntN(len(modelData) + 100)
	var bufs []*storage.Buf
	size := 0
	for range 1 + rng.IntN(3) {
		b, err := pool.Get(rng.IntN(6000))
		if err != nil {
			t.Error(err)
			return true
		}
		bufs = append(bufs, b)
		size += len(b.Bytes())
	}
	ctx, cancel := context.WithCancel(t.Context())
	if rng.IntN(3) == 0 {
		ctx, cancel = context.WithTimeout(t.Context(), time.Duration(rng.IntN(500))*time.Microsecond)
	}
	defer cancel()
	n, err := d.Read(ctx, Request{File: f, Bufs: bufs, Off: int64(off), Align: f.align})
	if err == nil {
		var got []byte
		for _, b := range bufs {
			got = append(got, b.Bytes()...)
		}
		if !bytes.Equal(got[:n], modelData[min(off, len(modelData)):min(off+size, len(modelData))]) {
			t.Errorf("%d bytes at %d are others", n, off)
		}
	}
	for _, b := range bufs {
		b.Release()
	}
	switch {
	case errors.Is(err, ErrClosed):
		return true
	case err == nil, ctx.Err() != nil, err == unix.ECANCELED, err == unix.EIO, err == unix.EINTR, err == unix.EAGAIN, err == ErrShort:
		return false
	}
	t.Errorf("%d bytes at %d: %v", size, off, err)
	return true
}
