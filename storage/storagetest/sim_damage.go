package storagetest

import (
	"bytes"
	"encoding/binary"
	"hash/fnv"
	"slices"

	"ringfence/storage"
)

// This file damages a medium behind its owner's back, and looks at it.

// FlipBit inverts a bit of a sealed block at rest, or of the shard's last block
// when block is negative. It reports whether there is such a block.
func (s *Sim) FlipBit(id storage.ShardID, block, bit int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.files[id]
	if f == nil || !f.sealed {
		return false
	}
	if block < 0 {
		block = f.info.Blocks() - 1
	}
	if block < 0 || block >= f.info.Blocks() {
		return false
	}
	c := f.clone()
	c.data = slices.Clone(f.data)
	flip(c.data[block*f.info.BlockSize:][:f.info.BlockLen(block)], bit)
	s.replaceLocked(f, c)
	return true
}

func flip(p []byte, bit int) {
	bit %= 8 * len(p)
	p[bit/8] ^= 1 << (bit % 8)
}

// Spoil damages a shard's trailer, so that OpenShard fails with ErrCorrupt. It
// reports whether the shard is there and was sealed.
func (s *Sim) Spoil(id storage.ShardID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.files[id]
	if f == nil || !f.sealed {
		return false
	}
	c := f.clone()
	c.sealed = false
	s.replaceLocked(f, c)
	return true
}

// Lose removes a shard durably, and reports whether it was there.
func (s *Sim) Lose(id storage.ShardID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.files[id]
	if f == nil {
		return false
	}
	s.drop(f)
	s.dirty = slices.DeleteFunc(s.dirty, func(d *simFile) bool { return d == f })
	return true
}

// replaceLocked swaps the file under a name for a changed copy; open readers
// see it too, as they would on a real disk.
func (s *Sim) replaceLocked(f, c *simFile) {
	s.files[f.id] = c
	if i := slices.Index(s.dirty, f); i >= 0 {
		s.dirty[i] = c
	}
}

// RotKV damages the metadata store: the open one fails, and so does that of
// every later instance, with ErrCorrupt, until ResetKV.
func (s *Sim) RotKV() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rotten = true
	if s.open != nil {
		s.open.kv.Load().fail(storage.ErrCorrupt)
	}
}

// Shards are the ids on the medium, in order.
func (s *Sim) Shards() []storage.ShardID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.orderLocked())
}

func (s *Sim) orderLocked() []storage.ShardID {
	if s.order == nil {
		s.order = make([]storage.ShardID, 0, len(s.files))
		for id := range s.files {
			s.order = append(s.order, id)
		}
		slices.SortFunc(s.order, compareIDs)
	}
	return s.order
}

func compareIDs(a, b storage.ShardID) int {
	if c := bytes.Compare(a.UUID[:], b.UUID[:]); c != 0 {
		return c
	}
	return int(a.Part) - int(b.Part)
}

// KVDigest is a hash over all keys >= lo and < hi (nil: no bound) with their
// values, to compare disks.
func (s *Sim) KVDigest(lo, hi []byte) uint64 {
	s.mu.Lock()
	w := walk{tree: s.kv, lo: lo, hi: hi}
	s.mu.Unlock()
	h := fnv.New64a()
	var lens [8]byte
	for w.next() {
		n := w.at()
		binary.LittleEndian.PutUint32(lens[:4], uint32(len(n.key)))
		binary.LittleEndian.PutUint32(lens[4:], uint32(len(n.value)))
		for _, p := range [][]byte{lens[:], n.key, n.value} {
			_, _ = h.Write(p) // never fails
		}
	}
	return h.Sum64()
}
