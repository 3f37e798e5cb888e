package meta

import (
	"bytes"
	"encoding/binary"

	"ringfence/storage"
)

// This file holds the encoding of every key of the object store. All of them
// are a two-byte space, "o/" and so on, then fixed-width fields, then at most
// one field of open length at the end, so that byte order of encoded keys is
// the order that scans want and no separator has to be reserved inside object
// keys, which are opaque bytes.
//
// The two spaces where something follows an object key (versions, uploads)
// escape it: 0x00 becomes 0x00 0xff and the field ends with 0x00 0x00. That
// keeps byte order, also between a key and its extensions, and at most doubles
// the length, which MaxKey has room for.

// The spaces. Each ends in a slash and no space is a prefix of another.
const (
	SpaceBuckets   = "b/" // b/<name>
	SpaceConfig    = "c/" // c/<name>
	SpaceGarbage   = "g/" // g/<order be64><uuid 16><part be16>
	SpaceUnhealed  = "h/" // h/<uuid 16><part be16>
	SpaceInline    = "i/" // i/<uuid 16>
	SpaceManifests = "m/" // m/<uuid 16><chunk be16>
	SpaceObjects   = "o/" // o/<bucket 16><key>
	SpaceParts     = "p/" // p/<upload 16><part be16>
	SpaceUploads   = "u/" // u/<bucket 16><escaped key>00 00<upload id>
	SpaceVersions  = "v/" // v/<bucket 16><escaped key>00 00<^order be64><version id>
)

const uuidLen = len(storage.UUID{})

// After returns the smallest key that is greater than every key that starts
// with prefix: the exclusive end of a scan over prefix. It returns nil, which
// Scan takes as no bound, when there is none (prefix is empty or all 0xff).
func After(prefix []byte) []byte {
	end := bytes.Clone(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] != 0xff {
			end[i]++
			return end[:i+1]
		}
	}
	return nil
}

// BucketKey is the record of a bucket by name; in byte order of names.
func BucketKey(name string) []byte { return append([]byte(SpaceBuckets), name...) }

// ParseBucketKey reads what BucketKey wrote.
func ParseBucketKey(k []byte) (name string, ok bool) {
	rest, ok := bytes.CutPrefix(k, []byte(SpaceBuckets))
	return string(rest), ok
}

// ConfigKey is a setting of the store by name.
func ConfigKey(name string) []byte { return append([]byte(SpaceConfig), name...) }

// ParseConfigKey reads what ConfigKey wrote.
func ParseConfigKey(k []byte) (name string, ok bool) {
	rest, ok := bytes.CutPrefix(k, []byte(SpaceConfig))
	return string(rest), ok
}

// ObjectPrefix is the prefix of the current objects of a bucket.
func ObjectPrefix(bucket storage.UUID) []byte { return spaceUUID(SpaceObjects, bucket, 0) }

// ObjectKey is the current object under key, in byte order of keys: the scan
// of the keys that start with p is [ObjectKey(b, p), After(ObjectKey(b, p))).
func ObjectKey(bucket storage.UUID, key string) []byte {
	return append(spaceUUID(SpaceObjects, bucket, len(key)), key...)
}

// ParseObjectKey reads what ObjectKey wrote. The key shares no memory with k.
func ParseObjectKey(k []byte) (bucket storage.UUID, key string, ok bool) {
	bucket, rest, ok := cutUUID(SpaceObjects, k)
	return bucket, string(rest), ok
}

// VersionPrefix is the prefix of all versions in a bucket.
func VersionPrefix(bucket storage.UUID) []byte { return spaceUUID(SpaceVersions, bucket, 0) }

// VersionsOf is the prefix of all versions of one key, and of nothing else.
func VersionsOf(bucket storage.UUID, key string) []byte {
	return appendEscaped(spaceUUID(SpaceVersions, bucket, len(key)+2), key)
}

// VersionKey is one version of a key. Versions sort by key, then from the
// highest order to the lowest (newest first), then by id. The caller numbers
// the versions of a key upwards.
func VersionKey(bucket storage.UUID, key string, order uint64, id string) []byte {
	k := binary.BigEndian.AppendUint64(VersionsOf(bucket, key), ^order)
	return append(k, id...)
}

// ParseVersionKey reads what VersionKey wrote.
func ParseVersionKey(k []byte) (bucket storage.UUID, key string, order uint64, id string, ok bool) {
	bucket, rest, ok := cutUUID(SpaceVersions, k)
	if !ok {
		return bucket, "", 0, "", false
	}
	key, rest, ok = cutEscaped(rest)
	if !ok || len(rest) < 8 {
		return bucket, "", 0, "", false
	}
	return bucket, key, ^binary.BigEndian.Uint64(rest), string(rest[8:]), true
}

// UploadPrefix is the prefix of all uploads in a bucket.
func UploadPrefix(bucket storage.UUID) []byte { return spaceUUID(SpaceUploads, bucket, 0) }

// UploadsOf is the prefix of all uploads of one key, and of nothing else. Its
// After skips them.
func UploadsOf(bucket storage.UUID, key string) []byte {
	return appendEscaped(spaceUUID(SpaceUploads, bucket, len(key)+2), key)
}

// UploadsFrom is the lower bound of the uploads whose key is at least key. As
// a prefix it covers exactly the uploads whose key starts with key, so that
// [UploadsFrom(b, p), After(UploadsFrom(b, p))) is the scan under prefix p.
func UploadsFrom(bucket storage.UUID, key string) []byte {
	k := UploadsOf(bucket, key)
	return k[:len(k)-2]
}

