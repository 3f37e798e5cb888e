package erasure

import (
	"time"

	"ringfence/storage"
)

// record is one version of one object, as it stands under o/. docs/format.md
// has the numbers of its fields.
type record struct {
	Key          string
	VersionID    string
	DeleteMarker bool
	Size         int64
	ModTime      int64 // milliseconds since 1970
	Digest       Digest
	Meta         Meta
	// Where the bytes are. At most one of run and Manifest is set; an empty
	// object has neither.
	Run      run
	Manifest *manifest
	// unknown are the fields of a newer program, kept for it.
	unknown []byte
}

// run is where one uninterrupted run of bytes is: the payload under i/Inline,
// or the shards of Blob, or nowhere when both are unset, for no bytes at all.
type run struct {
	Inline storage.UUID
	Blob   *blob
}

func (r run) empty() bool { return r.Inline.IsZero() && r.Blob == nil }

func (e *encoder) run(r run) {
	e.uuid(fieldInline, r.Inline)
	if r.Blob != nil {
		e.message(fieldBlob, encodeBlob(r.Blob))
	}
}

// runField takes a field of a run and reports whether it was one.
func (d *decoder) runField(r *run) bool {
	switch d.num {
	case fieldInline:
		r.Inline = d.uuid()
	case fieldBlob:
		r.Blob = d.blob()
	default:
		return false
	}
	return true
}

// encode writes the record.
func (r *record) encode() []byte {
	e := newEncoder()
	e.str(fieldKey, r.Key)
	e.str(fieldVersionID, r.VersionID)
	e.bool(fieldDeleteMarker, r.DeleteMarker)
	e.uint(fieldSize, uint64(r.Size))
	e.int(fieldTime, r.ModTime)
	e.digest(&r.Digest)
	e.meta(&r.Meta)
	e.run(r.Run)
	if r.Manifest != nil {
		e.message(fieldManifest, r.Manifest.encode())
	}
	return append(e.b, r.unknown...)
}

// decodeRecord reads what encode wrote. The result shares no memory with b.
func decodeRecord(b []byte) (*record, error) {
	r := &record{}
	d := decoder{rest: b}
	for d.next() {
		if d.metaField(&r.Meta) || d.runField(&r.Run) {
			continue
		}
		switch d.num {
		case fieldFormat:
			d.format()
		case fieldKey:
			r.Key = d.str(MaxKeyBytes)
		case fieldVersionID:
			r.VersionID = d.str(maxText)
		case fieldDeleteMarker:
			r.DeleteMarker = d.bool()
		case fieldSize:
			r.Size = d.int64()
		case fieldTime:
			r.ModTime = d.time()
		case fieldETag:
			r.Digest.ETag = d.str(maxText)
		case fieldChecksum:
			d.checksum(&r.Digest.Checksums)
		case fieldManifest:
			if r.Manifest != nil { // each may expand to MaxParts entries
				d.fail("second manifest")
				continue
			}
			r.Manifest = d.manifest()
		default:
			r.unknown = append(r.unknown, d.whole...)
		}
	}
	if d.err == nil {
		r.check(&d)
	}
	if d.err != nil {
		return nil, d.err
	}
	return r, nil
}

// check refuses a record whose parts contradict each other, so that no reader
// has to.
func (r *record) check(d *decoder) {
	switch {
	case r.Manifest != nil && !r.Run.empty(), r.Run.Blob != nil && !r.Run.Inline.IsZero():
		d.fail("two places for the bytes")
	case r.Run.Blob != nil && r.Run.Blob.Size != r.Size:
		d.fail("size of the blob")
	case !r.Run.Inline.IsZero() && r.Size > MaxInlineSize:
		d.fail("size of the inline payload")
	case r.Manifest != nil && !r.Manifest.Detached && r.Manifest.size() != r.Size:
		d.fail("size of the parts")
	case r.Size > 0 && r.Manifest == nil && r.Run.empty():
		d.fail("size without bytes")
	}
}

// redundancy says on how many disks the bytes are, of how many. Metadata is on
// all disks of a set, and inline payloads with it.
func (s *set) redundancy(r run) Redundancy {
	if r.Blob == nil {
		return Redundancy{Disks: len(s.disks), Target: len(s.disks)}
	}
	return Redundancy{Disks: len(r.Blob.Layout.Slots) - len(r.Blob.Missing), Target: len(s.disks)}
}

// info is the record as callers see it; bucket is the bucket's name.
func (r *record) info(bucket string, s *set) ObjectInfo {
	info := ObjectInfo{
		Bucket:       bucket,
		Key:          r.Key,
		Size:         r.Size,
		ModTime:      time.UnixMilli(r.ModTime).UTC(),
		Digest:       r.Digest,
		Meta:         r.Meta,
		VersionID:    r.VersionID,
		DeleteMarker: r.DeleteMarker,
		Redundancy:   s.redundancy(r.Run),
	}
	if r.Manifest != nil {
		info.PartSizes = r.Manifest.Sizes
	}
	return info
}

// encodeBlob writes where the shards of a run are. The slots are explicit, so
// that a reader never has to compute a placement again.
func encodeBlob(b *blob) []byte {
	var e encoder
	e.uuid(fieldUUID, b.UUID)
	e.uint(fieldPart, uint64(b.Part))
	e.uint(fieldSize, uint64(b.Size))
	e.uint(fieldDataShards, uint64(b.Layout.K))
	e.uint(fieldParity, uint64(b.Layout.M))
	e.uint(fieldBlockSize, uint64(b.Layout.BlockSize))
	e.bytes(fieldSlots, b.Layout.Slots)
	e.bytes(fieldMissing, b.Missing)
	return e.b
}

// blob reads what encodeBlob wrote.
func (d *decoder) blob() *blob {
	sub := decoder{rest: d.bytes(1 << 10)}
	b := &blob{}
	for sub.next() {
		switch sub.num {
		case fieldUUID:
			b.UUID = sub.uuid()
		case fieldPart:
			b.Part = uint16(sub.uint(1<<16 - 1))
		case fieldSize:
			b.Size = sub.int64()
		case fieldDataShards:
			b.Layout.K = uint8(sub.uint(MaxSetSize))
		case fieldParity:
			b.Layout.M = uint8(sub.uint(MaxSetSize))
		case fieldBlockSize:
			b.Layout.BlockSize = int(sub.uint(1 << 30))
		case fieldSlots:
			b.Layout.Slots = append([]uint8(nil), sub.bytes(MaxSetSize)...)
		case fieldMissing:
			b.Missing = append([]uint8(nil), sub.bytes(MaxSetSize)...)
		}
	}
	if sub.err != nil || !plausible(b) {
		d.fail("blob")
		return nil
	}
	return b
}

// plausible reports whether a blob can be read by anyone: what readers index by
// is in range, and no more is missing than parity makes good.
func plausible(b *blob) bool {
	return !b.UUID.IsZero() && b.check() == nil && len(b.Missing) <= int(b.Layout.M)
}
