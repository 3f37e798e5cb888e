package erasure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"ringfence/erasure/meta"
)

func (ts *testStore) mustUpload(key string) UploadInfo {
	ts.t.Helper()
	up, err := ts.CreateUpload(context.Background(), "b", key, CreateUploadInput{
		Meta: Meta{User: map[string]string{"of": key}}, Checksum: "CRC32", Composite: true,
	})
	if err != nil {
		ts.t.Fatal(err)
	}
	return up
}

func (ts *testStore) mustPart(up UploadInfo, number int, body []byte) PartInfo {
	ts.t.Helper()
	p, err := ts.PutPart(context.Background(), "b", up.Key, up.UploadID, number, input(body))
	if err != nil {
		ts.t.Fatalf("part %d: %v", number, err)
	}
	return p
}

// completion joins the parts' ETags, so that an answer shows which it saw.
func completion(numbers ...int) CompleteInput {
	return CompleteInput{Parts: numbers, Finish: func(up UploadInfo, parts []PartInfo) (Digest, error) {
		if len(parts) != len(numbers) || up.Checksum != "CRC32" || !up.Composite {
			return Digest{}, fmt.Errorf("finish saw %+v, %d parts", up, len(parts))
		}
		var tags strings.Builder
		for i, p := range parts {
			if p.Number != numbers[i] {
				return Digest{}, fmt.Errorf("finish saw part %d in place of %d", p.Number, numbers[i])
			}
			tags.WriteString(p.Digest.ETag)
		}
		return Digest{ETag: etag([]byte(tags.String()))}, nil
	}}
}

func TestMultipart(t *testing.T) {
	ts := small(t)
	up := ts.mustUpload("k")
	bodies := map[int][]byte{2: text(2, 150_000), 5: text(5, 10), 7: text(7, 2<<20), 8: nil, 10000: text(8, 99)}
	for n, body := range bodies {
		ts.mustPart(up, n, text(99, 120_000)) // replaced
		p := ts.mustPart(up, n, body)
		if p.Number != n || p.Size != int64(len(body)) || p.Digest.ETag != etag(body) {
			t.Errorf("part %d: %+v", n, p)
		}
	}
	page, err := ts.ListParts(t.Context(), "b", "k", up.UploadID, 0, 1000)
	if err != nil || len(page.Parts) != 5 || page.Upload.UploadID != up.UploadID || page.Upload.Meta.User["of"] != "k" {
		t.Fatalf("list parts: %+v, %v", page, err)
	}
	if _, err := ts.Stat(t.Context(), "b", "k", GetInput{}); !errors.Is(err, ErrNoObject) {
		t.Errorf("an upload in progress is visible: %v", err)
	}
	ts.mustPut("b", "k", text(1, 70_000)) // replaced by the completion

	info, err := ts.CompleteUpload(t.Context(), "b", "k", up.UploadID, completion(2, 7, 8, 10000))
	if err != nil {
		t.Fatal(err)
	}
	want := slices.Concat(bodies[2], bodies[7], bodies[10000])
	if info.Size != int64(len(want)) || !slices.Equal(info.PartSizes, []int64{150_000, 2 << 20, 0, 99}) || info.Meta.User["of"] != "k" {
		t.Errorf("complete: %+v", info)
	}
	ts.wantBody("b", "k", want)
	ts.collectAll()
	if n := len(ts.engines[0].keys("p/")); n != 5 { // four parts and the journal
		t.Errorf("%d part records are left", n)
	}
	if n := ts.shards(); n != 12 {
		t.Errorf("%d shards are left, want those of two parts", n)
	}
	ts.wantMultipartRanges("k", want, []int64{150_000, 2 << 20, 0, 99})

	ts.wantOver(up, info)
}

