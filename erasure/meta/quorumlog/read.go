package quorumlog

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/zeebo/xxh3"
	"ringfence/erasure/meta"
	"ringfence/storage"
)

// readAttempts bounds how often a read starts again because the set changed
// under it.
const readAttempts = 8

// answer is what one disk says about one key.
type answer struct {
	rev uint64 // 0: not there
	val []byte
}

// Get is meta.Engine's.
func (e *Engine) Get(ctx context.Context, key []byte) (meta.Item, error) {
	for range readAttempts {
		v, err := e.readable(ctx, func(g *group) bool { return g.touches(key) })
		if err != nil {
			return meta.Item{}, err
		}
		answers, err := e.fetch(ctx, v, [][]byte{key})
		same, cerr := e.confirm(ctx, v, func(g *group) bool { return g.touches(key) })
		switch {
		case cerr != nil:
			return meta.Item{}, cerr
		case !same:
			continue
		case err != nil:
			return meta.Item{}, err
		case answers[0].rev == 0:
			return meta.Item{}, storage.ErrNotFound
		}
		return meta.Item{Key: key, Val: answers[0].val, Rev: meta.Rev(answers[0].rev)}, nil
	}
	return meta.Item{}, fmt.Errorf("%w: the set keeps changing", meta.ErrUnavailable)
}

// readable returns a view that can serve a read, after a recovery if it takes
// one. blocked says whether an undecided group stands in the way.
func (e *Engine) readable(ctx context.Context, blocked func(*group) bool) (*view, error) {
	v := e.view.Load()
	if v.mode == modeServing || v.mode == modeReadOnly && !blocked(v.undecided) {
		return v, nil
	}
	err := e.ensure(ctx)
	v = e.view.Load()
	if v.mode == modeServing || v.mode == modeReadOnly && !blocked(v.undecided) {
		return v, nil
	}
	if err == nil {
		err = unavailable(v.why)
	}
	return nil, err
}

