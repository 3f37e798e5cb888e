package erasure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ringfence/erasure/meta"
	"ringfence/storage"
)

// listModel is what a listing is, said without an index: sort, filter, roll up,
// cut.
func listModel(keys []string, in ListInput) (objects, prefixes []string, truncated bool, next string) {
	slices.Sort(keys)
	seen := map[string]bool{}
	for _, key := range keys {
		if !strings.HasPrefix(key, in.Prefix) {
			continue
		}
		name, rolled := key, false
		if in.Delimiter != "" {
			if before, _, ok := strings.Cut(key[len(in.Prefix):], in.Delimiter); ok {
				name, rolled = in.Prefix+before+in.Delimiter, true
			}
		}
		if name <= in.After && in.After != "" || seen[name] {
			continue
		}
		if len(objects)+len(prefixes) >= in.Max {
			return objects, prefixes, in.Max > 0, next
		}
		seen[name], next = true, name
		if rolled {
			prefixes = append(prefixes, name)
		} else {
			objects = append(objects, name)
		}
	}
	return objects, prefixes, false, next
}

func wantPage(t interface {
	Helper()
	Fatalf(string, ...any)
}, ts *testStore, keys []string, in ListInput,
) ListPage {
	t.Helper()
	page, err := ts.List(context.Background(), "b", in)
	if err != nil {
		t.Fatalf("list %+v: %v", in, err)
	}
	var got []string
	for _, o := range page.Objects {
		got = append(got, o.Key)
	}
	objects, prefixes, truncated, next := listModel(keys, in)
	if !slices.Equal(got, objects) || !slices.Equal(page.Prefixes, prefixes) || page.Truncated != truncated || truncated && page.Next != next {
		t.Fatalf("list %+v of %q:\n got %q %q %v %q\nwant %q %q %v %q", in, keys, got, page.Prefixes, page.Truncated, page.Next, objects, prefixes, truncated, next)
	}
	return page
}

// put writes a record straight into the engine, as Put would.
func (ts *testStore) index(bucket, key string) {
	ts.t.Helper()
	tgt, err := ts.target(context.Background(), bucket, key)
	if err != nil {
		ts.t.Fatal(err)
	}
	if _, err := tgt.apply(context.Background(), func(*record, int64) (change, error) { return change{rec: &record{Key: key}}, nil }); err != nil {
		ts.t.Fatal(err)
	}
}

// Keys from few pieces share prefixes and delimiters in all ways.
var keyPieces = []string{
	"a", "b", "a", "/", "/", "//", ".", "..", "\x00", "\xff", "\xff\xff", "\x01", "é", "e\u0301", " ", "%2F", "+", "-", "ab", "/a/",
	"!", "\"", "#", "$", "%", "&", "'", "(", ")", "*", ",", ":", ";", "<", "=", ">", "?", "@", "[", "\\", "]", "^", "_", "`", "{", "|", "}", "~",
}

func drawKey(t *rapid.T, label string) string {
	return strings.Join(rapid.SliceOfN(rapid.SampledFrom(keyPieces), 0, 5).Draw(t, label), "")
}

func TestListAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ts := newTestStore(t, storeShape{sets: rapid.IntRange(1, 3).Draw(rt, "sets"), disks: 1})
		ts.mustBucket("a") // neighbours that must never show up
		ts.mustBucket("b")
		ts.mustBucket("c")
		set := map[string]bool{}
		for range rapid.IntRange(0, 40).Draw(rt, "n") {
			if key := drawKey(rt, "key"); key != "" {
				set[key] = true
				ts.index("b", key)
				ts.index("a", key)
				ts.index("c", key)
			}
		}
		keys := []string{}
		for key := range set {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		for range 12 {
			in := ListInput{
				Prefix:    drawKey(rt, "prefix"),
				Delimiter: rapid.SampledFrom([]string{"", "/", "//", "a", "\xff", "\x00", "ab", "/a/", "é"}).Draw(rt, "delimiter"),
				After:     drawKey(rt, "after"),
				Max:       rapid.SampledFrom([]int{0, 1, 2, 3, 7, 1000, 5000}).Draw(rt, "max"),
			}
			if len(keys) > 0 && rapid.Bool().Draw(rt, "near") {
				key := rapid.SampledFrom(keys).Draw(rt, "of")
				in.Prefix = key[:rapid.IntRange(0, len(key)).Draw(rt, "cut")]
				in.After = rapid.SampledFrom([]string{"", key, key + "\x00", in.Prefix, rapid.SampledFrom(keys).Draw(rt, "after key")}).Draw(rt, "after")
			}
			wantPage(rt, ts, keys, in)
		}
		// Pages put together give the whole, each of its items once.
		in := ListInput{Delimiter: rapid.SampledFrom([]string{"", "/", "\xff"}).Draw(rt, "d"), Max: 3}
		whole, folded, _, _ := listModel(keys, ListInput{Delimiter: in.Delimiter, Max: 1 << 20})
		var objects, prefixes []string
		for {
			page := wantPage(rt, ts, keys, in)
			for _, o := range page.Objects {
				objects = append(objects, o.Key)
			}
			prefixes = append(prefixes, page.Prefixes...)
			if !page.Truncated {
				break
			}
			in.After = page.Next
		}
		if !slices.Equal(objects, whole) || !slices.Equal(prefixes, folded) {
			rt.Fatalf("pages give %q %q, want %q %q", objects, prefixes, whole, folded)
		}
	})
}

