package hybrid

import (
	"sync/atomic"

	"ringfence/storage"
)

const (
	// regionBytes is the least that has a warmth of its own. Shards of most
	// objects are smaller, and read as a whole or not at all.
	regionBytes = 8 << 20
	// regionsMax bounds the regions of a file: those of a large one are larger.
	regionsMax = 64
)

// warmth is what is known of a file's place in the page cache: how likely its
// regions are there, and how much of it cold reads were given so far.
type warmth struct {
	first   storage.Predictor // of the first region
	asked   atomic.Bool       // an attempt was made that first advised against
	others  atomic.Pointer[regions]
	skirted atomic.Int64 // bytes that cold reads were given past the page cache
}

// regions are those of a file that has more than one, by offset.
type regions struct {
	bytes int64 // of each
	size  int64 // of the file
	list  []storage.Predictor
}

// at is the predictor for reads at off.
func (w *warmth) at(f *file, off int64) *storage.Predictor {
	if off < regionBytes {
		return &w.first
	}
	r := w.measure(f)
	if r == nil || len(r.list) == 0 {
		return &w.first
	}
	return &r.list[min(off/r.bytes, int64(len(r.list)-1))]
}

// measure asks for the size of the file when that is first needed. It is nil if
// nobody knows it: then the read will say why.
func (w *warmth) measure(f *file) *regions {
	if r := w.others.Load(); r != nil {
		return r
	}
	size, err := f.RawFile.Size()
	if err != nil {
		return nil
	}
	r := &regions{size: size, bytes: max(regionBytes, (size+regionsMax-1)/regionsMax)}
	if size > regionBytes {
		r.list = make([]storage.Predictor, (size+r.bytes-1)/r.bytes)
		for i := range r.list {
			r.list[i].Wider = w.first.Wider
		}
	}
	if !w.others.CompareAndSwap(nil, r) {
		r = w.others.Load()
	}
	return r
}

// skips reports whether an inline attempt would be wasted. The first read of a
// file makes one: the disk's other files may be cold and this one just written.
func (w *warmth) skips(f *file, off int64) bool {
	return w.at(f, off).Skip() && w.asked.Swap(true)
}

// firstPass reports whether a cold read of n bytes may go past the page cache:
// whether the file was not read through once in this way. Ranges are not told
// apart; by then, either there was each, or some are read again and again and
// are worth to be cached.
func (w *warmth) firstPass(f *file, n int) bool {
	r := w.measure(f)
	return r != nil && w.skirted.Add(int64(n)) <= r.size
}
