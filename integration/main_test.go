package integration

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// suite is what all tests share. TestMain fills it once.
var suite struct {
	binary string
	dir    string  // for what else is built
	remote *target // set when testing a gateway that somebody else runs

	mu     sync.Mutex
	shared *gateway // started by the first test that needs just any gateway
	faulty string   // the binary with fault seams, built by the first test that needs it
}

func TestMain(m *testing.M) {
	if mode := os.Getenv(confineVariable); mode != "" {
		os.Exit(complain("run %q: %v", os.Args[1:], confine(mode, os.Args[1:])))
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "ringfence-integration-")
	if err != nil {
		return complain("make a directory: %v", err)
	}
	code := 0
	if url := os.Getenv("RINGFENCE_TEST_ENDPOINT"); url != "" {
		suite.remote = &target{
			url:      strings.TrimSuffix(url, "/"),
			user:     os.Getenv("RINGFENCE_TEST_USER"),
			password: os.Getenv("RINGFENCE_TEST_PASSWORD"),
		}
	} else {
		suite.binary, suite.dir = filepath.Join(dir, "gateway"), dir
		code = build(suite.binary)
	}
	if code == 0 {
		code = m.Run()
	}
	if suite.shared != nil {
		if err := suite.shared.shutdown(); err != nil {
			code = complain("stop the shared gateway: %v", err)
		}
		if err := os.RemoveAll(suite.shared.dir); err != nil {
			code = complain("remove its disks: %v", err)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return complain("remove %s: %v", dir, err)
	}
	return code
}

func build(to string, tags ...string) int {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	args := []string{"build", "-o", to}
	for _, flag := range strings.Fields(os.Getenv("RINGFENCE_TEST_BUILD")) {
		if more, ok := strings.CutPrefix(flag, "-tags="); ok {
			tags = append(tags, more)
		} else {
			args = append(args, flag)
		}
	}
	args = append(args, "-tags="+strings.Join(tags, ","), "../cmd/gateway")
	out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput()
	if err != nil {
		return complain("build the gateway: %v\n%s", err, out)
	}
	return 0
}

// faultyBinary is the gateway with fault seams.
func faultyBinary(t *testing.T) string {
	t.Helper()
	needProcess(t)
	suite.mu.Lock()
	defer suite.mu.Unlock()
	if suite.faulty == "" {
		to := filepath.Join(suite.dir, "gateway-faulty")
		if build(to, "faultinject") != 0 {
			t.Fatal("the gateway with fault seams does not build")
		}
		suite.faulty = to
	}
	return suite.faulty
}

func complain(format string, args ...any) int {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	return 1
}

// required reports whether RINGFENCE_TEST_REQUIRE names what.
func required(what string) bool {
	return slices.Contains(strings.Split(os.Getenv("RINGFENCE_TEST_REQUIRE"), ","), what)
}

// needRequired skips a test that takes long unless it was asked for.
func needRequired(t *testing.T, what string) {
	t.Helper()
	if !required(what) {
		t.Skipf("takes minutes: run with RINGFENCE_TEST_REQUIRE=%s", what)
	}
}

// needTool returns the path of a client, or skips; it fails when the client is
// required. name is the word in RINGFENCE_TEST_REQUIRE.
func needTool(t *testing.T, name, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	switch {
	case err == nil:
		return path
	case required(name):
		t.Fatalf("%s is required but not installed", program)
	default:
		t.Skipf("%s is not installed", program)
	}
	return ""
}

// needProcess skips tests that start, kill or starve a gateway when the suite
// runs against somebody else's.
func needProcess(t *testing.T) {
	t.Helper()
	if suite.remote != nil {
		t.Skip("needs a gateway of its own")
	}
}

// anyGateway is a gateway for tests that need nothing but the wire. They use
// buckets of their own and run beside each other.
func anyGateway(t *testing.T) target {
	t.Helper()
	if suite.remote != nil {
		return *suite.remote
	}
	suite.mu.Lock()
	defer suite.mu.Unlock()
	if suite.shared == nil {
		dir, err := os.MkdirTemp("", "ringfence-shared-")
		if err != nil {
			t.Fatal(err)
		}
		g := newGateway(dir, 6)
		if err := g.launch(); err != nil {
			t.Fatal(err)
		}
		suite.shared = g
	}
	return suite.shared.target()
}

// eventually polls until ok, and fails after the timeout.
func eventually(t *testing.T, timeout time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline.C:
			t.Fatalf("not within %v: %s", timeout, what)
		case <-tick.C:
		}
	}
}

// TestSourcesAreInputs makes a cached result worthless once any source file
// changes: the go command knows only of files that a test looks at, not of the
// build that TestMain starts.
func TestSourcesAreInputs(t *testing.T) {
	files := 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "ringfence-data") {
			return filepath.SkipDir
		}
		if ext := filepath.Ext(path); ext != ".go" && ext != ".mod" {
			return nil
		}
		files++
		_, err = os.Stat(path)
		return err
	})
	if err != nil || files < 50 {
		t.Errorf("%d source files, %v", files, err)
	}
}
