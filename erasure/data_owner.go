package erasure

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"ringfence/storage"
)

// A shard's Owner begins with its place in the blob, then come the bytes that
// the caller of write gave:
//
//	version (1 byte, 1) | K (1) | M (1) | shard index (1) |
//	log2 of the block size (1) | size of the blob (8, big-endian, two's
//	complement; -1: was not known when the shard was made) |
//	slots (K+M) | caller's bytes
//
// With it a shard file alone says which others belong to it.
const (
	ownerVersion = 1
	ownerHead    = 13
	// maxOwner bounds writeInput.Owner, in bytes.
	maxOwner = storage.MaxOwner - ownerHead - MaxSetSize
)

// place is where one shard belongs.
type place struct {
	Layout Layout
	Shard  uint8
	Size   int64 // of the blob; -1: unknown
}

// joinOwner encodes a shard's Owner.
func joinOwner(p place, caller []byte) []byte {
	b := make([]byte, 0, ownerHead+len(p.Layout.Slots)+len(caller))
	b = append(b, ownerVersion, p.Layout.K, p.Layout.M, p.Shard, byte(bits.TrailingZeros(uint(p.Layout.BlockSize))))
	b = binary.BigEndian.AppendUint64(b, uint64(p.Size))
	b = append(b, p.Layout.Slots...)
	return append(b, caller...)
}

// splitOwner decodes a shard's Owner. The caller's bytes alias owner.
func splitOwner(owner []byte) (place, []byte, error) {
	if len(owner) < ownerHead {
		return place{}, nil, errors.New("shard owner cut short")
	}
	if owner[0] != ownerVersion {
		return place{}, nil, fmt.Errorf("shard owner of version %d", owner[0])
	}
	p := place{
		Layout: Layout{K: owner[1], M: owner[2], BlockSize: 1 << min(owner[4], 30)},
		Shard:  owner[3],
		Size:   int64(binary.BigEndian.Uint64(owner[5:])),
	}
	rest := owner[ownerHead:]
	n := p.Layout.shards()
	if len(rest) < n {
		return place{}, nil, errors.New("shard owner cut short")
	}
	p.Layout.Slots = append([]uint8(nil), rest[:n]...)
	if err := p.Layout.check(); err != nil {
		return place{}, nil, fmt.Errorf("shard owner: %w", err)
	}
	if int(p.Shard) >= n || p.Size < -1 {
		return place{}, nil, fmt.Errorf("shard owner: shard %d of %d, blob of %d bytes", p.Shard, n, p.Size)
	}
	return p, rest[n:], nil
}
