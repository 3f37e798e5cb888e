package erasure

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"ringfence/erasure/meta"
)

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
		case del == nil && (!errors.Is(put, ErrNoBucket) || up != nil && !errors.Is(up, ErrNoBucket)):
			t.Fatalf("bucket deleted, put gave %v, upload %v", put, up)
		case del != nil && (!errors.Is(del, ErrBucketNotEmpty) || put != nil):
			t.Fatalf("delete gave %v, put %v, upload %v", del, put, up)
		}
		if del == nil {
			continue
		}
		ts.wantBody("b", "k", nil)
		if _, err := ts.Delete(t.Context(), "b", "k", DeleteInput{}); err != nil {
			t.Fatal(err)
		}
		page, err := ts.ListUploads(t.Context(), "b", UploadListInput{Max: 10})
		if err != nil || (len(page.Uploads) == 1) != (up == nil) {
			t.Fatalf("uploads %+v, %v", page, err)
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

// mustUploads starts uploads with two parts each, one of them inline.
func (ts *testStore) mustUploads(n int) (ups []UploadInfo) {
	ts.t.Helper()
	for i := range n {
		up := ts.mustUpload(fmt.Sprintf("key-%03d", i))
		ts.mustPart(up, 1, text(uint64(i), 2*MaxInlineSize))
		ts.mustPart(up, 2, text(uint64(i), 10))
		ups = append(ups, up)
	}
	return ups
}

// wantEnded fails unless the bucket and its uploads left nothing at all.
func (ts *testStore) wantEnded() {
	ts.t.Helper()
	ts.wantClean()
	for i, e := range ts.engines {
		for _, space := range []string{"b/", "p/", "g/"} {
			if keys := e.keys(space); len(keys) > 0 {
				ts.t.Errorf("set %d: %q are left", i, keys)
			}
		}
	}
}

// wantGone fails unless every use of the upload finds no bucket, or, when its
// name was taken again, no upload.
func (ts *testStore) wantGone(up UploadInfo, want error) {
	ts.t.Helper()
	ctx := context.Background()
	_, part := ts.PutPart(ctx, "b", up.Key, up.UploadID, 1, input([]byte("x")))
	_, complete := ts.CompleteUpload(ctx, "b", up.Key, up.UploadID, completion(1, 2))
	_, list := ts.ListParts(ctx, "b", up.Key, up.UploadID, 0, 10)
	abort := ts.AbortUpload(ctx, "b", up.Key, up.UploadID)
	for _, err := range []error{part, complete, list, abort} {
		if !errors.Is(err, want) {
			ts.t.Errorf("upload %s of a deleted bucket: %v, want %v", up.Key, err, want)
		}
	}
}

func TestDeleteBucketEndsUploads(t *testing.T) {
	ts := newTestStore(t, storeShape{sets: 3, disks: 4, parity: 1})
	ts.mustBucket("b")
	ups := ts.mustUploads(2*endBatch + 1) // more than a batch
	// With an object, no upload is touched.
	ts.mustPut("b", "object", nil)
	if err := ts.DeleteBucket(t.Context(), "b"); !errors.Is(err, ErrBucketNotEmpty) {
		t.Fatalf("delete with an object: %v", err)
	}
	if page, err := ts.ListUploads(t.Context(), "b", UploadListInput{Max: 1000}); err != nil || len(page.Uploads) != len(ups) {
		t.Fatalf("%d uploads after a refused deletion, %v", len(page.Uploads), err)
	}
	if _, err := ts.Delete(t.Context(), "b", "object", DeleteInput{}); err != nil {
		t.Fatal(err)
	}
	if err := ts.DeleteBucket(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	ts.wantGone(ups[0], ErrNoBucket)
	ts.mustBucket("b")
	ts.wantGone(ups[1], ErrNoUpload)
	if page, err := ts.ListUploads(t.Context(), "b", UploadListInput{Max: 1000}); err != nil || len(page.Uploads) > 0 {
		t.Errorf("uploads of a new bucket: %+v, %v", page.Uploads, err)
	}
	if err := ts.DeleteBucket(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	ts.wantEnded()
}

// A deletion with uploads that is cut short at any commit leaves the bucket with
// all of its uploads, or goes on to its end, in this process or the next.
func TestDeleteBucketWithUploadsCutShort(t *testing.T) {
	const uploads = 3
	for commit := range 3 + uploads { // two marks, the uploads, the removal
		for _, f := range []fate{
			{err: meta.ErrUnknown},
			{lost: true, err: meta.ErrUnknown},
			{lost: true, err: meta.ErrUnavailable},
		} {
			for _, restart := range []bool{false, true} {
				t.Run(fmt.Sprintf("commit %d %+v restart %v", commit, f, restart), func(t *testing.T) {
					cutShort(t, uploads, commit, f, restart)
				})
			}
		}
	}
}

// cutShort fails all commits of a deletion from one on, the first with a fate.
func cutShort(t *testing.T, uploads, commit int, f fate, restart bool) {
	ts := newTestStore(t, storeShape{sets: 1, disks: 1})
	ts.mustBucket("b")
	ups := ts.mustUploads(uploads)
	n := 0
	ts.engines[0].fate = func(meta.Group, []meta.Op) fate {
		switch n++; {
		case n-1 < commit:
			return fate{}
		case n-1 == commit:
			return f
		}
		return fate{lost: true, err: meta.ErrUnavailable}
	}
	err := ts.DeleteBucket(t.Context(), "b")
	decided := commit > 1 || commit == 1 && !f.lost
	switch {
	case commit > 1 && !errors.Is(err, ErrUnknown):
		t.Fatalf("cut short after it was decided: %v", err)
	case !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrUnavailable):
		t.Fatalf("cut short: %v", err)
	}
	if removed := commit == 2+uploads && !f.lost; !removed && decided {
		if _, err := ts.HeadBucket(t.Context(), "b"); !errors.Is(err, ErrUnavailable) {
			t.Errorf("a bucket that can't go yet: %v", err)
		}
	}
	ts.engines[0].fate = nil
	if restart {
		ts.buckets.drop("b", false)
		if err := ts.finishDeletions(t.Context()); err != nil {
			t.Fatal(err)
		}
		if left := len(ts.engines[0].keys("b/")); (left == 0) != decided {
			t.Errorf("%d buckets after the start", left)
		}
	}
	if decided {
		ts.wantGone(ups[0], ErrNoBucket)
		ts.wantEnded()
		return
	}
	for _, up := range ups {
		if _, err := ts.CompleteUpload(t.Context(), "b", up.Key, up.UploadID, completion(1, 2)); err != nil {
			t.Errorf("complete in a bucket that stays: %v", err)
		}
	}
	if err := ts.DeleteBucket(t.Context(), "b"); !errors.Is(err, ErrBucketNotEmpty) {
		t.Errorf("delete: %v", err)
	}
	for _, up := range ups {
		if _, err := ts.Delete(t.Context(), "b", up.Key, DeleteInput{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := ts.DeleteBucket(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	ts.clock.Add(doneKept.Milliseconds())
	ts.wantEnded()
}

// The background finishes what a request could not, without anyone asking.
func TestDeletionsGoOn(t *testing.T) {
	ts := newTestStore(t, storeShape{sets: 1, disks: 1})
	ts.mustBucket("b")
	ts.mustUploads(2)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		ts.buckets.halfway = make(chan struct{}, 1) // of this bubble
		go func() { ended <- ts.runDeletions(ctx) }()
		synctest.Wait() // it found nothing to do
		n := 0
		ts.engines[0].fate = func(meta.Group, []meta.Op) fate {
			if n++; n == 4 || n == 5 { // the request's, and the first attempt of the background
				return fate{lost: true, err: meta.ErrUnavailable}
			}
			return fate{}
		}
		if err := ts.DeleteBucket(ctx, "b"); !errors.Is(err, ErrUnknown) {
			t.Errorf("delete: %v", err)
		}
		synctest.Wait()
		if n != 5 || len(ts.engines[0].keys("b/")) != 1 {
			t.Errorf("%d commits, buckets %q", n, ts.engines[0].keys("b/"))
		}
		again, stop := ts.env.After(2 * garbageIdle)
		defer stop()
		<-again
		synctest.Wait()
		if left := ts.engines[0].keys("b/"); len(left) > 0 {
			t.Errorf("%q are left", left)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	ts.wantEnded()
}

// Either the completion's object is in when the bucket's deletion looks, or the
// upload is gone with the bucket. Parts that arrive leave nothing behind.
func TestDeleteBucketRacesComplete(t *testing.T) {
	ts := newTestStore(t, storeShape{sets: 2, disks: 1})
	deleted, completed := 0, 0
	for round := range 200 {
		ts.mustBucket("b")
		up := ts.mustUploads(2)[round%2]
		var wg sync.WaitGroup
		var complete, part, create, del error
		wg.Go(func() {
			_, complete = ts.CompleteUpload(context.Background(), "b", up.Key, up.UploadID, completion(1, 2))
		})
		wg.Go(func() {
			_, part = ts.PutPart(context.Background(), "b", up.Key, up.UploadID, 3, input(text(3, 2*MaxInlineSize)))
		})
		wg.Go(func() { _, create = ts.CreateUpload(context.Background(), "b", "other", CreateUploadInput{}) })
		wg.Go(func() { del = ts.DeleteBucket(context.Background(), "b") })
		wg.Wait()
		for what, err := range map[string]error{"complete": complete, "part": part, "create": create} {
			if err != nil && !errors.Is(err, ErrNoBucket) && !errors.Is(err, ErrNoUpload) {
				t.Fatalf("%s: %v", what, err)
			}
		}
		switch {
		case del == nil && complete == nil:
			t.Fatal("a completed object is gone with the bucket")
		case del == nil:
			deleted++
			continue
		case !errors.Is(del, ErrBucketNotEmpty) || complete != nil:
			t.Fatalf("delete gave %v, complete %v", del, complete)
		}
		completed++
		if _, err := ts.Delete(t.Context(), "b", up.Key, DeleteInput{}); err != nil {
			t.Fatal(err)
		}
		if err := ts.DeleteBucket(t.Context(), "b"); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d deletions came first, %d completions", deleted, completed)
	ts.clock.Add(doneKept.Milliseconds())
	ts.wantEnded()
}
