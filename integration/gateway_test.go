package integration

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	testUser     = "integration"
	testPassword = "integration-secret"
)

// gateway is a process under test with its directories. It can be started
// again after it ended, on the same port.
type gateway struct {
	dir     string
	disks   []string
	args    []string // more flags
	environ []string // more variables
	binary  string   // another than the suite's
	tracer  []string // command that runs it
	confine string   // how the kernel answers its calls of io_uring: as usual, refused or killed
	address string   // HOST:PORT once it ran

	cmd    *exec.Cmd
	exited chan struct{} // closed when the process is gone
	code   int           // then its exit code
	out    *output
}

// output collects what the process says.
type output struct {
	mu     sync.Mutex
	lines  []string // of standard error
	stdout strings.Builder

	serving chan string // gets the address
}

func newGateway(dir string, disks int) *gateway {
	g := &gateway{
		dir: dir, address: "127.0.0.1:0",
		environ: []string{"RINGFENCE_ROOT_USER=" + testUser, "RINGFENCE_ROOT_PASSWORD=" + testPassword},
	}
	for i := range disks {
		g.disks = append(g.disks, filepath.Join(dir, fmt.Sprintf("disk%d", i+1)))
	}
	return g
}

// startGateway starts a gateway of its own for t and stops it at the end.
func startGateway(t *testing.T, disks int, args ...string) *gateway {
	t.Helper()
	needProcess(t)
	g := newGateway(t.TempDir(), disks)
	g.args = args
	g.start(t)
	return g
}

// start starts the process and waits until it is ready.
func (g *gateway) start(t *testing.T) {
	t.Helper()
	if err := g.launch(); err != nil {
		t.Fatal(err)
	}
	out := g.out // of this run; there may be others
	t.Cleanup(func() {
		g.kill()
		for _, word := range []string{"DATA RACE", "panic", "invariant broken", "goroutine "} {
			if strings.Contains(out.text(), word) {
				t.Errorf("the gateway said %q", word)
			}
		}
		if t.Failed() {
			t.Logf("the gateway said:\n%s", out.text())
		}
	})
	g.waitReady(t)
}

// launch starts the process and waits until it listens.
func (g *gateway) launch() error {
	cmd := g.command()
	out := &output{serving: make(chan string, 1)}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	g.cmd, g.out, g.exited = cmd, out, make(chan struct{})
	var readers sync.WaitGroup
	readers.Go(func() { out.readLog(stderr) })
	readers.Go(func() { out.readPrinted(stdout) })
	go func() { // ends with the process, which kill ends
		readers.Wait()
		_ = cmd.Wait() // a non-zero exit code is no error of ours
		g.code = cmd.ProcessState.ExitCode()
		close(g.exited)
	}()
	timer := time.NewTimer(30 * time.Second)
	defer timer.Stop()
	select {
	case g.address = <-out.serving:
		return nil
	case <-g.exited:
		return fmt.Errorf("the gateway ended with code %d:\n%s", g.code, g.said())
	case <-timer.C:
		g.kill()
		return fmt.Errorf("the gateway does not listen after 30 s:\n%s", g.said())
	}
}

// command is the process to start.
func (g *gateway) command() *exec.Cmd {
	line := append([]string(nil), g.tracer...)
	line = append(line, cmp.Or(g.binary, suite.binary), "server", "--address", g.address, "--log-format", "json")
	line = append(append(line, g.args...), g.disks...)
	if g.confine != "" {
		line = append([]string{os.Args[0]}, line...)
	}
	cmd := exec.Command(line[0], line[1:]...)
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "RINGFENCE_") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(cmd.Env, g.environ...)
	if g.confine != "" {
		cmd.Env = append(cmd.Env, confineVariable+"="+g.confine)
	}
	return cmd
}

func (o *output) readLog(r io.Reader) {
	for lines := bufio.NewScanner(r); lines.Scan(); {
		var entry struct{ Message, Address string }
		// Lines that are no JSON are for people and kept as they are.
		if err := json.Unmarshal(lines.Bytes(), &entry); err == nil && entry.Message == "serving" {
			o.serving <- entry.Address
		}
		o.mu.Lock()
		o.lines = append(o.lines, lines.Text())
		o.mu.Unlock()
	}
}

func (o *output) readPrinted(r io.Reader) {
	buf := make([]byte, 4096)
	for {
		n, err := r.Read(buf)
		o.mu.Lock()
		o.stdout.Write(buf[:n])
		o.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// said is all of standard error.
func (g *gateway) said() string { return g.out.text() }

func (o *output) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.lines, "\n")
}

// printed is all of standard output.
func (g *gateway) printed() string {
	g.out.mu.Lock()
	defer g.out.mu.Unlock()
	return g.out.stdout.String()
}

// kill ends the process as a power cut would and waits.
func (g *gateway) kill() {
	if g.cmd == nil {
		return
	}
	_ = g.cmd.Process.Kill() // it may be gone already
	<-g.exited
}

// shutdown ends the process with SIGTERM and waits for a clean end.
func (g *gateway) shutdown() error {
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	timer := time.NewTimer(60 * time.Second)
	defer timer.Stop()
	select {
	case <-g.exited:
	case <-timer.C:
		g.kill()
		return errors.New("still there 60 s after SIGTERM")
	}
	if g.code != 0 {
		return fmt.Errorf("exit code %d:\n%s", g.code, g.said())
	}
	return nil
}

func (g *gateway) stop(t *testing.T) {
	t.Helper()
	if err := g.shutdown(); err != nil {
		t.Fatal(err)
	}
}

func (g *gateway) target() target {
	return target{url: "http://" + g.address, user: testUser, password: testPassword}
}

// readiness is the answer of /-/ready.
func (g *gateway) readiness(t *testing.T) (int, string) {
	t.Helper()
	resp, err := http.Get("http://" + g.address + "/-/ready")
	if err != nil {
		return 0, err.Error()
	}
	body, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(body)
}

func (g *gateway) waitReady(t *testing.T) {
	t.Helper()
	eventually(t, 30*time.Second, "ready", func() bool {
		code, _ := g.readiness(t)
		return code == http.StatusOK
	})
}

// metrics scrapes /-/metrics into values by the text of the series.
func (g *gateway) metrics(t *testing.T) map[string]float64 {
	t.Helper()
	return g.target().metrics(t)
}

func (tg target) metrics(t *testing.T) map[string]float64 {
	t.Helper()
	resp, err := http.Get(tg.url + "/-/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("/-/metrics: %s", resp.Status)
	}
	values := map[string]float64{}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "#") {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		v, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			t.Fatalf("metrics line %q: %v", line, err)
		}
		values[line[:at]] = v
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return values
}

// rss is the resident set of the process in bytes, peak its high-water mark.
func (g *gateway) rss(t *testing.T) (now, peak int64) {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", g.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var kib int64
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kib); err == nil {
			now = kib << 10
		}
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kib); err == nil {
			peak = kib << 10
		}
	}
	return now, peak
}
