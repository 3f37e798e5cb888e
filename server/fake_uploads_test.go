package server

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ringfence/erasure"
)

func (f *fakeStore) CreateUpload(_ context.Context, bucket, key string, in erasure.CreateUploadInput) (erasure.UploadInfo, error) {
	b, err := f.enter("CreateUpload", bucket, key)
	if err != nil {
		return erasure.UploadInfo{}, err
	}
	defer f.mu.Unlock()
	f.nextID++
	info := erasure.UploadInfo{
		Bucket: bucket, Key: key, UploadID: fmt.Sprintf("upload-%04d", f.nextID), Initiated: f.now(),
		Meta: in.Meta, Checksum: in.Checksum, Composite: in.Composite,
	}
	b.uploads[info.UploadID] = &fakeUpload{info: info, parts: make(map[int]*fakePart)}
	return info, nil
}

// upload gives an upload; f.mu is held on success.
func (f *fakeStore) upload(op, bucket, key, id string) (*fakeBucket, *fakeUpload, error) {
	b, err := f.enter(op, bucket, key)
	if err != nil {
		return nil, nil, err
	}
	u := b.uploads[id]
	if u == nil || u.info.Key != key {
		f.mu.Unlock()
		return nil, nil, erasure.ErrNoUpload
	}
	return b, u, nil
}

func (f *fakeStore) PutPart(_ context.Context, bucket, key, id string, number int, in erasure.PutInput) (erasure.PartInfo, error) {
	data, d, err := f.read(in)
	if err != nil {
		return erasure.PartInfo{}, err
	}
	_, u, err := f.upload("PutPart", bucket, key, id)
	if err != nil {
		return erasure.PartInfo{}, err
	}
	defer f.mu.Unlock()
	info := erasure.PartInfo{Number: number, Size: int64(len(data)), ModTime: f.now(), Digest: d}
	u.parts[number] = &fakePart{info, data}
	return info, nil
}

func (f *fakeStore) ListParts(_ context.Context, bucket, key, id string, after, limit int) (erasure.PartPage, error) {
	_, u, err := f.upload("ListParts", bucket, key, id)
	if err != nil {
		return erasure.PartPage{}, err
	}
	defer f.mu.Unlock()
	page := erasure.PartPage{Upload: u.info}
	for _, n := range slices.Sorted(maps.Keys(u.parts)) {
		if n <= after {
			continue
		}
		if len(page.Parts) == limit {
			page.Truncated, page.Next = true, page.Parts[limit-1].Number
			break
		}
		page.Parts = append(page.Parts, u.parts[n].info)
	}
	return page, nil
}

func (f *fakeStore) ListUploads(_ context.Context, bucket string, in erasure.UploadListInput) (erasure.UploadPage, error) {
	b, err := f.enter("ListUploads", bucket, "")
	if err != nil {
		return erasure.UploadPage{}, err
	}
	defer f.mu.Unlock()
	all := slices.SortedFunc(maps.Values(b.uploads), func(x, y *fakeUpload) int {
		return cmp.Or(strings.Compare(x.info.Key, y.info.Key), strings.Compare(x.info.UploadID, y.info.UploadID))
	})
	var page erasure.UploadPage
	last := ""
	for _, u := range all {
		key := u.info.Key
		past := key < in.AfterKey || key == in.AfterKey && (in.AfterUploadID == "" || u.info.UploadID <= in.AfterUploadID)
		if !strings.HasPrefix(key, in.Prefix) || in.AfterKey != "" && past {
			continue
		}
		i := strings.Index(key[len(in.Prefix):], in.Delimiter)
		rolled := in.Delimiter != "" && i >= 0
		if rolled {
			key = key[:len(in.Prefix)+i+len(in.Delimiter)]
			if key == last || key <= in.AfterKey {
				continue
			}
		}
		if len(page.Uploads)+len(page.Prefixes) == in.Max {
			page.Truncated = true
			return page, nil
		}
		last, page.NextKey, page.NextUploadID = key, key, ""
		if rolled {
			page.Prefixes = append(page.Prefixes, key)
		} else {
			page.NextUploadID = u.info.UploadID
			page.Uploads = append(page.Uploads, u.info)
		}
	}
	return page, nil
}

func (f *fakeStore) CompleteUpload(_ context.Context, bucket, key, id string, in erasure.CompleteInput) (erasure.ObjectInfo, error) {
	_, u, err := f.upload("CompleteUpload", bucket, key, id)
	if err != nil {
		return erasure.ObjectInfo{}, err
	}
	var parts []erasure.PartInfo
	var sizes []int64
	var data bytes.Buffer
	for _, n := range in.Parts {
		p := u.parts[n]
		if p == nil {
			f.mu.Unlock()
			return erasure.ObjectInfo{}, erasure.ErrNoPart
		}
		parts, sizes = append(parts, p.info), append(sizes, p.info.Size)
		data.Write(p.data)
	}
	f.mu.Unlock()
	d, err := in.Finish(u.info, parts)
	if err != nil {
		return erasure.ObjectInfo{}, err
	}
	info, err := f.commit(bucket, key, data.Bytes(), d, u.info.Meta, sizes, in.Precond)
	if err != nil {
		return erasure.ObjectInfo{}, err
	}
	return info, f.AbortUpload(context.Background(), bucket, key, id)
}

func (f *fakeStore) AbortUpload(_ context.Context, bucket, key, id string) error {
	b, _, err := f.upload("AbortUpload", bucket, key, id)
	if err != nil {
		return err
	}
	defer f.mu.Unlock()
	delete(b.uploads, id)
	return nil
}
