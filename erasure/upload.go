package erasure

import (
	"context"
	"errors"
	"fmt"

	"ringfence/erasure/meta"
	"ringfence/storage"
)

// upload is a multipart upload in progress, as one request sees it.
type upload struct {
	target
	id   storage.UUID
	ukey []byte
}

// upload finds the place of an upload; whether it exists shows when its record
// is read. An id that was never given out is ErrNoUpload.
func (s *Store) upload(ctx context.Context, bucket, key, uploadID string) (upload, error) {
	t, err := s.target(ctx, bucket, key)
	if err != nil {
		return upload{}, err
	}
	id, err := storage.ParseUUID(uploadID)
	if err != nil || !t.valid() || id.String() != uploadID {
		return upload{}, ErrNoUpload
	}
	return upload{target: t, id: id, ukey: meta.UploadKey(t.bucket.id, key, uploadID)}, nil
}

// read returns the upload's record and revision, or ErrNoUpload.
func (u *upload) read(ctx context.Context) (*uploadRecord, error) {
	item, found, err := u.set.get(ctx, u.ukey)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, ErrNoUpload
	}
	rec, err := decodeUpload(item.Val)
	if err != nil {
		return nil, corrupt(u.ukey, err)
	}
	return rec, nil
}

// open is the condition that the upload is neither completed nor aborted.
func (u *upload) open() meta.Cond { return meta.Cond{Key: u.ukey, Rev: meta.AnyRev} }

func (u *upload) journalKey() []byte { return meta.PartKey(u.id, journalPart) }

// CreateUpload starts a multipart upload. It ends when it is completed or
// aborted, or with its bucket.
func (s *Store) CreateUpload(ctx context.Context, bucket, key string, in CreateUploadInput) (UploadInfo, error) {
	t, err := s.target(ctx, bucket, key)
	if err != nil {
		return UploadInfo{}, err
	}
	if err := checkWrite(key, &in.Meta); err != nil {
		return UploadInfo{}, err
	}
	if err := t.set.room(); err != nil {
		return UploadInfo{}, err
	}
	id := s.newUploadUUID()
	u := upload{target: t, id: id, ukey: meta.UploadKey(t.bucket.id, key, id.String())}
	if len(u.ukey) > meta.MaxKey {
		return UploadInfo{}, fmt.Errorf("%w: too many zero bytes for a multipart upload", ErrKeyTooLong)
	}
	rec := &uploadRecord{Key: key, Initiated: s.now(), Meta: in.Meta, Algorithm: in.Checksum, Composite: in.Composite}
	leave, err := t.bucket.enter(ctx)
	if err != nil {
		return UploadInfo{}, err
	}
	defer leave()
	ops := []meta.Op{{Key: u.ukey, Val: rec.encode()}, {Key: u.journalKey(), Val: newEncoder().b}}
	_, err = t.set.commit(ctx, t.group(), []meta.Cond{{Key: u.ukey}}, ops)
	var cond *meta.CondError
	if errors.As(err, &cond) {
		return UploadInfo{}, fmt.Errorf("%w: upload id was used before", ErrOverload)
	}
	if err != nil {
		return UploadInfo{}, err
	}
	return rec.info(t.bucket.name, id), nil
}

// PutPart stores a part. A part of the same number is replaced; which of two
// parts sent at the same time stays is the order of their commits.
func (s *Store) PutPart(ctx context.Context, bucket, key, uploadID string, number int, in PutInput) (PartInfo, error) {
	u, err := s.upload(ctx, bucket, key, uploadID)
	if err != nil {
		return PartInfo{}, err
	}
	if number < 1 || number > MaxParts {
		return PartInfo{}, fmt.Errorf("%w: number %d", ErrNoPart, number)
	}
	if _, err := u.read(ctx); err != nil { // before the client sends for nothing
		return PartInfo{}, err
	}
	h := home{Bucket: u.bucket.id, Key: key, Upload: u.id, Part: uint16(number)}
	st, digest, err := u.receive(ctx, h, in)
	if err != nil {
		return PartInfo{}, err
	}
	rec := &partRecord{Number: number, Size: st.size, Digest: digest, Run: st.run}
	if err := u.putPart(ctx, rec, st.ops()); err != nil {
		st.release(ctx, err)
		return PartInfo{}, err
	}
	return rec.info(), nil
}

// putPart commits a part under the condition that the upload is open.
func (u *upload) putPart(ctx context.Context, rec *partRecord, runOps []meta.Op) error {
	unlock, err := u.s.locks.lock(ctx, lockName{ID: u.id, Part: rec.Number})
	if err != nil {
		return err
	}
	defer unlock()
	leave, err := u.bucket.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	pkey := meta.PartKey(u.id, uint16(rec.Number))
	for range maxTries {
		item, found, err := u.set.get(ctx, pkey)
		if err != nil {
			return err
		}
		now := u.s.now()
		rec.ModTime = now
		ops := append([]meta.Op{{Key: u.journalKey(), Val: newEncoder().b}}, runOps...)
		if found {
			old, err := decodePart(item.Val)
			if err != nil {
				return corrupt(pkey, err)
			}
			rec.ModTime = max(now, old.ModTime+1)
			ops = append(ops, retire(&record{Run: old.Run}, now)...)
		}
		ops = append(ops, meta.Op{Key: pkey, Val: rec.encode()})
		_, err = u.set.commit(ctx, u.group(), []meta.Cond{u.open(), {Key: pkey, Rev: item.Rev}}, ops)
		var cond *meta.CondError
		switch {
		case errors.As(err, &cond) && cond.Index == 0:
			return ErrNoUpload
		case errors.As(err, &cond):
			continue
		case err == nil && found:
			u.set.wake()
		}
		return err
	}
	return u.busy()
}

// AbortUpload gives up an upload and its parts. A completion at the same time
// loses or wins as a whole.
func (s *Store) AbortUpload(ctx context.Context, bucket, key, uploadID string) error {
	u, err := s.upload(ctx, bucket, key, uploadID)
	if err != nil {
		return err
	}
	leave, err := u.bucket.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return u.abort(ctx)
}

// abort commits that the upload is given up, or fails with ErrNoUpload. The
// caller is in the bucket, or keeps everyone out of it.
func (u *upload) abort(ctx context.Context) error {
	g := garbageRecord{Kind: garbageUpload, Upload: u.id}
	ops := []meta.Op{{Key: u.ukey, Delete: true}, {Key: u.journalKey(), Delete: true}, g.op(u.s.now())}
	_, err := u.set.commit(ctx, u.group(), []meta.Cond{u.open()}, ops)
	var cond *meta.CondError
	if errors.As(err, &cond) {
		return ErrNoUpload
	}
	if err != nil {
		return err
	}
	u.set.wake()
	return nil
}
