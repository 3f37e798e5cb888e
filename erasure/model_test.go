package erasure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// model is what a store is, said without disks: the reference for
// TestStoreAgainstModel.
type model struct {
	buckets map[string]*modelBucket
}

type modelBucket struct {
	objects map[string]modelObject
	uploads map[string]*modelUpload // by id
}

type modelObject struct {
	body  []byte
	etag  string
	user  string
	parts []int64
}

type modelUpload struct {
	key   string
	user  string
	parts map[int][]byte
}

// pair is a store beside its model.
type pair struct {
	ts    *testStore
	m     model
	done  []finished // completed uploads that must answer again
	alive []string   // upload ids ever given out
}

type finished struct {
	bucket, key, id, etag string
	parts                 []int
}

var modelNames = []string{"b0", "b1"}

var modelKeys = []string{"a", "a/b", "a/b/c", "a//", "b/", "..", "z\xff", "k\x00"}

func (p *pair) bucket(t *rapid.T) (string, *modelBucket) {
	name := rapid.SampledFrom(modelNames).Draw(t, "bucket")
	return name, p.m.buckets[name]
}

func drawBody(t *rapid.T) []byte {
	size := rapid.SampledFrom([]int{0, 1, 300, MaxInlineSize, MaxInlineSize + 1, 70_000, 300_001}).Draw(t, "size")
	return text(uint64(rapid.IntRange(0, 1<<20).Draw(t, "seed")), size)
}

func want(t *rapid.T, err, expected error) bool {
	if !errors.Is(err, expected) {
		t.Fatalf("error %v, want %v", err, expected)
	}
	return err == nil
}

func (p *pair) createBucket(t *rapid.T) {
	name, mb := p.bucket(t)
	_, err := p.ts.CreateBucket(context.Background(), name, "")
	if mb != nil {
		want(t, err, ErrBucketExists)
		return
	}
	want(t, err, nil)
	p.m.buckets[name] = &modelBucket{objects: map[string]modelObject{}, uploads: map[string]*modelUpload{}}
}

func (p *pair) deleteBucket(t *rapid.T) {
	name, mb := p.bucket(t)
	err := p.ts.DeleteBucket(context.Background(), name)
	switch {
	case mb == nil:
		want(t, err, ErrNoBucket)
	case len(mb.objects) > 0:
		want(t, err, ErrBucketNotEmpty)
	default:
		want(t, err, nil)
		delete(p.m.buckets, name)
		p.done = slices.DeleteFunc(p.done, func(f finished) bool { return f.bucket == name })
	}
}

var errModel = errors.New("model refuses")

// condition draws a precondition and says what the model makes of it.
func condition(t *rapid.T, cur *modelObject) (Precond, error) {
	switch rapid.IntRange(0, 3).Draw(t, "condition") {
	case 1:
		var err error
		if cur != nil {
			err = errModel
		}
		return func(c *ObjectInfo) error {
			if c != nil {
				return errModel
			}
			return nil
		}, err
	case 2:
		tag := etag([]byte("nothing"))
		if cur != nil && rapid.Bool().Draw(t, "match") {
			tag = cur.etag
		}
		var err error
		if cur == nil || cur.etag != tag {
			err = errModel
		}
		return func(c *ObjectInfo) error {
			if c == nil || c.Digest.ETag != tag {
				return errModel
			}
			return nil
		}, err
	}
	return nil, nil
}

func (mb *modelBucket) current(key string) *modelObject {
	if o, ok := mb.objects[key]; ok {
		return &o
	}
	return nil
}

func (p *pair) put(t *rapid.T) {
	name, mb := p.bucket(t)
	key := rapid.SampledFrom(modelKeys).Draw(t, "key")
	body := drawBody(t)
	in := input(body)
	if rapid.Bool().Draw(t, "unknown size") {
		in.Size = -1
	}
	user := rapid.StringMatching("[a-z]{0,3}").Draw(t, "user")
	in.Meta.User = map[string]string{"u": user}
	if mb == nil {
		_, err := p.ts.Put(context.Background(), name, key, in)
		want(t, err, ErrNoBucket)
		return
	}
	var expected error
	in.Precond, expected = condition(t, mb.current(key))
	_, err := p.ts.Put(context.Background(), name, key, in)
	if want(t, err, expected) {
		mb.objects[key] = modelObject{body: body, etag: etag(body), user: user}
	}
}

func (p *pair) remove(t *rapid.T) {
	name, mb := p.bucket(t)
	key := rapid.SampledFrom(modelKeys).Draw(t, "key")
	if mb == nil {
		_, err := p.ts.Delete(context.Background(), name, key, DeleteInput{})
		want(t, err, ErrNoBucket)
		return
	}
	cond, expected := condition(t, mb.current(key))
	_, err := p.ts.Delete(context.Background(), name, key, DeleteInput{Precond: cond})
	if want(t, err, expected) {
		delete(mb.objects, key)
	}
}

