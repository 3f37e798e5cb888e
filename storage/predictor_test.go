package storage

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
)

// stream makes reads of which each hits with probability share, and counts the
// attempts and the hits that no attempt was made for.
func stream(p *Predictor, rng *rand.Rand, reads int, share float64) (attempts, missed int) {
	for range reads {
		hit := rng.Float64() < share
		switch {
		case !p.Skip():
			attempts++
			p.Observe(hit)
		case hit:
			missed++
		}
	}
	return attempts, missed
}

func TestPredictor(t *testing.T) {
	const reads = 10_000
	for _, c := range []struct {
		name      string
		share     float64
		low, high int // attempts
	}{
		{"hot", 1, reads, reads},
		{"nine of ten hit", 0.9, reads, reads},
		{"every other hits", 0.5, reads * 85 / 100, reads},
		{"cold", 0, reads * 2 / 100, reads * 4 / 100},
		{"one in a thousand hits", 0.001, reads * 2 / 100, reads * 7 / 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			attempts, missed := stream(new(Predictor), rand.New(rand.NewPCG(1, 2)), reads, c.share)
			t.Logf("%d attempts, %d hits left out", attempts, missed)
			if attempts < c.low || attempts > c.high {
				t.Errorf("%d attempts, want %d to %d", attempts, c.low, c.high)
			}
		})
	}
}

// TestPredictorTurns: a stream that turns cold is known within a dozen reads,
// and one that turns hot within a gap and a probe.
func TestPredictorTurns(t *testing.T) {
	var p Predictor
	rng := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		stream(&p, rng, 100, 1)
		n := 0
		for ; !p.Skip(); n++ {
			p.Observe(false)
		}
		if n > 12 {
			t.Errorf("%d attempts on a cold stream before the first was left out", n)
		}
		stream(&p, rng, 1000, 0)
		n = 0
		for ; p.Skip(); n++ {
		}
		if n > gapMax {
			t.Errorf("%d reads between two probes", n)
		}
		p.Observe(true)
		if attempts, _ := stream(&p, rng, 100, 1); attempts != 100 {
			t.Errorf("%d of 100 attempts on a hot stream", attempts)
		}
	}
}

// TestPredictorWider: a new file begins with what the disk knows, and its own
// first attempt outweighs it.
func TestPredictorWider(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	var disk Predictor
	fresh := func() *Predictor { return &Predictor{Wider: &disk} }
	for range 100 { // cold files
		stream(fresh(), rng, 50, 0)
	}
	attempts := 0
	for range 1000 {
		if f := fresh(); !f.Skip() {
			attempts++
			f.Observe(false)
		}
	}
	if attempts == 0 || attempts > 60 {
		t.Errorf("%d of 1000 first reads attempted on a cold disk", attempts)
	}
	hot := fresh()
	for hot.Skip() {
	}
	hot.Observe(true)
	if attempts, _ := stream(hot, rng, 100, 1); attempts != 100 {
		t.Errorf("%d of 100 attempts on a hot file of a cold disk", attempts)
	}
	for range 20 {
		stream(fresh(), rng, 2000, 1) // the disk warms up
	}
	cold := fresh()
	if cold.Skip() {
		t.Error("the first read of a file is left out on a hot disk")
	}
	if attempts, _ := stream(cold, rng, 1000, 0); attempts > 60 {
		t.Errorf("%d of 1000 attempts on a cold file of a hot disk", attempts)
	}
}

// TestPredictorConcurrently: the rate of probes holds for all callers together.
func TestPredictorConcurrently(t *testing.T) {
	var disk Predictor
	p := Predictor{Wider: &disk}
	const callers, reads = 8, 5000
	var attempts atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range reads {
				if !p.Skip() {
					attempts.Add(1)
					p.Observe(false)
				}
			}
		})
	}
	wg.Wait()
	if n := attempts.Load(); n < callers*reads/gapMax/2 || n > callers*reads/10 {
		t.Errorf("%d attempts in %d cold reads", n, callers*reads)
	}
}

func TestForecastPacks(t *testing.T) {
	for _, c := range []forecast{{}, {rate: rateFull, gap: 1, left: 2, seen: true}, {rate: 1, gap: gapMax, left: 255, seen: true}} {
		if got := unpack(c.pack()); got != c {
			t.Errorf("%+v becomes %+v", c, got)
		}
	}
}

func BenchmarkPredictorHot(b *testing.B) {
	p := Predictor{Wider: new(Predictor)}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if !p.Skip() {
				p.Observe(true)
			}
		}
	})
}
