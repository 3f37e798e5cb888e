package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"ringfence/storage"
	"ringfence/storage/hybrid"
)

// running is a whole gateway in this process.
type running struct {
	*gateway
	t    *testing.T
	url  string
	root credentials
	logs *lines
	end  func() error // stops it, once
}

// lines keeps what was logged.
type lines struct {
	text chan string // one element, what there is so far
}

func newLines() *lines {
	l := &lines{make(chan string, 1)}
	l.text <- ""
	return l
}

func (l *lines) Write(p []byte) (int, error) {
	l.text <- <-l.text + string(p)
	return len(p), nil
}

func (l *lines) String() string {
	s := <-l.text
	l.text <- s
	return s
}

// startEnviron is the environment of what start runs, for faults.
var startEnviron []string

// start runs a gateway over new disks.
func start(t *testing.T, paths []string, args ...string) *running {
	t.Helper()
	r := &running{t: t, root: credentials{User: "admin", Password: "long/enough+secret"}, logs: newLines()}
	args = append(args, "--root-user="+r.root.User, "--root-password="+r.root.Password, "--address=127.0.0.1:0", "--drain-timeout=5s")
	c, err := resolve(settings(), append(args, paths...), nil)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", c.Address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	faults := (&process{environ: startEnviron}).newFaults()
	t.Cleanup(faults.begin(ctx))
	r.gateway, err = assemble(ctx, c, paths, faults, zerolog.New(r.logs).Level(zerolog.WarnLevel))
	if err != nil {
		cancel()
		t.Fatal(errors.Join(err, ln.Close()))
	}
	serving, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- r.run(ctx, ln, func() { close(serving) }) }()
	r.end = func() error {
		cancel()
		err := <-ended
		ended <- nil
		return err
	}
	t.Cleanup(func() {
		if err := r.end(); err != nil {
			t.Errorf("gateway: %v", err)
		}
		if t.Failed() {
			t.Logf("log: %s", r.logs)
		}
	})
	select {
	case <-serving:
	case err := <-ended:
		ended <- nil
		t.Fatalf("gateway: %v", err)
	}
	r.url = "http://" + ln.Addr().String()
	r.eventually("it is ready", func() bool { return r.ready().Ready })
	return r
}

// eventually waits until ok, which somebody else makes true.
func (r *running) eventually(what string, ok func() bool) {
	r.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); <-tick.C {
		if ok() {
			return
		}
	}
	r.t.Fatalf("never happened: %s\nengines: %+v", what, r.engineInfos())
}

// do sends a signed request. Its path needs no escapes.
func (r *running) do(method, path string, body []byte, header ...string) (int, []byte, error) {
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	sign(req, body, r.root, "us-east-1", time.Now())
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }() // only read from
	got, err := io.ReadAll(resp.Body)
	return resp.StatusCode, got, err
}

// must is do, and the status must be the one given.
func (r *running) must(status int, method, path string, body []byte, header ...string) []byte {
	r.t.Helper()
	code, got, err := r.do(method, path, body, header...)
	if err != nil || code != status {
		r.t.Fatalf("%s %s: status %d, %v, want %d: %.300s", method, path, code, err, status, got)
	}
	return got
}

// set turns a knob.
func (r *running) set(name, value string) {
	r.t.Helper()
	r.must(http.StatusOK, http.MethodPut, "/-/admin/v1/knobs/"+name, []byte(value))
}

// objects puts objects of many sizes, by key.
func (r *running) objects() map[string][]byte {
	r.t.Helper()
	r.must(http.StatusOK, http.MethodPut, "/things", nil)
	random := rand.New(rand.NewPCG(3, 5))
	all := map[string][]byte{}
	for i, size := range []int{0, 1, 4096, 70_000, 128<<10 + 1, 1 << 20, 1<<20 + 7, 3 << 20, 5<<20 + 12345} {
		body := make([]byte, size)
		for j := range body {
			body[j] = byte(random.Uint32())
		}
		key := fmt.Sprintf("/things/object-%d", i)
		r.must(http.StatusOK, http.MethodPut, key, body)
		all[key] = body
	}
	return all
}

// check reads a random part of an object and says what is wrong with it.
func (r *running) check(key string, want []byte, random *rand.Rand) error {
	status, header := http.StatusOK, []string(nil)
	if len(want) > 0 && random.IntN(3) > 0 {
		from := random.IntN(len(want))
		to := from + random.IntN(len(want)-from)
		status, header, want = http.StatusPartialContent, []string{"Range", fmt.Sprintf("bytes=%d-%d", from, to)}, want[from:to+1]
	}
	code, got, err := r.do(http.MethodGet, key, nil, header...)
	switch {
	case err != nil:
		return fmt.Errorf("%s %v: %w", key, header, err)
	case code != status:
		return fmt.Errorf("%s %v: status %d: %.300s", key, header, code, got)
	case !bytes.Equal(got, want):
		return fmt.Errorf("%s %v: %d wrong bytes", key, header, len(got))
	}
	return nil
}

var sample = regexp.MustCompile(`(?m)^(ringfence_[a-z_]+)(?:\{(.*)\})? (\S+)$`)

// page is what /-/metrics says: name, labels as they stand, value.
type page map[string]map[string]float64

func (r *running) scrape() page {
	r.t.Helper()
	p := page{}
	for _, m := range sample.FindAllStringSubmatch(string(r.must(http.StatusOK, http.MethodGet, "/-/metrics", nil)), -1) {
		v, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			r.t.Fatalf("%s: %v", m[0], err)
		}
		if p[m[1]] == nil {
			p[m[1]] = map[string]float64{}
		}
		p[m[1]][m[2]] = v
	}
	return p
}

// total sums a family, over the samples whose labels have part.
func (p page) total(name, part string) float64 {
	sum := 0.0
	for labels, v := range p[name] {
		if strings.Contains(labels, part) {
			sum += v
		}
	}
	return sum
}

// conserves checks on one page that no ring has lost a read.
func (p page) conserves(t *testing.T) {
	t.Helper()
	if len(p["ringfence_uring_submitted_total"]) == 0 {
		t.Error("no ringfence_uring_submitted_total")
	}
	for shard, submitted := range p["ringfence_uring_submitted_total"] {
		delivered, orphans, flying := p["ringfence_uring_delivered_total"][shard], p["ringfence_uring_orphan_reclaimed_total"][shard], p["ringfence_uring_in_flight"][shard]
		if submitted != delivered+orphans+flying {
			t.Errorf("{%s}: %v submitted, but %v delivered, %v orphans, %v in flight", shard, submitted, delivered, orphans, flying)
		}
	}
}

// needRings ends the test if the kernel refuses rings.
func needRings(t *testing.T) {
	t.Helper()
	pool, err := storage.NewPool(storage.PoolOptions{BudgetBytes: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	text, allowed, err := hybrid.Probe(t.Context(), hybrid.ProbeOptions{Dir: t.TempDir(), Pool: pool})
	if err := errors.Join(err, pool.Close()); err != nil {
		t.Fatal(err)
	}
	if allowed {
		return
	}
	if slices.Contains(strings.Split(os.Getenv("RINGFENCE_TEST_REQUIRE"), ","), "uring") {
		t.Fatalf("rings are required: %s", text)
	}
	t.Skipf("SKIP %s: %s", t.Name(), text)
}

// openRings counts the rings that this process has.
func openRings(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, fd := range fds {
		// One that was closed meanwhile is no ring.
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.Contains(to, "io_uring") {
			n++
		}
	}
	return n
}
