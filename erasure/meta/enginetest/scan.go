package enginetest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"ringfence/erasure/meta"
)

// keys scans a range and joins the keys by bars.
func keys(t *testing.T, e meta.Engine, lo, hi []byte) string {
	t.Helper()
	c, err := e.Scan(t.Context(), lo, hi)
	if err != nil {
		t.Fatalf("scan: %v", err)
	}
	var all []string
	for c.Next() {
		all = append(all, string(c.Item().Key))
	}
	if err := errors.Join(c.Err(), c.Close()); err != nil {
		t.Fatalf("scan: %v", err)
	}
	return strings.Join(all, "|")
}

func fill(t *testing.T, e meta.Engine, all ...string) {
	t.Helper()
	for _, k := range all {
		commit(t, e, nil, set(k, "v"+k))
	}
}

func testScan(t *testing.T, h Harness) {
	e := h.Engine
	fill(t, e, "d", "b", "a", "c", "e")
	for _, tt := range []struct{ lo, hi, want string }{
		{"", "~", "a|b|c|d|e"},
		{"b", "d", "b|c"},
		{"bb", "dd", "c|d"},
		{"c", "c", ""},
		{"f", "g", ""},
		{"c", "~", "c|d|e"},
	} {
		if got := keys(t, e, []byte(tt.lo), []byte(tt.hi)); got != tt.want {
			t.Errorf("[%s, %s): %s, want %s", tt.lo, tt.hi, got, tt.want)
		}
	}
	if got := keys(t, e, []byte("d"), nil); got != "d|e" {
		t.Errorf("without a bound: %s", got)
	}
	commit(t, e, nil, del("c"))
	if got := keys(t, e, nil, nil); got != "a|b|d|e" {
		t.Errorf("after a deletion: %s", got)
	}
}

func testSeek(t *testing.T, h Harness) {
	e := h.Engine
	fill(t, e, "a", "b", "c", "d")
	c, err := e.Scan(t.Context(), []byte("a"), []byte("d"))
	if err != nil {
		t.Fatal(err)
	}
	at := func(ok bool, want string) {
		t.Helper()
		if !ok || string(c.Item().Key) != want || string(c.Item().Val) != "v"+want || c.Item().Rev == 0 {
			t.Fatalf("at %v %q %q, want %q", ok, c.Item().Key, c.Item().Val, want)
		}
	}
	at(c.SeekGE([]byte("b")), "b")
	at(c.Next(), "c")
	if c.Next() || c.SeekGE([]byte("d")) {
		t.Error("left the range at its end")
	}
	at(c.SeekGE([]byte("aa")), "b")
	at(c.SeekGE([]byte("a")), "a") // backwards
	at(c.Next(), "b")
	if err := errors.Join(c.Err(), c.Close()); err != nil {
		t.Error(err)
	}
}

func testScanIsOneState(t *testing.T, h Harness) {
	e := h.Engine
	fill(t, e, "a", "b", "c")
	c, err := e.Scan(t.Context(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	commit(t, e, nil, del("b"), set("a", "new"), set("d", "new"))
	var got []string
	for c.Next() {
		got = append(got, string(c.Item().Key)+"="+string(c.Item().Val))
	}
	if err := errors.Join(c.Err(), c.Close()); err != nil {
		t.Fatal(err)
	}
	if want := "a=va b=vb c=vc"; strings.Join(got, " ") != want {
		t.Errorf("scan %v, want %s", got, want)
	}
}

// testScanWhileWriting moves a token along a ring of keys: every scan must see
// it exactly once, and never behind where it was known to be.
func testScanWhileWriting(t *testing.T, h Harness) {
	e := h.Engine
	const moves, ring = 300, 7
	key := func(i int) string { return fmt.Sprintf("k%d", i%ring) }
	commit(t, e, nil, set(key(0), "000"))
	var mu sync.Mutex
	acked := 0
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 1; i <= moves; i++ {
			_, err := e.Commit(t.Context(), group, nil, []meta.Op{del(key(i - 1)), set(key(i), fmt.Sprintf("%03d", i))})
			if err != nil {
				t.Errorf("commit: %v", err)
				return
			}
			mu.Lock()
			acked = i
			mu.Unlock()
		}
	})
	for done := false; !done; {
		mu.Lock()
		before := acked
		done = acked >= moves || t.Failed()
		mu.Unlock()
		c, err := e.Scan(t.Context(), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for c.Next() {
			found = append(found, string(c.Item().Val))
		}
		if err := errors.Join(c.Err(), c.Close()); err != nil {
			t.Fatal(err)
		}
		if len(found) != 1 || found[0] < fmt.Sprintf("%03d", before) {
			t.Fatalf("scan found %v although %d was acknowledged before", found, before)
		}
	}
	wg.Wait()
}
