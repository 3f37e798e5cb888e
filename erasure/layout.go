package erasure

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"ringfence/storage"
)

// Sizes of stripes. A block of 256 KiB costs one seek little on a hard disk and
// is hashed while it is in the L2 cache; a stripe of at most 1 MiB of data keeps
// the memory of a request independent of the width of its set.
const (
	blockMin  = storage.BlockAlign
	blockMax  = 256 << 10
	stripeMax = 1 << 20
	// stripesMax bounds a blob, and with it the checksums of a shard, which
	// are read as a whole: 64 MiB of them for 4 TiB at K = 4.
	stripesMax = 4 << 20
)

// Layout says how a run of bytes is cut into shards and where they are. It is
// fixed when the bytes are written and stored with them; nothing is computed
// again from a later set of disks.
//
// The bytes are cut into stripes of K*BlockSize. A stripe is K data blocks of
// equal length, one after the other, and M parity blocks of that length. In all
// stripes but the last that length is BlockSize; in the last it is its
// remaining bytes divided by K, rounded up, and the data blocks are padded with
// zeros at the end. Shard i is block i of every stripe in order, so its size
// is the sum of the block lengths, the same for every shard. No bytes make no
// stripe, and shards of size 0.
type Layout struct {
	K, M      uint8   // data and parity shards; K >= 1, K+M <= MaxSetSize
	BlockSize int     // bytes; a power of two from storage.BlockAlign to 256 KiB
	Slots     []uint8 // slot in the set of the disk that holds shard i
}

// blob is one stored run of bytes: a whole object or one part of one.
type blob struct {
	UUID   storage.UUID
	Part   uint16
	Size   int64 // bytes
	Layout Layout
	// Missing are the indexes of the shards that were not stored when the blob
	// was written, ascending.
	Missing []uint8
}

func (b blob) id() storage.ShardID { return storage.ShardID{UUID: b.UUID, Part: b.Part} }

// check refuses what no writer made, so that a damaged record cannot lead to
// absurd arithmetic.
func (b blob) check() error {
	l := b.Layout
	if err := l.check(); err != nil {
		return err
	}
	if b.Size < 0 || l.stripes(b.Size) > stripesMax {
		return fmt.Errorf("blob of %d bytes", b.Size)
	}
	for _, i := range b.Missing {
		if int(i) >= l.shards() {
			return fmt.Errorf("missing shard %d of %d", i, l.shards())
		}
	}
	return nil
}

func (l Layout) check() error {
	n := l.shards()
	if l.K < 1 || n > MaxSetSize || n != len(l.Slots) {
		return fmt.Errorf("layout %d+%d on %d disks", l.K, l.M, len(l.Slots))
	}
	if l.BlockSize < blockMin || l.BlockSize > blockMax || bits.OnesCount(uint(l.BlockSize)) != 1 {
		return fmt.Errorf("layout with blocks of %d bytes", l.BlockSize)
	}
	var seen uint16
	for _, s := range l.Slots {
		if s >= MaxSetSize || seen>>s&1 == 1 {
			return fmt.Errorf("layout with slots %v", l.Slots)
		}
		seen |= 1 << s
	}
	return nil
}

// shards is K+M.
func (l Layout) shards() int { return int(l.K) + int(l.M) }

// stripeSize is the data of a full stripe in bytes.
func (l Layout) stripeSize() int { return int(l.K) * l.BlockSize }

// stripes is how many stripes hold size bytes.
func (l Layout) stripes(size int64) int64 {
	s := int64(l.stripeSize())
	return (size + s - 1) / s
}

// stripeLen is the data in stripe s of size bytes, without padding.
func (l Layout) stripeLen(size, s int64) int {
	return int(min(int64(l.stripeSize()), size-s*int64(l.stripeSize())))
}

// blockLen is the length of the blocks of a stripe that holds n bytes.
func (l Layout) blockLen(n int) int { return (n + int(l.K) - 1) / int(l.K) }

// shardSize is the size in bytes of each shard of size bytes.
func (l Layout) shardSize(size int64) int64 {
	n := l.stripes(size)
	if n == 0 {
		return 0
	}
	return (n-1)*int64(l.BlockSize) + int64(l.blockLen(l.stripeLen(size, n-1)))
}

// quorum is how many shards must be durable before a write may count: one more
// than reading needs, so that the blob survives the loss of any disk right
// after the write, and all of them without parity.
func (l Layout) quorum() int { return min(int(l.K)+1, l.shards()) }

// span gives the part of stripe s of size bytes that off <= x < end covers:
// first and last data block and the bytes from lo to hi within the stripe.
func (l Layout) span(size, off, end, s int64) (lo, hi, first, last int) {
	base := s * int64(l.stripeSize())
	n := l.stripeLen(size, s)
	lo = int(max(off-base, 0))
	hi = int(min(end-base, int64(n)))
	length := l.blockLen(n)
	return lo, hi, lo / length, (hi - 1) / length
}

// blockSizeFor chooses the block size for size bytes (-1: unknown) on k data
// shards: large enough for one stripe, within the limits.
func blockSizeFor(size int64, k int) int {
	limit := blockMax
	for limit*k > stripeMax {
		limit /= 2
	}
	if size < 0 {
		return limit
	}
	block := blockMin
	for block < limit && int64(block)*int64(k) < size {
		block *= 2
	}
	return block
}

// chooseLayout places size bytes (-1: unknown) on the disks in slots, keeping
// parity whole: when disks are out there are fewer data shards, not fewer
// parity shards, so that what is written today survives as many losses as what
// was written yesterday. Which disks get data and which parity, and so which
// ones are read, turns with the uuid. It reports false when there are too few
// disks for one data shard beside the parity.
func chooseLayout(uuid storage.UUID, size int64, slots []uint8, parity int) (Layout, bool) {
	n := len(slots)
	k := n - parity
	if k < 1 {
		return Layout{}, false
	}
	l := Layout{K: uint8(k), M: uint8(parity), BlockSize: blockSizeFor(size, k), Slots: make([]uint8, n)}
	turn := int(binary.BigEndian.Uint32(uuid[8:12]) % uint32(n))
	for i := range l.Slots {
		l.Slots[i] = slots[(i+turn)%n]
	}
	return l, true
}

// indexOf is the shard that the disk in slot holds, or -1.
func (l Layout) indexOf(slot uint8) int {
	for i, s := range l.Slots {
		if s == slot {
			return i
		}
	}
	return -1
}