func (p *pair) copyObject(t *rapid.T) {
	sourceName, sb := p.bucket(t)
	targetName, tb := p.bucket(t)
	in := CopyInput{SourceBucket: sourceName, Bucket: targetName}
	in.SourceKey = rapid.SampledFrom(modelKeys).Draw(t, "source")
	in.Key = rapid.SampledFrom(modelKeys).Draw(t, "target")
	user, replace := rapid.StringMatching("[a-z]{0,3}").Draw(t, "user"), rapid.Bool().Draw(t, "replace")
	if replace {
		in.Meta = &Meta{User: map[string]string{"u": user}}
	}
	_, err := p.ts.Copy(context.Background(), in)
	if sb == nil || tb == nil {
		want(t, err, ErrNoBucket)
		return
	}
	o, ok := sb.objects[in.SourceKey]
	if !ok {
		want(t, err, ErrNoObject)
		return
	}
	want(t, err, nil)
	if replace {
		o.user = user
	}
	if in.SourceKey != in.Key || sourceName != targetName {
		o.parts = nil
	}
	tb.objects[in.Key] = o
}

func (p *pair) startUpload(t *rapid.T) {
	name, mb := p.bucket(t)
	key := rapid.SampledFrom(modelKeys).Draw(t, "key")
	user := rapid.StringMatching("[a-z]{0,3}").Draw(t, "user")
	up, err := p.ts.CreateUpload(context.Background(), name, key, CreateUploadInput{
		Meta: Meta{User: map[string]string{"u": user}}, Checksum: "CRC32", Composite: true,
	})
	if mb == nil {
		want(t, err, ErrNoBucket)
		return
	}
	want(t, err, nil)
	mb.uploads[up.UploadID] = &modelUpload{key: key, user: user, parts: map[int][]byte{}}
	p.alive = append(p.alive, up.UploadID)
}

// drawUpload picks an upload id, perhaps one that is over, and a key, mostly
// the right one.
func (p *pair) drawUpload(t *rapid.T) (name, key, id string, mb *modelBucket, up *modelUpload) {
	name, mb = p.bucket(t)
	id = "00000000000000000000000000000000"
	if len(p.alive) > 0 {
		id = rapid.SampledFrom(p.alive).Draw(t, "upload")
	}
	key = rapid.SampledFrom(modelKeys).Draw(t, "key")
	for n, b := range p.m.buckets {
		if u := b.uploads[id]; u != nil && rapid.IntRange(0, 9).Draw(t, "right") > 0 {
			name, mb, key = n, b, u.key
		}
	}
	if mb != nil && mb.uploads[id] != nil && mb.uploads[id].key == key {
		up = mb.uploads[id]
	}
	return name, key, id, mb, up
}

func (p *pair) putPart(t *rapid.T) {
	name, key, id, mb, up := p.drawUpload(t)
	body, number := drawBody(t), rapid.SampledFrom([]int{1, 2, 3, 9, 10000}).Draw(t, "number")
	_, err := p.ts.PutPart(context.Background(), name, key, id, number, input(body))
	switch {
	case mb == nil:
		want(t, err, ErrNoBucket)
	case up == nil:
		want(t, err, ErrNoUpload)
	case want(t, err, nil):
		up.parts[number] = body
	}
}

func (p *pair) complete(t *rapid.T) {
	name, key, id, mb, up := p.drawUpload(t)
	if mb == nil || up == nil {
		return // completed asks again
	}
	numbers := slices.Sorted(maps.Keys(up.parts))
	if len(numbers) > 1 && rapid.Bool().Draw(t, "leave one out") {
		numbers = numbers[1:]
	}
	if rapid.IntRange(0, 9).Draw(t, "wrong") == 0 {
		numbers = append(numbers, 9999)
		slices.Sort(numbers)
	}
	o := modelObject{user: up.user}
	var tags strings.Builder
	var expected error
	for _, n := range numbers {
		body, ok := up.parts[n]
		if !ok {
			expected = ErrNoPart
		}
		o.body = append(o.body, body...)
		o.parts = append(o.parts, int64(len(body)))
		tags.WriteString(etag(body))
	}
	o.etag = etag([]byte(tags.String()))
	if len(numbers) == 0 {
		expected = ErrNoPart
	}
	in := completion(numbers...)
	if expected == nil {
		in.Precond, expected = condition(t, mb.current(key))
	}
	_, err := p.ts.CompleteUpload(context.Background(), name, key, id, in)
	if want(t, err, expected) {
		mb.objects[key] = o
		delete(mb.uploads, id)
		p.done = append(p.done, finished{name, key, id, o.etag, numbers})
	}
}

func (p *pair) completeAgain(t *rapid.T) {
	if len(p.done) == 0 {
		return
	}
	f := rapid.SampledFrom(p.done).Draw(t, "done")
	info, err := p.ts.CompleteUpload(context.Background(), f.bucket, f.key, f.id, completion(f.parts...))
	if want(t, err, nil) && info.Digest.ETag != f.etag {
		t.Fatalf("second completion gave %q, want %q", info.Digest.ETag, f.etag)
	}
	want(t, p.ts.AbortUpload(context.Background(), f.bucket, f.key, f.id), ErrNoUpload)
}

