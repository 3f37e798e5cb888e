package erasure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"ringfence/erasure/meta"
)

func TestPutRefusals(t *testing.T) {
	ts := small(t)
	boom := errors.New("boom")
	big := text(1, 200_000)
	cases := []struct {
		name string
		key  string
		in   func(in PutInput) PutInput
		want error
	}{
		{"no such key length", strings.Repeat("x", 1025), nil, ErrKeyTooLong},
		{"empty key", "", nil, ErrKeyTooLong},
		{"short body", "k", func(in PutInput) PutInput { in.Size++; return in }, io.ErrUnexpectedEOF},
		{"long body", "k", func(in PutInput) PutInput { in.Size--; return in }, ErrBodyTooLong},
		{"finish refuses", "k", func(in PutInput) PutInput {
			in.Finish = func(int64) (Digest, error) { return Digest{}, boom }
			return in
		}, boom},
		{"precondition refuses", "k", func(in PutInput) PutInput {
			in.Precond = func(*ObjectInfo) error { return boom }
			return in
		}, boom},
		{"body fails", "k", func(in PutInput) PutInput {
			in.Body = io.MultiReader(io.LimitReader(in.Body, 9), iotest.ErrReader(boom))
			return in
		}, boom},
		{"body of unknown length is cut", "k", func(in PutInput) PutInput {
			in.Body, in.Size = io.MultiReader(io.LimitReader(in.Body, 9), iotest.ErrReader(io.ErrUnexpectedEOF)), -1
			return in
		}, io.ErrUnexpectedEOF},
		{"too much metadata", "k", func(in PutInput) PutInput {
			in.Meta.User = map[string]string{"a": strings.Repeat("x", MaxMetaBytes)}
			return in
		}, ErrMetaTooLarge},
		{"too many pairs", "k", func(in PutInput) PutInput {
			in.Meta.User = map[string]string{}
			for i := range maxPairs + 1 {
				in.Meta.User[fmt.Sprint(i)] = ""
			}
			return in
		}, ErrMetaTooLarge},
	}
	for _, size := range []int{10, 20_000, len(big)} {
		for _, c := range cases {
			in := input(big[:size])
			if c.in != nil {
				in = c.in(in)
			}
			if _, err := ts.Put(t.Context(), "b", c.key, in); !errors.Is(err, c.want) {
				t.Errorf("%s, %d bytes: %v, want %v", c.name, size, err, c.want)
			}
		}
	}
	if _, err := ts.Put(t.Context(), "nope", "k", input(big)); !errors.Is(err, ErrNoBucket) {
		t.Errorf("put into no bucket: %v", err)
	}
	ts.wantClean()
}

// A body with exactly the announced bytes must still be read to its end: that
// is where signatures and trailers are judged.
func TestPutReadsToTheEnd(t *testing.T) {
	ts := small(t)
	late := errors.New("bad final signature")
	for _, size := range []int{0, 10, 300_000} {
		in := input(text(1, size))
		in.Body = io.MultiReader(in.Body, iotest.ErrReader(late))
		if _, err := ts.Put(t.Context(), "b", "k", in); !errors.Is(err, late) {
			t.Errorf("%d bytes: %v, want the body's late error", size, err)
		}
	}
	ts.wantClean()
}

func TestOverwriteGivesUpTheOldBytes(t *testing.T) {
	ts := small(t)
	last := int64(0)
	for i, size := range []int{100_000, 10, 0, 20, 200_000, 200_000, 0} {
		body := text(uint64(i), size)
		info := ts.mustPut("b", "k", body)
		if info.ModTime.UnixMilli() <= last {
			t.Errorf("write %d: time %v does not move forward", i, info.ModTime)
		}
		last = info.ModTime.UnixMilli()
		ts.wantBody("b", "k", body)
		ts.collectAll()
		want := 0
		if size > MaxInlineSize {
			want = 6
		}
		if n := ts.shards(); n != want {
			t.Errorf("write %d: %d shards are left, want %d", i, n, want)
		}
		if n := len(ts.engines[0].keys("i/")); n != min(1, size)*(6-want)/6 {
			t.Errorf("write %d: %d inline payloads are left", i, n)
		}
	}
}

