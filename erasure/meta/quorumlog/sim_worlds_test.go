package quorumlog

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"ringfence/erasure/meta"
)

// cellOf is what a key holds in one possible world. rev is 0 while nobody has
// seen the revision of a commit whose outcome was unknown.
type held struct {
	val string
	rev meta.Rev
}

// possible is one state of all keys that explains every answer so far.
type possible map[string]held

// worlds are all such states. A commit with an unknown outcome doubles them, an
// answer removes those that contradict it; none left means that the engine
// said something that it must not.
type worlds []possible

func (ws worlds) String() string {
	var b strings.Builder
	for _, w := range ws {
		fmt.Fprintf(&b, "\n  %v", map[string]held(w))
	}
	return b.String()
}

// keep returns the worlds for which ok holds; ok may refine the world it gets.
func (ws worlds) keep(ok func(w possible) bool) worlds {
	var left worlds
	for _, w := range ws {
		w = maps.Clone(w)
		if ok(w) && !slices.ContainsFunc(left, func(o possible) bool { return maps.Equal(o, w) }) {
			left = append(left, w)
		}
	}
	return left
}

// sawItem filters by a read of one key.
func (ws worlds) sawItem(key string, there bool, val string, rev meta.Rev) worlds {
	return ws.keep(func(w possible) bool {
		h, ok := w[key]
		if ok != there {
			return false
		}
		if !there {
			return true
		}
		if h.val != val || h.rev != 0 && h.rev != rev {
			return false
		}
		w[key] = held{val, rev}
		return true
	})
}

// sawAll filters by a scan of everything.
func (ws worlds) sawAll(all possible) worlds {
	return ws.keep(func(w possible) bool {
		if len(w) != len(all) {
			return false
		}
		for k, got := range all {
			h, ok := w[k]
			if !ok || h.val != got.val || h.rev != 0 && h.rev != got.rev {
				return false
			}
			w[k] = got
		}
		return true
	})
}

// holds says whether a condition may hold in w, and whether it may fail.
func (w possible) holds(c meta.Cond) (may, mayNot bool) {
	h, there := w[string(c.Key)]
	switch {
	case c.Rev == 0:
		return !there, there
	case c.Rev == meta.AnyRev:
		return there, !there
	case !there:
		return false, true
	case h.rev == 0:
		return true, true
	}
	return h.rev == c.Rev, h.rev != c.Rev
}

func (w possible) holdAll(conds []meta.Cond) (may, mayNot bool) {
	may = true
	for _, c := range conds {
		yes, no := w.holds(c)
		may, mayNot = may && yes, mayNot || no
	}
	return may, mayNot
}

func (w possible) apply(ops []meta.Op, rev meta.Rev) {
	for _, op := range ops {
		if op.Delete {
			delete(w, string(op.Key))
		} else {
			w[string(op.Key)] = held{string(op.Val), rev}
		}
	}
}

// done filters by an acknowledged commit.
func (ws worlds) done(c *commit, rev meta.Rev) worlds {
	return ws.keep(func(w possible) bool {
		may, _ := w.holdAll(c.conds)
		w.apply(c.ops, rev)
		return may
	})
}

// refused filters by a refusal.
func (ws worlds) refused(c *commit, err *meta.CondError) worlds {
	return ws.keep(func(w possible) bool {
		for _, cond := range c.conds[:err.Index] {
			if may, _ := w.holds(cond); !may {
				return false
			}
		}
		cond := c.conds[err.Index]
		_, mayNot := w.holds(cond)
		h, there := w[string(cond.Key)]
		if !mayNot || there != (err.Found != 0) || there && h.rev != 0 && h.rev != err.Found {
			return false
		}
		if there {
			w[string(cond.Key)] = held{h.val, err.Found}
		}
		return true
	})
}

// unknown adds the worlds in which the commits, which share one fate, took
// place.
func (ws worlds) unknown(commits []*commit) worlds {
	happened := ws.keep(func(w possible) bool {
		for _, c := range commits {
			if may, _ := w.holdAll(c.conds); !may {
				return false
			}
			w.apply(c.ops, 0)
		}
		return true
	})
	return append(slices.Clone(ws), happened...).keep(func(possible) bool { return true })
}
