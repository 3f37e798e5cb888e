package erasure

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"ringfence/erasure/meta"
)

func TestBuckets(t *testing.T) {
	ts := newTestStore(t, storeShape{sets: 3, disks: 1})
	first, err := ts.CreateBucket(t.Context(), "one", "")
	if err != nil || first.Region != "eu-test-1" || first.ID.IsZero() || first.Created.IsZero() {
		t.Fatalf("create: %+v, %v", first, err)
	}
	again, err := ts.CreateBucket(t.Context(), "one", "elsewhere")
	if !errors.Is(err, ErrBucketExists) || again != first {
		t.Errorf("create again: %+v, %v", again, err)
	}
	if got, err := ts.HeadBucket(t.Context(), "one"); err != nil || got != first {
		t.Errorf("head: %+v, %v", got, err)
	}
	for _, name := range []string{"", "none", strings.Repeat("x", 256)} {
		if _, err := ts.HeadBucket(t.Context(), name); !errors.Is(err, ErrNoBucket) {
			t.Errorf("head %q: %v", name, err)
		}
		if err := ts.DeleteBucket(t.Context(), name); !errors.Is(err, ErrNoBucket) {
			t.Errorf("delete %q: %v", name, err)
		}
	}
	// Wherever its only object is, a bucket is not empty.
	for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
		ts.mustPut("one", key, nil)
		if err := ts.DeleteBucket(t.Context(), "one"); !errors.Is(err, ErrBucketNotEmpty) {
			t.Errorf("delete with object %q: %v", key, err)
		}
		if _, err := ts.Delete(t.Context(), "one", key, DeleteInput{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := ts.DeleteBucket(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	if _, err := ts.HeadBucket(t.Context(), "one"); !errors.Is(err, ErrNoBucket) {
		t.Errorf("head after delete: %v", err)
	}
	second, err := ts.CreateBucket(t.Context(), "one", "r")
	if err != nil || second.ID == first.ID || second.Region != "r" {
		t.Errorf("a bucket made again: %+v, %v", second, err)
	}
}

func TestListBuckets(t *testing.T) {
	ts := newTestStore(t, storeShape{sets: 1, disks: 1})
	names := []string{"a", "ab", "ab.c", "b", "ba", "c"}
	for _, name := range names {
		ts.mustBucket(name)
	}
	for _, c := range []struct {
		prefix, after string
		limit         int
		want          []string
		more          bool
	}{
		{"", "", 100, names, false},
		{"", "", 6, names, false},
		{"", "", 5, names[:5], true},
		{"", "", 0, nil, false},
		{"", "", -1, nil, false},
		{"ab", "", 100, []string{"ab", "ab.c"}, false},
		{"ab", "ab", 100, []string{"ab.c"}, false},
		{"b", "a", 100, []string{"b", "ba"}, false},
		{"a", "b", 100, nil, false},
		{"", "ab", 2, []string{"ab.c", "b"}, true},
	} {
		list, more, err := ts.ListBuckets(t.Context(), c.prefix, c.after, c.limit)
		var got []string
		for _, b := range list {
			got = append(got, b.Name)
		}
		if err != nil || more != c.more || !slices.Equal(got, c.want) {
			t.Errorf("%+v: %q, %v, %v", c, got, more, err)
		}
	}
}

func TestCreateBucketUnknown(t *testing.T) {
	for _, lost := range []bool{false, true} {
		ts := newTestStore(t, storeShape{sets: 1, disks: 1})
		ts.engines[0].fate = func(meta.Group, []meta.Op) fate { return fate{lost: lost, err: meta.ErrUnknown} }
		if _, err := ts.CreateBucket(t.Context(), "b", ""); !errors.Is(err, ErrUnknown) {
			t.Errorf("create: %v", err)
		}
		ts.engines[0].fate = nil
		if _, err := ts.HeadBucket(t.Context(), "b"); lost != errors.Is(err, ErrNoBucket) {
			t.Errorf("head: %v", err)
		}
		if _, err := ts.CreateBucket(t.Context(), "b", ""); lost != (err == nil) {
			t.Errorf("create again: %v", err)
		}
	}
}

func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gate
		if err := errors.Join(g.enter(t.Context()), g.enter(t.Context())); err != nil {
			t.Fatal(err)
		}
		shut := make(chan error, 1)
		go func() { shut <- g.shut(t.Context()) }()
		synctest.Wait()
		entered := make(chan error, 1)
		go func() { entered <- g.enter(t.Context()) }()
		g.leave()
		synctest.Wait()
		if len(shut) != 0 || len(entered) != 0 {
			t.Fatal("the gate shut on someone inside, or let someone in after")
		}
		g.leave()
		synctest.Wait()
		if len(shut) != 1 || <-shut != nil || len(entered) != 0 {
			t.Fatal("the gate did not shut")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := errors.Join(g.enter(ctx), g.shut(ctx)); !errors.Is(err, context.Canceled) {
			t.Errorf("wait with a dead context: %v", err)
		}
		g.open()
		synctest.Wait()
		if len(entered) != 1 || <-entered != nil {
			t.Fatal("the gate did not open")
		}
		if err := g.shut(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("shut with a dead context: %v", err)
		}
		if err := g.enter(t.Context()); err != nil {
			t.Errorf("the gate stayed shut: %v", err)
		}
		g.leave()
		g.leave()
		if err := g.shut(t.Context()); err != nil {
			t.Fatal(err)
		}
		g.remove(ErrNoBucket)
		if err := g.enter(t.Context()); !errors.Is(err, ErrNoBucket) {
			t.Errorf("enter after remove: %v", err)
		}
		if err := g.shut(t.Context()); !errors.Is(err, ErrNoBucket) {
			t.Errorf("shut after remove: %v", err)
		}
	})
}

func TestKeyLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l keyLock
		a, b := lockName{Key: "a"}, lockName{Key: "b"}
		unlock, err := l.lock(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		other, err := l.lock(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error, 1)
		go func() { _, err := l.lock(ctx, a); got <- err }()
		synctest.Wait()
		if len(got) != 0 {
			t.Fatal("two holders")
		}
		cancel()
		if err := <-got; !errors.Is(err, context.Canceled) {
			t.Errorf("wait: %v", err)
		}
		go func() {
			unlock, err := l.lock(t.Context(), a)
			unlock()
			got <- err
		}()
		synctest.Wait()
		unlock()
		other()
		if err := <-got; err != nil {
			t.Error(err)
		}
		if len(l.held) != 0 {
			t.Errorf("%d locks are left", len(l.held))
		}
	})
}
