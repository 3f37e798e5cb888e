package erasure

import (
	"math/bits"
	"testing"
)

// Every state of a stripe of 4+2: what plan chooses is allowed, sufficient and
// no more than needed, and when it chooses nothing there is a reason.
func TestPlanEveryState(t *testing.T) {
	const k, n, states = 4, 6, 5 // a shard is free, had, pending, late or bad
	total := 1
	for range n {
		total *= states
	}
	for code := range total {
		var m marks
		for i, c := 0, code; i < n; i, c = i+1, c/states {
			bit := uint16(1) << i
			switch c % states {
			case 1:
				m.have |= bit
			case 2:
				m.pend |= bit
			case 3:
				m.pend |= bit
				m.late |= bit
			case 4:
				m.bad |= bit
			}
		}
		for want := uint16(1); want < 1<<k; want++ {
			for _, avoid := range []uint16{0, 1, 0b11, 0b100100, 0b111111, 0b010101} {
				m.want = want
				checkPlan(t, m, avoid, k, n)
			}
		}
	}
}

func checkPlan(t *testing.T, m marks, avoid uint16, k, n int) {
	t.Helper()
	pick := m.plan(k, n, avoid)
	free := uint16(1<<n-1) &^ (m.have | m.pend | m.bad)
	live := m.have | m.pend&^m.late
	if pick&^free != 0 {
		t.Fatalf("%+v, avoid %b: plan %b takes what is not free", m, avoid, pick)
	}
	enough := func(got uint16) bool { return marks{want: m.want, have: got}.done(k) }
	switch {
	case enough(live):
		if pick != 0 {
			t.Fatalf("%+v: plan %b reads more than is needed", m, pick)
		}
	case enough(live | free):
		if !enough(live | pick) {
			t.Fatalf("%+v, avoid %b: plan %b is not enough", m, avoid, pick)
		}
		if bits.OnesCount16(live|pick) > k && pick&^m.want != 0 {
			t.Fatalf("%+v, avoid %b: plan %b reads more than k", m, avoid, pick)
		}
		if spare := free &^ avoid; pick&avoid != 0 && bits.OnesCount16(live|spare) >= k {
			t.Fatalf("%+v, avoid %b: plan %b reads what it could avoid", m, avoid, pick)
		}
	}
	all := m
	all.have |= m.pend | free
	if m.hopeless(k) && pick == 0 && all.done(k) && free != 0 {
		t.Fatalf("%+v, avoid %b: hopeless, but %b is free", m, avoid, free)
	}
	if !m.hopeless(k) && pick == 0 && !m.done(k) && m.pend == 0 {
		t.Fatalf("%+v, avoid %b: nothing to wait for and nothing planned", m, avoid)
	}
}

// A healthy range reads what it delivers and nothing else.
func TestAim(t *testing.T) {
	b := blob{Size: 10<<20 + 5, Layout: Layout{K: 4, M: 2, BlockSize: 256 << 10, Slots: []uint8{0, 1, 2, 3, 4, 5}}}
	for _, tc := range []struct {
		first, off, end int64
		n               int
		want            uint16
		lo, hi, length  int
	}{
		{0, 0, b.Size, 1, 0b1111, 0, 1 << 20, 256 << 10},
		{0, 0, 1, 1, 0b0001, 0, 1, 256 << 10},
		{1, 1<<20 + 300<<10, 1<<20 + 600<<10, 1, 0b0110, 300 << 10, 600 << 10, 256 << 10},
		{10, 0, b.Size, 1, 0b0111, 0, 5, 2},
		{10, b.Size - 1, b.Size, 1, 0b0100, 4, 5, 2},
	} {
		var w window
		w.aim(&b, tc.first, tc.off, tc.end)
		st := w.stripes[0]
		if w.n != tc.n || st.want != tc.want || st.lo != tc.lo || st.hi != tc.hi || st.length != tc.length {
			t.Errorf("%+v: %d stripes, want %b, bytes %d to %d in blocks of %d", tc, w.n, st.want, st.lo, st.hi, st.length)
		}
	}
}
