package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"ringfence/server"
	"ringfence/storage"
)

// serving says of how many disks rings read.
func (r *running) serving() (rings, all int) {
	for _, e := range r.engineInfos() {
		all++
		if e.Tier == "ring" {
			rings++
		}
	}
	return rings, all
}

func (r *running) onRings() bool {
	rings, all := r.serving()
	return rings == all
}

// A gateway that nobody told to has no ring, and says so everywhere.
func TestGatewayWithoutRings(t *testing.T) {
	r := start(t, directories(t, 4))
	random := rand.New(rand.NewPCG(1, 2))
	for key, want := range r.objects() {
		if err := r.check(key, want, random); err != nil {
			t.Error(err)
		}
	}
	var infos []server.EngineInfo
	if err := json.Unmarshal(r.must(http.StatusOK, http.MethodGet, "/-/admin/v1/engines", nil), &infos); err != nil || len(infos) != 4 {
		t.Fatalf("engines: %+v, %v", infos, err)
	}
	for _, e := range infos {
		if e.Tier != "std" || e.Why != "switched off" || e.Shards != 0 || len(e.Latched) > 0 || len(e.Fallbacks) > 0 {
			t.Errorf("%+v", e)
		}
	}
	if n := openRings(t); n != 0 {
		t.Errorf("%d rings", n)
	}
	// All families are there, for every disk.
	p := r.scrape()
	for name := range ringSeries {
		if len(p[name]) < 4 {
			t.Errorf("%s: %v", name, p[name])
		}
	}
	if got := p.total("ringfence_uring_submitted_total", "") + p.total("ringfence_uring_enters_total", "") + p.total("ringfence_uring_fallback_total", ""); got != 0 {
		t.Errorf("rings that are off did something: %v", p)
	}
	if p.total("ringfence_disk_reads_total", `tier="inline"`)+p.total("ringfence_disk_reads_total", `tier="pool"`) == 0 {
		t.Error("the standard engine read nothing")
	}
}

// With rings on, every way to read gives the same bytes, and the counters say
// which way that was.
func TestGatewayReadsThroughRings(t *testing.T) {
	needRings(t)
	r := start(t, directories(t, 4), "--io-uring-read-enable=on", "--io-uring-shards=2")
	objects := r.objects()
	r.eventually("rings read all disks", r.onRings)
	random := rand.New(rand.NewPCG(1, 2))
	for _, leg := range []struct {
		name  string
		knobs map[string]string
		moved func(before, after page) float64
	}{
		{"inline", map[string]string{"io-uring-inline": "on"}, func(b, a page) float64 {
			return a.total("ringfence_disk_reads_total", `tier="inline"`) - b.total("ringfence_disk_reads_total", `tier="inline"`)
		}},
		{"ring", map[string]string{"io-uring-inline": "off"}, func(b, a page) float64 {
			return a.total("ringfence_disk_reads_total", `tier="ring"`) - b.total("ringfence_disk_reads_total", `tier="ring"`)
		}},
		{"direct", map[string]string{"o-direct-read-enable": "on", "o-direct-read-threshold": "4KiB"}, func(b, a page) float64 {
			return a.total("ringfence_disk_reads_total", `direct"`) - b.total("ringfence_disk_reads_total", `direct"`)
		}},
		{"static", map[string]string{"io-uring-buffer-mode": "static", "o-direct-read-enable": "off", "io-uring-inline": "off"}, func(b, a page) float64 {
			return a.total("ringfence_uring_submitted_total", "") - b.total("ringfence_uring_submitted_total", "")
		}},
		{"shadow", map[string]string{"io-uring-shadow-share": "100%"}, func(b, a page) float64 {
			return a.total("ringfence_uring_shadow_compared_total", "") + a.total("ringfence_uring_shadow_dropped_total", "") -
				b.total("ringfence_uring_shadow_compared_total", "") - b.total("ringfence_uring_shadow_dropped_total", "")
		}},
	} {
		for name, value := range leg.knobs {
			r.set(name, value)
		}
		r.eventually("rings read all disks", r.onRings)
		before := r.scrape()
		for range 3 {
			for key, want := range objects {
				if err := r.check(key, want, random); err != nil {
					t.Errorf("%s: %v", leg.name, err)
				}
			}
		}
		r.eventually(leg.name+" is counted", func() bool { return leg.moved(before, r.scrape()) > 0 })
		p := r.scrape()
		p.conserves(t)
		if p.total("ringfence_uring_shadow_mismatch_total", "") > 0 || p.total("ringfence_uring_leaked_total", "") > 0 || p.total("ringfence_uring_cq_overflow_total", "") > 0 {
			t.Errorf("%s: mismatches %v, leaks %v, overflows %v", leg.name, p["ringfence_uring_shadow_mismatch_total"], p["ringfence_uring_leaked_total"], p["ringfence_uring_cq_overflow_total"])
		}
	}
	if got := len(r.scrape()["ringfence_uring_submitted_total"]); got != 4*2 {
		t.Errorf("%d shards on the page, want 2 for each of 4 disks", got)
	}
	if !strings.Contains(r.logs.String(), `"audit":"knob"`) {
		t.Errorf("no audit line in %s", r.logs)
	}
}