// confirm makes sure that a read which is over saw only what is decided: if the
// group in flight concerns it, it waits for the decision. It reports whether
// the set is still the one that was read from.
func (e *Engine) confirm(ctx context.Context, v *view, concerns func(*group) bool) (same bool, err error) {
	if g := e.inflight.Load(); g != nil && concerns(g) {
		select {
		case <-g.done:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	return e.view.Load() == v, nil
}

// pick chooses a disk that has applied what was acknowledged, by the hash of
// what is read, so that every disk caches its share. Disks that hang are the
// last resort. It returns -1 if all were tried.
func (e *Engine) pick(v *view, head, hash uint64, tried uint32) int {
	n := len(v.members)
	slow := -1
	for i := range n {
		j := int((hash + uint64(i)) % uint64(n))
		m := v.members[j]
		if tried&(1<<j) != 0 || m.applied.Load() < head && !e.rules.readLagging {
			continue
		}
		if m.slow.Load() == 0 {
			return j
		}
		if slow < 0 {
			slow = j
		}
	}
	return slow
}

// asked is one question to one disk.
type asked struct {
	index   int // in the view
	state   atomic.Uint32
	answers []answer
	err     error
}

const (
	askRunning uint32 = iota
	askLate
	askOver
)

// fetch reads keys from one disk, from the next if that fails, and from both if
// it takes long. A disk that hangs keeps its goroutine, not the caller.
func (e *Engine) fetch(ctx context.Context, v *view, keys [][]byte) ([]answer, error) {
	head, hash, tried := e.head.Load(), xxh3.Hash(keys[0]), uint32(0)
	results := make(chan *asked, len(v.members))
	var current *asked
	ask := func() bool {
		i := e.pick(v, head, hash, tried)
		if i < 0 {
			return false
		}
		tried |= 1 << i
		a := &asked{index: i}
		current = a
		e.opts.Env.Go(func() {
			a.answers, a.err = readKeys(ctx, v.kvs[i], keys)
			if a.state.Swap(askOver) == askLate {
				v.members[i].slow.Add(-1)
			}
			results <- a
		})
		return true
	}
	if !ask() {
		return nil, fmt.Errorf("%w: no metadata disk in sync", meta.ErrUnavailable)
	}
	hedge, stop := e.opts.Env.After(e.opts.HedgeAfter)
	defer stop()
	running, failed, corrupt, failure := 1, 0, 0, error(nil)
	for {
		select {
		case a := <-results:
			if a.err == nil {
				return a.answers, nil
			}
			running--
			failed++
			if errors.Is(a.err, storage.ErrCorrupt) {
				corrupt++
			}
			failure = errors.Join(failure, a.err)
			e.suspect(v.members[a.index], v.kvs[a.index], a.err)
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if ask() {
				running++
			} else if running == 0 {
				return nil, exhausted(failure, corrupt == failed)
			}
		case <-hedge:
			if current.state.CompareAndSwap(askRunning, askLate) {
				v.members[current.index].slow.Add(1)
			}
			if ask() {
				running++
				again, stopAgain := e.opts.Env.After(e.opts.HedgeAfter)
				defer stopAgain()
				hedge = again
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// exhausted is the failure of a read that no disk could serve. Only if all of
// them have it damaged is it more than a matter of time.
func exhausted(failure error, damaged bool) error {
	if damaged {
		return fmt.Errorf("%w: %w", meta.ErrUnavailable, failure)
	}
	return unavailable(failure)
}

// unavailable is ErrUnavailable for a reason. The reason is for people: what one
// disk suffered must not be taken for what happened to the call.
func unavailable(why error) error { return fmt.Errorf("%w: %v", meta.ErrUnavailable, why) }

func readKeys(ctx context.Context, kv storage.KV, keys [][]byte) ([]answer, error) {
	answers := make([]answer, len(keys))
	for i, key := range keys {
		raw, err := kv.Get(ctx, userKey(key))
		if errors.Is(err, storage.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if answers[i].rev, answers[i].val, err = decodeValue(key, raw); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// suspect draws the consequence of a failed read. A store that fails is out. One
// with a bad value is out only if enough others are left: the rest of it may
// still be needed, and every value is verified when it is read.
func (e *Engine) suspect(m *member, kv storage.KV, err error) {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if m.state != stateInSync || m.kv != kv {
		return
	}
	switch {
	case !errors.Is(err, storage.ErrCorrupt):
		e.expelLocked(m, stateOffline, fmt.Errorf("read: %w", err))
	case e.inSyncLocked() > e.quorum && e.mode == modeServing:
		e.expelLocked(m, stateCorrupt, fmt.Errorf("read: %w", err))
	default:
		e.opts.Log.Error().Int("slot", m.slot).Err(err).Msg("bad value in the metadata of a disk that can't be spared")
	}
}

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

// open starts a walk on the first disk that lets it.
func (e *Engine) open(ctx context.Context, v *view, lo, hi []byte) (*cursor, error) {
	head, hash, failure := e.head.Load(), xxh3.Hash(lo), error(nil)
	end := []byte{userSpace + 1}
	if hi != nil {
		end = userKey(hi)
	}
	for tried := uint32(0); ; {
		i := e.pick(v, head, hash, tried)
		if i < 0 {
			return nil, fmt.Errorf("%w: no metadata disk in sync: %v", meta.ErrUnavailable, failure)
		}
		tried |= 1 << i
		it, err := v.kvs[i].Iter(ctx, userKey(lo), end)
		if err == nil {
			return &cursor{e: e, m: v.members[i], kv: v.kvs[i], it: it, start: userKey(lo)}, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		failure = errors.Join(failure, err)
		e.suspect(v.members[i], v.kvs[i], err)
	}
}

// cursor walks the snapshot of one disk.
type cursor struct {
	e     *Engine
	m     *member
	kv    storage.KV
	it    storage.Iter
	start []byte // where the first Next goes; nil once the walk began
	item  meta.Item
	err   error
}

func (c *cursor) SeekGE(key []byte) bool {
	c.start = nil
	return c.err == nil && c.load(c.it.SeekGE(userKey(key)))
}

func (c *cursor) Next() bool {
	if c.err != nil {
		return false
	}
	if start := c.start; start != nil {
		c.start = nil
		return c.load(c.it.SeekGE(start))
	}
	return c.load(c.it.Next())
}

// load reads and verifies the item that the iterator moved to.
func (c *cursor) load(ok bool) bool {
	if !ok {
		if err := c.it.Err(); err != nil {
			c.fail(err)
		}
		return false
	}
	key := c.it.Key()[1:]
	raw, err := c.it.Value()
	if err == nil {
		var rev uint64
		if rev, c.item.Val, err = decodeValue(key, raw); err == nil {
			c.item.Key, c.item.Rev = key, meta.Rev(rev)
			return true
		}
	}
	c.fail(err)
	return false
}

// fail ends the walk: a scan is of one state, and another disk may not have
// that one any longer. The next scan finds the disk gone and another one.
func (c *cursor) fail(err error) {
	c.err = unavailable(err)
	c.e.suspect(c.m, c.kv, err)
}

func (c *cursor) Item() meta.Item { return c.item }
func (c *cursor) Err() error      { return c.err }
func (c *cursor) Close() error    { return c.it.Close() }
