package quorumlog

import (
	"context"
	"errors"
	"fmt"

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
// group in flight concerns it, it waits for the decision, which comes when
// laggards are expelled, if not before. It reports whether
// the set is still the one that was read from.
func (e *Engine) confirm(ctx context.Context, v *view, concerns func(*group) bool) (same bool, err error) {
	if g := e.inflight.Load(); g != nil && concerns(g) {
		timer, stop := e.opts.Env.After(e.opts.LagTime + e.opts.CallWait)
		defer stop()
		select {
		case <-g.done:
		case <-timer:
			return false, fmt.Errorf("%w: a commit is not decided", meta.ErrUnavailable)
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	return e.view.Load() == v, nil
}

// pick chooses a disk that has applied what was acknowledged, by the hash of
// what is read, so that every disk caches its share. Disks that hang, or are
// known to have a bad value, are the last resort. It returns -1 if all were tried.
func (e *Engine) pick(v *view, head, hash uint64, tried uint32) int {
	n := len(v.members)
	last := -1
	for i := range n {
		j := int((hash + uint64(i)) % uint64(n))
		m := v.members[j]
		if tried&(1<<j) != 0 || m.applied.Load() < head && !e.rules.readLagging {
			continue
		}
		if m.slow.Load() == 0 && !m.bad.Load() {
			return j
		}
		if last < 0 {
			last = j
		}
	}
	return last
}

// fetch reads keys from one disk.
func (e *Engine) fetch(ctx context.Context, v *view, keys [][]byte) ([]answer, error) {
	return hedged(ctx, e, v, xxh3.Hash(keys[0]), func(src joint) ([]answer, error) {
		return readKeys(ctx, src.kv, keys)
	}, nil)
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

// sparesLocked reports whether one disk less could still write.
func (e *Engine) sparesLocked() bool {
	return e.mode == modeServing && e.inSyncLocked() > e.quorum
}

// suspect draws the consequence of a failed read. A store that fails is out. One
// with a bad value is out only if enough others are left, else as soon as they
// are: the rest of it may still be needed, and every value is verified when it
// is read.
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
	case e.sparesLocked():
		e.expelLocked(m, stateCorrupt, fmt.Errorf("read: %w", err))
	default:
		m.bad.Store(true)
		e.opts.Log.Error().Int("slot", m.slot).Err(err).Msg("bad value in the metadata of a disk that can't be spared")
	}
}
