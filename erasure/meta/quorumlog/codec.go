package quorumlog

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"

	"github.com/zeebo/xxh3"
	"ringfence/erasure/meta"
	"ringfence/storage"
)

// The key space of a disk: cells, then the log, then user keys. The order
// matters to copies, which walk from logSpace to the end.
const (
	cellSpace = 'e'
	logSpace  = 'l'
	userSpace = 'u'
)

const formatVersion = 1

func appliedKey() []byte  { return []byte{cellSpace, '/', 'a'} }
func promisedKey() []byte { return []byte{cellSpace, '/', 'p'} }

func logKey(seq uint64) []byte { return binary.BigEndian.AppendUint64([]byte{logSpace}, seq) }

func userKey(key []byte) []byte {
	return append(append(make([]byte, 0, 1+len(key)), userSpace), key...)
}

// point is a place in the log. chain digests everything up to it, so that two
// disks at equal points have equal contents.
type point struct {
	epoch, seq uint64
	chain      [16]byte
}

// mark is a point without its chain, as witnesses remember it.
type mark struct{ epoch, seq uint64 }

func (p point) mark() mark { return mark{p.epoch, p.seq} }

// compare orders logs by length: a later epoch wins whatever its seq.
func (m mark) compare(o mark) int {
	return cmp.Or(cmp.Compare(m.epoch, o.epoch), cmp.Compare(m.seq, o.seq))
}

// phase says how a disk's contents relate to its point.
type phase uint8

const (
	// phaseClean: exactly the prefix up to the point.
	phaseClean phase = iota + 1
	// phasePartial: keys touched after the point, in the log up to towards, may
	// be in any state.
	phasePartial
	// phaseCopying: as partial, and keys from the cursor on are missing.
	phaseCopying
)

// cell is what a disk says of itself, written with every batch.
type cell struct {
	phase   phase
	at      point
	towards point  // not phaseClean: the latest state of a source that values are from
	cursor  []byte // phaseCopying: the first raw key not yet copied
	witness []mark // by slot: what each disk had acknowledged when this was written
}

func (c cell) encode() []byte {
	b := make([]byte, 0, 64+len(c.cursor)+16*len(c.witness))
	b = append(b, formatVersion, byte(c.phase))
	b = appendPoint(b, c.at)
	b = appendPoint(b, c.towards)
	b = binary.AppendUvarint(b, uint64(len(c.cursor)))
	b = append(b, c.cursor...)
	b = append(b, byte(len(c.witness)))
	for _, w := range c.witness {
		b = binary.AppendUvarint(b, w.epoch)
		b = binary.AppendUvarint(b, w.seq)
	}
	return seal(b)
}

func decodeCell(raw []byte) (cell, error) {
	r, err := unseal(raw, "cell")
	if err != nil {
		return cell{}, err
	}
	c := cell{phase: phase(r.byte()), at: r.point(), towards: r.point()}
	c.cursor = bytes.Clone(r.bytes())
	c.witness = make([]mark, r.byte())
	for i := range c.witness {
		c.witness[i] = mark{r.uvarint(), r.uvarint()}
	}
	if err := r.end("cell"); err != nil {
		return cell{}, err
	}
	if c.phase < phaseClean || c.phase > phaseCopying {
		return cell{}, fmt.Errorf("cell: phase %d: %w", c.phase, storage.ErrCorrupt)
	}
	return c, nil
}

// promise is the highest epoch that a disk was asked to remember. It also says
// whose disk this is, since cells are the same on all.
type promise struct {
	epoch uint64
	slot  int
	set   storage.UUID
}

func (p promise) encode() []byte {
	b := binary.AppendUvarint([]byte{formatVersion}, p.epoch)
	b = append(b, byte(p.slot))
	return seal(append(b, p.set[:]...))
}

func decodePromise(raw []byte) (promise, error) {
	r, err := unseal(raw, "promise")
	if err != nil {
		return promise{}, err
	}
	p := promise{epoch: r.uvarint(), slot: int(r.byte())}
	copy(p.set[:], r.take(len(p.set)))
	return p, r.end("promise")
}

// entry is one group in the log: the keys that it touched, not their values,
// which are read from an in-sync disk when a catch-up needs them.
type entry struct {
	at      point
	first   uint64 // seq of the group's first commit; at.seq is its last
	barrier bool   // written by recovery: decides what is before it
	keys    [][]byte
}

func (en entry) encode() []byte {
	n := 64
	for _, k := range en.keys {
		n += len(k) + 2
	}
	b := make([]byte, 0, n)
	kind := byte(0)
	if en.barrier {
		kind = 1
	}
	b = append(b, formatVersion, kind)
	b = appendPoint(b, en.at)
	b = binary.AppendUvarint(b, en.first)
	b = binary.AppendUvarint(b, uint64(len(en.keys)))
	for _, k := range en.keys {
		b = binary.AppendUvarint(b, uint64(len(k)))
		b = append(b, k...)
	}
	return seal(b)
}

