package quorumlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/zeebo/xxh3"
	"ringfence/erasure/meta"
	"ringfence/storage"
)

// A cursor reads ahead, a chunk at a time and off the caller's goroutine: a disk
// that hangs must not hang the caller, and to ask it item by item would cost
// more than to read the items. Chunks begin small, since most walks are short,
// or jump.
const (
	firstChunk  = 2   // items
	chunkGrowth = 4   // times, as long as the walk goes straight on
	largeChunk  = 128 // items
	chunkBytes  = 64 << 10
)

// Scan is meta.Engine's.
func (e *Engine) Scan(ctx context.Context, lo, hi []byte) (meta.Cursor, error) {
	concerns := func(g *group) bool { return g.touchesRange(lo, hi) }
	for range readAttempts {
		v, err := e.readable(ctx, concerns)
		if err != nil {
			return nil, err
		}
		c, err := e.open(ctx, v, lo, hi)
		same, cerr := e.confirm(ctx, v, concerns)
		if same && cerr == nil {
			if err != nil {
				return nil, err // typed nil must not leave as a Cursor
			}
			return c, nil
		}
		if c != nil {
			err = c.Close()
		}
		if cerr != nil || err != nil {
			return nil, errors.Join(cerr, err)
		}
	}
	return nil, fmt.Errorf("%w: the set keeps changing", meta.ErrUnavailable)
}

// open starts a walk on the first disk that lets it. Which one is decided by the
// first chunk: what a later disk could offer would be another state.
func (e *Engine) open(ctx context.Context, v *view, lo, hi []byte) (*cursor, error) {
	first, end := userKey(lo), []byte{userSpace + 1}
	if hi != nil {
		end = userKey(hi)
	}
	return hedged(ctx, e, v, xxh3.Hash(lo), func(src joint) (*cursor, error) {
		c := &cursor{ctx: ctx, e: e, src: src, pos: -1}
		it, err := c.pace.iter(ctx, src.m, src.kv, first, end)
		if err != nil {
			return nil, err
		}
		c.it, c.chunk = it, &chunk{}
		c.chunk.read(it, first, firstChunk)
		if err := c.chunk.err; err != nil && len(c.chunk.items) == 0 {
			return nil, errors.Join(err, it.Close())
		}
		return c, nil
	}, func(c *cursor) {
		// Nobody is there to be told that a read that came too late failed, too.
		_ = c.Close()
	})
}

// cursor walks the snapshot of one disk.
type cursor struct {
	ctx   context.Context // of the walk: moves carry none
	e     *Engine
	src   joint
	pace  pace
	it    storage.Iter // at the end of chunk; nil when a read that hangs has it
	chunk *chunk
	pos   int // in chunk; -1 before the first move
	item  meta.Item
	err   error
}

// chunk is what a cursor has read ahead. Its items are valid until it is read
// again.
type chunk struct {
	items []rawItem
	mem   []byte
	ended bool  // nothing follows
	err   error // why, if that is not the end of the range
}

type rawItem struct{ key, value []byte }

// read takes up to n items from where it is, or from seek.
func (ch *chunk) read(it storage.Iter, seek []byte, n int) {
	*ch = chunk{items: ch.items[:0], mem: ch.mem[:0]}
	ok := false
	if seek == nil {
		ok = it.Next()
	} else {
		ok = it.SeekGE(seek)
	}
	for ; ok; ok = it.Next() {
		raw, err := it.Value()
		if err != nil {
			ch.ended, ch.err = true, err
			return
		}
		ch.items = append(ch.items, rawItem{ch.keep(it.Key()), ch.keep(raw)})
		if len(ch.items) >= n || len(ch.mem) >= chunkBytes {
			return
		}
	}
	ch.ended, ch.err = true, it.Err()
}

// keep copies b into the chunk.
func (ch *chunk) keep(b []byte) []byte {
	from := len(ch.mem)
	ch.mem = append(ch.mem, b...)
	return ch.mem[from:len(ch.mem):len(ch.mem)]
}

func (c *cursor) SeekGE(key []byte) bool {
	if c.err != nil {
		return false
	}
	raw, items := userKey(key), c.chunk.items
	if len(items) > 0 && bytes.Compare(items[0].key, raw) <= 0 {
		i, _ := slices.BinarySearchFunc(items, raw, func(it rawItem, k []byte) int { return bytes.Compare(it.key, k) })
		if i < len(items) || c.chunk.ended {
			c.pos = i
			return c.load()
		}
	}
	return c.fill(raw, firstChunk)
}

func (c *cursor) Next() bool {
	if c.err != nil {
		return false
	}
	n := len(c.chunk.items)
	if c.pos = min(c.pos+1, n); c.pos == n && !c.chunk.ended {
		return c.fill(nil, min(n*chunkGrowth, largeChunk))
	}
	return c.load()
}

// fill reads the next chunk, or the one at seek.
func (c *cursor) fill(seek []byte, n int) bool {
	it, ch := c.it, c.chunk
	err := c.e.attend(c.ctx, &c.pace, c.e.opts.CallWait, func() { ch.read(it, seek, n) }, func() {
		_ = it.Close() // of a walk that has ended with an error already
	})
	if err != nil {
		c.it, c.chunk = nil, nil
		c.fail(err)
		return false
	}
	c.pos = 0
	return c.load()
}

// load verifies the item at pos.
func (c *cursor) load() bool {
	if c.pos >= len(c.chunk.items) {
		if err := c.chunk.err; err != nil {
			c.fail(err)
		}
		return false
	}
	raw := c.chunk.items[c.pos]
	key := raw.key[1:]
	rev, val, err := decodeValue(key, raw.value)
	if err != nil {
		c.fail(err)
		return false
	}
	c.item = meta.Item{Key: key, Val: val, Rev: meta.Rev(rev)}
	return true
}

// fail ends the walk: a scan is of one state, and another disk may not have
// that one any longer. The next scan finds the disk gone or passes over it, and
// reads another one.
func (c *cursor) fail(err error) {
	c.err = unavailable(err)
	if !stuckOn(err, c.src.m) {
		c.e.suspect(c.src.m, c.src.kv, err)
	}
}

func (c *cursor) Item() meta.Item { return c.item }
func (c *cursor) Err() error      { return c.err }

func (c *cursor) Close() error {
	if c.it == nil {
		return nil
	}
	return c.it.Close()
}