func TestListCases(t *testing.T) {
	ts := newTestStore(t, storeShape{sets: 2, disks: 1})
	ts.mustBucket("b")
	keys := []string{"a", "a/b", "a/b/c", "dir/", "dir/x", "file1", "file1/file2", "l/1/a", "l/1000/b", "path//empty", "path/empty", "z\xff", "z\xff\xff/1"}
	for _, key := range keys {
		ts.index("b", key)
	}
	for _, in := range []ListInput{
		{Max: 1000},
		{Max: 1000, Delimiter: "/"},
		{Max: 1000, Prefix: "l/1/"},
		{Max: 1000, Prefix: "file1/", Delimiter: "/"},
		{Max: 1000, Prefix: "path/", Delimiter: "/"},
		{Max: 1000, Prefix: "a/b/", After: "a"}, // before the prefix: as if it were not there
		{Max: 1000, Prefix: "a/b", After: "zzz"},
		{Max: 1000, Prefix: "dir/"},
		{Max: 1000, Prefix: "dir/", After: "dir/"},
		{Max: 1, Prefix: ""},
		{Max: 0}, {Max: -1},
		{Max: 1000, Delimiter: "/", After: "a/"},
		{Max: 1000, Delimiter: "/", After: "a/b"},
		{Max: 1000, Delimiter: "\xff", Prefix: "z"},
	} {
		wantPage(t, ts, keys, in)
	}
	if _, err := ts.List(t.Context(), "none", ListInput{Max: 1}); !errors.Is(err, ErrNoBucket) {
		t.Errorf("list of no bucket: %v", err)
	}
}

// A listing shows what a record says, without reading payloads or manifests.
func TestListShowsRecords(t *testing.T) {
	ts := small(t)
	in := input([]byte("hello"))
	in.Meta = Meta{Headers: map[string]string{"x-amz-storage-class": "STANDARD_IA"}, User: map[string]string{"a": "b"}}
	put, err := ts.Put(t.Context(), "b", "k", in)
	if err != nil {
		t.Fatal(err)
	}
	ts.engines[0].gets = map[string]int{}
	page, err := ts.List(t.Context(), "b", ListInput{Max: 10})
	if err != nil || len(page.Objects) != 1 {
		t.Fatalf("list: %+v, %v", page, err)
	}
	o := page.Objects[0]
	if o.Bucket != "b" || o.Size != 5 || o.Digest.ETag != put.Digest.ETag || !o.ModTime.Equal(put.ModTime) ||
		o.Meta.Headers["x-amz-storage-class"] != "STANDARD_IA" || o.Meta.User != nil || o.Digest.Checksums[0].Algorithm != "CRC64NVME" {
		t.Errorf("list shows %+v", o)
	}
	if n := len(ts.engines[0].gets); n != 0 {
		t.Errorf("a listing reads %v", ts.engines[0].gets)
	}
}

func BenchmarkList(b *testing.B) {
	const n = 200_000
	for _, delimiter := range []string{"", "/"} {
		b.Run(fmt.Sprintf("delimiter=%q", delimiter), func(b *testing.B) {
			ts := newTestStore(b, storeShape{sets: 1, disks: 1})
			ts.mustBucket("b")
			bk, err := ts.buckets.get(b.Context(), ts.Store, "b")
			if err != nil {
				b.Fatal(err)
			}
			rec := record{
				Size: 1, ModTime: 1_700_000_000_000, Run: run{Inline: storage.UUID{1}},
				Digest: Digest{ETag: etag(nil), Checksums: []Checksum{{Algorithm: "CRC64NVME", Value: make([]byte, 8)}}},
				Meta:   Meta{Headers: map[string]string{"content-type": "application/octet-stream"}},
			}
			for i := range n {
				rec.Key = fmt.Sprintf("dir%03d/object-%08d", i/1000, i)
				ts.engines[0].items = append(ts.engines[0].items, meta.Item{Key: meta.ObjectKey(bk.id, rec.Key), Val: rec.encode(), Rev: 1})
			}
			b.ReportAllocs()
			keys := 0
			for b.Loop() {
				in := ListInput{Max: 1000, Delimiter: delimiter}
				for {
					page, err := ts.List(b.Context(), "b", in)
					if err != nil {
						b.Fatal(err)
					}
					keys += len(page.Objects) + len(page.Prefixes)
					if !page.Truncated {
						break
					}
					in.After = page.Next
				}
			}
			b.ReportMetric(float64(keys)/b.Elapsed().Seconds(), "keys/s")
		})
	}
}
