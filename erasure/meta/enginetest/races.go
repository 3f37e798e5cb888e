package enginetest

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"ringfence/erasure/meta"
	"ringfence/storage"
)

// testCreateRace has 64 callers create one key: one wins, the others are
// refused and see the winner.
func testCreateRace(t *testing.T, h Harness) {
	const keys, callers = 50, 64
	for k := range keys {
		key := fmt.Sprintf("key%d", k)
		var won atomic.Int64
		var winner atomic.Uint64
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				rev, err := h.Engine.Commit(t.Context(), group, []meta.Cond{cond(key, 0)}, []meta.Op{set(key, strconv.Itoa(i))})
				if err == nil {
					won.Add(1)
					winner.Store(uint64(rev))
					return
				}
				if ce, ok := errors.AsType[*meta.CondError](err); !ok || ce.Found == 0 {
					t.Errorf("caller %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 {
			t.Fatalf("%s: %d winners", key, won.Load())
		}
		item, err := h.Engine.Get(t.Context(), []byte(key))
		if err != nil || uint64(item.Rev) != winner.Load() {
			t.Fatalf("%s: at %d, %v; the winner committed at %d", key, item.Rev, err, winner.Load())
		}
	}
}

// testIncrements has callers add one to a counter by compare and swap: none may
// get lost.
func testIncrements(t *testing.T, h Harness) {
	const callers, each = 8, 25
	e := h.Engine
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range each {
				if err := increment(t, e); err != nil {
					t.Errorf("increment: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	item, err := e.Get(t.Context(), []byte("n"))
	if err != nil || !bytes.Equal(item.Val, []byte(strconv.Itoa(callers*each))) {
		t.Errorf("counter is %q, %v; want %d", item.Val, err, callers*each)
	}
}

func increment(t *testing.T, e meta.Engine) error {
	for {
		item, err := e.Get(t.Context(), []byte("n"))
		if err != nil && !errors.Is(err, storage.ErrNotFound) {
			return err
		}
		n := 0
		if err == nil {
			if n, err = strconv.Atoi(string(item.Val)); err != nil {
				return err
			}
		}
		_, err = e.Commit(t.Context(), group, []meta.Cond{cond("n", item.Rev)}, []meta.Op{set("n", strconv.Itoa(n+1))})
		if _, refused := errors.AsType[*meta.CondError](err); !refused {
			return err
		}
	}
}
