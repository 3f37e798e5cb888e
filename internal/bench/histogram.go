package bench

import (
	"math/bits"
	"time"
)

const (
	histogramBits = 6  // of precision: a bucket is at most 1/64 of its value wide
	histogramTop  = 40 // durations from 2^40 ns, 18 minutes, on share the last bucket
	histogramLen  = (histogramTop - histogramBits + 1) << histogramBits
)

// histogram counts durations in buckets whose width grows with the value. It
// belongs to one goroutine; merge adds them up.
type histogram struct {
	buckets [histogramLen]uint32
	total   uint64
	most    time.Duration
}

func (h *histogram) add(d time.Duration) {
	d = max(d, 0)
	h.buckets[bucketOf(uint64(d))]++
	h.total++
	h.most = max(h.most, d)
}

func bucketOf(ns uint64) int {
	if ns < 1<<histogramBits {
		return int(ns)
	}
	shift := bits.Len64(ns) - 1 - histogramBits
	return min(shift<<histogramBits+int(ns>>shift), histogramLen-1)
}

// bucketValue is the middle of a bucket.
func bucketValue(i int) time.Duration {
	if i < 2<<histogramBits {
		return time.Duration(i)
	}
	shift := i>>histogramBits - 1
	low := uint64(i-shift<<histogramBits) << shift
	return time.Duration(low + 1<<shift/2)
}

func (h *histogram) merge(other *histogram) {
	for i, n := range other.buckets {
		h.buckets[i] += n
	}
	h.total += other.total
	h.most = max(h.most, other.most)
}

// quantile is the duration that a share of all durations does not exceed.
func (h *histogram) quantile(share float64) time.Duration {
	rank, seen := uint64(share*float64(h.total)), uint64(0)
	for i, n := range h.buckets {
		if seen += uint64(n); seen > rank || (seen == h.total && n > 0) {
			return min(bucketValue(i), h.most)
		}
	}
	return h.most
}
