package integration

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// withoutCredentials leaves it to the gateway to make some.
func withoutCredentials(g *gateway) *gateway {
	g.environ = nil
	return g
}

// printedKeys finds the generated credentials in what the gateway printed.
func printedKeys(t *testing.T, g *gateway) target {
	t.Helper()
	var found [][]byte
	eventually(t, 5*time.Second, "credentials are printed", func() bool {
		found = regexp.MustCompile(`(?s)export AWS_ACCESS_KEY_ID=(\S+)\n.*export AWS_SECRET_ACCESS_KEY=(\S+)\n.*s3 ls`).FindSubmatch([]byte(g.printed()))
		return found != nil
	})
	return target{url: "http://" + g.address, user: string(found[1]), password: string(found[2])}
}

func TestFirstStartMakesCredentials(t *testing.T) {
	t.Parallel()
	needProcess(t)
	g := withoutCredentials(newGateway(t.TempDir(), 6))
	g.start(t)
	tg := printedKeys(t, g)
	if !strings.Contains(g.printed(), "aws --endpoint-url http://"+g.address+" s3 mb s3://my-bucket") {
		t.Errorf("no lines to paste: %s", g.printed())
	}
	bucket := tg.bucket(t)
	objects := putStock(t, tg, bucket, "kept")
	for _, disk := range g.disks {
		file := filepath.Join(disk, "root-credentials.json")
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", file, info.Mode())
		}
		dir, err := os.Stat(disk)
		if err != nil || dir.Mode().Perm() != 0o700 {
			t.Errorf("%s: mode %v, %v", disk, dir.Mode(), err)
		}
	}
	g.stop(t)
	g.start(t)
	objects.check(t, tg, bucket)
	if strings.Contains(g.printed()+g.said(), tg.password) {
		t.Error("the second start shows the password again")
	}
	if !strings.Contains(g.said(), "root-credentials.json") {
		t.Errorf("the second start does not say where they are: %s", g.said())
	}
	// Given ones win over those on the disks.
	g.stop(t)
	g.environ = []string{"RINGFENCE_ROOT_USER=" + testUser, "RINGFENCE_ROOT_PASSWORD=" + testPassword}
	g.start(t)
	objects.check(t, g.target(), bucket)
	if a := tg.do(t, request{method: http.MethodGet, bucket: bucket}); a.status != http.StatusForbidden {
		t.Errorf("the generated credentials still open it: %d", a.status)
	}
}

func TestOrderOfDisksDoesNotMatter(t *testing.T) {
	t.Parallel()
	g := startGateway(t, 6)
	tg := g.target()
	bucket := tg.bucket(t)
	objects := putStock(t, tg, bucket, "x")
	g.stop(t)
	slices.Reverse(g.disks)
	g.disks[1], g.disks[4] = g.disks[4], g.disks[1]
	g.start(t)
	objects.check(t, tg, bucket)
	if _, body := g.readiness(t); strings.Contains(body, "disk") {
		t.Errorf("degraded: %s", body)
	}
}

// TestMissingDiskIsNotMadeAnew: a directory of an existing store that is gone
// is an unmounted disk far more often than a new one.
func TestMissingDiskIsNotMadeAnew(t *testing.T) {
	t.Parallel()
	g := startGateway(t, 6)
	tg := g.target()
	bucket := tg.bucket(t)
	objects := putStock(t, tg, bucket, "x")
	g.stop(t)
	away := filepath.Join(g.dir, "away")
	if err := os.Rename(g.disks[2], away); err != nil {
		t.Fatal(err)
	}
	if err := emptyDir(g.disks[4]); err != nil {
		t.Fatal(err)
	}
	g.start(t)
	objects.check(t, tg, bucket)
	if _, err := os.Stat(g.disks[2]); !os.IsNotExist(err) {
		t.Errorf("the missing directory was made: %v", err)
	}
	if entries, err := os.ReadDir(g.disks[4]); err != nil || len(entries) > 0 {
		t.Errorf("the emptied disk holds %v, %v", entries, err)
	}
	for _, disk := range []string{g.disks[2], g.disks[4]} {
		if !strings.Contains(g.said(), disk) {
			t.Errorf("the log does not name %s", disk)
		}
	}
	more := putStock(t, tg, bucket, "y")
	if err := os.Rename(away, g.disks[2]); err != nil {
		t.Fatal(err)
	}
	eventually(t, 40*time.Second, "the disk is back without a restart", func() bool {
		v := g.metrics(t)
		return v[`ringfence_meta_disks{set="0",state="insync"}`] == 5
	})
	objects.check(t, tg, bucket)
	more.check(t, tg, bucket)
}

