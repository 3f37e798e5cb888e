package erasure

import (
	"context"
	"fmt"

	"ringfence/erasure/meta"
	"ringfence/storage"
)

// ListParts returns a page of the parts of an upload in progress whose numbers
// are greater than after. A limit beyond MaxListPage counts as MaxListPage.
func (s *Store) ListParts(ctx context.Context, bucket, key, uploadID string, after, limit int) (PartPage, error) {
	u, err := s.upload(ctx, bucket, key, uploadID)
	if err != nil {
		return PartPage{}, err
	}
	rec, err := u.read(ctx)
	if err != nil {
		return PartPage{}, err
	}
	page := PartPage{Upload: rec.info(u.bucket.name, u.id)}
	limit = min(limit, MaxListPage)
	if limit <= 0 || after >= MaxParts {
		return page, nil
	}
	return walkAgain(ctx, func() (PartPage, error) { return u.listPartsOnce(ctx, page, after, limit) })
}

// listPartsOnce adds the parts to an empty page.
func (u *upload) listPartsOnce(ctx context.Context, page PartPage, after, limit int) (PartPage, error) {
	err := u.eachPart(ctx, uint16(max(after, 0))+1, func(p *partRecord) bool {
		if len(page.Parts) == limit {
			page.Truncated, page.Next = true, page.Parts[limit-1].Number
			return false
		}
		page.Parts = append(page.Parts, p.info())
		return true
	})
	if err != nil {
		return PartPage{}, err
	}
	return page, nil
}

// ListUploads returns a page of the uploads in progress of a bucket, by key and
// within a key by their start.
func (s *Store) ListUploads(ctx context.Context, bucketName string, in UploadListInput) (UploadPage, error) {
	b, err := s.buckets.get(ctx, s, bucketName)
	if err != nil {
		return UploadPage{}, err
	}
	return walkAgain(ctx, func() (UploadPage, error) { return s.listUploadsOnce(ctx, b, in) })
}

func (s *Store) listUploadsOnce(ctx context.Context, b *bucket, in UploadListInput) (UploadPage, error) {
	m, err := s.merge(ctx, meta.UploadsFrom(b.id, in.Prefix))
	if err != nil {
		return UploadPage{}, err
	}
	page := UploadPage{}
	w := walk{
		in:     ListInput{Prefix: in.Prefix, Delimiter: in.Delimiter, After: in.AfterKey},
		limit:  min(in.Max, MaxListPage),
		encode: func(key string) []byte { return meta.UploadsFrom(b.id, key) },
		fold:   func(prefix string) { page.Prefixes = append(page.Prefixes, prefix) },
	}
	lastID := ""
	w.take = func(key string, item meta.Item, _ *set) error {
		_, _, id, _ := meta.ParseUploadKey(item.Key)
		info, err := decodeListedUpload(item.Val, b.name, id)
		if err != nil {
			return corrupt(item.Key, err)
		}
		lastID = id
		page.Uploads = append(page.Uploads, info)
		return nil
	}
	for ok := w.startUploads(m, b, in); ok; ok = w.step(ctx, m) {
		item, from := m.item()
		_, key, _, ok := meta.ParseUploadKey(item.Key)
		if !ok {
			w.err = corrupt(item.Key, errRecord)
			break
		}
		w.visit(key, item, from)
	}
	if err := m.end(w.err); err != nil {
		return UploadPage{}, fmt.Errorf("list uploads: %w", err)
	}
	page.Truncated = w.truncated
	if page.Truncated {
		page.NextKey = w.last
		if n := len(page.Uploads); n > 0 && page.Uploads[n-1].Key == w.last {
			page.NextUploadID = lastID
		}
	}
	return page, nil
}

// startUploads is start for uploads: a key may go on within itself, after one
// of its uploads.
func (w *walk) startUploads(m *merge, b *bucket, in UploadListInput) bool {
	after := in.AfterKey
	if w.limit <= 0 {
		return false
	}
	rolled := false
	if len(after) >= len(in.Prefix) && after[:len(in.Prefix)] == in.Prefix {
		_, rolled = w.common(after)
	}
	if after == "" || after < in.Prefix || rolled || after[:min(len(after), len(in.Prefix))] != in.Prefix {
		return w.start(m)
	}
	if in.AfterUploadID == "" {
		return w.seek(m, meta.After(meta.UploadsOf(b.id, after)))
	}
	return m.seekGE(append(meta.UploadKey(b.id, after, in.AfterUploadID), 0))
}

func decodeListedUpload(b []byte, bucket, id string) (UploadInfo, error) {
	rec, err := decodeUpload(b)
	if err != nil {
		return UploadInfo{}, err
	}
	info := rec.info(bucket, storage.UUID{})
	info.UploadID = id
	return info, nil
}
