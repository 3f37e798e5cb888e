package storage

import "sync/atomic"

// Predictor guesses whether the page cache holds what is read next, from what
// it held before. An attempt to read without waiting costs nothing where it
// succeeds, and where it fails takes away what a better engine gains on a
// cold stream: so cold streams should not make it, but for a few probes.
//
// The zero value is ready, and expects the cache to hold everything. A
// Predictor belongs to one open file. Methods may be called concurrently and
// take no lock; while all attempts succeed, none of them writes to memory.
type Predictor struct {
	// Wider answers as long as nothing was observed here, and observes what is
	// observed here: one Predictor for all files of a disk, so that the first
	// reads of a file profit from what is known. It may be nil, and must not be
	// changed after the first use.
	Wider *Predictor

	state atomic.Uint64 // a forecast
}

const (
	rateFull = 1<<16 - 1
	// rateLow is the share of hits below which attempts are left out: a hit
	// saves about ten times what a miss costs.
	rateLow = rateFull / 8
	// gapMax is the most reads that are left out between two probes, about
	// three in a hundred.
	gapMax = 32
	// A file's own rate forgets all but the last dozen of attempts, a disk's
	// all but the last hundred.
	ownShift, widerShift = 2, 5
)

// forecast is the state of a Predictor, in one word.
type forecast struct {
	rate uint16 // of hits, in parts of rateFull
	gap  uint8  // reads to leave out after the next failed probe
	left uint8  // reads to leave out before the next probe
	seen bool   // something was observed
}

func unpack(s uint64) forecast {
	return forecast{rate: uint16(s), gap: uint8(s >> 16), left: uint8(s >> 24), seen: s>>32 != 0}
}

func (c forecast) pack() uint64 {
	s := uint64(c.rate) | uint64(c.gap)<<16 | uint64(c.left)<<24
	if c.seen {
		s |= 1 << 32
	}
	return s
}

// Skip reports whether the attempt should be left out. If not, the caller makes
// it and reports to Observe.
func (p *Predictor) Skip() bool {
	for {
		old := p.state.Load()
		c := unpack(old)
		switch {
		case !c.seen && p.Wider != nil:
			return p.Wider.Skip()
		case !c.seen || c.rate >= rateLow:
			return false
		}
		skip := c.left > 0
		if skip {
			c.left--
		} else {
			c.left = c.gap // one probe at a time
		}
		if p.state.CompareAndSwap(old, c.pack()) {
			return skip
		}
	}
}

// Observe reports an attempt: whether it read all that was asked for.
func (p *Predictor) Observe(hit bool) {
	prior := uint16(rateFull)
	if p.Wider != nil {
		if w := unpack(p.Wider.state.Load()); w.seen {
			prior = w.rate
		}
		p.Wider.observe(hit, widerShift, rateFull)
	}
	p.observe(hit, ownShift, prior)
}

func (p *Predictor) observe(hit bool, shift uint, prior uint16) {
	for {
		old := p.state.Load()
		c := unpack(old)
		if !c.seen {
			// The first observation says more than what was expected.
			c.rate, c.seen, shift = prior, true, 1
		}
		if hit {
			// Rounded up, so that it reaches the top and stays there.
			c.rate += uint16((uint32(rateFull-c.rate) + 1<<shift - 1) >> shift)
			c.gap, c.left = 1, 0
		} else {
			c.rate -= c.rate >> shift
			if c.rate < rateLow {
				c.left = max(c.gap, 1)
				c.gap = min(2*c.left, gapMax)
			}
		}
		if s := c.pack(); s == old || p.state.CompareAndSwap(old, s) {
			return
		}
	}
}