// The clock of a display may stand still or go back; the time of a key does not.
func TestModTimeMovesForward(t *testing.T) {
	ts := small(t)
	ts.mustPut("b", "k", nil)
	first, err := ts.Stat(t.Context(), "b", "k", GetInput{})
	if err != nil {
		t.Fatal(err)
	}
	ts.clock.Add(-3_600_000)
	if second := ts.mustPut("b", "k", nil); second.ModTime.Sub(first.ModTime).Milliseconds() != 1 {
		t.Errorf("%v after %v", second.ModTime, first.ModTime)
	}
}

func TestOneCreatorWins(t *testing.T) {
	ts := small(t)
	exists := errors.New("exists")
	for _, size := range []int{10, 50_000} {
		key := fmt.Sprint(size)
		var wg sync.WaitGroup
		results := make(chan int, 64)
		for i := range 64 {
			wg.Go(func() {
				in := input(text(uint64(i), size))
				in.Precond = func(cur *ObjectInfo) error {
					if cur != nil {
						return exists
					}
					return nil
				}
				switch _, err := ts.Put(context.Background(), "b", key, in); {
				case err == nil:
					results <- i
				case !errors.Is(err, exists):
					t.Errorf("creator %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		close(results)
		if len(results) != 1 {
			t.Fatalf("%d creators won", len(results))
		}
		ts.wantBody("b", key, text(uint64(<-results), size))
		if _, err := ts.Delete(t.Context(), "b", key, DeleteInput{}); err != nil {
			t.Fatal(err)
		}
	}
	ts.wantClean()
}

// Whatever order concurrent writes take, one of them is there in the end, whole,
// and nothing of the others.
func TestConcurrentWritersNeverMix(t *testing.T) {
	ts := small(t)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for j := range 8 {
				size := []int{30, 40_000, 0}[(i+j)%3]
				ts.mustPut("b", "k", text(uint64(i*100+j), size))
				got, err := ts.read("b", "k")
				if err != nil {
					t.Errorf("read: %v", err)
					return
				}
				info := etag(got)
				if len(got) != 30 && len(got) != 40_000 && len(got) != 0 {
					t.Errorf("read %d bytes with hash %s", len(got), info)
				}
			}
		})
	}
	wg.Wait()
	ts.collectAll()
	info, err := ts.Stat(t.Context(), "b", "k", GetInput{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := ts.read("b", "k")
	if err != nil || etag(got) != info.Digest.ETag {
		t.Errorf("bytes do not match the record: %v", err)
	}
	if _, err := ts.Delete(t.Context(), "b", "k", DeleteInput{}); err != nil {
		t.Fatal(err)
	}
	ts.wantClean()
}

func TestOpenObjectOutlivesItsKey(t *testing.T) {
	ts := small(t)
	for _, size := range []int{100, 500_000} {
		body := text(3, size)
		ts.mustPut("b", "k", body)
		o, err := ts.Open(t.Context(), "b", "k", GetInput{})
		if err != nil {
			t.Fatal(err)
		}
		ts.mustPut("b", "k", []byte("new"))
		ts.collectAll()
		var out bytes.Buffer
		if _, err := o.WriteTo(t.Context(), &out, 0, int64(size)); err != nil || !bytes.Equal(out.Bytes(), body) {
			t.Errorf("%d bytes: read after overwrite: %v", size, err)
		}
		if err := errors.Join(o.Close(), o.Close()); err != nil {
			t.Error(err)
		}
		ts.clock.Add(garbageFirst.Milliseconds())
		ts.collectAll()
		if n := ts.shards(); n != 0 {
			t.Errorf("%d shards are left after close", n)
		}
	}
}

func TestRanges(t *testing.T) {
	ts := small(t)
	for _, size := range []int{1, 1000, 100_000, 3 << 20} {
		body := text(4, size)
		ts.mustPut("b", "k", body)
		o, err := ts.Open(t.Context(), "b", "k", GetInput{})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range [][2]int{{0, size}, {0, 1}, {size - 1, 1}, {size / 2, size - size/2}, {size / 3, 1}, {size, 0}, {0, 0}} {
			var out bytes.Buffer
			if err := o.Prefetch(t.Context(), int64(r[0]), int64(r[1])); err != nil {
				t.Fatalf("prefetch %v of %d: %v", r, size, err)
			}
			n, err := o.WriteTo(t.Context(), &out, int64(r[0]), int64(r[1]))
			if err != nil || n != int64(r[1]) || !bytes.Equal(out.Bytes(), body[r[0]:r[0]+r[1]]) {
				t.Errorf("range %v of %d: %d bytes, %v", r, size, n, err)
			}
		}
		for _, r := range [][2]int{{-1, 1}, {0, -1}, {0, size + 1}, {size, 1}, {size + 1, 0}} {
			if err := o.Prefetch(t.Context(), int64(r[0]), int64(r[1])); err == nil {
				t.Errorf("range %v of %d was accepted", r, size)
			}
		}
		got, err := io.ReadAll(o.Reader(t.Context(), 0, int64(size)))
		if err != nil || !bytes.Equal(got, body) {
			t.Errorf("reader: %v", err)
		}
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A commit of unknown outcome must not cost the shards that it may name.
func TestUnknownOutcomeKeepsShards(t *testing.T) {
	ts := small(t)
	ts.restart(7)
	body := text(5, 100_000)
	ts.engines[0].fate = func(meta.Group, []meta.Op) fate { return fate{err: meta.ErrUnknown} } // applied all the same
	_, err := ts.Put(t.Context(), "b", "k", input(body))
	if !errors.Is(err, ErrUnknown) {
		t.Fatalf("put: %v, want unknown", err)
	}
	ts.engines[0].fate = nil
	ts.wantBody("b", "k", body)

	ts.engines[0].fate = func(meta.Group, []meta.Op) fate { return fate{lost: true, err: meta.ErrUnavailable} }
	if _, err := ts.Put(t.Context(), "b", "k2", input(body)); !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUnknown) {
		t.Fatalf("put: %v, want unavailable", err)
	}
	ts.engines[0].fate = nil
	ts.collectAll()
	if n := ts.shards(); n != 6 {
		t.Errorf("%d shards, want the 6 of the write that may have happened", n)
	}
}

func TestDeleteJudges(t *testing.T) {
	ts := small(t)
	ts.mustPut("b", "k", []byte("x"))
	refuse := errors.New("refused")
	var seen []*ObjectInfo
	in := DeleteInput{Precond: func(cur *ObjectInfo) error { seen = append(seen, cur); return refuse }}
	for _, key := range []string{"k", "none"} {
		if _, err := ts.Delete(t.Context(), "b", key, in); !errors.Is(err, refuse) {
			t.Errorf("delete %q: %v", key, err)
		}
	}
	if len(seen) != 2 || seen[0] == nil || seen[0].Size != 1 || seen[1] != nil {
		t.Errorf("precondition saw %v", seen)
	}
	if _, err := ts.Delete(t.Context(), "b", "k", DeleteInput{VersionID: "other"}); err != nil {
		t.Errorf("delete of a version that is not there: %v", err)
	}
	ts.wantBody("b", "k", []byte("x"))
	if _, err := ts.Stat(t.Context(), "b", "k", GetInput{VersionID: "other"}); !errors.Is(err, ErrNoVersion) {
		t.Errorf("stat of a version that is not there: %v", err)
	}
	if _, err := ts.Delete(t.Context(), "b", "k", DeleteInput{VersionID: "null"}); err != nil {
		t.Error(err)
	}
	if _, err := ts.Stat(t.Context(), "b", "k", GetInput{}); !errors.Is(err, ErrNoObject) {
		t.Errorf("stat: %v", err)
	}
}

func TestCopy(t *testing.T) {
	ts := newTestStore(t, storeShape{sets: 3, disks: 4, parity: 2})
	ts.mustBucket("b")
	ts.mustBucket("c")
	for _, size := range sizes {
		body := text(6, size)
		in := input(body)
		in.Meta.User = map[string]string{"a": "1"}
		if _, err := ts.Put(t.Context(), "b", "k", in); err != nil {
			t.Fatal(err)
		}
		plain := CopyInput{SourceBucket: "b", SourceKey: "k", Bucket: "c", Key: fmt.Sprint(size)}
		info, err := ts.Copy(t.Context(), plain)
		if err != nil || info.Meta.User["a"] != "1" || info.Digest.ETag != etag(body) {
			t.Fatalf("copy of %d bytes: %+v, %v", size, info, err)
		}
		ts.wantBody("c", plain.Key, body)
		self := CopyInput{SourceBucket: "b", SourceKey: "k", Bucket: "b", Key: "k", Meta: &Meta{User: map[string]string{"a": "2"}}}
		before := ts.shards()
		info, err = ts.Copy(t.Context(), self)
		if err != nil || info.Meta.User["a"] != "2" || info.Digest.ETag != etag(body) {
			t.Fatalf("copy onto itself: %+v, %v", info, err)
		}
		ts.collectAll()
		if n := ts.shards(); n > before {
			t.Errorf("a copy onto itself wrote shards")
		}
		ts.wantBody("b", "k", body)
	}
	refuse := errors.New("refused")
	for _, in := range []CopyInput{
		{SourceBucket: "b", SourceKey: "k", Bucket: "c", Key: "x", SourceCheck: func(*ObjectInfo) error { return refuse }},
		{SourceBucket: "b", SourceKey: "k", Bucket: "b", Key: "k", SourceCheck: func(*ObjectInfo) error { return refuse }},
		{SourceBucket: "b", SourceKey: "k", Bucket: "c", Key: "x", Precond: func(*ObjectInfo) error { return refuse }},
		{SourceBucket: "b", SourceKey: "k", Bucket: "b", Key: "k", Precond: func(*ObjectInfo) error { return refuse }},
	} {
		if _, err := ts.Copy(t.Context(), in); !errors.Is(err, refuse) {
			t.Errorf("copy %+v: %v", in, err)
		}
	}
	if _, err := ts.Copy(t.Context(), CopyInput{SourceBucket: "b", SourceKey: "none", Bucket: "b", Key: "none"}); !errors.Is(err, ErrNoObject) {
		t.Errorf("copy of nothing onto itself: %v", err)
	}
	if _, err := ts.Copy(t.Context(), CopyInput{SourceBucket: "b", SourceKey: "none", Bucket: "b", Key: "k"}); !errors.Is(err, ErrNoObject) {
		t.Errorf("copy of nothing: %v", err)
	}
	rehash := CopyInput{SourceBucket: "b", SourceKey: "k", Bucket: "b", Key: "k", Rehash: func(body io.Reader, _ *ObjectInfo) (io.Reader, func(int64) (Digest, error)) {
		return body, func(int64) (Digest, error) { return Digest{ETag: "rehashed"}, nil }
	}}
	if info, err := ts.Copy(t.Context(), rehash); err != nil || info.Digest.ETag != "rehashed" || info.Meta.User["a"] != "2" {
		t.Errorf("rehash: %+v, %v", info, err)
	}
	ts.wantBody("b", "k", text(6, sizes[len(sizes)-1]))
}

// Something else commits between the decision and the commit, as another
// process would: the write is decided anew, on what is there then.
func TestWriteIsDecidedAnew(t *testing.T) {
	ts := small(t)
	exists := errors.New("exists")
	tgt, err := ts.target(t.Context(), "b", "k")
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	in := input(text(1, 50_000))
	in.Precond = func(cur *ObjectInfo) error {
		switch calls++; {
		case cur != nil:
			return exists
		case calls == 2: // the first was before the body
			other := record{Key: "k", ModTime: 1}
			if _, err := ts.engines[0].Commit(context.Background(), meta.Group{}, nil, []meta.Op{{Key: tgt.okey, Val: other.encode()}}); err != nil {
				t.Error(err)
			}
		}
		return nil
	}
	if _, err := ts.Put(t.Context(), "b", "k", in); !errors.Is(err, exists) || calls != 3 {
		t.Errorf("put: %v after %d judgements", err, calls)
	}
	ts.wantBody("b", "k", nil)
	if n := ts.shards(); n != 0 {
		t.Errorf("%d shards of the refused write are left", n)
	}
}
