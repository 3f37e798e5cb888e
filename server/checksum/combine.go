package checksum

import (
	"encoding/binary"
	"hash/crc32"
)

// polynomial gives the reflected polynomial of a CRC and its width in bits.
func (a Algorithm) polynomial() (poly uint64, bits int) {
	switch a {
	case CRC32:
		return crc32.IEEE, 32
	case CRC32C:
		return crc32.Castagnoli, 32
	case CRC64NVME:
		return 0x9a6c9329ac4bc9b5, 64
	}
	return 0, 0
}

// maxPart bounds the size of a part so that its length in bits is a number.
const maxPart = 1 << 60

// Part is what combining needs to know of a part.
type Part struct {
	Sum  []byte // raw
	Size int64  // bytes
}

// Combine gives the full-object checksum of the concatenated parts from their
// checksums, and false if a has none (SHA1, SHA256, MD5), if there is no part,
// or if a part's sum or size cannot be one. It reads no data.
func Combine(a Algorithm, parts []Part) ([]byte, bool) {
	poly, bits := a.polynomial()
	if poly == 0 || len(parts) == 0 {
		return nil, false
	}
	var crc uint64
	// Parts are mostly of one size: the factor for it is worked out once.
	size, factor := int64(-1), uint64(0)
	for i, p := range parts {
		if len(p.Sum) != a.Size() || p.Size < 0 || p.Size > maxPart {
			return nil, false
		}
		next := number(p.Sum)
		if i == 0 {
			crc = next
			continue
		}
		// Appending p.Size bytes to a message multiplies its CRC by
		// x^(8·size) mod poly. Initial value and final inversion cancel out
		// between the two sums, so the plain XOR is right.
		if p.Size != size {
			size, factor = p.Size, power(8*uint64(p.Size), poly, bits)
		}
		crc = multiply(crc, factor, poly, bits) ^ next
	}
	var buf [8]byte
	if bits == 32 {
		binary.BigEndian.PutUint32(buf[:4], uint32(crc))
		return buf[:4:4], true
	}
	binary.BigEndian.PutUint64(buf[:], crc)
	return buf[:], true
}

func number(raw []byte) (n uint64) {
	for _, b := range raw {
		n = n<<8 | uint64(b)
	}
	return n
}

// multiply gives a·b mod poly over GF(2). In the reflected form the highest of
// the bits is the coefficient of x^0.
func multiply(a, b, poly uint64, bits int) (product uint64) {
	for mask := uint64(1) << (bits - 1); mask != 0; mask >>= 1 {
		if a&mask != 0 {
			product ^= b
		}
		carry := b & 1
		b >>= 1
		if carry != 0 {
			b ^= poly
		}
	}
	return product
}

// power gives x^n mod poly by squaring.
func power(n, poly uint64, bits int) uint64 {
	result := uint64(1) << (bits - 1) // x^0
	square := uint64(1) << (bits - 2) // x^1
	for ; n != 0; n >>= 1 {
		if n&1 != 0 {
			result = multiply(result, square, poly, bits)
		}
		square = multiply(square, square, poly, bits)
	}
	return result
}

// Composite gives the checksum of the parts' raw checksums in order: the value
// of a composite checksum and, for MD5, of a multipart ETag. On the wire it is
// followed by "-" and the number of parts. It gives nil for None.
func Composite(a Algorithm, sums [][]byte) []byte {
	h := a.New()
	if h == nil {
		return nil
	}
	for _, s := range sums {
		h.Write(s) //nolint:errcheck // hash.Hash never fails
	}
	return h.Sum(make([]byte, 0, a.Size()))
}
