package bench

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"ringfence/storage/uring"
)

// haveRings says whether the kernel lets us have io_uring.
func haveRings(t *testing.T) bool {
	t.Helper()
	d, err := uring.Start(t.Context(), uring.Options{Dir: t.TempDir()})
	var probe *uring.ProbeError
	switch {
	case err == nil:
		if _, err := d.Close(t.Context()); err != nil {
			t.Error(err)
		}
		return true
	case !errors.As(err, &probe) || !probe.Restricted:
		t.Fatalf("io_uring is broken: %v", err)
	case slices.Contains(strings.Split(os.Getenv("RINGFENCE_TEST_REQUIRE"), ","), "uring"):
		t.Fatalf("io_uring is required: %v", err)
	}
	return false
}

func needRings(t *testing.T) {
	t.Helper()
	if !haveRings(t) {
		t.Skipf("SKIP %s: io_uring is not allowed here", t.Name())
	}
}

func ringStrategies() []Engine {
	var list []Engine
	for _, s := range []Strategy{UringOpen, UringCached, Hybrid} {
		for _, mode := range []string{"non-fixed", "legacy", "dynamic", "static"} {
			list = append(list, Engine{Strategy: s, Shards: 2, Mode: mode, Inline: true})
		}
	}
	return append(list, Engine{Strategy: Hybrid, Inline: false})
}

func TestRingsVerify(t *testing.T) {
	needRings(t)
	f := benchFile(t, 256<<10+4321)
	for _, e := range ringStrategies() {
		for _, direct := range []bool{false, true} {
			e.Direct = direct
			leg := Leg{File: f, Load: Load{ReadSize: 64 << 10, Concurrency: 3, Ops: 10}, Engine: e, Verify: true}
			if _, err := Run(t.Context(), leg); err != nil {
				t.Errorf("%s: %v", e.Label(), err)
			}
		}
	}
	flip(t, f.Path, 177_777)
	for _, e := range ringStrategies() {
		leg := Leg{File: f, Load: Load{ReadSize: 64 << 10, Concurrency: 3, Ops: 10}, Engine: e, Verify: true}
		if _, err := Run(t.Context(), leg); err == nil || !strings.Contains(err.Error(), "byte 177777 ") {
			t.Errorf("%s: %v", e.Label(), err)
		}
	}
}

func TestRingsRows(t *testing.T) {
	needRings(t)
	f := benchFile(t, 8<<20)
	for _, e := range []Engine{{Strategy: UringOpen}, {Strategy: UringCached, Shards: 2}, {Strategy: Hybrid, Inline: true}, {Strategy: Hybrid}} {
		for _, access := range Accesses() {
			t.Run(string(access)+"_"+strings.ReplaceAll(e.Label(), "/", "_"), func(t *testing.T) {
				checkRow(t, f, Load{Access: access, ReadSize: 64 << 10, Concurrency: 4, Ops: 500, Seed: 1}, e)
			})
		}
	}
}

// TestRingsCounts: what a leg says about rings is what they did.
func TestRingsCounts(t *testing.T) {
	needRings(t)
	f := benchFile(t, 4<<20)
	load := Load{Access: Warm, ReadSize: 4096, Concurrency: 2, Depth: 8, Ops: 400}
	for _, c := range []struct {
		e     Engine
		opens int64
		rings bool
	}{
		{Engine{Strategy: UringCached}, 0, true},
		{Engine{Strategy: UringOpen}, 400, true},
		{Engine{Strategy: Hybrid, Inline: true}, 0, false},
		{Engine{Strategy: Hybrid, Inline: false}, 0, true},
	} {
		r, err := Run(t.Context(), Leg{File: f, Load: load, Engine: c.e})
		if err != nil {
			t.Fatalf("%s: %v", c.e.Label(), err)
		}
		n := r.Counts
		if n.Opens != c.opens || n.Fallbacks != 0 || (n.Enters >= 400/16) != c.rings {
			t.Errorf("%s: %+v", c.e.Label(), n)
		}
		if c.e.Inline && n.InlineHits != 400 {
			t.Errorf("%s: %d inline hits of 400", c.e.Label(), n.InlineHits)
		}
	}
	r, err := Run(t.Context(), Leg{File: f, Load: load, Engine: Engine{Strategy: UringCached, Mode: "static"}})
	if err != nil || r.Counts.Registered == 0 {
		t.Errorf("static: %d registered bytes: %v", r.Counts.Registered, err)
	}
}