func (p *pair) abort(t *rapid.T) {
	name, key, id, mb, up := p.drawUpload(t)
	err := p.ts.AbortUpload(context.Background(), name, key, id)
	switch {
	case mb == nil:
		want(t, err, ErrNoBucket)
	case up == nil:
		want(t, err, ErrNoUpload)
	default:
		want(t, err, nil)
		delete(mb.uploads, id)
	}
}

func (p *pair) restart(t *rapid.T) {
	p.ts.buckets.mu.Lock()
	defer p.ts.buckets.mu.Unlock()
	p.ts.buckets.byName = nil
	p.ts.buckets.unsettled = nil
}

// check compares all that can be seen.
func (p *pair) check(t *rapid.T) {
	for _, name := range modelNames {
		mb := p.m.buckets[name]
		page, err := p.ts.List(context.Background(), name, ListInput{Max: 1000})
		if mb == nil {
			want(t, err, ErrNoBucket)
			continue
		}
		want(t, err, nil)
		keys := slices.Sorted(maps.Keys(mb.objects))
		if !slices.EqualFunc(page.Objects, keys, func(o ObjectInfo, k string) bool { return o.Key == k }) {
			t.Fatalf("bucket %s lists %d objects, want %q", name, len(page.Objects), keys)
		}
		for i, key := range keys {
			p.checkObject(t, name, key, mb.objects[key], page.Objects[i])
		}
		uploads, err := p.ts.ListUploads(context.Background(), name, UploadListInput{Max: 1000})
		if want(t, err, nil) && len(uploads.Uploads) != len(mb.uploads) {
			t.Fatalf("bucket %s lists %d uploads, want %d", name, len(uploads.Uploads), len(mb.uploads))
		}
		for id, up := range mb.uploads {
			parts, err := p.ts.ListParts(context.Background(), name, up.key, id, 0, 1000)
			want(t, err, nil)
			numbers := slices.Sorted(maps.Keys(up.parts))
			if !slices.EqualFunc(parts.Parts, numbers, func(p PartInfo, n int) bool {
				return p.Number == n && p.Digest.ETag == etag(up.parts[n])
			}) {
				t.Fatalf("upload %s lists %+v, want %v", id, parts.Parts, numbers)
			}
		}
	}
}

func (p *pair) checkObject(t *rapid.T, name, key string, o modelObject, listed ObjectInfo) {
	info, err := p.ts.Stat(context.Background(), name, key, GetInput{})
	want(t, err, nil)
	if info.Size != int64(len(o.body)) || info.Digest.ETag != o.etag || info.Meta.User["u"] != o.user || !slices.Equal(info.PartSizes, o.parts) {
		t.Fatalf("stat %s/%q: %+v, want %d bytes, %s, %q, parts %v", name, key, info, len(o.body), o.etag, o.user, o.parts)
	}
	if listed.Size != info.Size || listed.Digest.ETag != info.Digest.ETag || !listed.ModTime.Equal(info.ModTime) {
		t.Fatalf("listing and stat differ: %+v and %+v", listed, info)
	}
	obj, err := p.ts.Open(context.Background(), name, key, GetInput{})
	want(t, err, nil)
	defer obj.Close()
	off := rapid.IntRange(0, len(o.body)).Draw(t, "off")
	n := rapid.IntRange(0, len(o.body)-off).Draw(t, "n")
	var out bytes.Buffer
	want(t, obj.Prefetch(context.Background(), int64(off), int64(n)), nil)
	_, err = obj.WriteTo(context.Background(), &out, int64(off), int64(n))
	want(t, err, nil)
	if !bytes.Equal(out.Bytes(), o.body[off:off+n]) {
		t.Fatalf("%s/%q: bytes from %d to %d differ", name, key, off, off+n)
	}
}

func TestStoreAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		sets := rapid.IntRange(1, 2).Draw(rt, "sets")
		p := &pair{ts: newTestStore(t, storeShape{sets: sets, disks: 4, parity: 1}), m: model{buckets: map[string]*modelBucket{}}}
		rt.Repeat(map[string]func(*rapid.T){
			"":             p.check,
			"create":       p.createBucket,
			"deleteBucket": p.deleteBucket,
			"put":          p.put,
			"put2":         p.put,
			"delete":       p.remove,
			"copy":         p.copyObject,
			"upload":       p.startUpload,
			"part":         p.putPart,
			"part2":        p.putPart,
			"complete":     p.complete,
			"again":        p.completeAgain,
			"abort":        p.abort,
			"restart":      p.restart,
			"collect":      func(*rapid.T) { p.ts.collectAll() },
		})
		for name, mb := range p.m.buckets {
			for key := range mb.objects {
				_, err := p.ts.Delete(context.Background(), name, key, DeleteInput{})
				want(rt, err, nil)
			}
			want(rt, p.ts.DeleteBucket(context.Background(), name), nil)
		}
		p.ts.clock.Add(doneKept.Milliseconds())
		p.ts.wantClean()
		for i, e := range p.ts.engines {
			if n := len(e.items) - len(e.keys("c/metadata")); n != 0 {
				rt.Fatalf("set %d: %d keys are left: %s", i, n, fmt.Sprint(e.keys("")))
			}
		}
	})
}