// Knobs are turned over the wire while clients read: no request fails, no byte
// is wrong, no counter goes back, and no ring is left in the end.
func TestGatewayTogglesUnderLoad(t *testing.T) {
	needRings(t)
	r := start(t, directories(t, 4), "--io-uring-inline=off")
	objects := r.objects()
	var keys []string
	for key := range objects {
		keys = append(keys, key)
	}
	stop := make(chan struct{})
	var load sync.WaitGroup
	for seed := range uint64(3) {
		load.Go(func() {
			random := rand.New(rand.NewPCG(seed, 7))
			for {
				select {
				case <-stop:
					return
				default:
				}
				key := keys[random.IntN(len(keys))]
				if err := r.check(key, objects[key], random); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	toggles := 40
	if testing.Short() {
		toggles = 10
	}
	random := rand.New(rand.NewPCG(11, 13))
	choices := map[string][]string{
		"io-uring-read-enable": {"on", "off"}, "io-uring-shards": {"1", "2", "3"}, "io-uring-entries": {"8", "128"},
		"io-uring-buffer-mode": {"non-fixed", "dynamic", "static", "legacy"}, "io-uring-inline": {"on", "off"}, "io-uring-fd-cache": {"on", "off"},
	}
	names := []string{"io-uring-read-enable", "io-uring-shards", "io-uring-entries", "io-uring-buffer-mode", "io-uring-inline", "io-uring-fd-cache"}
	last := r.scrape()
	for i := range toggles {
		name := names[random.IntN(len(names))]
		if i%4 == 0 { // rings must be on most of the time for this to mean anything
			r.set("io-uring-read-enable", "on")
			r.eventually("rings read all disks", r.onRings)
		}
		r.set(name, choices[name][random.IntN(len(choices[name]))])
		now := r.scrape()
		now.conserves(t)
		for _, f := range shardFamilies {
			for labels, v := range last[f.name] {
				if strings.HasSuffix(f.name, "_total") && now[f.name][labels] < v {
					t.Errorf("%s{%s} went from %v to %v", f.name, labels, v, now[f.name][labels])
				}
			}
		}
		last = now
	}
	close(stop)
	load.Wait()
	r.set("io-uring-read-enable", "off")
	p := r.wantNoRings(t)
	if p.total("ringfence_uring_submitted_total", "") == 0 {
		t.Error("rings read nothing")
	}
}

// wantNoRings waits until all drivers have ended, and gives the page that says so.
func (r *running) wantNoRings(t *testing.T) page {
	t.Helper()
	r.eventually("no ring is left", func() bool { return openRings(t) == 0 })
	// A driver's descriptors are closed before it is counted out.
	var p page
	r.eventually("nothing is left", func() bool {
		p = r.scrape()
		return p.total("ringfence_uring_in_flight", "")+p.total("ringfence_uring_drivers_retiring", "") == 0
	})
	p.conserves(t)
	if n := p.total("ringfence_uring_leaked_total", ""); n != 0 {
		t.Errorf("%v reads were given up", n)
	}
	return p
}

// The engine of a disk that goes away ends with it, and the one that comes back
// gets its own.
func TestEnginesEndWithTheirDisks(t *testing.T) {
	needRings(t)
	paths := directories(t, 4)
	r := start(t, paths, "--io-uring-read-enable=on")
	r.eventually("rings read all disks", r.onRings)
	if err := os.Rename(paths[2], paths[2]+".away"); err != nil {
		t.Fatal(err)
	}
	r.eventually("the engine has ended", func() bool { return r.engineCount() == 3 && openRings(t) == 3 })
	gone := 0
	for _, e := range r.engineInfos() {
		if e.Tier == "none" && e.Why != "" && e.Disk == paths[2] {
			gone++
		}
	}
	if gone != 1 || len(r.scrape()["ringfence_uring_serving"]) != 4 {
		t.Errorf("engines %+v", r.engineInfos())
	}
	if err := os.Rename(paths[2]+".away", paths[2]); err != nil {
		t.Fatal(err)
	}
	r.eventually("rings read all disks again", func() bool { return r.engineCount() == 4 && r.onRings() })
	if err := r.end(); err != nil {
		t.Error(err)
	}
	if r.engineCount() != 0 || openRings(t) != 0 {
		t.Errorf("%d engines and %d rings are left", r.engineCount(), openRings(t))
	}
}

func (r *running) engineCount() int {
	r.engines.mu.Lock()
	defer r.engines.mu.Unlock()
	return len(r.engines.open)
}

// Where the kernel takes no ring, the disk is read all the same, and says why.
func TestEngineInfoSaysWhatIsLatched(t *testing.T) {
	r := start(t, directories(t, 1))
	st, ok := r.engines.status(r.sets[0].seats[0].name)
	if !ok {
		t.Fatal("no engine")
	}
	st.Latches[0].On, st.Latches[0].Reason = true, "because"
	st.Fallbacks["eio"] = 3
	info := engineInfo("d", st)
	if len(info.Latched) != 1 || !strings.Contains(info.Latched[st.Latches[0].Kind], "because") || fmt.Sprint(info.Fallbacks) != "map[eio:3]" {
		t.Errorf("%+v", info)
	}
}

// The cache of open shards follows its knob, for whatever engine reads them.
func TestFDCacheKnob(t *testing.T) {
	paths := directories(t, 1)
	r := start(t, paths)
	objects := r.objects()
	random := rand.New(rand.NewPCG(1, 2))
	read := func() {
		t.Helper()
		for key, want := range objects {
			if err := r.check(key, want, random); err != nil {
				t.Error(err)
			}
		}
	}
	read()
	if openShards(t, paths[0]) == 0 {
		t.Error("no shard stays open with the cache on")
	}
	r.set("io-uring-fd-cache", "off")
	read()
	r.eventually("no shard stays open", func() bool { return openShards(t, paths[0]) == 0 })
	r.set("io-uring-fd-cache", "on")
	read()
	if openShards(t, paths[0]) == 0 {
		t.Error("no shard stays open with the cache on again")
	}
}

// openShards counts the files of a disk's shards that this process has open.
func openShards(t *testing.T, disk string) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, fd := range fds {
		// One that was closed meanwhile is not open.
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(to, disk+"/shards/") {
			n++
		}
	}
	return n
}

// docs/metrics.md has a row for every family of the disks.
func TestMetricsAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, all := range []map[string]*prometheus.Desc{series, ringSeries} {
		for name := range all {
			if !strings.Contains(string(doc), "\n| `"+name+"` | ") {
				t.Errorf("docs/metrics.md lacks %s", name)
			}
		}
	}
}

// Buffers that are missed at the end are a failure, unless reads hang.
func TestClosePool(t *testing.T) {
	for _, leaked := range []int64{0, 2} {
		pool, err := storage.NewPool(storage.PoolOptions{})
		if err != nil {
			t.Fatal(err)
		}
		missed, err := pool.Get(4096)
		if err != nil {
			t.Fatal(err)
		}
		logs := newLines()
		e := newEngines(newKnobs(), nil, pool, zerolog.New(logs))
		e.leaked = leaked
		err = e.closePool()
		if warned := strings.Contains(logs.String(), "still referenced"); (err == nil) != (leaked > 0) || warned != (leaked > 0) {
			t.Errorf("%d reads leaked: error %v, log %s", leaked, err, logs)
		}
		missed.Release()
	}
}

// The rings that are counted are those that serve, not all that there were.
func TestEngineInfoCountsRingsThatServe(t *testing.T) {
	needRings(t)
	r := start(t, directories(t, 1), "--io-uring-read-enable=on", "--io-uring-shards=3")
	rings := func(n int) func() bool {
		return func() bool { e := r.engineInfos()[0]; return e.Tier == "ring" && e.Shards == n }
	}
	r.eventually("three rings serve", rings(3))
	r.set("io-uring-shards", "1")
	r.eventually("one ring serves", rings(1))
	if st, _ := r.engines.status(r.sets[0].seats[0].name); len(st.Rings.Shards) != 3 {
		t.Errorf("counters of %d rings, want those of all three", len(st.Rings.Shards))
	}
}
