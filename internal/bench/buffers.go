package bench

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"ringfence/storage"
)

// slabBytes is what storage.Pool maps at once: room for it beyond the buffers
// keeps a budget from failing for its last fraction.
const slabBytes = storage.MaxBuf

// buffers are the memory of a leg, all taken and touched before it starts.
// Every strategy reads into the same kind, so that only the engine differs.
type buffers struct {
	pool *storage.Pool
	sets [][]*storage.Buf // one per read in flight
}

// newBuffers makes memory for n reads of size bytes each.
func newBuffers(n, size int, small bool) (*buffers, error) {
	budget := (mulSat(bufferBytes(size), int64(n))+slabBytes-1)/slabBytes*slabBytes + slabBytes
	pool, err := storage.NewPool(storage.PoolOptions{BudgetBytes: budget, IdleBytes: budget})
	if err != nil {
		return nil, err
	}
	b := &buffers{pool: pool}
	for range n {
		if err := b.take(size, small); err != nil {
			return nil, errors.Join(err, b.close())
		}
	}
	return b, nil
}

// take makes the buffers of one read.
func (b *buffers) take(read int, small bool) error {
	b.sets = append(b.sets, nil)
	set := &b.sets[len(b.sets)-1]
	for left := read; left > 0; {
		size := min(left, storage.MaxBuf)
		buf, err := b.pool.Get(size)
		if err != nil {
			return err
		}
		*set = append(*set, buf)
		left -= size
		buf.SetLen(buf.Cap())
		if small {
			if err := smallPages(buf.Bytes()); err != nil {
				return err
			}
		}
		clear(buf.Bytes()) // the kernel's first page fault is not the engine's
		buf.SetLen(size)
	}
	return nil
}

// smallPages gives a range pages of the ordinary size, in place of whatever it
// has.
func smallPages(p []byte) error {
	if err := unix.Madvise(p, unix.MADV_NOHUGEPAGE); err != nil {
		return fmt.Errorf("small pages: %w", err)
	}
	if err := unix.Madvise(p, unix.MADV_DONTNEED); err != nil {
		return fmt.Errorf("small pages: %w", err)
	}
	return nil
}

func (b *buffers) close() error {
	for _, set := range b.sets {
		for _, buf := range set {
			buf.Release()
		}
	}
	return b.pool.Close()
}
