package enginetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"ringfence/erasure/meta"
	"ringfence/storage"
)

var group = meta.Group{Key: "k"}

func set(key, val string) meta.Op { return meta.Op{Key: []byte(key), Val: []byte(val)} }
func del(key string) meta.Op      { return meta.Op{Key: []byte(key), Delete: true} }
func cond(key string, rev meta.Rev) meta.Cond {
	return meta.Cond{Key: []byte(key), Rev: rev}
}

// commit commits or ends the test.
func commit(t *testing.T, e meta.Engine, conds []meta.Cond, ops ...meta.Op) meta.Rev {
	t.Helper()
	rev, err := e.Commit(t.Context(), group, conds, ops)
	if err != nil {
		t.Fatalf("commit: %v", err)
	}
	return rev
}

// expect checks what is under key; "" means nothing.
func expect(t *testing.T, e meta.Engine, key, val string, rev meta.Rev) {
	t.Helper()
	item, err := e.Get(t.Context(), []byte(key))
	if rev == 0 {
		if !errors.Is(err, storage.ErrNotFound) {
			t.Fatalf("get %q: %q, %v; want not found", key, item.Val, err)
		}
		return
	}
	if err != nil || string(item.Val) != val || item.Rev != rev || string(item.Key) != key {
		t.Fatalf("get %q: %q at %d, %v; want %q at %d", key, item.Val, item.Rev, err, val, rev)
	}
}

func refused(t *testing.T, e meta.Engine, index int, found meta.Rev, conds []meta.Cond, ops ...meta.Op) {
	t.Helper()
	_, err := e.Commit(t.Context(), group, conds, ops)
	ce, ok := errors.AsType[*meta.CondError](err)
	if !ok || ce.Index != index || ce.Found != found {
		t.Fatalf("commit: %v; want condition %d refused, found %d", err, index, found)
	}
}

func testEmpty(t *testing.T, h Harness) {
	expect(t, h.Engine, "a", "", 0)
	if got := keys(t, h.Engine, nil, nil); got != "" {
		t.Errorf("scan of an empty engine: %q", got)
	}
}

func testBasics(t *testing.T, h Harness) {
	e := h.Engine
	r1 := commit(t, e, nil, set("a", "1"))
	expect(t, e, "a", "1", r1)
	r2 := commit(t, e, nil, set("a", "2"), set("b", ""))
	expect(t, e, "a", "2", r2)
	expect(t, e, "b", "", r2)
	commit(t, e, nil, del("a"))
	expect(t, e, "a", "", 0)
	commit(t, e, nil, del("a"), del("never"))
	r3 := commit(t, e, nil, set("a", "3"))
	expect(t, e, "a", "3", r3)
}

func testOpOrder(t *testing.T, h Harness) {
	e := h.Engine
	r := commit(t, e, nil, set("a", "1"), del("a"), set("b", "1"), set("b", "2"))
	expect(t, e, "a", "", 0)
	expect(t, e, "b", "2", r)
	refused(t, e, 0, 0, []meta.Cond{cond("a", meta.AnyRev)}, set("c", "1"))
}

func testConditions(t *testing.T, h Harness) {
	e := h.Engine
	r1 := commit(t, e, []meta.Cond{cond("a", 0)}, set("a", "1"))
	refused(t, e, 0, r1, []meta.Cond{cond("a", 0)}, set("a", "x"))
	refused(t, e, 1, 0, []meta.Cond{cond("a", r1), cond("b", meta.AnyRev)}, set("a", "x"))
	refused(t, e, 0, r1, []meta.Cond{cond("a", r1+1)}, set("a", "x"))
	r2 := commit(t, e, []meta.Cond{cond("a", r1), cond("b", 0)}, set("a", "2"))
	refused(t, e, 0, r2, []meta.Cond{cond("a", r1)}, set("a", "x"))
	commit(t, e, []meta.Cond{cond("a", meta.AnyRev)}, del("a"))
	refused(t, e, 0, 0, []meta.Cond{cond("a", meta.AnyRev)}, set("a", "x"))
	refused(t, e, 0, 0, []meta.Cond{cond("a", r2)}, set("a", "x"))
	// Conditions alone are a check of the present.
	commit(t, e, []meta.Cond{cond("a", 0)})
	refused(t, e, 0, 0, []meta.Cond{cond("a", r1)})
	expect(t, e, "a", "", 0)
}

func testAtomic(t *testing.T, h Harness) {
	e := h.Engine
	r := commit(t, e, nil, set("a", "1"))
	refused(t, e, 1, r, []meta.Cond{cond("b", 0), cond("a", 0)}, set("b", "x"), del("a"), set("c", "x"))
	expect(t, e, "a", "1", r)
	expect(t, e, "b", "", 0)
	expect(t, e, "c", "", 0)
}

func testRevisions(t *testing.T, h Harness) {
	e := h.Engine
	last := meta.Rev(0)
	for i := range 20 {
		r := commit(t, e, nil, set("a", fmt.Sprint(i)))
		if r <= last || r == meta.AnyRev {
			t.Fatalf("revision %d after %d", r, last)
		}
		last = r
	}
	if head := e.Health().Head; head < last {
		t.Errorf("head %d, last commit %d", head, last)
	}
}

