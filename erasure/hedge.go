package erasure

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// When a read is late, and what is done to a disk that makes others wait.
const (
	hedgeMin   = 10 * time.Millisecond // nothing is late before
	hedgeMax   = time.Second           // everything is late after
	hedgeTimes = 3                     // of the disk's own 95th percentile

	lossesMax = 8 // lost reads in a row set a disk aside

	avoidMin = 2 * time.Second  // first avoidance of a disk
	avoidMax = time.Minute      // doubling up to this
	avoidTry = 10 * time.Second // how long one try after it keeps others off
)

// pace is what is known about the speed and the troubles of one disk. It may
// be used concurrently.
type pace struct {
	mu sync.Mutex
	// mu protects the fields below.
	counts [32]uint32 // of reads by the bit length of their microseconds
	total  uint32
	losses int       // late reads in a row that another disk made good
	until  time.Time // avoid the disk until then
	after  time.Duration
}

// observe learns from a good read that took d, and takes the disk back in when
// that was not long. Old reads fade: every 1,024 reads all counts are halved.
func (p *pace) observe(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.losses = 0
	if d < hedgeMax {
		p.after = 0
	}
	p.counts[min(bits.Len64(uint64(max(d.Microseconds(), 0))), len(p.counts)-1)]++
	p.total++
	if p.total < 1024 {
		return
	}
	p.total = 0
	for i := range p.counts {
		p.counts[i] /= 2
		p.total += p.counts[i]
	}
}

// lost counts a read that was given up since others were sooner, and reports
// whether it is time to set the disk aside. It takes several in a row, since a
// busy machine makes any disk late now and then. How long the read would have
// taken nobody knows, so it teaches nothing about percentiles: a disk that
// hangs must not raise its own limit.
func (p *pace) lost() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.losses++
	return p.losses >= lossesMax
}

// late is how long a read may take before another disk is asked too.
func (p *pace) late() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.total < 20 { // too little to speak of percentiles
		return 5 * hedgeMin
	}
	left := p.total / 20
	for b := len(p.counts) - 1; b >= 0; b-- {
		if p.counts[b] > left {
			upper := time.Duration(uint64(1)<<b) * time.Microsecond
			return min(max(hedgeTimes*upper, hedgeMin), hedgeMax)
		}
		left -= p.counts[b]
	}
	return hedgeMin
}

// avoid sets the disk aside from now on, longer every time, and reports whether
// it was not aside yet.
func (p *pace) avoid(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.losses = 0
	if p.after != 0 && now.Before(p.until) {
		return false
	}
	first := p.after == 0
	p.after = min(max(2*p.after, avoidMin), avoidMax)
	p.until = now.Add(p.after)
	return first
}

// avoided reports whether the disk is aside. When its time is over one caller
// is told no, and is the one to try it; the others wait for what comes of it.
func (p *pace) avoided(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.after == 0 {
		return false
	}
	if now.Before(p.until) {
		return true
	}
	p.until = now.Add(avoidTry)
	return false
}

// aside is avoided without the try, for a look from outside.
func (p *pace) aside(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.after != 0 && now.Before(p.until)
}

// pardon takes the disk back in after it did well.
func (p *pace) pardon() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.after = 0
}

// budget bounds extra reads to a twentieth of all reads, with some saved up for
// the moment when a disk turns bad, and some on credit for a gateway that had
// no time to save. The zero value is ready.
type budget struct{ spent atomic.Int64 } // in twentieths of a read; below 0: saved

const (
	budgetPart   = 20
	budgetSaved  = 100 * budgetPart
	budgetCredit = 50 * budgetPart
)

// earn counts n ordinary reads.
func (b *budget) earn(n int) {
	if b.spent.Add(int64(-n)) < -budgetSaved {
		b.spent.Store(-budgetSaved)
	}
}

// spend asks for n extra reads.
func (b *budget) spend(n int) bool {
	cost := int64(n) * budgetPart
	if b.spent.Add(cost) > budgetCredit {
		b.spent.Add(-cost)
		return false
	}
	return true
}
