package checksum

import "hash"

// Hasher computes several checksums in one pass. Writing to it allocates
// nothing. It is not safe for concurrent use.
type Hasher struct {
	hashes [algorithms]hash.Hash // nil where not asked for
	order  []Algorithm
	size   int64
}

// NewHasher computes MD5 and CRC64NVME, which every object gets, and the
// algorithms named, each once.
func NewHasher(extra ...Algorithm) *Hasher {
	h := &Hasher{order: make([]Algorithm, 0, algorithms)}
	h.add(MD5)
	h.add(CRC64NVME)
	for _, a := range extra {
		h.add(a)
	}
	return h
}

func (h *Hasher) add(a Algorithm) {
	if a == None || a >= algorithms || h.hashes[a] != nil {
		return
	}
	h.hashes[a] = a.New()
	h.order = append(h.order, a)
}

// Write never fails.
func (h *Hasher) Write(p []byte) (int, error) {
	for _, a := range h.order {
		h.hashes[a].Write(p) //nolint:errcheck // hash.Hash never fails
	}
	h.size += int64(len(p))
	return len(p), nil
}

// Size is the number of bytes written so far.
func (h *Hasher) Size() int64 { return h.size }

// Sum gives the raw checksum of what was written so far, nil for an algorithm
// that was not asked for.
func (h *Hasher) Sum(a Algorithm) []byte {
	if a >= algorithms || h.hashes[a] == nil {
		return nil
	}
	return h.hashes[a].Sum(make([]byte, 0, a.Size()))
}

// Reset makes h as new, with the same algorithms.
func (h *Hasher) Reset() {
	for _, a := range h.order {
		h.hashes[a].Reset()
	}
	h.size = 0
}
