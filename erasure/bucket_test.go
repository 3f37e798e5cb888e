package erasure

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
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
		up, err := ts.CreateUpload(t.Context(), "one", key, CreateUploadInput{})
		if err != nil {
			t.Fatal(err)
		}
		if err := ts.DeleteBucket(t.Context(), "one"); !errors.Is(err, ErrBucketNotEmpty) {
			t.Errorf("delete with upload of %q: %v", key, err)
		}
		if err := ts.AbortUpload(t.Context(), "one", key, up.UploadID); err != nil {
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

// Either an object is in when the bucket's deletion looks, or the bucket is
// gone when the object arrives. Never is an acknowledged object gone with it.
func TestDeleteBucketRacesPut(t *testing.T) {
	ts := newTestStore(t, storeShape{sets: 2, disks: 1})
	for range 200 {
		ts.mustBucket("b")
		var wg sync.WaitGroup
		var put, up, del error
		wg.Go(func() { _, put = ts.Put(context.Background(), "b", "k", input(nil)) })
		wg.Go(func() { _, up = ts.CreateUpload(context.Background(), "b", "u", CreateUploadInput{}) })
		wg.Go(func() { del = ts.DeleteBucket(context.Background(), "b") })
		wg.Wait()
		switch {
		case del == nil && (!errors.Is(put, ErrNoBucket) || !errors.Is(up, ErrNoBucket)):
			t.Fatalf("bucket deleted, put gave %v, upload %v", put, up)
		case del != nil && (!errors.Is(del, ErrBucketNotEmpty) || put != nil && up != nil):
			t.Fatalf("delete gave %v, put %v, upload %v", del, put, up)
		}
		if del == nil {
			continue
		}
		if put == nil {
			ts.wantBody("b", "k", nil)
			if _, err := ts.Delete(t.Context(), "b", "k", DeleteInput{}); err != nil {
				t.Fatal(err)
			}
		}
		page, err := ts.ListUploads(t.Context(), "b", UploadListInput{Max: 10})
		if err != nil || (len(page.Uploads) == 1) != (up == nil) {
			t.Fatalf("uploads %+v, %v", page, err)
		}
		for _, u := range page.Uploads {
			if err := ts.AbortUpload(t.Context(), "b", u.Key, u.UploadID); err != nil {
				t.Fatal(err)
			}
		}
		if err := ts.DeleteBucket(t.Context(), "b"); err != nil {
			t.Fatal(err)
		}
	}
	ts.wantClean()
}

// A deletion that was cut short at any commit leaves a bucket that works, or
// none, and never one that a late commit can still take away.
func TestDeleteBucketCutShort(t *testing.T) {
	for commit := range 2 {
		for _, f := range []fate{
			{err: meta.ErrUnknown},                 // it happened
			{lost: true, err: meta.ErrUnknown},     // it did not, or not yet
			{lost: true, err: meta.ErrUnavailable}, // it did not
		} {
			ts := newTestStore(t, storeShape{sets: 1, disks: 1})
			ts.mustBucket("b")
			var late []meta.Op
			n := 0
			ts.engines[0].fate = func(_ meta.Group, ops []meta.Op) fate {
				if n++; n-1 == commit {
					late = ops
					return f
				}
				return fate{}
			}
			err := ts.DeleteBucket(t.Context(), "b")
			if !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrUnavailable) {
				t.Errorf("commit %d, %+v: %v", commit, f, err)
			}
			before := ts.engines[0].rev
			_, err = ts.Put(t.Context(), "b", "k", input([]byte("x")))
			gone := commit == 1 && !f.lost
			if gone != errors.Is(err, ErrNoBucket) || !gone && err != nil {
				t.Errorf("commit %d, %+v: put gave %v", commit, f, err)
			}
			if f.lost && errors.Is(f.err, meta.ErrUnknown) && ts.engines[0].rev < before+2 {
				t.Errorf("commit %d, %+v: %d operations may still happen", commit, f, len(late))
			}
			// What a new process makes of it.
			ts.buckets.drop("b", false)
			if _, err := ts.HeadBucket(t.Context(), "b"); gone != errors.Is(err, ErrNoBucket) {
				t.Errorf("commit %d, %+v: head gave %v", commit, f, err)
			}
			if _, err := ts.CreateBucket(t.Context(), "b", ""); gone != (err == nil) {
				t.Errorf("commit %d, %+v: create gave %v", commit, f, err)
			}
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
