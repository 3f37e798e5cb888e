package hybrid

import "testing"

// TestReclaimAsReference: a large read leaves nothing in the page cache on any
// tier if it was told so, and what it brought there if not.
func TestReclaimAsReference(t *testing.T) {
	const size = 2 << 20
	content := pattern(size)
	for _, v := range variants() {
		if v.name == "direct" || v.name == "direct, legacy buffers" {
			continue // there is nothing to reclaim
		}
		for _, on := range []bool{true, false} {
			name := v.name + ", kept"
			if on {
				name = v.name + ", reclaimed"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				o := v.options(t)
				set := o.set
				o.set = func(k Knobs) {
					set(k)
					k.Reclaim.Store(on)
					k.ReclaimFrom.Store(size)
				}
				r := newRig(t, o)
				if on {
					r.needDrops(t)
				}
				r.put(t, "a", content)
				r.put(t, "small", content)
				f, ref := r.open(t, "a"), openOn(t, r.std, "a")
				small := r.open(t, "small")
				for range 2 { // cold, then as it was left
					r.want(t, f, content, 0, size)
					r.settle(t)
					check(t, resident(t, r.dir, "a"), on)
				}
				r.want(t, small, content, 0, size-1)
				check(t, resident(t, r.dir, "small"), false)
				if _, n, err := r.read(t.Context(), ref, 0, size, 1<<20); n != size || err != nil {
					t.Fatal(n, err)
				}
				r.settle(t)
				check(t, resident(t, r.dir, "a"), on)
			})
		}
	}
}

func check(t *testing.T, share float64, reclaimed bool) {
	t.Helper()
	if reclaimed && share > 0.1 || !reclaimed && share < 0.5 {
		t.Errorf("%.0f%% of the file are in the page cache (reclaimed: %v)", 100*share, reclaimed)
	}
}

// TestDirectLeavesNoPages: what goes past the page cache does not fill it.
func TestDirectLeavesNoPages(t *testing.T) {
	needRings(t)
	const size = 2 << 20
	r := newRig(t, rigOptions{set: func(k Knobs) {
		k.Direct.Store(true)
		k.DirectThreshold.Store(size)
	}})
	r.needDrops(t)
	content := pattern(size)
	r.put(t, "a", content)
	f := r.open(t, "a")
	if _, _, err := f.Direct(); err != nil {
		t.Skipf("SKIP %s: %v", t.Name(), err)
	}
	evict(t, r.dir, "a")
	r.want(t, f, content, 0, size)
	if share := resident(t, r.dir, "a"); share > 0.1 {
		t.Errorf("%.0f%% of the file are in the page cache", 100*share)
	}
	if s := r.Stats().Reads; s.RingDirect != 1 || s.Inline+s.Pool+s.Ring+s.Direct != 0 {
		t.Errorf("%+v", s)
	}
	r.want(t, f, content, 0, size-1)
	r.want(t, f, content, 1, size-1)
	if s := r.Stats().Reads; s.RingDirect != 1 || s.Inline+s.Ring != 2 {
		t.Errorf("below the threshold: %+v", s)
	}
}
