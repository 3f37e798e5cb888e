package erasure

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"ringfence/erasure/meta"
)

// brokenCursor breaks off after so many moves.
type brokenCursor struct {
	meta.Cursor
	left int
	err  error
}

func (c *brokenCursor) move(ok bool) bool {
	if c.left--; c.left < 0 {
		c.err = fmt.Errorf("%w: the disk under the walk is gone", meta.ErrUnavailable)
		return false
	}
	return ok
}

func (c *brokenCursor) SeekGE(key []byte) bool { return c.move(c.Cursor.SeekGE(key)) }
func (c *brokenCursor) Next() bool             { return c.move(c.Cursor.Next()) }
func (c *brokenCursor) Err() error             { return errors.Join(c.err, c.Cursor.Err()) }

// breakWalks makes the next n walks break off after so many moves, and returns
// how many of them have not begun yet.
func (ts *testStore) breakWalks(n, moves int) (left func() int) {
	for i, set := range ts.sets {
		set.engine = &hookEngine{Engine: ts.engines[i], cursor: func(c meta.Cursor) meta.Cursor {
			if n == 0 {
				return c
			}
			n--
			return &brokenCursor{Cursor: c, left: moves}
		}}
	}
	return func() int { return n }
}

// A disk that fails under a walk costs nobody an answer, wherever it fails, and
// the answer is as if it had not.
func TestWalksGoOnElsewhere(t *testing.T) {
	ts := newTestStore(t, storeShape{sets: 2, disks: 6, parity: 2})
	for _, name := range []string{"b", "b1", "b2", "empty"} {
		ts.mustBucket(name)
	}
	for i := range 8 {
		ts.mustPut("b", fmt.Sprintf("k%d/%d", i/4, i), text(uint64(i), 10))
	}
	up := ts.mustUpload("m")
	ts.mustUpload("n")
	for n := 1; n <= 4; n++ {
		ts.mustPart(up, n, text(uint64(n), 10))
	}
	ctx := context.Background()
	walks := map[string]func() (any, error){
		"list":        func() (any, error) { return ts.List(ctx, "b", ListInput{Max: 5}) },
		"list folded": func() (any, error) { return ts.List(ctx, "b", ListInput{Max: 5, Delimiter: "/"}) },
		"list after":  func() (any, error) { return ts.List(ctx, "b", ListInput{Max: 5, After: "k0/2"}) },
		"uploads":     func() (any, error) { return ts.ListUploads(ctx, "b", UploadListInput{Max: 5}) },
		"parts":       func() (any, error) { return ts.ListParts(ctx, "b", "m", up.UploadID, 1, 2) },
		"buckets": func() (any, error) {
			list, more, err := ts.ListBuckets(ctx, "", "", 3)
			return fmt.Sprint(list, more), err
		},
		"not empty": func() (any, error) {
			err := ts.DeleteBucket(ctx, "b")
			if errors.Is(err, ErrBucketNotEmpty) {
				return "not empty", nil
			}
			return nil, err
		},
	}
	for name, walk := range walks {
		want, err := walk()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		broken := 0
		for moves := range 8 {
			for _, n := range []int{1, 3} {
				left := ts.breakWalks(n, moves)
				got, err := walk()
				if err != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("%s, %d walks break off after %d moves: %v, %v, want %v", name, n, moves, got, err, want)
				}
				broken += n - left()
			}
		}
		if broken == 0 {
			t.Errorf("%s: no walk was broken", name)
		}
	}
	ts.completeOverBrokenWalks(up)
}

// completeOverBrokenWalks does what needs a walk for its decision.
func (ts *testStore) completeOverBrokenWalks(up UploadInfo) {
	t, ctx := ts.t, context.Background()
	ts.breakWalks(1, 2)
	if _, err := ts.CompleteUpload(ctx, "b", "m", up.UploadID, completion(1, 2, 4)); err != nil {
		t.Errorf("complete: %v", err)
	}
	ts.breakWalks(1, 0)
	if err := ts.DeleteBucket(ctx, "empty"); err != nil {
		t.Errorf("delete bucket: %v", err)
	}
	ts.breakWalks(1<<30, 1)
	if _, err := ts.List(ctx, "b", ListInput{Max: 5}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("list when every walk breaks off: %v", err)
	}
	if err := ts.DeleteBucket(ctx, "b"); !errors.Is(err, ErrBucketNotEmpty) {
		t.Errorf("delete of a bucket that is not empty, when every walk breaks off after one move: %v", err)
	}
	ts.breakWalks(1<<30, 0)
	if err := ts.DeleteBucket(ctx, "b1"); !errors.Is(err, ErrUnavailable) {
		t.Errorf("delete of a bucket that nobody can look into: %v", err)
	}
}
