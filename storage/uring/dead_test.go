package uring

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ringfence/storage/uring/ringtest"
)

// TestDeadShardLeavesNothing: a ring that took no reads has no use for thread,
// ring and descriptors, though the read of its wake-up is under way for ever.
func TestDeadShardLeavesNothing(t *testing.T) {
	needRing(t)
	before, leaks := measure(t), leakedShards()
	data := content(8192)
	f := openFile(t, writeFile(t, data), 0)
	pool := newPool(t, 8<<20)
	d, script := scripted(t, Options{Pool: pool, DrainTimeout: 200 * time.Millisecond})
	b := getBuf(t, pool, 4096)
	defer b.Release()
	var dying atomic.Int64 // the ring that refuses everything from its next rest on
	script.Hook(ringtest.Hooks{Enter: func(n, queued, _ int) error {
		if queued == 0 {
			dying.CompareAndSwap(0, int64(n))
		}
		if dying.Load() == int64(n) {
			return unix.EAGAIN
		}
		return nil
	}})
	eventually(t, "a shard dies", func() bool {
		_, err := d.ReadAt(t.Context(), f, b, 0)
		return errors.Is(err, ErrClosed) && errors.Is(err, unix.EAGAIN)
	})
	eventually(t, "the shard is replaced", func() bool {
		_, err := d.ReadAt(t.Context(), f, b, 0)
		return err == nil
	})
	if _, err := d.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := f.Release(); err != nil {
		t.Error(err)
	}
	eventually(t, "all is given back", func() bool {
		now := measure(t)
		return now.fds <= before.fds && now.goroutines <= before.goroutines && now.maps <= before.maps && leakedShards() == leaks
	})
}
