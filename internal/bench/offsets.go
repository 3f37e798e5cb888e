package bench

// plan says where each read of a load goes: a pure function of the seed and
// the number of the read, so that all strategies read the same ranges in the
// same order.
type plan struct {
	load  Load
	size  int64  // of the file
	slots uint64 // page-aligned offsets a warm read may begin at
	hot   int64  // mixed: bytes at the front that are in the page cache
	cold  permutation
	ops   int64
}

// hotShare of a file, one in so many bytes, is what the nine of ten reads of
// Mixed go to.
const hotShare = 4

func newPlan(load Load, size int64) plan {
	p := plan{load: load, size: size, ops: load.Ops}
	span := size
	if load.Access == Mixed {
		p.hot = max(size/hotShare, int64(load.ReadSize)) / pageBytes * pageBytes
		span = p.hot
	}
	p.slots = 1
	if span > int64(load.ReadSize) {
		p.slots += uint64(span-int64(load.ReadSize)) / pageBytes
	}
	chunks := (size - p.hot) / p.stride()
	if last := p.hot + chunks*p.stride(); last+int64(load.ReadSize) <= size {
		chunks++ // a last chunk whose padding is past the end
	}
	p.cold = newPermutation(uint64(chunks), load.Seed)
	switch load.Access {
	case Cold:
		p.ops = min(p.ops, chunks)
	case Mixed:
		p.ops = min(p.ops, 10*chunks)
	}
	return p
}

// stride is the distance of cold reads.
func (p plan) stride() int64 { return (int64(p.load.ReadSize) + pageBytes - 1) / pageBytes * pageBytes }

// at is the offset of read i.
func (p plan) at(i int64) int64 {
	n := uint64(i)
	switch {
	case p.load.Access == Cold:
		return p.coldAt(n)
	case p.load.Access == Mixed && n%10 == mix(p.load.Seed^(n/10))%10:
		return p.coldAt(n / 10)
	}
	return int64(mix(p.load.Seed+n)%p.slots) * pageBytes
}

func (p plan) coldAt(n uint64) int64 { return p.hot + int64(p.cold.at(n))*p.stride() }

// mix is splitmix64's finalizer: a bijection in which every bit depends on
// every other.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// permutation shuffles 0 to n-1 without a table.
type permutation struct {
	n, seed uint64
	half    uint // bits of one half of the Feistel network
}

func newPermutation(n, seed uint64) permutation {
	p := permutation{n: n, seed: seed, half: 1}
	for n > 1<<(2*p.half) {
		p.half++
	}
	return p
}

// at is where i goes.
func (p permutation) at(i uint64) uint64 {
	if p.n == 0 {
		return 0
	}
	mask := uint64(1)<<p.half - 1
	for i %= p.n; ; {
		left, right := i>>p.half, i&mask
		for round := range uint64(4) {
			left, right = right, (left^mix(right^p.seed^round<<56))&mask
		}
		if i = left<<p.half | right; i < p.n { // else walk on: the cycle returns
			return i
		}
	}
}
