package storage

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// UUID is 128 random bits, or for shards 32 bits of epoch and 96 random ones.
type UUID [16]byte

// String gives 32 lower-case hex digits.
func (u UUID) String() string { return hex.EncodeToString(u[:]) }

// IsZero reports whether u was never set.
func (u UUID) IsZero() bool { return u == UUID{} }

// ParseUUID reads what UUID.String wrote.
func ParseUUID(s string) (UUID, error) {
	var u UUID
	if len(s) != 2*len(u) {
		return UUID{}, fmt.Errorf("parse uuid: %d characters, want %d", len(s), 2*len(u))
	}
	if _, err := hex.Decode(u[:], []byte(s)); err != nil {
		return UUID{}, fmt.Errorf("parse uuid: %w", err)
	}
	return u, nil
}

// ShardID names the shards of one part of one version of one object: the same
// on every disk of the set. It is write-once: a name is never used again.
type ShardID struct {
	UUID UUID
	Part uint16 // 0 for a plain PUT; the part number of a multipart upload
}

// String gives "<32 hex>.<part>", which is also the file's base name.
func (id ShardID) String() string { return fmt.Sprintf("%s.%d", id.UUID, id.Part) }

// Epoch is the set epoch in which the shard was written, from the UUID's first
// four bytes. Files of an earlier epoch that no record names are orphans.
func (id ShardID) Epoch() uint32 { return binary.BigEndian.Uint32(id.UUID[:4]) }

// Identity says which disk this is. It is written once, when the disk is
// formatted, and never changes.
type Identity struct {
	Deployment UUID   // the same on every disk of a store
	Set        UUID   // the same on every disk of an erasure set
	Disk       UUID   // unique for ever
	SetIndex   uint16 // position of the set in the store, from 0
	SetCount   uint16 // number of sets when the disk was formatted
	Slot       uint8  // position of the disk in its set, from 0
	SetSize    uint8  // number of disks in the set, 1..16
	Parity     uint8  // parity shards of a full layout
}
