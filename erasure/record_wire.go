package erasure

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"ringfence/storage"
)

// recordFormat is the version of every record that this code writes. Readers
// refuse a greater one: it may give an old field a new meaning. New fields
// alone need no new version, since readers skip what they don't know and keep
// it when they rewrite a record.
const recordFormat = 1

// The numbers of all fields of all records. One table for all, so that a field
// means the same wherever it shows up. Numbers are never used again.
const (
	fieldFormat       protowire.Number = 1
	fieldKey          protowire.Number = 2  // bytes; the name of a bucket in its record
	fieldVersionID    protowire.Number = 3  // bytes; absent while never versioned
	fieldDeleteMarker protowire.Number = 4  // bool
	fieldSize         protowire.Number = 5  // bytes of the object, part or blob
	fieldTime         protowire.Number = 6  // zigzag, milliseconds since 1970
	fieldETag         protowire.Number = 7  // bytes, as the caller gave it
	fieldChecksum     protowire.Number = 8  // repeated message
	fieldHeader       protowire.Number = 9  // repeated pair
	fieldUser         protowire.Number = 10 // repeated pair
	fieldTag          protowire.Number = 11 // repeated pair
	fieldBlob         protowire.Number = 12 // message; repeated in garbage records
	fieldInline       protowire.Number = 13 // uuid of the payload under i/
	fieldManifest     protowire.Number = 14 // message
	// 15 is free; 16 to 23 are reserved for the envelope of encrypted objects.
	fieldAlgorithm  protowire.Number = 24 // bytes: checksum that an upload asked for
	fieldComposite  protowire.Number = 25 // bool
	fieldBucket     protowire.Number = 26 // uuid
	fieldRegion     protowire.Number = 27 // bytes
	fieldState      protowire.Number = 28 // of buckets, see bucketDeleting; and garbage kinds
	fieldUpload     protowire.Number = 29 // uuid
	fieldPart       protowire.Number = 30 // number
	fieldKeep       protowire.Number = 31 // bitmap of part numbers
	fieldTries      protowire.Number = 32 // count
	fieldObjectRec  protowire.Number = 33 // a whole object record
	fieldUploadRec  protowire.Number = 34 // a whole upload record
	fieldDataShards protowire.Number = 40 // of a layout
	fieldParity     protowire.Number = 41
	fieldBlockSize  protowire.Number = 42 // bytes
	fieldSlots      protowire.Number = 43 // one byte per shard
	fieldMissing    protowire.Number = 44 // one byte per shard that was never written
	fieldUUID       protowire.Number = 45
	fieldValue      protowire.Number = 46 // bytes of a checksum; second of a pair
	fieldName       protowire.Number = 47 // first of a pair
	fieldCount      protowire.Number = 48
	fieldNumbers    protowire.Number = 49 // packed runs, see manifest
	fieldSizes      protowire.Number = 50 // packed runs, see manifest
	fieldDetached   protowire.Number = 51 // bool: the runs are under m/
	fieldEpoch      protowire.Number = 52 // of a process; in a swept record shards of earlier ones were looked at
	fieldMetadata   protowire.Number = 53 // uuid of the set's metadata
)

// Limits of a decoder, so that a damaged or hostile record costs no memory.
const (
	maxText      = 4 << 10 // bytes of an ETag, a region, a version id
	maxChecksums = 16
	maxPairs     = 1024
	maxBlobs     = 64 // of one garbage record: what is done with all of them fits into a commit
)

var (
	errRecord      = errors.New("malformed record")
	errRecordNewer = errors.New("record of a newer version")
)

// encoder appends protobuf-like tagged fields. Zero values are left out, so
// that equal records have equal bytes.
type encoder struct{ b []byte }

func newEncoder() *encoder {
	e := &encoder{b: make([]byte, 0, 256)}
	e.uint(fieldFormat, recordFormat)
	return e
}

func (e *encoder) uint(n protowire.Number, v uint64) {
	if v != 0 {
		e.b = protowire.AppendVarint(protowire.AppendTag(e.b, n, protowire.VarintType), v)
	}
}

func (e *encoder) int(n protowire.Number, v int64) { e.uint(n, protowire.EncodeZigZag(v)) }

func (e *encoder) bool(n protowire.Number, v bool) {
	if v {
		e.uint(n, 1)
	}
}

func (e *encoder) str(n protowire.Number, v string) {
	if v != "" {
		e.b = protowire.AppendString(protowire.AppendTag(e.b, n, protowire.BytesType), v)
	}
}

func (e *encoder) bytes(n protowire.Number, v []byte) {
	if len(v) != 0 {
		e.message(n, v)
	}
}

func (e *encoder) uuid(n protowire.Number, v storage.UUID) {
	if !v.IsZero() {
		e.message(n, v[:])
	}
}

// message appends v even when it is empty.
func (e *encoder) message(n protowire.Number, v []byte) {
	e.b = protowire.AppendBytes(protowire.AppendTag(e.b, n, protowire.BytesType), v)
}

func (e *encoder) pairs(n protowire.Number, m map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(m)) {
		var p encoder
		p.str(fieldName, name)
		p.str(fieldValue, m[name])
		e.message(n, p.b)
	}
}