// wantOver looks at an upload that was completed with parts 2, 7, 8 and 10000,
// until a day has passed.
func (ts *testStore) wantOver(up UploadInfo, info ObjectInfo) {
	t := ts.t
	t.Helper()
	again, err := ts.CompleteUpload(t.Context(), "b", "k", up.UploadID, completion(2, 7, 8, 10000))
	if err != nil || again.Digest.ETag != info.Digest.ETag || again.Size != info.Size || !again.ModTime.Equal(info.ModTime) || again.Meta.User["of"] != "k" {
		t.Errorf("second complete: %+v, %v", again, err)
	}
	for _, other := range [][]int{{2, 7}, {2, 7, 8, 9}, {1}} {
		if _, err := ts.CompleteUpload(t.Context(), "b", "k", up.UploadID, completion(other...)); !errors.Is(err, ErrNoUpload) && !errors.Is(err, ErrNoPart) {
			t.Errorf("second complete with parts %v: %v", other, err)
		}
	}
	for name, err := range map[string]error{
		"abort": ts.AbortUpload(t.Context(), "b", "k", up.UploadID),
		"part":  func() error { _, err := ts.PutPart(t.Context(), "b", "k", up.UploadID, 1, input(nil)); return err }(),
		"list":  func() error { _, err := ts.ListParts(t.Context(), "b", "k", up.UploadID, 0, 1); return err }(),
		"other key": func() error {
			_, err := ts.CompleteUpload(t.Context(), "b", "k2", up.UploadID, completion(2, 7, 8, 10000))
			return err
		}(),
	} {
		if !errors.Is(err, ErrNoUpload) {
			t.Errorf("%s after complete: %v", name, err)
		}
	}
	if _, err := ts.Delete(t.Context(), "b", "k", DeleteInput{}); err != nil {
		t.Fatal(err)
	}
	ts.wantClean()
	if again, err := ts.CompleteUpload(t.Context(), "b", "k", up.UploadID, completion(2, 7, 8, 10000)); err != nil || again.Digest.ETag != info.Digest.ETag {
		t.Errorf("complete after the object is gone: %+v, %v", again, err)
	}
	ts.clock.Add(doneKept.Milliseconds())
	ts.wantClean()
	if _, err := ts.CompleteUpload(t.Context(), "b", "k", up.UploadID, completion(2, 7, 8, 10000)); !errors.Is(err, ErrNoUpload) {
		t.Errorf("complete after a day: %v", err)
	}
	for _, space := range []string{"p/", "g/"} {
		if keys := ts.engines[0].keys(space); len(keys) > 0 {
			t.Errorf("%q are left", keys)
		}
	}
}

func (ts *testStore) wantMultipartRanges(key string, want []byte, parts []int64) {
	ts.t.Helper()
	o, err := ts.Open(context.Background(), "b", key, GetInput{})
	if err != nil {
		ts.t.Fatal(err)
	}
	defer o.Close()
	border := parts[0]
	total := int64(len(want))
	for _, r := range [][2]int64{{0, 1}, {border - 1, 1}, {border, 1}, {border - 1, 2}, {border - 1, total - border + 1}, {total - 1, 1}, {total, 0}, {7, total - 7}} {
		var out bytes.Buffer
		if err := o.Prefetch(context.Background(), r[0], r[1]); err != nil {
			ts.t.Fatalf("prefetch %v: %v", r, err)
		}
		if n, err := o.WriteTo(context.Background(), &out, r[0], r[1]); err != nil || n != r[1] || !bytes.Equal(out.Bytes(), want[r[0]:r[0]+r[1]]) {
			ts.t.Errorf("range %v: %d bytes, %v", r, n, err)
		}
	}
}

