package bench

import (
	"math"
	"testing"
	"time"
)

func TestPermutationIsOne(t *testing.T) {
	for _, n := range []uint64{1, 2, 3, 4, 5, 100, 1023, 1024, 1025} {
		for seed := range uint64(3) {
			p := newPermutation(n, seed)
			seen := make([]bool, n)
			for i := range n {
				at := p.at(i)
				if at >= n || seen[at] {
					t.Fatalf("n %d, seed %d: %d goes to %d, again or outside", n, seed, i, at)
				}
				seen[at] = true
			}
		}
	}
}

// TestColdReadsAreCold: no byte is read twice and all reads lie in the file.
func TestColdReadsAreCold(t *testing.T) {
	for _, c := range []struct {
		size int64
		read int
		ops  int64 // that the file has room for
	}{
		{8 << 20, 4096, 2048}, {8 << 20, 5000, 1024}, {8<<20 + 1, 4097, 1024}, {8<<20 - 1, 8192, 1023}, {10000, 1000, 3},
	} {
		p := newPlan(Load{Access: Cold, ReadSize: c.read, Ops: 1 << 20, Seed: 7}, c.size)
		if p.ops != c.ops {
			t.Errorf("%d by %d: %d reads, want %d", c.size, c.read, p.ops, c.ops)
		}
		seen := map[int64]bool{}
		for i := range p.ops {
			off := p.at(i)
			if off%pageBytes != 0 || off < 0 || off+int64(c.read) > c.size || seen[off/p.stride()] {
				t.Fatalf("%d by %d: read %d at %d", c.size, c.read, i, off)
			}
			seen[off/p.stride()] = true
		}
	}
}

func TestMixedReads(t *testing.T) {
	const size, read = 16 << 20, 16 << 10
	p := newPlan(Load{Access: Mixed, ReadSize: read, Ops: 5000, Seed: 3}, size)
	cold := map[int64]bool{}
	for i := range p.ops {
		off := p.at(i)
		switch {
		case off%pageBytes != 0 || off+read > size:
			t.Fatalf("read %d at %d", i, off)
		case off < p.hot:
			if off+read > p.hot {
				t.Fatalf("read %d at %d is half hot", i, off)
			}
		case cold[off]:
			t.Fatalf("offset %d was read before", off)
		default:
			cold[off] = true
		}
	}
	if len(cold)*10 != int(p.ops) {
		t.Errorf("%d of %d reads are cold, want a tenth", len(cold), p.ops)
	}
}

func TestWarmReads(t *testing.T) {
	const size, read = 1 << 20, 10_000
	p := newPlan(Load{Access: Warm, ReadSize: read, Ops: 20_000, Seed: 9}, size)
	seen := map[int64]bool{}
	for i := range p.ops {
		off := p.at(i)
		if off%pageBytes != 0 || off < 0 || off+read > size {
			t.Fatalf("read %d at %d", i, off)
		}
		seen[off] = true
	}
	if want := int(size-read)/pageBytes + 1; len(seen) != want {
		t.Errorf("%d offsets, want all %d", len(seen), want)
	}
	again := newPlan(Load{Access: Warm, ReadSize: read, Ops: 20_000, Seed: 9}, size)
	other := newPlan(Load{Access: Warm, ReadSize: read, Ops: 20_000, Seed: 10}, size)
	same := 0
	for i := range p.ops {
		if p.at(i) != again.at(i) {
			t.Fatal("the same seed gives other offsets")
		}
		if p.at(i) == other.at(i) {
			same++
		}
	}
	if same > int(p.ops)/10 {
		t.Errorf("%d of %d offsets do not depend on the seed", same, p.ops)
	}
}

func TestHistogramError(t *testing.T) {
	for ns := time.Duration(1); ns < 10*time.Minute; ns += ns/7 + 1 {
		var h histogram
		h.add(ns)
		h.most = math.MaxInt64 // or it would hide the bucket's error
		if got := h.quantile(0.5); math.Abs(float64(got-ns)) > 0.01*float64(ns) {
			t.Fatalf("%d ns is counted as %d", ns, got)
		}
	}
}

func TestHistogramQuantiles(t *testing.T) {
	var a, b histogram
	for i := range time.Duration(1000) {
		a.add((i + 1) * time.Microsecond)
		b.add((i + 1001) * time.Microsecond)
	}
	a.merge(&b)
	for _, c := range []struct {
		share float64
		want  time.Duration
	}{{0, time.Microsecond}, {0.5, time.Millisecond}, {0.99, 1980 * time.Microsecond}, {0.999, 1998 * time.Microsecond}, {1, 2 * time.Millisecond}} {
		if got := a.quantile(c.share); math.Abs(float64(got-c.want)) > 0.03*float64(c.want) {
			t.Errorf("quantile %v is %v, want %v", c.share, got, c.want)
		}
	}
	if a.total != 2000 || a.most != 2*time.Millisecond {
		t.Errorf("%d durations, the longest %v", a.total, a.most)
	}
	var empty, top histogram
	if got := empty.quantile(0.99); got != 0 {
		t.Errorf("quantile of nothing is %v", got)
	}
	top.add(24 * time.Hour)
	top.add(-time.Second)
	if top.most != 24*time.Hour || top.quantile(0) != 0 {
		t.Errorf("out of range: %v, %v", top.most, top.quantile(0))
	}
}
