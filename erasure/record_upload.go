package erasure

import (
	"time"

	"ringfence/storage"
)

// uploadRecord is a multipart upload in progress, under u/. It disappears when
// the upload is completed or aborted, so that "the upload is open" is the
// condition that its key exists.
type uploadRecord struct {
	Key       string
	Initiated int64 // milliseconds since 1970
	Meta      Meta
	Algorithm string
	Composite bool
	unknown   []byte
}

func (r *uploadRecord) encode() []byte {
	e := newEncoder()
	e.str(fieldKey, r.Key)
	e.int(fieldTime, r.Initiated)
	e.meta(&r.Meta)
	e.str(fieldAlgorithm, r.Algorithm)
	e.bool(fieldComposite, r.Composite)
	return append(e.b, r.unknown...)
}

func decodeUpload(b []byte) (*uploadRecord, error) {
	r := &uploadRecord{}
	d := decoder{rest: b}
	for d.next() {
		if d.metaField(&r.Meta) {
			continue
		}
		switch d.num {
		case fieldFormat:
			d.format()
		case fieldKey:
			r.Key = d.str(MaxKeyBytes)
		case fieldTime:
			r.Initiated = d.time()
		case fieldAlgorithm:
			r.Algorithm = d.str(64)
		case fieldComposite:
			r.Composite = d.bool()
		default:
			r.unknown = append(r.unknown, d.whole...)
		}
	}
	if d.err != nil {
		return nil, d.err
	}
	return r, nil
}

func (r *uploadRecord) info(bucket string, id storage.UUID) UploadInfo {
	return UploadInfo{
		Bucket:    bucket,
		Key:       r.Key,
		UploadID:  id.String(),
		Initiated: time.UnixMilli(r.Initiated).UTC(),
		Meta:      r.Meta,
		Checksum:  r.Algorithm,
		Composite: r.Composite,
	}
}

// partRecord is an uploaded part, under p/<upload><number>.
type partRecord struct {
	Number  int
	Size    int64
	ModTime int64
	Digest  Digest
	Run     run
}

func (r *partRecord) encode() []byte {
	e := newEncoder()
	e.uint(fieldPart, uint64(r.Number))
	e.uint(fieldSize, uint64(r.Size))
	e.int(fieldTime, r.ModTime)
	e.digest(&r.Digest)
	e.run(r.Run)
	return e.b
}

func decodePart(b []byte) (*partRecord, error) {
	r := &partRecord{}
	d := decoder{rest: b}
	for d.next() {
		if d.runField(&r.Run) {
			continue
		}
		switch d.num {
		case fieldFormat:
			d.format()
		case fieldPart:
			r.Number = int(d.uint(MaxParts))
		case fieldSize:
			r.Size = d.int64()
		case fieldTime:
			r.ModTime = d.time()
		case fieldETag:
			r.Digest.ETag = d.str(maxText)
		case fieldChecksum:
			d.checksum(&r.Digest.Checksums)
		}
	}
	if d.err == nil && (r.Number == 0 || (r.Size > 0 && r.Run.empty()) || (r.Run.Blob != nil && r.Run.Blob.Size != r.Size)) {
		d.fail("part")
	}
	if d.err != nil {
		return nil, d.err
	}
	return r, nil
}

func (r *partRecord) info() PartInfo {
	return PartInfo{Number: r.Number, Size: r.Size, ModTime: time.UnixMilli(r.ModTime).UTC(), Digest: r.Digest}
}

// journalPart is the part number, unused by S3, whose key p/<upload>0 is the
// upload's journal. Every stored part writes it, so that a completion whose
// condition is the journal's revision knows that no part changed since it
// looked. The completion turns it into a doneRecord.
const journalPart = 0

// doneRecord is what remains of a completed upload for doneKept, so that a
// client that never saw the answer gets it when it asks again.
type doneRecord struct {
	Bucket storage.UUID
	Upload *uploadRecord
	Object *record // without Meta, which is Upload's
}

func (r *doneRecord) encode() []byte {
	e := newEncoder()
	e.uuid(fieldBucket, r.Bucket)
	e.message(fieldUploadRec, r.Upload.encode())
	e.message(fieldObjectRec, r.Object.encode())
	return e.b
}

// decodeDone returns nil when b is the journal of an open upload.
func decodeDone(b []byte) (*doneRecord, error) {
	r := &doneRecord{}
	d := decoder{rest: b}
	for d.next() {
		var err error
		switch {
		case d.num == fieldFormat:
			d.format()
		case d.num == fieldBucket:
			r.Bucket = d.uuid()
		case d.num == fieldUploadRec && r.Upload == nil:
			r.Upload, err = decodeUpload(d.bytes(maxRuns))
		case d.num == fieldObjectRec && r.Object == nil:
			r.Object, err = decodeRecord(d.bytes(maxRuns))
		}
		if err != nil {
			return nil, err
		}
	}
	if d.err != nil || r.Object == nil || r.Upload == nil {
		return nil, d.err
	}
	return r, nil
}