func TestUploadRefusals(t *testing.T) {
	ts := small(t)
	up := ts.mustUpload("k")
	ts.mustPart(up, 1, []byte("x"))
	ts.mustPart(up, 3, []byte("y"))
	refuse := errors.New("refused")
	complete := func(in CompleteInput) error {
		_, err := ts.CompleteUpload(t.Context(), "b", "k", up.UploadID, in)
		return err
	}
	for name, c := range map[string]struct {
		in   CompleteInput
		want error
	}{
		"no parts":             {CompleteInput{}, ErrNoPart},
		"a part never sent":    {completion(1, 2), ErrNoPart},
		"a part beyond":        {completion(1, 4), ErrNoPart},
		"twice":                {completion(1, 1), ErrNoPart},
		"descending":           {completion(3, 1), ErrNoPart},
		"number 0":             {completion(0, 1), ErrNoPart},
		"number 10001":         {completion(1, 10001), ErrNoPart},
		"finish refuses":       {CompleteInput{Parts: []int{1}, Finish: func(UploadInfo, []PartInfo) (Digest, error) { return Digest{}, refuse }}, refuse},
		"precondition refuses": {CompleteInput{Parts: []int{1}, Precond: func(*ObjectInfo) error { return refuse }}, refuse},
	} {
		if err := complete(c.in); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	for _, id := range []string{"", "x", strings.Repeat("0", 32), strings.ToUpper(up.UploadID), up.UploadID + "0"} {
		if _, err := ts.PutPart(t.Context(), "b", "k", id, 1, input(nil)); !errors.Is(err, ErrNoUpload) {
			t.Errorf("part of upload %q: %v", id, err)
		}
	}
	for _, n := range []int{0, -1, 10001} {
		if _, err := ts.PutPart(t.Context(), "b", "k", up.UploadID, n, input(nil)); !errors.Is(err, ErrNoPart) {
			t.Errorf("part %d: %v", n, err)
		}
	}
	if err := ts.AbortUpload(t.Context(), "b", "k", up.UploadID); err != nil {
		t.Fatal(err)
	}
	if err := ts.AbortUpload(t.Context(), "b", "k", up.UploadID); !errors.Is(err, ErrNoUpload) {
		t.Errorf("second abort: %v", err)
	}
	if err := complete(completion(1)); !errors.Is(err, ErrNoUpload) {
		t.Errorf("complete after abort: %v", err)
	}
	ts.wantClean()
	if keys := ts.engines[0].keys("p/"); len(keys) > 0 {
		t.Errorf("%q are left", keys)
	}
}

// A part that arrives while its upload is completed is in the object as it was
// judged, or not at all.
func TestPartsRaceCompletion(t *testing.T) {
	ts := small(t)
	for round := range 30 {
		up := ts.mustUpload("k")
		ts.mustPart(up, 1, text(0, 20_000))
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				_, err := ts.PutPart(context.Background(), "b", "k", up.UploadID, 1, input(text(uint64(i+1), 20_000)))
				if err != nil && !errors.Is(err, ErrNoUpload) {
					t.Errorf("part: %v", err)
				}
			})
		}
		var aborted bool
		if round%3 == 0 {
			wg.Go(func() {
				err := ts.AbortUpload(context.Background(), "b", "k", up.UploadID)
				aborted = err == nil
				if err != nil && !errors.Is(err, ErrNoUpload) {
					t.Errorf("abort: %v", err)
				}
			})
		}
		var infos [2]ObjectInfo
		for i := range infos {
			wg.Go(func() {
				in := completion(1)
				info, err := ts.CompleteUpload(context.Background(), "b", "k", up.UploadID, in)
				if err != nil && !errors.Is(err, ErrNoUpload) {
					t.Errorf("complete: %v", err)
				}
				infos[i] = info
			})
		}
		wg.Wait()
		if infos[0].Digest.ETag != infos[1].Digest.ETag || aborted != (infos[0].Digest.ETag == "") {
			t.Errorf("two completions gave %q and %q, aborted %v", infos[0].Digest.ETag, infos[1].Digest.ETag, aborted)
		}
		if !aborted {
			body, err := ts.read("b", "k")
			if err != nil || etag([]byte(etag(body))) != infos[0].Digest.ETag {
				t.Errorf("round %d: the object is not what was judged: %v", round, err)
			}
		}
		ts.collectAll()
	}
	if _, err := ts.Delete(t.Context(), "b", "k", DeleteInput{}); err != nil {
		t.Fatal(err)
	}
	ts.wantClean()
}

// Ten thousand parts stay within the limits of one commit, whatever their
// sizes, and a range of such an object does not read them all.
func TestTenThousandParts(t *testing.T) {
	ts := newTestStore(t, storeShape{sets: 1, disks: 1})
	ts.mustBucket("b")
	for _, distinct := range []bool{false, true} {
		up := ts.mustUpload("k")
		u, err := ts.upload(t.Context(), "b", "k", up.UploadID)
		if err != nil {
			t.Fatal(err)
		}
		// Straight into the engine: what counts is what becomes of them.
		eng := ts.engines[0]
		var want []byte
		var numbers []int
		var items []meta.Item
		for n := 1; n <= MaxParts; n++ {
			body := []byte{byte(n), byte(n >> 8), 3}
			if distinct {
				body = text(uint64(n), 3+n%5)
			}
			id := ts.newUUID()
			rec := partRecord{Number: n, Size: int64(len(body)), Run: run{Inline: id}, Digest: Digest{ETag: etag(body)}}
			items = append(items, meta.Item{Key: meta.PartKey(u.id, uint16(n)), Val: rec.encode(), Rev: 1}, meta.Item{Key: meta.InlineKey(id), Val: body, Rev: 1})
			want = append(want, body...)
			numbers = append(numbers, n)
		}
		eng.mu.Lock()
		eng.items = append(slices.Clone(eng.items), items...)
		slices.SortFunc(eng.items, func(a, b meta.Item) int { return bytes.Compare(a.Key, b.Key) })
		eng.mu.Unlock()

		info, err := ts.CompleteUpload(t.Context(), "b", "k", up.UploadID, completion(numbers...))
		if err != nil || len(info.PartSizes) != MaxParts || info.Size != int64(len(want)) {
			t.Fatalf("complete: %d parts, %v", len(info.PartSizes), err)
		}
		if n := len(eng.keys("m/")); n > 1 || (n == 1) != distinct {
			t.Errorf("%d manifests apart, distinct sizes: %v", n, distinct)
		}
		ts.wantBody("b", "k", want)
		eng.gets = map[string]int{}
		o, err := ts.Open(t.Context(), "b", "k", GetInput{})
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if _, err := o.WriteTo(t.Context(), &out, int64(len(want))/2, 10); err != nil || !bytes.Equal(out.Bytes(), want[len(want)/2:len(want)/2+10]) {
			t.Errorf("range: %v", err)
		}
		if n := eng.gets["p/"]; n > 6 {
			t.Errorf("a range of 10 bytes read %d part records", n)
		}
		eng.gets = nil
		if err := o.Close(); err != nil {
			t.Error(err)
		}
		if _, err := ts.Delete(t.Context(), "b", "k", DeleteInput{}); err != nil {
			t.Fatal(err)
		}
		ts.wantClean()
	}
}