func testLimits(t *testing.T, h Harness) {
	e := h.Engine
	key, val := strings.Repeat("k", meta.MaxKey), strings.Repeat("v", meta.MaxValue)
	r := commit(t, e, []meta.Cond{cond(key, 0)}, set(key, val))
	expect(t, e, key, val, r)
	ops := make([]meta.Op, meta.MaxOps)
	for i := range ops {
		ops[i] = set(fmt.Sprintf("n%03d", i), "v")
	}
	commit(t, e, nil, ops...)
	large := []meta.Op{}
	for size := 0; size <= meta.MaxCommit; size += len(val) {
		large = append(large, set(fmt.Sprintf("large%02d", size), val))
	}
	for name, c := range map[string]struct {
		conds []meta.Cond
		ops   []meta.Op
	}{
		"key":        {nil, []meta.Op{set(key+"k", "")}},
		"cond key":   {[]meta.Cond{cond(key+"k", 0)}, nil},
		"value":      {nil, []meta.Op{set("a", val+"v")}},
		"ops":        {nil, append(ops, set("a", ""))},
		"conds, ops": {[]meta.Cond{cond("a", 0)}, ops},
		"bytes":      {nil, large},
	} {
		if _, err := e.Commit(t.Context(), group, c.conds, c.ops); !errors.Is(err, meta.ErrTooLarge) {
			t.Errorf("%s: %v, want ErrTooLarge", name, err)
		}
	}
	expect(t, e, "a", "", 0)
}

func testBinaryKeys(t *testing.T, h Harness) {
	e := h.Engine
	all := []string{"", "\x00", "\x00\x00", "\x00\xff", "a", "a\x00", "a\x00b", "a/", "a\xff", "b", "\xff", "\xff\xff"}
	for _, k := range all {
		r := commit(t, e, []meta.Cond{cond(k, 0)}, set(k, "v"+k))
		expect(t, e, k, "v"+k, r)
	}
	if got, want := keys(t, e, nil, nil), strings.Join(all, "|"); got != want {
		t.Errorf("order:\n%q, want\n%q", got, want)
	}
}

func testCancelled(t *testing.T, h Harness) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.Engine.Commit(ctx, group, nil, []meta.Op{set("a", "1")}); !errors.Is(err, context.Canceled) {
		t.Errorf("commit with a cancelled context: %v", err)
	}
	expect(t, h.Engine, "a", "", 0)
}

// testClose is last words: nothing works, nothing hangs.
func testClose(t *testing.T, h Harness) {
	commit(t, h.Engine, nil, set("a", "1"))
	if err := h.Engine.Close(); err != nil {
		t.Fatal(err)
	}
	if err := h.Engine.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
	if _, err := h.Engine.Commit(t.Context(), group, nil, []meta.Op{set("a", "2")}); !errors.Is(err, meta.ErrUnavailable) {
		t.Errorf("commit after close: %v", err)
	}
	if _, err := h.Engine.Get(t.Context(), []byte("a")); !errors.Is(err, meta.ErrUnavailable) {
		t.Errorf("get after close: %v", err)
	}
	if _, err := h.Engine.Scan(t.Context(), nil, nil); !errors.Is(err, meta.ErrUnavailable) {
		t.Errorf("scan after close: %v", err)
	}
}

func testHealth(t *testing.T, h Harness) {
	commit(t, h.Engine, nil, set("a", "1"))
	got := h.Engine.Health()
	if !got.Readable || !got.Writable || got.Reason != "" {
		t.Errorf("health of a good engine: %+v", got)
	}
}

func testOutage(t *testing.T, h Harness) {
	if h.Outage == nil {
		t.Skip("the harness has no outage")
	}
	e := h.Engine
	r := commit(t, e, nil, set("a", "1"))
	end := h.Outage()
	_, err := e.Commit(t.Context(), group, nil, []meta.Op{set("lost", "1")})
	if !errors.Is(err, meta.ErrUnavailable) && !errors.Is(err, meta.ErrUnknown) {
		t.Errorf("commit in an outage: %v", err)
	}
	unknown := errors.Is(err, meta.ErrUnknown)
	if health := e.Health(); health.Writable || health.Reason == "" {
		t.Errorf("health in an outage: %+v", health)
	}
	if _, err := e.Commit(t.Context(), group, nil, []meta.Op{set("lost2", "1")}); !errors.Is(err, meta.ErrUnavailable) {
		t.Errorf("second commit in an outage: %v", err)
	}
	end()
	expect(t, e, "a", "1", r)
	expect(t, e, "lost2", "", 0)
	if item, err := e.Get(t.Context(), []byte("lost")); err == nil && (!unknown || !bytes.Equal(item.Val, []byte("1"))) {
		t.Errorf("a commit that was refused is there: %q", item.Val)
	}
	commit(t, e, nil, set("a", "2"))
}