// UploadKey is a multipart upload. Uploads sort by key, then by upload id.
func UploadKey(bucket storage.UUID, key, uploadID string) []byte {
	return append(UploadsOf(bucket, key), uploadID...)
}

// ParseUploadKey reads what UploadKey wrote.
func ParseUploadKey(k []byte) (bucket storage.UUID, key, uploadID string, ok bool) {
	bucket, rest, ok := cutUUID(SpaceUploads, k)
	if !ok {
		return bucket, "", "", false
	}
	key, rest, ok = cutEscaped(rest)
	return bucket, key, string(rest), ok
}

// PartPrefix is the prefix of all parts of an upload.
func PartPrefix(upload storage.UUID) []byte { return spaceUUID(SpaceParts, upload, 0) }

// PartKey is a part of an upload, in order of part numbers.
func PartKey(upload storage.UUID, part uint16) []byte {
	return binary.BigEndian.AppendUint16(spaceUUID(SpaceParts, upload, 2), part)
}

// ParsePartKey reads what PartKey wrote.
func ParsePartKey(k []byte) (upload storage.UUID, part uint16, ok bool) {
	return cutUUID16(SpaceParts, k)
}

// InlineKey is the payload of an object small enough to live in the log.
func InlineKey(id storage.UUID) []byte { return spaceUUID(SpaceInline, id, 0) }

// ParseInlineKey reads what InlineKey wrote.
func ParseInlineKey(k []byte) (id storage.UUID, ok bool) {
	id, rest, ok := cutUUID(SpaceInline, k)
	return id, ok && len(rest) == 0
}

// ManifestPrefix is the prefix of all chunks of a part manifest.
func ManifestPrefix(id storage.UUID) []byte { return spaceUUID(SpaceManifests, id, 0) }

// ManifestKey is one chunk of a part manifest that is too large for its record.
func ManifestKey(id storage.UUID, chunk uint16) []byte {
	return binary.BigEndian.AppendUint16(spaceUUID(SpaceManifests, id, 2), chunk)
}

// ParseManifestKey reads what ManifestKey wrote.
func ParseManifestKey(k []byte) (id storage.UUID, chunk uint16, ok bool) {
	return cutUUID16(SpaceManifests, k)
}

// GarbageKey is a deferred deletion of shards. Entries sort by order, which the
// caller picks (a time or a counter); the shard's name keeps them apart.
func GarbageKey(order uint64, id storage.ShardID) []byte {
	k := make([]byte, 0, len(SpaceGarbage)+8+uuidLen+2)
	k = append(k, SpaceGarbage...)
	k = binary.BigEndian.AppendUint64(k, order)
	k = append(k, id.UUID[:]...)
	return binary.BigEndian.AppendUint16(k, id.Part)
}

// ParseGarbageKey reads what GarbageKey wrote.
func ParseGarbageKey(k []byte) (order uint64, id storage.ShardID, ok bool) {
	rest, ok := bytes.CutPrefix(k, []byte(SpaceGarbage))
	if !ok || len(rest) != 8+uuidLen+2 {
		return 0, id, false
	}
	id.UUID = storage.UUID(rest[8 : 8+uuidLen])
	id.Part = binary.BigEndian.Uint16(rest[8+uuidLen:])
	return binary.BigEndian.Uint64(rest), id, true
}

// UnhealedKey marks shards that are missing on some disks of their layout.
func UnhealedKey(id storage.ShardID) []byte {
	return binary.BigEndian.AppendUint16(spaceUUID(SpaceUnhealed, id.UUID, 2), id.Part)
}

// ParseUnhealedKey reads what UnhealedKey wrote.
func ParseUnhealedKey(k []byte) (id storage.ShardID, ok bool) {
	id.UUID, id.Part, ok = cutUUID16(SpaceUnhealed, k)
	return id, ok
}

func spaceUUID(space string, id storage.UUID, more int) []byte {
	k := make([]byte, 0, len(space)+uuidLen+more+8)
	k = append(k, space...)
	return append(k, id[:]...)
}

func cutUUID(space string, k []byte) (id storage.UUID, rest []byte, ok bool) {
	rest, ok = bytes.CutPrefix(k, []byte(space))
	if !ok || len(rest) < uuidLen {
		return id, nil, false
	}
	return storage.UUID(rest[:uuidLen]), rest[uuidLen:], true
}

func cutUUID16(space string, k []byte) (id storage.UUID, n uint16, ok bool) {
	id, rest, ok := cutUUID(space, k)
	if !ok || len(rest) != 2 {
		return id, 0, false
	}
	return id, binary.BigEndian.Uint16(rest), true
}

// appendEscaped appends key with 0x00 as 0x00 0xff, and the end 0x00 0x00.
func appendEscaped(k []byte, key string) []byte {
	for i := range len(key) {
		k = append(k, key[i])
		if key[i] == 0 {
			k = append(k, 0xff)
		}
	}
	return append(k, 0, 0)
}

// cutEscaped reads what appendEscaped wrote and returns what follows.
func cutEscaped(k []byte) (key string, rest []byte, ok bool) {
	var out []byte
	for {
		i := bytes.IndexByte(k, 0)
		if i < 0 || i+1 >= len(k) {
			return "", nil, false
		}
		out = append(out, k[:i]...)
		switch k[i+1] {
		case 0:
			return string(out), k[i+2:], true
		case 0xff:
			out = append(out, 0)
		default:
			return "", nil, false
		}
		k = k[i+2:]
	}
}
