package storage

import (
	"bytes"
	"math/bits"
	"slices"

	"ringfence/internal/invariant"
)

// Slabs are one huge page each: reads into huge pages cost the kernel a fifth
// of the work of reads into small ones.
const (
	slabBytes  = 2 << 20
	minBuf     = BlockAlign
	slabOrder  = 9             // slabBytes = minBuf << slabOrder
	slabOrders = slabOrder + 1 // sizes of buffers
)

// MaxBuf is the size of the largest buffer, in bytes.
const MaxBuf = slabBytes

// BufBytes is what a buffer of len size takes from a budget or a Reservation:
// size rounded up to a power of two, at least BlockAlign.
func BufBytes(size int) int64 { return minBuf << orderOf(size) }

func orderOf(size int) int {
	if size <= minBuf {
		return 0
	}
	return bits.Len(uint(size-1)) - bits.Len(uint(minBuf-1))
}

// slab is a piece of memory that a buddy allocator cuts into chunks, so that
// what one size gives back serves any other.
type slab struct {
	id  uint64 // no other slab of the process ever has it
	mem []byte
	pos int // in its list of Pool.slabs
	// room is a binary tree over the slab's chunks, root at 1: order+1 of the
	// largest free chunk under each node, 0 for none.
	room [2 << slabOrder]uint8
}

func newSlab(mem []byte) *slab {
	s := &slab{id: slabIDs.Add(1), mem: mem}
	for i := 1; i < len(s.room); i++ {
		s.room[i] = uint8(slabOrder + 2 - bits.Len(uint(i)))
	}
	s.poison(1)
	return s
}

// free is order+1 of the largest chunk that take can give, 0 for none.
func (s *slab) free() int { return int(s.room[1]) }

// take cuts a chunk of the order, which free allows, and names its node.
func (s *slab) take(order int) uint16 {
	need := uint8(order + 1)
	node := 1
	for range slabOrder - order {
		node *= 2
		// The tighter fit keeps large chunks whole.
		if left, right := s.room[node], s.room[node+1]; left < need || (right >= need && right < left) {
			node++
		}
	}
	s.check(node)
	s.room[node] = 0
	for i := node / 2; i > 0; i /= 2 {
		s.room[i] = max(s.room[2*i], s.room[2*i+1])
	}
	return uint16(node)
}

// give puts a chunk back and joins it with its free neighbours.
func (s *slab) give(node uint16) {
	s.poison(int(node))
	i := int(node)
	whole := uint8(slabOrder + 2 - bits.Len(uint(i)))
	invariant.Check(s.room[i] == 0, "chunk given back twice")
	s.room[i] = whole
	for i /= 2; i > 0; i /= 2 {
		whole++
		if left, right := s.room[2*i], s.room[2*i+1]; left == whole-1 && right == whole-1 {
			s.room[i] = whole
		} else {
			s.room[i] = max(left, right)
		}
	}
}

// chunk is the memory of a node.
func (s *slab) chunk(node uint16) []byte {
	depth := bits.Len(uint(node)) - 1
	size := slabBytes >> depth
	at := (int(node) - 1<<depth) * size
	return s.mem[at : at+size : at+size]
}

// poison fills a free chunk in builds with invariants.
func (s *slab) poison(node int) {
	if invariant.Enabled {
		for page := range slices.Chunk(s.chunk(uint16(node)), len(poisoned)) {
			copy(page, poisoned[:])
		}
	}
}

// check looks whether a free chunk was written to.
func (s *slab) check(node int) {
	if invariant.Enabled {
		for page := range slices.Chunk(s.chunk(uint16(node)), len(poisoned)) {
			invariant.Check(bytes.Equal(page, poisoned[:]), "memory was written to after its release")
		}
	}
}

// poisoned is a page of what released memory holds in builds with invariants.
// It never changes.
var poisoned = func() (p [minBuf]byte) {
	for i := range p {
		p[i] = 0xdb
	}
	return p
}()
