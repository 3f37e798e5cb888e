package enginetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"ringfence/erasure/meta"
	"ringfence/storage"
)

// Histories and clients of testHistories. Keys are few, so that calls collide.
const (
	histories = 200
	clients   = 8
	callsEach = 12
	keySpace  = 3
)

// testHistories records what concurrent clients see and asks the checker.
func testHistories(t *testing.T, h Harness) {
	for i := range histories {
		prefix := fmt.Sprintf("h%d/", i)
		r := NewRecorder(h.Engine)
		var wg sync.WaitGroup
		for client := range clients {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(i), uint64(client)))
				for call := range callsEach {
					key := fmt.Sprintf("%s%d", prefix, rng.IntN(keySpace))
					r.Random(t, rng, client, key, fmt.Sprintf("%d.%d", client, call))
				}
			})
		}
		wg.Wait()
		r.Check(t)
		if t.Failed() {
			t.Fatalf("history %d", i)
		}
	}
}

// Recorder calls an engine and remembers every call with its outcome. Its
// methods may be called concurrently, with a client number of their own.
type Recorder struct {
	engine meta.Engine
	start  time.Time

	mu       sync.Mutex // protects the fields below
	calls    []porcupine.Operation
	lastSeen map[string]meta.Rev // for conditions that have a chance to hold
}

// NewRecorder records calls of e.
func NewRecorder(e meta.Engine) *Recorder {
	return &Recorder{engine: e, start: time.Now(), lastSeen: map[string]meta.Rev{}}
}

// call is the input of an operation: a get, or a set or delete of key under a
// condition.
type call struct {
	key   string
	write bool
	del   bool
	val   string
	cond  *meta.Rev
}

// result is its output.
type result struct {
	rev     meta.Rev // of the item found, or of the commit; 0: not there
	val     string
	refused bool
	found   meta.Rev // when refused
	unknown bool     // may have happened
	nothing bool     // certainly had no effect and says nothing
}

// Random makes one call of a random kind.
func (r *Recorder) Random(t *testing.T, rng *rand.Rand, client int, key, val string) {
	t.Helper()
	c := call{key: key}
	if rng.IntN(10) < 7 {
		c.write, c.val, c.del = true, val, rng.IntN(4) == 0
		switch rng.IntN(4) {
		case 0:
			none := meta.Rev(0)
			c.cond = &none
		case 1:
			any := meta.AnyRev
			c.cond = &any
		case 2:
			r.mu.Lock()
			seen := r.lastSeen[key]
			r.mu.Unlock()
			c.cond = &seen
		}
	}
	r.do(t, client, c)
}

func (r *Recorder) do(t *testing.T, client int, c call) {
	t.Helper()
	began := time.Since(r.start)
	out, err := r.invoke(t, c)
	ended := time.Since(r.start)
	if err != nil {
		t.Errorf("client %d: %+v: %v", client, c, err)
		return
	}
	if out.nothing {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	op := porcupine.Operation{ClientId: client, Input: c, Call: int64(began), Output: out, Return: int64(ended)}
	if out.unknown {
		op.Return = int64(1 << 62) // it may take effect at any later time
		op.ClientId = 1000 + len(r.calls)
	} else if !out.refused {
		r.lastSeen[c.key] = out.rev
	}
	r.calls = append(r.calls, op)
}

// invoke makes the call. Its error is an outcome that no engine may have.
func (r *Recorder) invoke(t *testing.T, c call) (result, error) {
	if !c.write {
		item, err := r.engine.Get(t.Context(), []byte(c.key))
		switch {
		case errors.Is(err, storage.ErrNotFound):
			return result{}, nil
		case errors.Is(err, meta.ErrUnavailable):
			return result{nothing: true}, nil
		case err != nil:
			return result{}, err
		}
		return result{rev: item.Rev, val: string(item.Val)}, nil
	}
	var conds []meta.Cond
	if c.cond != nil {
		conds = []meta.Cond{cond(c.key, *c.cond)}
	}
	op := set(c.key, c.val)
	if c.del {
		op = del(c.key)
	}
	rev, err := r.engine.Commit(t.Context(), group, conds, []meta.Op{op})
	if ce, ok := errors.AsType[*meta.CondError](err); ok {
		return result{refused: true, found: ce.Found}, nil
	}
	switch {
	case errors.Is(err, meta.ErrUnknown):
		return result{unknown: true}, nil
	case errors.Is(err, meta.ErrUnavailable):
		return result{nothing: true}, nil
	case err != nil:
		return result{}, err
	}
	return result{rev: rev}, nil
}

// state is what the model holds under one key. The revision of a write whose
// outcome was unknown is not known either, until something shows it.
type state struct {
	there bool
	val   string
	rev   meta.Rev // 0 with there: not known
}

// Check fails t if no order of the calls explains their results.
func (r *Recorder) Check(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	model := porcupine.NondeterministicModel{
		Partition: partition,
		Init:      func() []any { return []any{state{}} },
		Step: func(s, in, out any) []any {
			return step(s.(state), in.(call), out.(result))
		},
		Equal: func(a, b any) bool { return a == b },
	}
	if got := porcupine.CheckOperationsTimeout(model.ToModel(), r.calls, 20*time.Second); got != porcupine.Ok {
		t.Errorf("history of %d calls is %s", len(r.calls), got)
		for _, op := range r.calls {
			t.Logf("%d [%d %d] %+v %+v", op.ClientId, op.Call, op.Return, op.Input, op.Output)
		}
	}
}

func partition(all []porcupine.Operation) [][]porcupine.Operation {
	byKey := map[string][]porcupine.Operation{}
	for _, op := range all {
		if c, ok := op.Input.(call); ok {
			byKey[c.key] = append(byKey[c.key], op)
		}
	}
	parts := make([][]porcupine.Operation, 0, len(byKey))
	for _, ops := range byKey {
		parts = append(parts, ops)
	}
	return parts
}

// step returns the states that may follow s when c ended with out; none if it
// can't have.
func step(s state, c call, out result) []any {
	if !c.write {
		same := s.there == (out.rev != 0) && (!s.there || s.val == out.val && (s.rev == 0 || s.rev == out.rev))
		if !same {
			return nil
		}
		return []any{state{there: s.there, val: s.val, rev: out.rev}}
	}
	holds, fails := judge(s, c.cond)
	after := state{there: !c.del, rev: out.rev}
	if !c.del {
		after.val = c.val
	} else {
		after.rev = 0
	}
	switch {
	case out.unknown && holds:
		return []any{s, after}
	case out.unknown:
		return []any{s}
	case out.refused:
		if !fails || s.there != (out.found != 0) || s.rev != 0 && s.rev != out.found {
			return nil
		}
		return []any{state{there: s.there, val: s.val, rev: out.found}}
	case holds:
		return []any{after}
	}
	return nil
}

// judge says whether a condition may hold and whether it may fail; both are
// possible while a revision is not known.
func judge(s state, cond *meta.Rev) (holds, fails bool) {
	switch {
	case cond == nil:
		return true, false
	case *cond == 0:
		return !s.there, s.there
	case *cond == meta.AnyRev:
		return s.there, !s.there
	case !s.there:
		return false, true
	case s.rev == 0:
		return true, true
	}
	return s.rev == *cond, s.rev != *cond
}
