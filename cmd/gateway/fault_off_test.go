//go:build !faultinject

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What makes disks sick for tests is not in the binary that people run.
func TestFaultsAreNotInTheBinary(t *testing.T) {
	deps, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, dep := range strings.Fields(string(deps)) {
		if strings.Contains(dep, "ringtest") || strings.Contains(dep, "storagetest") {
			t.Errorf("the gateway imports %s", dep)
		}
	}
	if !slices.Contains(strings.Split(os.Getenv("RINGFENCE_TEST_REQUIRE"), ","), "binary") {
		return // two builds and links take a minute on a busy machine
	}
	symbols := func(tags string) string {
		binary := filepath.Join(t.TempDir(), "gateway")
		if out, err := exec.Command("go", "build", "-tags", tags, "-o", binary, ".").CombinedOutput(); err != nil {
			t.Fatalf("build: %v: %s", err, out)
		}
		out, err := exec.Command("go", "tool", "nm", binary).Output()
		if err != nil {
			t.Fatalf("nm: %v", err)
		}
		return string(out)
	}
	const seam, wrap = "main.(*faulty", "uring/ringtest."
	if names := symbols(""); strings.Contains(names, seam) || strings.Contains(names, wrap) || !strings.Contains(names, "main.serve") {
		t.Error("the ordinary binary has the fault seam, or no symbols at all")
	}
	if names := symbols("faultinject"); !strings.Contains(names, seam) || !strings.Contains(names, wrap) {
		t.Error("the binary for tests lacks the fault seam: this test would not find it")
	}
}
