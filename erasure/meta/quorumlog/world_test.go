package quorumlog

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"ringfence/storage"
	"ringfence/storage/storagetest"
)

// bay is the place of a disk in a machine: what is in it can be exchanged under
// the engine, which only ever sees the bay.
type bay struct {
	storage.Disk // nil methods are never reached: all used ones are below
	sim          *storagetest.Sim
	id           storage.Identity
	disk         atomic.Pointer[storagetest.SimDisk]
}

func (b *bay) Identity() storage.Identity { return b.id }

func (b *bay) KV() storage.KV { return b.disk.Load().KV() }

func (b *bay) ListShards(ctx context.Context, after storage.ShardID, n int) ([]storage.ShardID, error) {
	return b.disk.Load().ListShards(ctx, after, n)
}

func (b *bay) ResetKV(ctx context.Context) error { return b.disk.Load().ResetKV(ctx) }

// world is the disks of one set.
type world struct {
	steps *storagetest.Steps
	bays  []*bay
	made  int
}

func newWorld(tb testing.TB, n int) *world {
	w := &world{steps: &storagetest.Steps{}}
	for i := range n {
		sim := storagetest.NewSim(storagetest.SimOptions{Name: fmt.Sprintf("disk%d", i), Steps: w.steps})
		w.bays = append(w.bays, &bay{sim: sim, id: w.identity(i)})
	}
	w.openAll(tb)
	return w
}

// identity of a disk never seen before.
func (w *world) identity(slot int) storage.Identity {
	w.made++
	id := storage.Identity{Slot: uint8(slot)}
	id.Set[0], id.Disk[0], id.Disk[1] = 1, byte(w.made), byte(w.made>>8)
	return id
}

func (w *world) openAll(tb testing.TB) {
	tb.Helper()
	for _, b := range w.bays {
		if err := b.open(); err != nil {
			tb.Fatalf("open: %v", err)
		}
	}
}

// open puts a new instance into the bay, as a process that starts does, or one
// that notices that a disk came back.
func (b *bay) open() error {
	d, err := b.sim.Open(b.id)
	if err == nil {
		b.disk.Store(d)
	}
	return err
}

func (w *world) disks() (all []storage.Disk) {
	for _, b := range w.bays {
		all = append(all, b)
	}
	return all
}
