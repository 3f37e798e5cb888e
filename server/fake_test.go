package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"ringfence/erasure"
)

// fakeStore is the object store in memory, as the contracts describe it. Its
// hooks make it fail.
type fakeStore struct {
	mu      sync.Mutex
	buckets map[string]*fakeBucket
	clock   int
	nextID  int

	fail    func(op, key string) error // before anything is done; nil: never
	readErr int64                      // WriteTo fails after this many bytes; 0: never
	hold    chan struct{}              // WriteTo waits for it before its second half; nil: never
	calls   map[string]int
}

type fakeBucket struct {
	info    erasure.BucketInfo
	objects map[string]*fakeVersion
	uploads map[string]*fakeUpload // by id
}

type fakeVersion struct {
	info erasure.ObjectInfo
	data []byte
}

type fakeUpload struct {
	info  erasure.UploadInfo
	parts map[int]*fakePart
}

type fakePart struct {
	info erasure.PartInfo
	data []byte
}

func newFakeStore() *fakeStore {
	return &fakeStore{buckets: make(map[string]*fakeBucket), calls: make(map[string]int)}
}

// enter counts a call and gives the bucket; f.mu is held on success.
func (f *fakeStore) enter(op, bucket, key string) (*fakeBucket, error) {
	f.mu.Lock()
	f.calls[op]++
	if f.fail != nil {
		if err := f.fail(op, key); err != nil {
			f.mu.Unlock()
			return nil, fmt.Errorf("fake %s: %w", op, err)
		}
	}
	b := f.buckets[bucket]
	if b == nil && op != "CreateBucket" && op != "ListBuckets" {
		f.mu.Unlock()
		return nil, fmt.Errorf("fake %s: %w", op, erasure.ErrNoBucket)
	}
	return b, nil
}

// now is a clock that moves a second with every write.
func (f *fakeStore) now() time.Time {
	f.clock++
	return time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC).Add(time.Duration(f.clock) * time.Second)
}

func (f *fakeStore) CreateBucket(_ context.Context, name, region string) (erasure.BucketInfo, error) {
	b, err := f.enter("CreateBucket", name, "")
	if err != nil {
		return erasure.BucketInfo{}, err
	}
	defer f.mu.Unlock()
	if b != nil {
		return b.info, erasure.ErrBucketExists
	}
	b = &fakeBucket{
		info:    erasure.BucketInfo{Name: name, Created: f.now(), Region: region},
		objects: make(map[string]*fakeVersion), uploads: make(map[string]*fakeUpload),
	}
	f.buckets[name] = b
	return b.info, nil
}

func (f *fakeStore) HeadBucket(_ context.Context, name string) (erasure.BucketInfo, error) {
	b, err := f.enter("HeadBucket", name, "")
	if err != nil {
		return erasure.BucketInfo{}, err
	}
	defer f.mu.Unlock()
	return b.info, nil
}

func (f *fakeStore) DeleteBucket(_ context.Context, name string) error {
	b, err := f.enter("DeleteBucket", name, "")
	if err != nil {
		return err
	}
	defer f.mu.Unlock()
	if len(b.objects) > 0 {
		return erasure.ErrBucketNotEmpty
	}
	delete(f.buckets, name)
	return nil
}

func (f *fakeStore) ListBuckets(_ context.Context, prefix, after string, limit int) ([]erasure.BucketInfo, bool, error) {
	if _, err := f.enter("ListBuckets", "", ""); err != nil {
		return nil, false, err
	}
	defer f.mu.Unlock()
	var out []erasure.BucketInfo
	for _, name := range slices.Sorted(maps.Keys(f.buckets)) {
		if strings.HasPrefix(name, prefix) && name > after {
			if len(out) == limit {
				return out, true, nil
			}
			out = append(out, f.buckets[name].info)
		}
	}
	return out, false, nil
}

// read takes a body as the contract of PutInput says.
func (f *fakeStore) read(in erasure.PutInput) ([]byte, erasure.Digest, error) {
	data, err := io.ReadAll(in.Body)
	if err != nil {
		return nil, erasure.Digest{}, fmt.Errorf("read body: %w", err)
	}
	switch {
	case in.Size >= 0 && int64(len(data)) < in.Size:
		return nil, erasure.Digest{}, io.ErrUnexpectedEOF
	case in.Size >= 0 && int64(len(data)) > in.Size:
		return nil, erasure.Digest{}, erasure.ErrBodyTooLong
	}
	d, err := in.Finish(int64(len(data)))
	return data, d, err
}

func (f *fakeStore) Put(_ context.Context, bucket, key string, in erasure.PutInput) (erasure.ObjectInfo, error) {
	if _, err := f.enter("Put", bucket, key); err != nil {
		return erasure.ObjectInfo{}, err
	}
	f.mu.Unlock()
	data, d, err := f.read(in)
	if err != nil {
		return erasure.ObjectInfo{}, fmt.Errorf("fake put: %w", err)
	}
	return f.commit(bucket, key, data, d, in.Meta, nil, in.Precond)
}