func (e *encoder) checksums(list []Checksum) {
	for _, c := range list {
		var p encoder
		p.str(fieldAlgorithm, c.Algorithm)
		p.bool(fieldComposite, c.Composite)
		p.bytes(fieldValue, c.Value)
		p.uint(fieldCount, uint64(max(c.Parts, 0)))
		e.message(fieldChecksum, p.b)
	}
}

func (e *encoder) meta(m *Meta) {
	e.pairs(fieldHeader, m.Headers)
	e.pairs(fieldUser, m.User)
	e.pairs(fieldTag, m.Tags)
}

func (e *encoder) digest(d *Digest) {
	e.str(fieldETag, d.ETag)
	e.checksums(d.Checksums)
}

// decoder walks the fields of a record. The accessors of a field's value
// remember the first error, which also ends the walk.
type decoder struct {
	rest  []byte
	num   protowire.Number
	typ   protowire.Type
	v     uint64 // of a varint
	raw   []byte // of a bytes field; shares memory with the record
	whole []byte // tag and value
	err   error
}

// next moves to the next field.
func (d *decoder) next() bool {
	if d.err != nil || len(d.rest) == 0 {
		return false
	}
	num, typ, n := protowire.ConsumeTag(d.rest)
	if n < 0 {
		d.fail("tag")
		return false
	}
	d.num, d.typ, d.v, d.raw = num, typ, 0, nil
	m := 0
	switch typ {
	case protowire.VarintType:
		d.v, m = protowire.ConsumeVarint(d.rest[n:])
	case protowire.BytesType:
		d.raw, m = protowire.ConsumeBytes(d.rest[n:])
	default:
		m = protowire.ConsumeFieldValue(num, typ, d.rest[n:])
	}
	if m < 0 {
		d.fail("value")
		return false
	}
	d.whole, d.rest = d.rest[:n+m], d.rest[n+m:]
	return true
}

func (d *decoder) fail(what string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: field %d: bad %s", errRecord, d.num, what)
	}
}

// format checks the version field.
func (d *decoder) format() {
	if v := d.uint(1 << 32); v > recordFormat {
		d.err = fmt.Errorf("%w: %d", errRecordNewer, v)
	}
}

func (d *decoder) uint(most uint64) uint64 {
	if d.typ != protowire.VarintType || d.v > most {
		d.fail("number")
		return 0
	}
	return d.v
}

func (d *decoder) int64() int64 { return int64(d.uint(1<<63 - 1)) }

func (d *decoder) time() int64 {
	if d.typ != protowire.VarintType {
		d.fail("time")
	}
	return protowire.DecodeZigZag(d.v)
}

func (d *decoder) bool() bool { return d.uint(1) == 1 }

func (d *decoder) bytes(most int) []byte {
	if d.typ != protowire.BytesType || len(d.raw) > most {
		d.fail("length")
		return nil
	}
	return d.raw
}

func (d *decoder) str(most int) string { return string(d.bytes(most)) }

func (d *decoder) uuid() storage.UUID {
	b := d.bytes(16)
	if len(b) != 16 {
		d.fail("uuid")
		return storage.UUID{}
	}
	return storage.UUID(b)
}

// pair adds a pair to m, which it makes when it is nil.
func (d *decoder) pair(m *map[string]string) {
	sub := decoder{rest: d.bytes(MaxMetaBytes + 64)}
	var name, value string
	for sub.next() {
		switch sub.num {
		case fieldName:
			name = sub.str(MaxMetaBytes)
		case fieldValue:
			value = sub.str(MaxMetaBytes)
		}
	}
	if sub.err != nil || len(*m) >= maxPairs {
		d.fail("pair")
		return
	}
	if *m == nil {
		*m = make(map[string]string)
	}
	(*m)[name] = value
}

func (d *decoder) checksum(list *[]Checksum) {
	sub := decoder{rest: d.bytes(maxText)}
	var c Checksum
	for sub.next() {
		switch sub.num {
		case fieldAlgorithm:
			c.Algorithm = internAlgorithm(sub.bytes(64))
		case fieldComposite:
			c.Composite = sub.bool()
		case fieldValue:
			c.Value = slices.Clone(sub.bytes(128))
		case fieldCount:
			c.Parts = int(sub.uint(MaxParts))
		}
	}
	if sub.err != nil || len(*list) >= maxChecksums {
		d.fail("checksum")
		return
	}
	*list = append(*list, c)
}

// internAlgorithm spares listings an allocation per key.
func internAlgorithm(b []byte) string {
	switch string(b) {
	case "CRC64NVME":
		return "CRC64NVME"
	case "CRC32":
		return "CRC32"
	case "CRC32C":
		return "CRC32C"
	case "SHA1":
		return "SHA1"
	case "SHA256":
		return "SHA256"
	}
	return string(b)
}

// metaField takes a field of a Meta and reports whether it was one.
func (d *decoder) metaField(m *Meta) bool {
	switch d.num {
	case fieldHeader:
		d.pair(&m.Headers)
	case fieldUser:
		d.pair(&m.User)
	case fieldTag:
		d.pair(&m.Tags)
	default:
		return false
	}
	return true
}