// refuse runs the gateway and expects it to end with a message.
func refuse(t *testing.T, g *gateway, code int, says ...string) {
	t.Helper()
	cmd := exec.Command(suite.binary, append([]string{"server", "--address", "127.0.0.1:0"}, append(g.args, g.disks...)...)...)
	cmd.Env = append(g.environ, "PATH="+os.Getenv("PATH"))
	var errs bytes.Buffer
	cmd.Stderr = &errs
	timer := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() }) // the exit code tells
	err := cmd.Run()
	timer.Stop()
	if got := cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("exit code %d (%v), want %d: %s", got, err, code, errs.String())
	}
	for _, s := range says {
		if !strings.Contains(errs.String(), s) {
			t.Errorf("says %q, want %q in it", errs.String(), s)
		}
	}
	if strings.Contains(errs.String(), "goroutine ") {
		t.Errorf("a stack trace is no message: %s", errs.String())
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	needProcess(t)
	t.Run("foreign directory", func(t *testing.T) {
		g := newGateway(t.TempDir(), 4)
		if err := os.MkdirAll(g.disks[1], 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(g.disks[1], "holiday.jpg"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		refuse(t, g, 1, g.disks[1], "holiday.jpg")
		if _, err := os.Stat(g.disks[0]); !os.IsNotExist(err) {
			t.Errorf("a refused start made %s: %v", g.disks[0], err)
		}
	})
	t.Run("a file", func(t *testing.T) {
		g := newGateway(t.TempDir(), 4)
		if err := os.WriteFile(g.disks[1], nil, 0o600); err != nil {
			t.Fatal(err)
		}
		refuse(t, g, 1, g.disks[1], "is not a directory")
	})
	t.Run("parity", func(t *testing.T) {
		g := newGateway(t.TempDir(), 6)
		g.args = []string{"--parity", "4"}
		refuse(t, g, 1, "parity", "0", "3")
	})
	t.Run("every setting at once", func(t *testing.T) {
		g := newGateway(t.TempDir(), 4)
		g.args = []string{"--parity", "lots", "--memroy=1GiB"}
		g.environ = []string{"RINGFENCE_ROOT_USER=ab", "RINGFENCE_DRAIN_TIMEOUT=soon", "RINGFENCE_ROOT_PASSWORD=hush"}
		refuse(t, g, 2, "--parity", "did you mean memory?", "root-user", "RINGFENCE_DRAIN_TIMEOUT", "root-password")
	})
	t.Run("empty password", func(t *testing.T) {
		g := newGateway(t.TempDir(), 4)
		g.environ = []string{"RINGFENCE_ROOT_USER=admin", "RINGFENCE_ROOT_PASSWORD="}
		refuse(t, g, 2, "RINGFENCE_ROOT_PASSWORD", "empty")
	})
	t.Run("one directory twice", func(t *testing.T) {
		g := newGateway(t.TempDir(), 4)
		if err := os.Mkdir(g.disks[0], 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(g.disks[0], g.disks[1]); err != nil {
			t.Fatal(err)
		}
		refuse(t, g, 1, g.disks[0], g.disks[1], "same directory")
	})
}

func TestRefusalsOfExistingStores(t *testing.T) {
	t.Parallel()
	one, two := startGateway(t, 4), startGateway(t, 4)
	both := newGateway(one.dir, 0)
	both.disks = one.disks
	refuse(t, both, 1, "in use")
	one.stop(t)
	two.stop(t)

	both.disks = append(slices.Clone(one.disks[:3]), two.disks[3])
	refuse(t, both, 1, "different stores", two.disks[3])

	clone := filepath.Join(one.dir, "clone")
	if err := os.CopyFS(clone, os.DirFS(one.disks[0])); err != nil {
		t.Fatal(err)
	}
	both.disks = append(slices.Clone(one.disks[:3]), clone)
	refuse(t, both, 1, "copies of one disk", one.disks[0], clone)

	both.disks = append(slices.Clone(one.disks), filepath.Join(one.dir, "fifth"))
	refuse(t, both, 1, "the store has 4", "fifth")

	both.disks = one.disks
	both.args = []string{"--parity", "1"}
	refuse(t, both, 1, "parity", "made with 2")
}

// TestUnfinishedFirstStart: a first start that was killed between formatting
// disks is finished by the next one, with all disks.
func TestUnfinishedFirstStart(t *testing.T) {
	t.Parallel()
	needProcess(t)
	for range 3 {
		g := newGateway(t.TempDir(), 6)
		cmd := exec.Command(suite.binary, append([]string{"server", "--address", "127.0.0.1:0"}, g.disks...)...)
		cmd.Env = g.environ
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, 10*time.Second, "a disk is being formatted", func() bool {
			made, err := filepath.Glob(filepath.Join(g.dir, "disk*", "shards"))
			return err == nil && len(made) > 0
		})
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // killed
		g.start(t)
		if _, body := g.readiness(t); strings.Contains(body, g.dir) {
			t.Errorf("degraded: %s", body)
		}
		left, err := filepath.Glob(filepath.Join(g.dir, "disk*", "format-pending.json*"))
		if err != nil || len(left) > 0 {
			t.Errorf("left behind: %q, %v", left, err)
		}
		putStock(t, g.target(), g.target().bucket(t), "x")
		g.kill()
	}
}

// TestDrain: SIGTERM lets a request finish and takes no new ones.
func TestDrain(t *testing.T) {
	t.Parallel()
	g := startGateway(t, 4)
	tg := g.target()
	bucket := tg.bucket(t)
	body := noiseBytes(9, 2*mib)
	req, err := tg.signed(t.Context(), request{method: http.MethodPut, bucket: bucket, key: "k", body: body})
	if err != nil {
		t.Fatal(err)
	}
	drip, feed := io.Pipe()
	req.Body = drip
	status := make(chan int, 1)
	go func() { // ends with the request
		resp, err := rawClient.Do(req)
		if err != nil {
			status <- 0
			return
		}
		resp.Body.Close()
		status <- resp.StatusCode
	}()
	if _, err := feed.Write(body[:mib]); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- g.shutdown() }()
	eventually(t, 10*time.Second, "no new connections", func() bool {
		code, _ := g.readiness(t)
		return code != http.StatusOK
	})
	if _, err := feed.Write(body[mib:]); err != nil {
		t.Fatal(err)
	}
	if err := feed.Close(); err != nil {
		t.Fatal(err)
	}
	if got := <-status; got != http.StatusOK {
		t.Errorf("the request in work ended with %d", got)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	g.start(t)
	if a := tg.want(t, http.StatusOK, request{method: http.MethodGet, bucket: bucket, key: "k"}); !bytes.Equal(a.body, body) {
		t.Error("what was acknowledged while draining is not there")
	}
}

// TestSecondSignalEndsAtOnce: whoever signals twice doesn't want to wait for
// requests.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	g := startGateway(t, 2)
	tg := g.target()
	bucket := tg.bucket(t)
	req, err := tg.signed(t.Context(), request{method: http.MethodPut, bucket: bucket, key: "k", body: noiseBytes(9, mib)})
	if err != nil {
		t.Fatal(err)
	}
	drip, feed := io.Pipe()
	req.Body = drip
	answered := make(chan error, 1)
	go func() { // ends when the gateway does
		resp, err := rawClient.Do(req)
		if err == nil {
			err = resp.Body.Close()
		}
		answered <- err
	}()
	// More than clients buffer, so that the gateway gets to see the request.
	if _, err := feed.Write(noiseBytes(9, mib/2)); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "the upload is under way", func() bool { return g.metrics(t)["ringfence_buffer_bytes"] > 0 })
	again := time.NewTicker(1200 * time.Millisecond) // sooner counts as one signal
	defer again.Stop()
	begin := time.Now()
	for range 2 {
		if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		<-again.C
	}
	timer := time.NewTimer(10 * time.Second)
	defer timer.Stop()
	select {
	case <-g.exited:
	case <-timer.C:
		t.Fatalf("still there %v after the first signal", time.Since(begin))
	}
	if g.code != 1 {
		t.Errorf("exit code %d, want 1: a request was cut off", g.code)
	}
	if err := feed.CloseWithError(io.ErrClosedPipe); err != nil {
		t.Error(err)
	}
	<-answered
}

