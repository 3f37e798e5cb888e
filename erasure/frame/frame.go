// Package frame decides what counts as an intact block.
//
// A checksum over the bytes alone says that a block is what some writer once
// wrote, not that it is the block that was asked for: a write that a disk put
// at the wrong place, an old file under a new name, or a block of a neighbour
// would all verify. The sum here also covers where the block belongs: the
// shard's name, the index of the shard in its stripe, and the number of the
// block. It does not cover the disk, so that a shard can move to another one
// as it is.
//
// The sum is XXH3-128 over 39 bytes: the name (16), the part (2, big-endian),
// the index (1), the block number (4, big-endian) and the XXH3-128 of the
// block (16, canonical form). Hashing the hash keeps the long pass plain and
// unseeded, where the assembly is fastest, and still binds all of the identity
// with all 128 bits; a 64-bit seed would not. XXH3 finds accidents, not
// forgers: whoever can write to a disk can write a sum that fits.
package frame

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"

	"ringfence/storage"
)

// Sum is the checksum of block number block of the shard with index slot of
// the stripes named by uuid and part. It allocates nothing and may be called
// concurrently.
func Sum(uuid storage.UUID, part uint16, slot uint8, block uint32, data []byte) storage.Sum {
	inner := xxh3.Hash128(data).Bytes()
	var id [39]byte
	copy(id[:], uuid[:])
	binary.BigEndian.PutUint16(id[16:], part)
	id[18] = slot
	binary.BigEndian.PutUint32(id[19:], block)
	copy(id[23:], inner[:])
	return xxh3.Hash128(id[:]).Bytes()
}

// Verify reports whether data is the block that sum was made for.
func Verify(sum storage.Sum, uuid storage.UUID, part uint16, slot uint8, block uint32, data []byte) bool {
	return Sum(uuid, part, slot, block, data) == sum
}