// decodeEntry reads an entry; its keys alias raw.
func decodeEntry(raw []byte) (entry, error) {
	r, err := unseal(raw, "log entry")
	if err != nil {
		return entry{}, err
	}
	en := entry{barrier: r.byte() == 1, at: r.point(), first: r.uvarint()}
	n := r.uvarint()
	if n > uint64(len(raw)) {
		return entry{}, fmt.Errorf("log entry: %d keys in %d bytes: %w", n, len(raw), storage.ErrCorrupt)
	}
	en.keys = make([][]byte, 0, n)
	for range n {
		en.keys = append(en.keys, r.bytes())
	}
	return en, r.end("log entry")
}

// Values carry a header, so that a valid block that ended up under another key,
// or an old one that came back, is recognised: version, key hash, revision,
// length, checksum over all of these and the value.
const headerLen = 1 + 8 + 8 + 4 + 16

func encodeValue(key []byte, rev uint64, val []byte) []byte {
	b := make([]byte, headerLen, headerLen+len(val))
	b[0] = formatVersion
	binary.LittleEndian.PutUint64(b[1:], xxh3.Hash(key))
	binary.LittleEndian.PutUint64(b[9:], rev)
	binary.LittleEndian.PutUint32(b[17:], uint32(len(val)))
	b = append(b, val...)
	sum := valueSum(b)
	copy(b[21:], sum[:])
	return b
}

// decodeValue returns the value as a part of raw.
func decodeValue(key, raw []byte) (rev uint64, val []byte, err error) {
	if len(raw) < headerLen || raw[0] != formatVersion ||
		binary.LittleEndian.Uint64(raw[1:]) != xxh3.Hash(key) ||
		int(binary.LittleEndian.Uint32(raw[17:])) != len(raw)-headerLen ||
		valueSum(raw) != [16]byte(raw[21:headerLen]) {
		return 0, nil, fmt.Errorf("value of %d bytes does not verify: %w", len(raw), storage.ErrCorrupt)
	}
	return binary.LittleEndian.Uint64(raw[9:]), raw[headerLen:], nil
}

// valueSum covers everything of an encoded value but the sum itself.
func valueSum(b []byte) [16]byte {
	head := xxh3.Hash(b[:21])
	sum := xxh3.Hash128Seed(b[headerLen:], head)
	return sum.Bytes()
}

// link continues a chain over one group.
func link(prev point, epoch, first, last uint64, ops []meta.Op) point {
	h := xxh3.New()
	var n [8]byte
	number := func(v uint64) {
		binary.LittleEndian.PutUint64(n[:], v)
		_, _ = h.Write(n[:]) // a hash never fails
	}
	_, _ = h.Write(prev.chain[:])
	number(epoch)
	number(first)
	number(last)
	for _, op := range ops {
		number(uint64(len(op.Key)))
		_, _ = h.Write(op.Key)
		if op.Delete {
			number(^uint64(0))
			continue
		}
		number(uint64(len(op.Val)))
		_, _ = h.Write(op.Val)
	}
	return point{epoch: epoch, seq: last, chain: h.Sum128().Bytes()}
}

func appendPoint(b []byte, p point) []byte {
	b = binary.AppendUvarint(b, p.epoch)
	b = binary.AppendUvarint(b, p.seq)
	return append(b, p.chain[:]...)
}

// seal appends a checksum of 64 bits; cells and entries are read rarely.
func seal(b []byte) []byte { return binary.LittleEndian.AppendUint64(b, xxh3.Hash(b)) }

// unseal checks the checksum and the version and returns what is between.
func unseal(raw []byte, what string) (*reader, error) {
	n := len(raw) - 8
	if n < 1 || xxh3.Hash(raw[:n]) != binary.LittleEndian.Uint64(raw[n:]) {
		return nil, fmt.Errorf("%s of %d bytes does not verify: %w", what, len(raw), storage.ErrCorrupt)
	}
	if raw[0] != formatVersion {
		return nil, fmt.Errorf("%s has format version %d, known is %d: %w", what, raw[0], formatVersion, storage.ErrCorrupt)
	}
	return &reader{rest: raw[1:n]}, nil
}

// reader takes fields off a byte string and remembers whether one was cut
// short.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.rest) {
		r.bad, r.rest = true, nil
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.bad, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) bytes() []byte {
	n := r.uvarint()
	if n > uint64(len(r.rest)) {
		r.bad, r.rest = true, nil
		return nil
	}
	return r.take(int(n))
}

func (r *reader) point() point {
	p := point{epoch: r.uvarint(), seq: r.uvarint()}
	copy(p.chain[:], r.take(len(p.chain)))
	return p
}

func (r *reader) end(what string) error {
	if r.bad || len(r.rest) != 0 {
		return fmt.Errorf("%s is cut short or too long: %w", what, storage.ErrCorrupt)
	}
	return nil
}