func TestStartIsQuick(t *testing.T) {
	needProcess(t)
	g := newGateway(t.TempDir(), 6)
	for _, what := range []string{"first", "second"} {
		begin := time.Now()
		g.start(t)
		took := time.Since(begin)
		t.Logf("%s start: ready after %v", what, took)
		if took > 5*time.Second {
			t.Errorf("%s start took %v", what, took)
		}
		g.stop(t)
	}
}

func TestOneDiskAndManySets(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 18} {
		g := startGateway(t, n)
		tg := g.target()
		bucket := tg.bucket(t)
		objects := putStock(t, tg, bucket, "a")
		for key, body := range putStock(t, tg, bucket, "b") {
			objects[key] = body
		}
		g.stop(t)
		g.start(t)
		objects.check(t, tg, bucket)
		if got := listV2(t, tg, bucket, "", ""); !slices.Equal(got, objects.keys()) {
			t.Errorf("%d disks: %s", n, difference(got, objects.keys()))
		}
		g.stop(t)
	}
}

func TestMetricsAndProbes(t *testing.T) {
	t.Parallel()
	g := startGateway(t, 6)
	tg := g.target()
	bucket := tg.bucket(t)
	putStock(t, tg, bucket, "x").check(t, tg, bucket)
	v := g.metrics(t)
	for series, least := range map[string]float64{
		`ringfence_disk_state{disk="` + g.disks[0] + `",state="ok"}`:          1,
		`ringfence_disk_free_bytes{disk="` + g.disks[0] + `"}`:                1,
		`ringfence_disk_total_bytes{disk="` + g.disks[0] + `"}`:               1,
		`ringfence_disk_reads_total{disk="` + g.disks[0] + `",tier="inline"}`: 0,
		`ringfence_set_writable{set="0"}`:                                     1,
		`ringfence_set_readable{set="0"}`:                                     1,
		`ringfence_meta_epoch{set="0"}`:                                       1,
		`ringfence_meta_head{set="0"}`:                                        7,
		`ringfence_meta_disks{set="0",state="insync"}`:                        6,
		`ringfence_buffer_budget_bytes`:                                       1,
		`ringfence_s3_requests_total{code="200",operation="PutObject"}`:       7,
		`process_open_fds`:                                                    1,
		`go_goroutines`:                                                       1,
	} {
		if got, ok := v[series]; !ok || got < least {
			t.Errorf("%s is %v (there: %v), want at least %v", series, got, ok, least)
		}
	}
	resp, err := http.Get("http://" + g.address + "/-/live")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("/-/live: %s", resp.Status)
	}
	out, err := exec.Command(suite.binary, "health", "http://"+g.address).CombinedOutput()
	if err != nil || !strings.Contains(string(out), `"ready":true`) {
		t.Errorf("gateway health: %s, %v", out, err)
	}
	g.stop(t)
	if out, err := exec.Command(suite.binary, "health", "http://"+g.address).CombinedOutput(); err == nil {
		t.Errorf("gateway health of a stopped gateway succeeds: %s", out)
	}
}

// TestMetricsAreDocumented holds docs/metrics.md against what is answered.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	g := startGateway(t, 2)
	tg := g.target()
	putStock(t, tg, tg.bucket(t), "x")
	page, err := os.ReadFile(filepath.Join("..", "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(ringfence_[a-z0-9_]+)` \\|").FindAllSubmatch(page, -1) {
		documented[string(m[1])] = true
	}
	suffix := regexp.MustCompile(`_(bucket|sum|count)$`)
	answered := map[string]bool{}
	for series := range g.metrics(t) {
		name, _, _ := strings.Cut(series, "{")
		if !strings.HasPrefix(name, "ringfence_") {
			continue
		}
		if !documented[name] {
			name = suffix.ReplaceAllString(name, "")
		}
		answered[name] = true
		if !documented[name] {
			t.Errorf("%s is not in docs/metrics.md", name)
		}
	}
	for name := range documented {
		if !answered[name] {
			t.Errorf("docs/metrics.md has %s, the gateway does not", name)
		}
	}
}
