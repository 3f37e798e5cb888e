package hybrid

import (
	"runtime"
	"testing"
	"time"

	"ringfence/internal/knob"
	"ringfence/storage/uring"
)

// TestKnobs is what the settings are called, what they start with, and what
// they make of odd texts.
func TestKnobs(t *testing.T) {
	k := NewKnobs()
	var set knob.Set
	if err := set.Add(k.All()...); err != nil {
		t.Fatal(err)
	}
	for name, def := range map[string]string{
		"io-uring-read-enable": "off", "io-uring-shards": "auto", "io-uring-entries": "128", "io-uring-buffer-mode": "non-fixed",
		"io-uring-inline": "on", "io-uring-shadow-share": "0", "io-uring-hung-after": "2s", "io-uring-reprobe": "1s",
		"o-direct-read-enable": "off", "o-direct-read-threshold": "4MiB",
		"page-cache-reclaim-enable": "off", "page-cache-reclaim-threshold": "4MiB",
	} {
		found, ok := set.Lookup(name)
		if !ok || found.Default() != def || found.Help() == "" {
			t.Errorf("%s: %v", name, found)
		}
	}
	if n := len(set.All()); n != 13 {
		t.Errorf("%d knobs", n)
	}
	for _, c := range []struct {
		name, text, want string
	}{
		{"io-uring-shards", "0", "1"}, {"io-uring-shards", "1", "1"}, {"io-uring-shards", "8", "8"}, {"io-uring-shards", "16", "16"},
		{"io-uring-shards", "100000", "16"}, {"io-uring-shards", "-1", auto()}, {"io-uring-shards", " 8", auto()}, {"io-uring-shards", "abc", auto()},
		{"io-uring-shards", "auto", auto()},
		{"io-uring-entries", "0", "1"}, {"io-uring-entries", "32769", "32768"}, {"io-uring-entries", "3", "3"},
		{"io-uring-read-enable", " YES ", "on"}, {"io-uring-read-enable", "maybe", "off"},
	} {
		found, _ := set.Lookup(c.name)
		if _, err := found.Start(c.text); err != nil || found.String() != c.want {
			t.Errorf("%s from %q: %s (%v), want %s", c.name, c.text, found, err, c.want)
		}
	}
}

func auto() string { return knob.NewInt("", shardsFor(runtime.GOMAXPROCS(0)), 1, 16, "").String() }

func TestShardsByProcessors(t *testing.T) {
	for procs, want := range map[int]int64{0: 1, 1: 1, 2: 1, 4: 1, 7: 1, 8: 2, 12: 3, 16: 4, 64: 4} {
		if got := shardsFor(procs); got != want {
			t.Errorf("%d processors: %d shards, want %d", procs, got, want)
		}
	}
}

// TestEntriesNeverLookLikeARefusal: whatever number is set, the kernel is asked
// for one that it takes.
func TestEntriesNeverLookLikeARefusal(t *testing.T) {
	needRings(t)
	for n, want := range map[int64]int{0: 1, 1: 1, 2: 2, 3: 4, 100: 128, 128: 128, 129: 256, 4097: 8192} {
		k := NewKnobs()
		k.Entries.Store(n)
		if got := k.config().entries; got != want {
			t.Errorf("%d entries become %d, want %d", n, got, want)
		}
	}
	for _, n := range []int64{0, 1, 3} {
		r := newRig(t, rigOptions{set: func(k Knobs) {
			ringOnly(k)
			k.Entries.Store(n)
		}})
		content := pattern(20_000)
		r.put(t, "a", content)
		got, _, err := r.read(t.Context(), r.open(t, "a"), 0, 20_000, 1000)
		if err != nil || string(got) != string(content) || r.Status().latch(LatchProbe).Trips != 0 {
			t.Errorf("%d entries: %v, %+v", n, err, r.Status())
		}
	}
}

// TestKnobsReachTheDriver: a driver is started with what the knobs say, and
// with a part of the pool that shards share.
func TestKnobsReachTheDriver(t *testing.T) {
	s := &starts{}
	r := newRig(t, rigOptions{start: s.start, set: func(k Knobs) {
		k.Shards.Store(3)
		k.Entries.Store(33)
		k.Mode.Store("dynamic")
	}})
	s.mu.Lock()
	o := s.options[0]
	s.mu.Unlock()
	if o.Shards != 3 || o.Entries != 64 || o.Mode != uring.ModeDynamic || o.Dir != r.dir || o.Pool != r.pool || o.Bytes != 4<<20 {
		t.Errorf("%+v", o)
	}
}

// TestNilKnobsMeanDefaults also for some of them.
func TestNilKnobsMeanDefaults(t *testing.T) {
	k := Knobs{Shadow: knob.NewShare("x", 0.5, "")}.withDefaults()
	if k.Shadow.Load() != 0.5 || k.Enable.Load() || !k.Inline.Load() || k.HungAfter.Load() != 2*time.Second || k.changes == nil {
		t.Errorf("%+v", k)
	}
	k.Changed()
}

// TestProbe says what would serve, without a Backend.
func TestProbe(t *testing.T) {
	needRings(t)
	pool, err := newPool()
	if err != nil {
		t.Fatal(err)
	}
	text, allowed, err := Probe(t.Context(), ProbeOptions{Dir: t.TempDir(), Pool: pool})
	if err != nil || !allowed || len(text) < 20 || text[:5] != "ring:" {
		t.Errorf("%q, %v, %v", text, allowed, err)
	}
	if _, _, err := Probe(t.Context(), ProbeOptions{Dir: t.TempDir()}); err == nil {
		t.Error("no pool, and no error")
	}
	if err := pool.Close(); err != nil {
		t.Error(err)
	}
}
