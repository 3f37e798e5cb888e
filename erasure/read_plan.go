package erasure

import (
	"math/bits"

	"ringfence/storage"
)

// Sizes of windows: what one disk is asked for in one go, and how much of a
// blob is in memory while it is read. Two windows are: one on its way to the
// client, the next on its way from the disks.
const (
	windowMax   = 4 // stripes
	windowBytes = 1 << 20
)

// windowStripes is how many stripes a window has.
func windowStripes(l Layout) int {
	return min(max(windowBytes/l.stripeSize(), 1), windowMax)
}

// marks say for each shard of one stripe, by bit, where its block stands.
type marks struct {
	want uint16 // data blocks that the reader needs
	have uint16 // read and verified
	pend uint16 // being read
	late uint16 // of pend: do not count on it
	bad  uint16 // failed; not to be tried again
}

// done reports whether the wanted blocks are there or can be computed.
func (m marks) done(k int) bool {
	return m.want&^m.have == 0 || bits.OnesCount16(m.have) >= k
}

// hopeless reports whether what is there and under way will not do.
func (m marks) hopeless(k int) bool {
	hope := m.have | m.pend
	return m.want&^hope != 0 && bits.OnesCount16(hope) < k
}

// plan chooses the blocks to read now, of k data shards and n in all: what is
// wanted, if that can be had straight from disks that are not to be avoided,
// and otherwise enough of any for reconstruction, avoided ones last.
func (m marks) plan(k, n int, avoid uint16) uint16 {
	live := m.have | m.pend&^m.late
	need := m.want &^ live
	if need == 0 || bits.OnesCount16(live) >= k {
		return 0
	}
	free := uint16(1)<<n - 1
	free &^= m.have | m.pend | m.bad
	if need&^(free&^avoid) == 0 {
		return need
	}
	lack := k - bits.OnesCount16(live)
	var pick uint16
	for _, from := range [...]uint16{free & need &^ avoid, free &^ avoid, free & need, free} {
		for from &^= pick; from != 0 && lack > 0; from &= from - 1 {
			pick |= from & -from
			lack--
		}
	}
	return pick
}

// sought is one stripe of a window.
type sought struct {
	marks
	length int // of its blocks, in bytes
	lo, hi int // bytes of the stripe to deliver
	blocks [MaxSetSize]*storage.Buf
}

// window is a few consecutive stripes that are read together. It belongs to
// the goroutine that reads the blob.
type window struct {
	first   int64 // stripe number
	n       int
	stripes [windowMax]sought
	fetches []*fetch
}

// aim points the window at the stripes from first on that off <= x < end needs.
func (w *window) aim(b *blob, first, off, end int64) {
	l := b.Layout
	last := (end - 1) / int64(l.stripeSize())
	w.first = first
	w.n = int(min(int64(windowStripes(l)), last-first+1))
	for i := range w.n {
		s := first + int64(i)
		st := &w.stripes[i]
		*st = sought{length: l.blockLen(l.stripeLen(b.Size, s))}
		var from, to int
		st.lo, st.hi, from, to = l.span(b.Size, off, end, s)
		st.want = uint16(1)<<(to+1) - uint16(1)<<from
	}
}

// done reports whether every stripe is.
func (w *window) done(k int) bool {
	for i := range w.n {
		if !w.stripes[i].done(k) {
			return false
		}
	}
	return true
}

// doneFor reports whether every stripe that f reads for is done.
func (w *window) doneFor(f *fetch, k int) bool {
	for i := range f.n {
		if !w.stripes[f.at+i].done(k) {
			return false
		}
	}
	return true
}
