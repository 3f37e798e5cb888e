package erasure

import "ringfence/storage"

// What a garbage record asks for.
const (
	garbageBlobs  = 1 // remove the shards of Blobs
	garbageUpload = 2 // remove the parts of Upload that Keep does not name
	garbageDone   = 3 // forget the doneRecord of Upload
	garbageAgain  = 4 // as garbageBlobs, for the second time
)

// garbageRecord is work for later, under g/<due, ms since 1970><uuid><part>. It
// is written by the commit that makes the work necessary and removed by the one
// that follows it, so that a crash can lose neither.
type garbageRecord struct {
	Kind   uint64
	Blobs  []blob
	Upload storage.UUID
	Keep   []byte // bit n of byte n/8 (from the lowest) set: part n stays; nil: none stays
	Tries  uint64 // failed attempts so far
	Epoch  uint64 // of the process that removed Blobs for the first time
}

func (r *garbageRecord) encode() []byte {
	e := newEncoder()
	e.uint(fieldState, r.Kind)
	for i := range r.Blobs {
		e.message(fieldBlob, encodeBlob(&r.Blobs[i]))
	}
	e.uuid(fieldUpload, r.Upload)
	e.bytes(fieldKeep, r.Keep)
	e.uint(fieldTries, r.Tries)
	e.uint(fieldEpoch, r.Epoch)
	return e.b
}

func decodeGarbage(b []byte) (*garbageRecord, error) {
	r := &garbageRecord{}
	d := decoder{rest: b}
	for d.next() {
		switch d.num {
		case fieldFormat:
			d.format()
		case fieldState:
			r.Kind = d.uint(1 << 16)
		case fieldBlob:
			if b := d.blob(); b != nil && len(r.Blobs) < maxBlobs {
				r.Blobs = append(r.Blobs, *b)
			} else {
				d.fail("blobs")
			}
		case fieldUpload:
			r.Upload = d.uuid()
		case fieldKeep:
			r.Keep = append([]byte(nil), d.bytes(MaxParts/8+1)...)
		case fieldTries:
			r.Tries = d.uint(1 << 32)
		case fieldEpoch:
			r.Epoch = d.uint(1<<63 - 1)
		}
	}
	if d.err != nil {
		return nil, d.err
	}
	return r, nil
}

// keeps reports whether part n stays.
func (r *garbageRecord) keeps(n uint16) bool {
	i := int(n / 8)
	return i < len(r.Keep) && r.Keep[i]&(1<<(n%8)) != 0
}

// keepParts makes a Keep.
func keepParts(numbers []uint16) []byte {
	var keep []byte
	for _, n := range numbers {
		for int(n/8) >= len(keep) {
			keep = append(keep, 0)
		}
		keep[n/8] |= 1 << (n % 8)
	}
	return keep
}

// home says which object some bytes belong to. It is the record under
// h/<uuid><part>, which tells a healer where to look, and the owner in every
// shard file, which tells an offline rebuild of the index. Shard files add the
// layout (fields 40 to 43), which is known when their owner is written.
type home struct {
	Bucket  storage.UUID
	Key     string
	Version string
	Upload  storage.UUID // zero for a plain PUT
	Part    uint16
	Blob    *blob // under h/ only
	// Metadata is the id of the metadata that the shard belongs to; in shards only.
	Metadata storage.UUID
}

func (h *home) encode() []byte {
	e := newEncoder()
	e.str(fieldKey, h.Key)
	e.str(fieldVersionID, h.Version)
	e.uuid(fieldBucket, h.Bucket)
	e.uuid(fieldUpload, h.Upload)
	e.uint(fieldPart, uint64(h.Part))
	if h.Blob != nil {
		e.message(fieldBlob, encodeBlob(h.Blob))
	}
	e.uuid(fieldMetadata, h.Metadata)
	return e.b
}

func decodeHome(b []byte) (*home, error) {
	h := &home{}
	d := decoder{rest: b}
	for d.next() {
		switch d.num {
		case fieldFormat:
			d.format()
		case fieldKey:
			h.Key = d.str(MaxKeyBytes)
		case fieldVersionID:
			h.Version = d.str(maxText)
		case fieldBucket:
			h.Bucket = d.uuid()
		case fieldUpload:
			h.Upload = d.uuid()
		case fieldPart:
			h.Part = uint16(d.uint(MaxParts))
		case fieldBlob:
			h.Blob = d.blob()
		case fieldMetadata:
			h.Metadata = d.uuid()
		}
	}
	if d.err != nil {
		return nil, d.err
	}
	return h, nil
}

// States of a bucket; see DeleteBucket.
const (
	// bucketDeleting: a deletion has begun. It is taken back before the bucket
	// is used again.
	bucketDeleting = 1
	// bucketEnding: a deletion is decided. The bucket has no objects and is gone
	// for everybody; its uploads are aborted, and then the record goes.
	bucketEnding = 2
)

// bucketRecord is a bucket, under b/<name>.
type bucketRecord struct {
	ID      storage.UUID
	Created int64 // milliseconds since 1970
	Region  string
	State   uint64 // 0, bucketDeleting or bucketEnding
	unknown []byte
}

func (r *bucketRecord) encode() []byte {
	e := newEncoder()
	e.uuid(fieldBucket, r.ID)
	e.int(fieldTime, r.Created)
	e.str(fieldRegion, r.Region)
	e.uint(fieldState, r.State)
	return append(e.b, r.unknown...)
}

func decodeBucket(b []byte) (*bucketRecord, error) {
	r := &bucketRecord{}
	d := decoder{rest: b}
	for d.next() {
		switch d.num {
		case fieldFormat:
			d.format()
		case fieldBucket:
			r.ID = d.uuid()
		case fieldTime:
			r.Created = d.time()
		case fieldRegion:
			r.Region = d.str(maxText)
		case fieldState:
			r.State = d.uint(bucketEnding)
		default:
			r.unknown = append(r.unknown, d.whole...)
		}
	}
	if d.err == nil && r.ID.IsZero() {
		d.fail("bucket")
	}
	if d.err != nil {
		return nil, d.err
	}
	return r, nil
}
