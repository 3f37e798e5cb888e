package erasure

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// What a client does in a history, and what it learned. Values are unique; ""
// means that the object does not exist.
type (
	historyCall struct {
		kind     byte // p PUT, g GET, d DELETE, c PUT if there is none, r PUT if it is expected
		key      string
		value    string
		expected string
	}
	historyResult struct {
		value   string
		refused bool
	}
)

var errRefused = errors.New("refused")

// perform makes a call; half of the values are too large to be inline.
func (c historyCall) perform(ts *testStore) (historyResult, error) {
	body := []byte(c.value)
	if len(c.value)%2 == 0 {
		body = append(body, strings.Repeat(" ", MaxInlineSize)...)
	}
	in := input(body)
	in.Finish = func(int64) (Digest, error) { return Digest{ETag: c.value}, nil }
	switch c.kind {
	case 'g':
		o, err := ts.Open(ts.t.Context(), "b", c.key, GetInput{})
		if errors.Is(err, ErrNoObject) {
			return historyResult{}, nil
		} else if err != nil {
			return historyResult{}, err
		}
		var b bytes.Buffer
		_, err = o.WriteTo(ts.t.Context(), &b, 0, o.Info().Size)
		return historyResult{value: strings.TrimRight(b.String(), " ")}, errors.Join(err, o.Close())
	case 'd':
		_, err := ts.Delete(ts.t.Context(), "b", c.key, DeleteInput{})
		return historyResult{}, err
	case 'c':
		in.Precond = func(current *ObjectInfo) error {
			if current != nil {
				return errRefused
			}
			return nil
		}
	case 'r':
		in.Precond = func(current *ObjectInfo) error {
			if current == nil || current.Digest.ETag != c.expected {
				return errRefused
			}
			return nil
		}
	}
	_, err := ts.Put(ts.t.Context(), "b", c.key, in)
	if errors.Is(err, errRefused) {
		return historyResult{refused: true}, nil
	}
	return historyResult{}, err
}

// step is one key as a register with conditions.
func (c historyCall) step(state string, r historyResult) (bool, string) {
	holds := c.kind != 'c' && c.kind != 'r' || c.kind == 'c' && state == "" || c.kind == 'r' && state == c.expected && state != ""
	switch {
	case c.kind == 'g':
		return r.value == state, state
	case r.refused || !holds:
		return r.refused && !holds, state
	case c.kind == 'd':
		return true, ""
	}
	return true, c.value
}

// TestHistoriesAreLinearizable lets clients loose on few keys of a store on the
// real log, 200 times, and looks for an order that explains what they saw.
func TestHistoriesAreLinearizable(t *testing.T) {
	ts := realStore(t)
	model := porcupine.Model{
		Init: func() any { return "" },
		Step: func(state, in, out any) (bool, any) {
			return in.(historyCall).step(state.(string), out.(historyResult))
		},
	}
	const clients, calls = 6, 10
	const histories = 200
	for i := range histories {
		var mu sync.Mutex // protects the fields below
		var ops []porcupine.Operation
		start, last := time.Now(), "none"
		var wg sync.WaitGroup
		for client := range clients {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(i), uint64(client)))
				for n := range calls {
					mu.Lock()
					c := historyCall{kind: "pgdcr"[rng.IntN(5)], key: fmt.Sprint("k", i), value: fmt.Sprintf("%d.%d", client, rng.IntN(20)+n*20), expected: last}
					mu.Unlock()
					from := time.Since(start)
					r, err := c.perform(ts)
					to := time.Since(start)
					if err != nil {
						t.Errorf("%+v: %v", c, err)
						return
					}
					mu.Lock()
					if (c.kind == 'p' || c.kind == 'c' || c.kind == 'r') && !r.refused {
						last = c.value
					}
					ops = append(ops, porcupine.Operation{ClientId: client, Input: c, Call: int64(from), Output: r, Return: int64(to)})
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if got := porcupine.CheckOperationsTimeout(model, ops, 20*time.Second); got != porcupine.Ok {
			t.Fatalf("history %d of %d calls: %s: %+v", i, len(ops), got, ops)
		}
	}
	t.Logf("%d histories of %d calls are legal", histories, clients*calls)
}

// The checker sees a lost update and a stale read.
func TestHistoryCheckerBites(t *testing.T) {
	put, create := historyCall{kind: 'p', value: "1"}, historyCall{kind: 'c', value: "2"}
	if ok, _ := create.step("1", historyResult{}); ok {
		t.Error("a creation over an object passed")
	}
	if ok, _ := (historyCall{kind: 'g'}).step("1", historyResult{}); ok {
		t.Error("a read that misses a write passed")
	}
	if ok, state := put.step("", historyResult{}); !ok || state != "1" {
		t.Error("a write was refused")
	}
	if ok, _ := (historyCall{kind: 'r', value: "3", expected: "1"}).step("1", historyResult{refused: true}); ok {
		t.Error("a refusal without a reason passed")
	}
}
