package erasure

import (
	"google.golang.org/protobuf/encoding/protowire"

	"ringfence/storage"
)

// manifest names the parts of a completed multipart upload. Where the bytes of
// a part are stands in the part's own record, p/<upload><number>, which never
// changes again; the manifest has what a range request needs to find the part:
// numbers and sizes.
//
// Both are run lengths, since clients cut objects into equal parts: 10,000
// parts of one size take a few bytes. When they take more than
// manifestInline, because sizes vary, they go under m/<upload>, so that a
// listing never drags them along. The worst case, 10,000 different sizes of up
// to 5 GiB, takes some 60,000 bytes and fits one value.
type manifest struct {
	Upload   storage.UUID
	Count    int
	Detached bool     // the runs are under m/; Numbers and Sizes are nil until they are loaded
	Numbers  []uint16 // ascending
	Sizes    []int64
}

// manifestInline bounds the runs inside an object record, in bytes.
const manifestInline = 2 << 10

// newManifest takes the parts in order of their numbers.
func newManifest(upload storage.UUID, parts []PartInfo) *manifest {
	m := &manifest{Upload: upload, Count: len(parts)}
	for _, p := range parts {
		m.Numbers = append(m.Numbers, uint16(p.Number))
		m.Sizes = append(m.Sizes, p.Size)
	}
	m.Detached = len(m.runs()) > manifestInline
	return m
}

func (m *manifest) size() (total int64) {
	for _, s := range m.Sizes {
		total += s
	}
	return total
}

// encode writes what goes into the object record.
func (m *manifest) encode() []byte {
	var e encoder
	e.uuid(fieldUpload, m.Upload)
	e.uint(fieldCount, uint64(m.Count))
	if m.Detached {
		e.bool(fieldDetached, true)
		return e.b
	}
	return append(e.b, m.runs()...)
}

// runs writes numbers as pairs (gap before, length) and sizes as pairs
// (length, size), both packed.
func (m *manifest) runs() []byte {
	var numbers, sizes []byte
	for i, after := 0, uint16(0); i < len(m.Numbers); {
		n := 1
		for i+n < len(m.Numbers) && m.Numbers[i+n] == m.Numbers[i]+uint16(n) {
			n++
		}
		numbers = protowire.AppendVarint(numbers, uint64(m.Numbers[i]-after-1))
		numbers = protowire.AppendVarint(numbers, uint64(n))
		i += n
		after = m.Numbers[i-1]
	}
	for i := 0; i < len(m.Sizes); {
		n := 1
		for i+n < len(m.Sizes) && m.Sizes[i+n] == m.Sizes[i] {
			n++
		}
		sizes = protowire.AppendVarint(sizes, uint64(n))
		sizes = protowire.AppendVarint(sizes, uint64(m.Sizes[i]))
		i += n
	}
	var e encoder
	e.bytes(fieldNumbers, numbers)
	e.bytes(fieldSizes, sizes)
	return e.b
}

// encodeDetached writes the value under m/.
func (m *manifest) encodeDetached() []byte { return append(newEncoder().b, m.runs()...) }

// decodeDetached fills in numbers and sizes from the value under m/.
func (m *manifest) decodeDetached(b []byte) error {
	d := decoder{rest: b}
	for d.next() {
		if d.num == fieldFormat {
			d.format()
		}
		m.runField(&d)
	}
	if d.err == nil && !m.consistent() {
		d.fail("manifest")
	}
	return d.err
}

// manifest reads what encode wrote.
func (d *decoder) manifest() *manifest {
	sub := decoder{rest: d.bytes(maxRuns)}
	m := &manifest{}
	for sub.next() {
		switch sub.num {
		case fieldUpload:
			m.Upload = sub.uuid()
		case fieldCount:
			m.Count = int(sub.uint(MaxParts))
		case fieldDetached:
			m.Detached = sub.bool()
		default:
			m.runField(&sub)
		}
	}
	if sub.err != nil || m.Upload.IsZero() || m.Count == 0 || m.Detached != (m.Numbers == nil) || (!m.Detached && !m.consistent()) {
		d.fail("manifest")
		return nil
	}
	return m
}

// maxRuns bounds encoded runs, in bytes.
const maxRuns = 64 << 10

func (m *manifest) consistent() bool {
	return len(m.Numbers) == m.Count && len(m.Sizes) == m.Count
}

// runField takes a field of the runs. Lengths are checked before anything is
// expanded, so that a hostile record costs at most MaxParts entries.
func (m *manifest) runField(d *decoder) {
	switch d.num {
	case fieldNumbers:
		d.eachPair(func(gap, n uint64) bool {
			after := uint64(0)
			if len(m.Numbers) > 0 {
				after = uint64(m.Numbers[len(m.Numbers)-1])
			}
			if gap > MaxParts || n == 0 || n > MaxParts || after+gap+n > MaxParts {
				return false
			}
			for i := range n {
				m.Numbers = append(m.Numbers, uint16(after+gap+1+i))
			}
			return true
		})
	case fieldSizes:
		total := int64(0)
		d.eachPair(func(n, size uint64) bool {
			if n == 0 || n > MaxParts-uint64(len(m.Sizes)) || size > maxObjectSize {
				return false
			}
			total += int64(n) * int64(size)
			for range n {
				m.Sizes = append(m.Sizes, int64(size))
			}
			return total <= maxObjectSize
		})
	}
}

// maxObjectSize keeps sums of sizes far from overflow, in bytes.
const maxObjectSize = 1 << 49

// eachPair calls f for each pair of packed numbers until it returns false, which
// fails the field.
func (d *decoder) eachPair(f func(a, b uint64) bool) {
	for raw := d.bytes(maxRuns); len(raw) > 0; {
		a, n := protowire.ConsumeVarint(raw)
		if n < 0 {
			d.fail("run")
			return
		}
		b, m := protowire.ConsumeVarint(raw[n:])
		if m < 0 || !f(a, b) {
			d.fail("run")
			return
		}
		raw = raw[n+m:]
	}
}
