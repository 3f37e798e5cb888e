package storagetest

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"testing"

	"ringfence/storage"
)

func TestMemBackend(t *testing.T) {
	TestBackend(t, func(*testing.T) (storage.Backend, string) { return NewMemBackend(), "" })
}

func TestFaultyPassesOn(t *testing.T) {
	TestBackend(t, func(*testing.T) (storage.Backend, string) { return NewFaulty(NewMemBackend(), nil), "" })
}

// outcome is what a crash left of a few files.
func outcome(t *testing.T, b *MemBackend, pool *storage.Pool, names ...string) string {
	t.Helper()
	c := backendCase{Backend: b, pool: pool}
	var all []string
	for _, name := range names {
		f, err := b.Open(t.Context(), name)
		switch {
		case errors.Is(err, storage.ErrNotFound):
			all = append(all, name+" gone")
		case err != nil:
			t.Fatal(err)
		default:
			content := c.read(t, f, 0, 20_000)
			all = append(all, fmt.Sprintf("%s %d %x", name, len(content), fnvOf(content)))
		}
	}
	return strings.Join(all, ", ")
}

func fnvOf(p []byte) uint32 {
	h := fnv.New32a()
	_, _ = h.Write(p) // never fails
	return h.Sum32()
}

func testPool(t *testing.T) *storage.Pool {
	t.Helper()
	pool, err := storage.NewPool(storage.PoolOptions{BudgetBytes: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	})
	return pool
}

// crashes gives the outcomes of many crashes at one moment.
func crashes(t *testing.T, b *MemBackend, names ...string) map[string]int {
	t.Helper()
	found, pool := map[string]int{}, testPool(t)
	for seed := range uint64(400) {
		first := outcome(t, b.CrashClone(rand.New(rand.NewPCG(seed, 1))), pool, names...)
		if again := outcome(t, b.CrashClone(rand.New(rand.NewPCG(seed, 1))), pool, names...); again != first {
			t.Fatalf("seed %d: %s, then %s", seed, first, again)
		}
		found[first]++
	}
	return found
}

func TestMemBackendCrash(t *testing.T) {
	b := NewMemBackend()
	c := backendCase{Backend: b}
	ctx := t.Context()
	if err := errors.Join(b.Mkdir(ctx, "d"), b.SyncDir(ctx, ".")); err != nil {
		t.Fatal(err)
	}
	// Synced, and its entry too: there in every case.
	c.put(t, "d/safe", pattern(10_000))
	if err := b.SyncDir(ctx, "d"); err != nil {
		t.Fatal(err)
	}
	if got := crashes(t, b, "d/safe"); len(got) != 1 || strings.Contains(fmt.Sprint(got), "gone") {
		t.Errorf("a synced file: %v", got)
	}
	// Synced without its entry: there or not, but whole.
	c.put(t, "d/entry", pattern(10_000))
	if got := crashes(t, b, "d/safe", "d/entry"); len(got) != 2 {
		t.Errorf("an unsynced entry: %v", got)
	}
	// An entry without data: lost, torn or whole pages.
	f, err := b.Create(ctx, "d/data", 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.SyncDir(ctx, "d"), f.WriteAt(ctx, pattern(10_000), 0)); err != nil {
		t.Fatal(err)
	}
	if got := crashes(t, b, "d/data"); len(got) < 20 || strings.Contains(fmt.Sprint(got), "gone") {
		t.Errorf("unsynced data: %d outcomes", len(got))
	}
	if err := f.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	if got := crashes(t, b, "d/data"); len(got) != 1 {
		t.Errorf("after sync: %v", got)
	}
	// A rename happened or did not: never both names, never none.
	if err := b.Rename(ctx, "d/safe", "d/data"); err != nil {
		t.Fatal(err)
	}
	for state := range crashes(t, b, "d/safe", "d/data") {
		if strings.Count(state, "gone") != 1 && !strings.HasPrefix(state, "d/safe 10000") {
			t.Errorf("half a rename: %s", state)
		}
	}
	if err := b.SyncDir(ctx, "d"); err != nil {
		t.Fatal(err)
	}
	if got := crashes(t, b, "d/safe", "d/data"); len(got) != 1 || !strings.HasPrefix(fmt.Sprint(got), "map[d/safe gone, d/data 10000") {
		t.Errorf("after the sync of a rename: %v", got)
	}
	// A removal may be undone.
	if err := b.Remove(ctx, "d/data"); err != nil {
		t.Fatal(err)
	}
	if got := crashes(t, b, "d/data"); len(got) != 2 {
		t.Errorf("an unsynced removal: %v", got)
	}
}
