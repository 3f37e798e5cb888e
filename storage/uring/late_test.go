package uring

import (
	"context"
	"sync"
	"testing"
	"time"

	"ringfence/storage"
)

// heldFile is a Descriptor whose Release waits, as closing does on a disk that
// hangs.
type heldFile struct{ held <-chan struct{} }

func (heldFile) FD() int          { return -1 }
func (heldFile) Acquire() error   { return nil }
func (f heldFile) Release() error { <-f.held; return nil }

func stoodDown(t *testing.T, o Options) *Driver {
	t.Helper()
	o.Dir = t.TempDir()
	o, err := o.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	d := newDriver(o)
	for _, l := range d.lanes { // their shards were given up
		close(l.done)
	}
	return d
}

// TestThreadThatComesBackWhileFilesClose: a shard that hung too long for Close
// settles its reads whenever the kernel lets it, most likely in the very moment
// in which the files that hung as well are closed.
func TestThreadThatComesBackWhileFilesClose(t *testing.T) {
	d := stoodDown(t, Options{})
	var waiters, threads sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		threads.Go(func() {
			for range 20000 {
				open := make(chan struct{})
				d.closeFile(heldFile{open})
				open <- struct{}{}
			}
		})
		waiters.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := d.filesClosed(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	threads.Wait()
	close(stop)
	waiters.Wait()
}

// TestFilesThatDontCloseKeepNoMemory: what a driver has mapped for good is the
// pool's again when its rings are gone, even if closing a file hangs.
func TestFilesThatDontCloseKeepNoMemory(t *testing.T) {
	pool, err := storage.NewPool(storage.PoolOptions{BudgetBytes: 16 << 20, IdleBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	d := stoodDown(t, Options{Pool: pool, Mode: ModeStatic, DrainTimeout: 20 * time.Millisecond})
	d.registry.open(d)
	if n := pool.Stats().MappedBytes; n != 16<<20 {
		t.Fatalf("%d bytes are mapped", n)
	}
	held := make(chan struct{})
	defer close(held)
	d.closeFile(heldFile{held})
	for range 2 {
		if _, err := d.Close(context.WithoutCancel(t.Context())); err == nil {
			t.Error("closed, while a file is not")
		}
	}
	if n := pool.Stats().MappedBytes; n >= 16<<20 {
		t.Errorf("%d bytes stay mapped", n)
	}
}