func (f *fakeStore) commit(bucket, key string, data []byte, d erasure.Digest, meta erasure.Meta, sizes []int64, pre erasure.Precond) (erasure.ObjectInfo, error) {
	b, err := f.enter("commit", bucket, key)
	if err != nil {
		return erasure.ObjectInfo{}, err
	}
	defer f.mu.Unlock()
	if pre != nil {
		var current *erasure.ObjectInfo
		if v := b.objects[key]; v != nil {
			current = &v.info
		}
		if err := pre(current); err != nil {
			return erasure.ObjectInfo{}, fmt.Errorf("commit: %w", err)
		}
	}
	info := erasure.ObjectInfo{Bucket: bucket, Key: key, Size: int64(len(data)), ModTime: f.now(), Digest: d, Meta: meta, PartSizes: sizes}
	b.objects[key] = &fakeVersion{info, data}
	return info, nil
}

func (f *fakeStore) version(op, bucket, key, id string) (*fakeVersion, error) {
	b, err := f.enter(op, bucket, key)
	if err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	v := b.objects[key]
	switch {
	case id != "":
		return nil, erasure.ErrNoVersion
	case v == nil:
		return nil, fmt.Errorf("fake %s: %w", op, erasure.ErrNoObject)
	}
	return v, nil
}

func (f *fakeStore) Stat(_ context.Context, bucket, key string, in erasure.GetInput) (erasure.ObjectInfo, error) {
	v, err := f.version("Stat", bucket, key, in.VersionID)
	if err != nil {
		return erasure.ObjectInfo{}, err
	}
	return v.info, nil
}

func (f *fakeStore) Open(_ context.Context, bucket, key string, in erasure.GetInput) (*fakeObject, error) {
	v, err := f.version("Open", bucket, key, in.VersionID)
	if err != nil {
		return nil, err
	}
	return &fakeObject{store: f, v: v}, nil
}

func (f *fakeStore) Delete(_ context.Context, bucket, key string, in erasure.DeleteInput) (erasure.DeleteResult, error) {
	b, err := f.enter("Delete", bucket, key)
	if err != nil {
		return erasure.DeleteResult{}, err
	}
	defer f.mu.Unlock()
	v := b.objects[key]
	if in.Precond != nil {
		var current *erasure.ObjectInfo
		if v != nil {
			current = &v.info
		}
		if err := in.Precond(current); err != nil {
			return erasure.DeleteResult{}, err
		}
	}
	if v == nil {
		return erasure.DeleteResult{}, erasure.ErrNoObject
	}
	delete(b.objects, key)
	return erasure.DeleteResult{}, nil
}

func (f *fakeStore) Copy(_ context.Context, in erasure.CopyInput) (erasure.ObjectInfo, error) {
	v, err := f.version("Copy", in.SourceBucket, in.SourceKey, in.Source.VersionID)
	if err != nil {
		return erasure.ObjectInfo{}, err
	}
	info := v.info
	if in.SourceCheck != nil {
		if err := in.SourceCheck(&info); err != nil {
			return erasure.ObjectInfo{}, err
		}
	}
	d, meta := info.Digest, info.Meta
	if in.Meta != nil {
		meta = *in.Meta
	}
	if in.Rehash != nil {
		body, finish := in.Rehash(bytes.NewReader(v.data), &info)
		n, err := io.Copy(io.Discard, body)
		if err != nil {
			return erasure.ObjectInfo{}, err
		}
		if d, err = finish(n); err != nil {
			return erasure.ObjectInfo{}, err
		}
	}
	return f.commit(in.Bucket, in.Key, v.data, d, meta, info.PartSizes, in.Precond)
}

func (f *fakeStore) List(_ context.Context, bucket string, in erasure.ListInput) (erasure.ListPage, error) {
	b, err := f.enter("List", bucket, "")
	if err != nil {
		return erasure.ListPage{}, err
	}
	defer f.mu.Unlock()
	var page erasure.ListPage
	last := ""
	for _, key := range slices.Sorted(maps.Keys(b.objects)) {
		if !strings.HasPrefix(key, in.Prefix) {
			continue
		}
		name, rolled := key, false
		if i := strings.Index(key[len(in.Prefix):], in.Delimiter); in.Delimiter != "" && i >= 0 {
			name, rolled = key[:len(in.Prefix)+i+len(in.Delimiter)], true
		}
		if name <= in.After || name == last && rolled {
			continue
		}
		if len(page.Objects)+len(page.Prefixes) == in.Max {
			page.Truncated, page.Next = true, last
			return page, nil
		}
		if last = name; rolled {
			page.Prefixes = append(page.Prefixes, name)
		} else {
			page.Objects = append(page.Objects, b.objects[key].info)
		}
	}
	return page, nil
}

// fakeObject is an open object.
type fakeObject struct {
	store  *fakeStore
	v      *fakeVersion
	closed bool
}

func (o *fakeObject) Info() erasure.ObjectInfo { return o.v.info }

func (o *fakeObject) Prefetch(context.Context, int64, int64) error {
	if o.store.fail != nil {
		return o.store.fail("Prefetch", o.v.info.Key)
	}
	return nil
}

func (o *fakeObject) WriteTo(ctx context.Context, w io.Writer, off, n int64) (int64, error) {
	data := o.v.data[off : off+n]
	half := len(data) / 2
	wrote, err := w.Write(data[:half])
	if err != nil {
		return int64(wrote), err
	}
	if o.store.readErr > 0 && int64(wrote) >= o.store.readErr {
		return int64(wrote), erasure.ErrCorrupt
	}
	if o.store.hold != nil {
		select {
		case <-o.store.hold:
		case <-ctx.Done():
			return int64(wrote), ctx.Err()
		}
	}
	more, err := w.Write(data[half:])
	return int64(wrote + more), err
}

func (o *fakeObject) Close() error {
	o.closed = true
	return nil
}
