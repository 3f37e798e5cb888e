package hybrid

import (
	"math"
	"testing"
)

func TestDecide(t *testing.T) {
	const from = 4 << 20
	base := facts{length: from, inline: true, direct: true, from: from}
	for _, c := range []struct {
		name string
		set  func(f *facts)
		cold bool
		want step
	}{
		{"at the threshold", func(*facts) {}, false, stepDirect},
		{"below it", func(f *facts) { f.length-- }, false, stepInline},
		{"above it", func(f *facts) { f.length++ }, false, stepDirect},
		{"nothing, with a threshold of nothing", func(f *facts) { f.length, f.from = 0, 0 }, false, stepBase},
		{"one byte, with a threshold of nothing", func(f *facts) { f.length, f.from = 1, 0 }, false, stepDirect},
		{"direct on a cold stream", func(*facts) {}, true, stepDirect},
		{"direct off", func(f *facts) { f.direct = false }, false, stepInline},
		{"direct off, cold", func(f *facts) { f.direct = false }, true, stepRing},
		{"inline off", func(f *facts) { f.direct, f.inline = false, false }, false, stepRing},
		{"no O_DIRECT here", func(f *facts) { f.state = directNone }, false, stepInline},
		{"O_DIRECT through rings is broken", func(f *facts) { f.state = directBroken }, false, stepBase},
		{"broken, and small", func(f *facts) { f.state, f.length = directBroken, 1 }, false, stepInline},
		{"being written", func(f *facts) { f.written = true }, false, stepInline},
		{"a negative offset", func(f *facts) { f.off = -1 }, false, stepBase},
		{"an end beyond all files", func(f *facts) { f.off = math.MaxInt64 - from + 1 }, false, stepBase},
		{"the last end", func(f *facts) { f.off = math.MaxInt64 - from }, false, stepDirect},
		{"cold, below the threshold", func(f *facts) { f.length, f.cold = from-1, true }, true, stepCold},
		{"cold, direct off", func(f *facts) { f.direct, f.cold = false, true }, true, stepCold},
		{"cold, at the threshold", func(f *facts) { f.cold = true }, true, stepDirect},
		{"cold, the smallest", func(f *facts) { f.length, f.cold = coldFrom, true }, true, stepCold},
		{"cold, too small", func(f *facts) { f.length, f.cold = coldFrom-1, true }, true, stepRing},
		{"cold, switched off", func(f *facts) { f.length = coldFrom }, true, stepRing},
		{"cold, being written", func(f *facts) { f.length, f.cold, f.written = coldFrom, true, true }, true, stepRing},
		{"cold, no O_DIRECT here", func(f *facts) { f.length, f.cold, f.state = coldFrom, true, directNone }, true, stepRing},
		{"cold, O_DIRECT is broken", func(f *facts) { f.length, f.cold, f.state = coldFrom, true, directBroken }, true, stepRing},
		{"cold, inline off", func(f *facts) { f.length, f.cold, f.inline = coldFrom, true, false }, true, stepRing},
		{"not known to be cold", func(f *facts) { f.length, f.cold = coldFrom, true }, false, stepInline},
		{"an empty buffer among others", func(f *facts) { f.empty = true }, false, stepBase},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := base
			c.set(&f)
			if got := decide(f, func() bool { return c.cold }); got != c.want {
				t.Errorf("step %d, want %d", got, c.want)
			}
		})
	}
	// A predictor counts its guesses: it must not be asked about other reads.
	decide(base, func() bool { t.Error("asked about a direct read"); return false })
}

func TestBatch(t *testing.T) {
	r := newRig(t, rigOptions{start: fakes(nil), idle: true})
	for _, c := range []struct{ count, size, most, wantCount int }{
		{1, 10, 1, 1}, {5, 10, 3, 3}, {3, 10, 5, 3}, {40, 1 << 20, 128, 16}, {1, 2 << 20, 128, 1}, {9, 2 << 20, 128, 8},
	} {
		bufs, free := r.bufs(t, c.count, c.size)
		if k, n := batch(bufs, c.most); k != c.wantCount || n != c.wantCount*c.size {
			t.Errorf("%+v: %d buffers, %d bytes", c, k, n)
		}
		rest, start := unfilled(bufs, c.size*c.count/2)
		if start > c.size*c.count/2 || start+c.size <= c.size*c.count/2 || len(rest)*c.size+start != c.count*c.size {
			t.Errorf("%+v: %d are left from %d on", c, len(rest), start)
		}
		free()
	}
}
