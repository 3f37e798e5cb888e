//go:build faultinject

package main

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// orders writes the control file of a gateway that start makes in this test.
func orders(t *testing.T) func(text string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "orders")
	startEnviron = []string{faultFile + "=" + path}
	t.Cleanup(func() { startEnviron = nil })
	return func(text string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
}

// mostRead reads all objects and gives the disk that rings read most of: one
// may happen to hold nothing but parity.
func (r *running) mostRead(paths []string, objects map[string][]byte, random *rand.Rand) string {
	r.t.Helper()
	for range 3 {
		for key, want := range objects {
			if err := r.check(key, want, random); err != nil {
				r.t.Error(err)
			}
		}
	}
	p := r.scrape()
	return slices.MaxFunc(paths, func(a, b string) int {
		return int(p.total("ringfence_uring_delivered_total", `disk="`+a+`"`) - p.total("ringfence_uring_delivered_total", `disk="`+b+`"`))
	})
}

// While one disk does not answer, objects are read from the others, and what
// was asked of it comes to its end when it answers again.
func TestStallByOrder(t *testing.T) {
	needRings(t)
	order := orders(t)
	paths := directories(t, 4)
	r := start(t, paths, "--io-uring-read-enable=on", "--io-uring-inline=off")
	objects := r.objects()
	r.eventually("rings read all disks", r.onRings)
	random := rand.New(rand.NewPCG(1, 2))
	most := r.mostRead(paths, objects, random)
	order("stall " + most + "\n")
	stalled := `disk="` + most + `"`
	var took []time.Duration
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
		for key, want := range objects {
			began := time.Now()
			if err := r.check(key, want, random); err != nil {
				t.Error(err)
			}
			took = append(took, time.Since(began))
		}
		p := r.scrape()
		p.conserves(t)
	}
	slices.Sort(took)
	if median := took[len(took)/2]; median > 300*time.Millisecond {
		t.Errorf("the median of %d reads took %v", len(took), median)
	}
	p := r.scrape()
	if p.total("ringfence_uring_submitted_total", stalled) == p.total("ringfence_uring_delivered_total", stalled) {
		t.Error("nothing was stalled")
	}
	order("")
	r.eventually("nothing is in flight", func() bool { return r.scrape().total("ringfence_uring_in_flight", "") == 0 })
	p = r.scrape()
	p.conserves(t)
	if p.total("ringfence_uring_orphan_reclaimed_total", stalled) == 0 {
		t.Errorf("no stalled read was orphaned: %v", p["ringfence_uring_submitted_total"])
	}
	r.eventually("the disk answers", func() bool { return r.scrape().total("ringfence_disk_silent_seconds", "") == 0 })
}

// One flipped bit is found by comparing, counted, and takes the rings of that
// disk alone away; nobody gets a wrong byte.
func TestFlipByOrder(t *testing.T) {
	needRings(t)
	order := orders(t)
	paths := directories(t, 4)
	r := start(t, paths, "--io-uring-read-enable=on", "--io-uring-inline=off", "--io-uring-shadow-share=1")
	objects := r.objects()
	r.eventually("rings read all disks", r.onRings)
	random := rand.New(rand.NewPCG(1, 2))
	most := r.mostRead(paths, objects, random)
	order("flip " + most + "\n")
	r.eventually("the flip is found", func() bool {
		for key, want := range objects {
			if err := r.check(key, want, random); err != nil {
				t.Error(err)
			}
		}
		return r.scrape().total("ringfence_uring_shadow_mismatch_total", "") > 0
	})
	p := r.scrape()
	if p.total("ringfence_uring_shadow_mismatch_total", `disk="`+most+`"`) != 1 || p.total("ringfence_uring_shadow_mismatch_total", "") != 1 {
		t.Errorf("mismatches: %v", p["ringfence_uring_shadow_mismatch_total"])
	}
	if p.total("ringfence_uring_latched", "") != 1 || p.total("ringfence_uring_latched", `disk="`+most+`",kind="shadow"`) != 1 {
		t.Errorf("latched: %v", p["ringfence_uring_latched"])
	}
	if rings, all := r.serving(); rings != all-1 {
		t.Errorf("rings read %d of %d disks", rings, all)
	}
	for key, want := range objects {
		if err := r.check(key, want, random); err != nil {
			t.Error(err)
		}
	}
	r.scrape().conserves(t)
}

// A disk that hangs in the kernel until the end does not make the stop fail.
func TestStopBesideStall(t *testing.T) {
	needRings(t)
	order := orders(t)
	paths := directories(t, 4)
	r := start(t, paths, "--io-uring-read-enable=on", "--io-uring-inline=off")
	objects := r.objects()
	r.eventually("rings read all disks", r.onRings)
	random := rand.New(rand.NewPCG(1, 2))
	most := r.mostRead(paths, objects, random)
	order("stall " + most + "\n")
	r.eventually("a read hangs", func() bool {
		for key, want := range objects {
			if err := r.check(key, want, random); err != nil {
				t.Error(err)
			}
		}
		return r.scrape().total("ringfence_uring_in_flight", `disk="`+most+`"`) > 0
	})
	if err := r.end(); err != nil {
		t.Errorf("the stop failed: %v", err)
	}
	if logs := r.logs.String(); !strings.Contains(logs, "memory stays with reads") {
		t.Error("the log does not say what was left")
	}
}
