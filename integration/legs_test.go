package integration

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// remoteLegs are the gateways of RINGFENCE_TEST_LEGS by name: somebody else
// started them, with rings, without, and with rings refused.
func remoteLegs(t *testing.T) map[string]target {
	t.Helper()
	text := os.Getenv("RINGFENCE_TEST_LEGS")
	if text == "" {
		t.Skip("RINGFENCE_TEST_LEGS names no gateways")
	}
	all := map[string]target{}
	for part := range strings.SplitSeq(text, ",") {
		name, url, ok := strings.Cut(part, "=")
		if !ok {
			t.Fatalf("RINGFENCE_TEST_LEGS: %q is not NAME=URL", part)
		}
		all[name] = target{url: strings.TrimSuffix(url, "/"), user: os.Getenv("RINGFENCE_TEST_USER"), password: os.Getenv("RINGFENCE_TEST_PASSWORD")}
	}
	for _, name := range []string{"std", "uring", "blocked"} {
		if _, ok := all[name]; !ok {
			t.Fatalf("RINGFENCE_TEST_LEGS names no %s", name)
		}
	}
	return all
}

// TestLegs puts the same objects through gateways that others started and
// compares what comes back, and what each says of itself.
func TestLegs(t *testing.T) {
	all := remoteLegs(t)
	for _, tier := range []struct{ leg, tier string }{{"std", "std"}, {"uring", "ring"}, {"blocked", "std"}} {
		for disk, e := range all[tier.leg].wantTier(t, tier.tier) {
			t.Logf("%s: %s is read by tier %s: %s", tier.leg, disk, e.Tier, e.Why)
			if tier.leg == "blocked" && !strings.Contains(e.Why, "not permitted") && !strings.Contains(e.Why, "EPERM") {
				t.Errorf("blocked: %s does not say that rings are refused: %q", disk, e.Why)
			}
		}
	}
	buckets := map[string]string{}
	for name, tg := range all {
		buckets[name] = legBucket(t, tg)
	}
	rng := rand.New(rand.NewPCG(seed(t), 8))
	for i := range 60 {
		size := identitySizes[i%len(identitySizes)]
		if i >= len(identitySizes) {
			size = rng.Int64N(4 * mib)
		}
		body := noiseBytes(rng.Uint64(), size)
		requests := []request{{}}
		wants := []string{sumBytes(body)}
		for range 5 {
			if size > 0 {
				s := pickSpan(rng, body)
				requests = append(requests, request{header: http.Header{"Range": {s.header}}})
				wants = append(wants, s.sum)
			}
		}
		for name, tg := range all {
			key := fmt.Sprint(i)
			tg.want(t, http.StatusOK, request{method: http.MethodPut, bucket: buckets[name], key: key, body: body})
			for j, r := range requests {
				r.method, r.bucket, r.key = http.MethodGet, buckets[name], key
				if a := tg.do(t, r); sumBytes(a.body) != wants[j] {
					t.Errorf("%s: %v of %d bytes: %d, %d bytes, wrong ones", name, r.header, size, a.status, len(a.body))
				}
			}
		}
	}
	for name, tg := range all {
		sum := conserve(t, tg.metrics(t))
		if got := sum.submitted > 0; got != (name == "uring") {
			t.Errorf("%s: rings made %v reads", name, sum.submitted)
		}
		t.Logf("%s: rings made %v reads", name, sum.submitted)
	}
}

// legBucket is a bucket in a leg, removed at the end.
func legBucket(t *testing.T, tg target) string {
	t.Helper()
	name := fmt.Sprintf("legs-%x", rand.Uint32())
	tg.want(t, http.StatusOK, request{method: http.MethodPut, bucket: name})
	t.Cleanup(func() { tg.removeBucket(t, name) })
	return name
}

// TestEngineTestsSkipAndFail runs tests of the engines where io_uring is
// refused: they pass, and say what they skipped; and where rings are required,
// they fail. CI does so in containers, with all of them.
func TestEngineTestsSkipAndFail(t *testing.T) {
	t.Parallel()
	needRings(t)
	for name, run := range map[string]string{"uring": "^TestReadsAreWhatTheFileHolds$", "hybrid": "^TestReadsAsReference$"} {
		binary := filepath.Join(t.TempDir(), name+".test")
		if out, err := exec.Command("go", "test", "-c", "-o", binary, "../storage/"+name).CombinedOutput(); err != nil {
			t.Fatalf("build the tests of %s: %v\n%s", name, err, out)
		}
		for _, leg := range []struct {
			confine, require string
			fails, skips     bool
		}{{"", "uring", false, false}, {confineRefuse, "", false, true}, {confineRefuse, "uring", true, false}} {
			line := []string{os.Args[0], binary, "-test.v", "-test.short", "-test.run", run}
			if leg.confine == "" {
				line = line[1:]
			}
			cmd := exec.Command(line[0], line[1:]...)
			cmd.Dir = filepath.Join("..", "storage", name)
			cmd.Env = append(os.Environ(), "RINGFENCE_TEST_REQUIRE="+leg.require)
			if leg.confine != "" {
				cmd.Env = append(cmd.Env, confineVariable+"="+leg.confine)
			}
			out, err := cmd.CombinedOutput()
			if failed := err != nil; failed != leg.fails {
				t.Errorf("%s, io_uring %q, required %q: %v\n%s", name, leg.confine, leg.require, err, failures(string(out)))
			}
			if leg.confine == "" && !strings.Contains(string(out), "--- PASS: ") {
				t.Errorf("%s: no test is named %s", name, run)
			}
			if skipped := skipLine.Match(out); !leg.fails && skipped != leg.skips {
				t.Errorf("%s, io_uring %q, required %q: skips: %t, want %t", name, leg.confine, leg.require, skipped, leg.skips)
			}
		}
	}
}

// skipLine is what the engines' tests say when they are refused rings.
var skipLine = regexp.MustCompile(`(?m)(^|[ \t])SKIP [A-Z]\S*: `)

// failures are the lines of a test's output that matter.
func failures(out string) string {
	var b strings.Builder
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "=== ") && !strings.Contains(line, "--- PASS") && !strings.Contains(line, "SKIP") {
			b.WriteString(line)
		}
	}
	return b.String()
}
