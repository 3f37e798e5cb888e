package quorumlog

import (
	"errors"
	"testing"

	"ringfence/erasure/meta"
)

// TestWitness has two of four disks come back with an old image while the only
// good copy of the last commit is away. The fourth disk missed that commit, but
// it has seen the two acknowledge more than they now hold.
func TestWitness(t *testing.T) {
	for _, tt := range []struct {
		name  string
		rules rules
		lost  bool
	}{
		{"", rules{}, false},
		{"without the rule", rules{noWitness: true}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newQuietSim(t, 4, tt.rules)
			put := func(val string) {
				t.Helper()
				if _, err := s.engine.Commit(t.Context(), meta.Group{}, nil, []meta.Op{{Key: []byte("k"), Val: []byte(val)}}); err != nil {
					t.Fatal(err)
				}
			}
			bays := s.world.bays
			put("1")
			old1, old2 := bays[1].sim.Snapshot(), bays[2].sim.Snapshot()
			put("2")
			put("3")
			bays[0].sim.Vanish()
			put("4")
			bays[1].sim.Restore(old1)
			bays[2].sim.Restore(old2)
			bays[3].sim.Vanish()
			bays[0].sim.Return()
			for _, b := range bays[:3] {
				if err := b.open(); err != nil {
					t.Fatal(err)
				}
			}
			s.restart()
			item, err := s.engine.Get(t.Context(), []byte("k"))
			if lost := err == nil && string(item.Val) != "4"; lost != tt.lost {
				t.Fatalf("%q, %v; lost %v, want %v", item.Val, err, lost, tt.lost)
			}
			if !tt.lost && !errors.Is(err, meta.ErrUnavailable) {
				t.Fatalf("%v, want ErrUnavailable", err)
			}
			// With the fourth disk back nothing is missing.
			bays[3].sim.Return()
			if err := bays[3].open(); err != nil {
				t.Fatal(err)
			}
			if tt.lost {
				return
			}
			s.restart()
			if item, err = s.engine.Get(t.Context(), []byte("k")); err != nil || string(item.Val) != "4" {
				t.Fatalf("%q, %v", item.Val, err)
			}
		})
	}
}