func TestListPartsPages(t *testing.T) {
	ts := small(t)
	up := ts.mustUpload("k")
	if page, err := ts.ListParts(t.Context(), "b", "k", up.UploadID, 0, 10); err != nil || len(page.Parts) != 0 || page.Truncated {
		t.Errorf("no parts: %+v, %v", page, err)
	}
	numbers := []int{1, 2, 5, 9, 10000}
	for _, n := range numbers {
		ts.mustPart(up, n, []byte{byte(n)})
	}
	for limit := 1; limit <= 6; limit++ {
		var got []int
		after := 0
		for {
			page, err := ts.ListParts(t.Context(), "b", "k", up.UploadID, after, limit)
			if err != nil || len(page.Parts) > limit {
				t.Fatalf("limit %d: %d parts, %v", limit, len(page.Parts), err)
			}
			for _, p := range page.Parts {
				got = append(got, p.Number)
			}
			if !page.Truncated {
				break
			}
			after = page.Next
		}
		if !slices.Equal(got, numbers) {
			t.Errorf("limit %d: %v", limit, got)
		}
	}
	for _, c := range []struct{ after, limit int }{{10000, 5}, {20000, 5}, {0, 0}, {0, -1}} {
		if page, err := ts.ListParts(t.Context(), "b", "k", up.UploadID, c.after, c.limit); err != nil || len(page.Parts) != 0 || page.Truncated {
			t.Errorf("%+v: %+v, %v", c, page, err)
		}
	}
}

func TestListUploadsAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ts := newTestStore(t, storeShape{sets: rapid.IntRange(1, 3).Draw(rt, "sets"), disks: 1})
		ts.mustBucket("b")
		type up struct{ key, id string }
		var all []up
		for range rapid.IntRange(0, 20).Draw(rt, "n") {
			key := drawKey(rt, "key")
			if key == "" {
				continue
			}
			for range rapid.IntRange(1, 3).Draw(rt, "of one key") {
				all = append(all, up{key, ts.mustUpload(key).UploadID})
			}
		}
		slices.SortFunc(all, func(a, b up) int { return strings.Compare(a.key+"\x00"+a.id, b.key+"\x00"+b.id) })
		slices.SortStableFunc(all, func(a, b up) int { return strings.Compare(a.key, b.key) })
		in := UploadListInput{Prefix: drawKey(rt, "prefix"), Delimiter: rapid.SampledFrom([]string{"", "/", "a", "\x00", "\xff"}).Draw(rt, "delimiter"), Max: rapid.IntRange(1, 4).Draw(rt, "max")}
		var got, want []up
		var prefixes, folded []string
		for _, u := range all {
			rest, ok := strings.CutPrefix(u.key, in.Prefix)
			if !ok {
				continue
			}
			if before, _, cut := strings.Cut(rest, in.Delimiter); cut && in.Delimiter != "" {
				if p := in.Prefix + before + in.Delimiter; !slices.Contains(folded, p) {
					folded = append(folded, p)
				}
				continue
			}
			want = append(want, u)
		}
		for {
			page, err := ts.ListUploads(context.Background(), "b", in)
			if err != nil || len(page.Uploads)+len(page.Prefixes) > in.Max || page.Truncated && len(page.Uploads)+len(page.Prefixes) != in.Max {
				rt.Fatalf("list %+v: %d and %d, %v", in, len(page.Uploads), len(page.Prefixes), err)
			}
			for _, u := range page.Uploads {
				got = append(got, up{u.Key, u.UploadID})
			}
			prefixes = append(prefixes, page.Prefixes...)
			if !page.Truncated {
				break
			}
			in.AfterKey, in.AfterUploadID = page.NextKey, page.NextUploadID
		}
		if !slices.Equal(got, want) || !slices.Equal(prefixes, folded) {
			rt.Fatalf("pages of %+v give %v %q, want %v %q", in, got, prefixes, want, folded)
		}
		if len(want) > 0 { // a key marker alone passes all uploads of the key
			key := rapid.SampledFrom(want).Draw(rt, "marker").key
			page, err := ts.ListUploads(context.Background(), "b", UploadListInput{AfterKey: key, Max: 1000})
			if err != nil || slices.ContainsFunc(page.Uploads, func(u UploadInfo) bool { return u.Key <= key }) {
				rt.Fatalf("after key %q: %+v, %v", key, page.Uploads, err)
			}
		}
	})
}
