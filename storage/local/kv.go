package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"ringfence/storage"
)

// Get implements storage.KV. It runs on the caller: no read can end in
// Pebble's Fatalf. Like Iter it may show a batch whose Apply has not returned
// yet; if that Apply fails, what was read dies with the store.
func (k *kv) Get(_ context.Context, key []byte) ([]byte, error) {
	value, err := k.get(key)
	return value, k.wrap("kv get", err)
}

func (k *kv) get(key []byte) ([]byte, error) {
	if err := k.enter(); err != nil {
		return nil, err
	}
	defer k.users.leave()
	v, closer, err := k.db.Get(key)
	if err != nil {
		return nil, k.readFailed(err)
	}
	value := bytes.Clone(v)
	if value == nil {
		value = []byte{}
	}
	if err := closer.Close(); err != nil {
		return nil, k.readFailed(err)
	}
	// The store may have ended meanwhile, and this may be the write it ended by.
	if err := k.ended(); err != nil {
		return nil, err
	}
	return value, nil
}

// readFailed ends the store unless err says nothing about it.
func (k *kv) readFailed(err error) error {
	if errors.Is(err, pebble.ErrNotFound) {
		return storage.ErrNotFound
	}
	err = metaError(err)
	if !transient(err) {
		k.end(err)
	}
	return err
}

// Apply implements storage.KV. ctx counts until the batch is handed to Pebble;
// afterwards Apply waits for the hardware, since giving up would mean not to
// know, and not to know ends the store. A batch that was refused before it was
// handed over (a context that ended, a malformed one) leaves the store alive.
func (k *kv) Apply(ctx context.Context, b *storage.Batch) error {
	return k.wrap("kv apply", k.apply(ctx, b))
}

func (k *kv) apply(ctx context.Context, b *storage.Batch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := checkBatch(b); err != nil {
		return err
	}
	if err := k.disk.fault.writable(); err != nil {
		k.end(err)
		return err
	}
	if err := k.enter(); err != nil {
		return err
	}
	result := make(chan error, 1)
	k.disk.opts.Env.Go(func() {
		// Pebble may end this goroutine: the deferred calls run all the same.
		err := errors.New("pebble gave up on the commit")
		defer k.users.leave()
		defer func() {
			if r := recover(); r != nil {
				err = fmt.Errorf("pebble panicked: %v", r)
			}
			result <- err
		}()
		err = k.commit(b)
	})
	var err error
	select {
	case err = <-result:
	case <-k.over:
		// The commit may wait for a goroutine of Pebble that is no more. It has
		// its own copy of the batch.
	}
	if err != nil {
		k.end(metaError(err))
	}
	if err := k.ended(); err != nil {
		return err
	}
	if err := k.disk.check(); err != nil {
		k.end(err)
		return err
	}
	return nil
}

// commit copies b into a batch of Pebble's and makes it durable.
func (k *kv) commit(b *storage.Batch) error {
	size := 0
	for _, op := range b.Ops {
		size += len(op.Key) + len(op.Value) + 16
	}
	pb := k.db.NewBatchWithSize(size + 16)
	err := fill(pb, b)
	if err == nil {
		err = pb.Commit(pebble.Sync)
	}
	if cerr := pb.Close(); err == nil {
		err = cerr
	}
	return err
}

func fill(pb *pebble.Batch, b *storage.Batch) error {
	for _, op := range b.Ops {
		var err error
		switch op.Kind {
		case storage.OpSet:
			err = pb.Set(op.Key, op.Value, nil)
		case storage.OpDelete:
			err = pb.Delete(op.Key, nil)
		case storage.OpDeleteRange:
			err = pb.DeleteRange(op.Key, op.Value, nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func checkBatch(b *storage.Batch) error {
	for i, op := range b.Ops {
		switch {
		case op.Kind < storage.OpSet || op.Kind > storage.OpDeleteRange:
			return fmt.Errorf("%w: operation %d of kind %d", errUsage, i, op.Kind)
		case op.Kind == storage.OpDeleteRange && bytes.Compare(op.Key, op.Value) > 0:
			return fmt.Errorf("%w: operation %d deletes a range that ends before it starts", errUsage, i)
		}
	}
	return nil
}

// Iter implements storage.KV.
func (k *kv) Iter(_ context.Context, lo, hi []byte) (storage.Iter, error) {
	it, err := k.iter(lo, hi)
	if err != nil {
		return nil, k.wrap("kv iter", err)
	}
	return it, nil
}

func (k *kv) iter(lo, hi []byte) (*iter, error) {
	if err := k.enter(); err != nil {
		return nil, err
	}
	if hi != nil && bytes.Compare(lo, hi) > 0 {
		hi = lo // nothing in between
	}
	p, err := k.db.NewIter(&pebble.IterOptions{
		LowerBound: bytes.Clone(lo),
		UpperBound: bytes.Clone(hi),
		KeyTypes:   pebble.IterKeyTypePointsOnly,
	})
	if err != nil {
		k.users.leave()
		return nil, k.readFailed(err)
	}
	return &iter{k: k, p: p, lo: bytes.Clone(lo)}, nil
}

// iter is a storage.Iter. It holds the store open.
type iter struct {
	k   *kv
	p   *pebble.Iterator // nil once closed
	lo  []byte
	pos bool // positioned
	err error
}

// SeekGE implements storage.Iter.
func (it *iter) SeekGE(key []byte) bool {
	if it.stopped() {
		return false
	}
	it.pos = true
	if bytes.Compare(key, it.lo) < 0 {
		key = it.lo
	}
	return it.moved(it.p.SeekGE(key))
}

// Next implements storage.Iter. Unpositioned, it moves to the first key.
func (it *iter) Next() bool {
	if !it.pos {
		return it.SeekGE(nil)
	}
	if it.stopped() || !it.p.Valid() {
		return false
	}
	return it.moved(it.p.Next())
}

func (it *iter) stopped() bool {
	switch {
	case it.err != nil:
	case it.p == nil:
		it.err = fmt.Errorf("%w: iterator is closed", errUsage)
	default:
		it.err = it.k.ended()
	}
	return it.err != nil
}

func (it *iter) moved(ok bool) bool {
	if ok {
		return true
	}
	if err := it.p.Error(); err != nil {
		it.err = it.k.readFailed(err)
	}
	return false
}

// Key implements storage.Iter.
func (it *iter) Key() []byte { return it.p.Key() }

// Value implements storage.Iter.
func (it *iter) Value() ([]byte, error) {
	if it.stopped() {
		return nil, it.Err()
	}
	v, err := it.p.ValueAndErr()
	if err != nil {
		it.err = it.k.readFailed(err)
		return nil, it.Err()
	}
	return v, nil
}

// Err implements storage.Iter.
func (it *iter) Err() error { return it.k.wrap("kv iter", it.err) }

// Close implements storage.Iter.
func (it *iter) Close() error {
	if it.p == nil {
		return nil
	}
	p := it.p
	it.p = nil
	defer it.k.users.leave()
	if err := p.Close(); err != nil && it.err == nil {
		return it.k.wrap("kv iter", it.k.readFailed(err))
	}
	return nil
}
