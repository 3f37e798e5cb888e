package integration

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"testing"
)

// knobs are all live settings, by name.
func (tg target) knobs(t *testing.T) map[string]string {
	t.Helper()
	a := tg.administer(t, http.MethodGet, "knobs", "")
	var all []struct{ Name, Value, Default, Allowed, Help string }
	if err := json.Unmarshal(a.body, &all); err != nil || a.status != http.StatusOK {
		t.Fatalf("knobs: %d %s: %v", a.status, a.body, err)
	}
	values := map[string]string{}
	for _, k := range all {
		if k.Name == "" || k.Help == "" || k.Allowed == "" {
			t.Errorf("a knob says too little of itself: %+v", k)
		}
		values[k.Name] = k.Value
	}
	return values
}

// TestAdministration turns knobs as an administrator does, and as others try.
func TestAdministration(t *testing.T) {
	t.Parallel()
	g := startGateway(t, 2)
	tg := g.target()
	names := tg.knobs(t)
	for _, name := range []string{"io-uring-read-enable", "io-uring-shards", "io-uring-entries", "io-uring-buffer-mode", "io-uring-inline",
		"io-uring-shadow-share", "io-uring-fd-cache", "o-direct-read-enable", "o-direct-read-threshold", "page-cache-reclaim-enable", "page-cache-reclaim-threshold"} {
		if _, ok := names[name]; !ok {
			t.Errorf("there is no knob %s", name)
		}
	}
	tg.turn(t, "io-uring-shadow-share", "0.25")
	tg.turn(t, "io-uring-inline", " No ")
	if got := tg.knobs(t); got["io-uring-shadow-share"] != "0.25" || got["io-uring-inline"] == names["io-uring-inline"] {
		t.Errorf("after two changes: %v", got)
	}
	before := tg.knobs(t)
	for _, bad := range []struct {
		status             int
		method, path, body string
	}{
		{http.StatusBadRequest, http.MethodPut, "knobs/io-uring-shards", "many"},
		{http.StatusBadRequest, http.MethodPut, "knobs/io-uring-shards", ""},
		{http.StatusBadRequest, http.MethodPut, "knobs/io-uring-buffer-mode", "fixed"},
		{http.StatusBadRequest, http.MethodPut, "knobs/io-uring-read-enable", "perhaps"},
		{http.StatusNotFound, http.MethodPut, "knobs/io-uring", "1"},
		{http.StatusNotFound, http.MethodGet, "knobs/io-uring", ""},
		{http.StatusNotFound, http.MethodGet, "nothing", ""},
		{http.StatusMethodNotAllowed, http.MethodDelete, "knobs/io-uring-shards", ""},
		{http.StatusMethodNotAllowed, http.MethodPost, "knobs", ""},
		{http.StatusRequestEntityTooLarge, http.MethodPut, "knobs/io-uring-shards", strings.Repeat("1", 1<<20)},
	} {
		if a := tg.administer(t, bad.method, bad.path, bad.body); a.status != bad.status {
			t.Errorf("%s %s %.20q: %d, want %d: %s", bad.method, bad.path, bad.body, a.status, bad.status, a.body)
		}
	}
	strangers := []target{{tg.url, tg.user, "wrong"}, {tg.url, "other", tg.password}}
	for _, s := range strangers {
		for _, path := range []string{"knobs", "engines", "nothing"} {
			if a := s.administer(t, http.MethodGet, path, ""); a.status != http.StatusForbidden {
				t.Errorf("GET %s by a stranger: %d %s", path, a.status, a.body)
			}
		}
		if a := s.administer(t, http.MethodPut, "knobs/io-uring-read-enable", "on"); a.status != http.StatusForbidden {
			t.Errorf("PUT by a stranger: %d %s", a.status, a.body)
		}
	}
	anonymous(t, tg)
	if after := tg.knobs(t); after["io-uring-read-enable"] != before["io-uring-read-enable"] || after["io-uring-shards"] != before["io-uring-shards"] {
		t.Errorf("a refused change had an effect: %v", after)
	}
	for _, said := range []string{`"audit":"knob"`, `"who":"` + testUser + `"`, `"new":"0.25"`} {
		if !strings.Contains(g.said(), said) {
			t.Errorf("the log lacks %s", said)
		}
	}
	g.stop(t)
}

// anonymous asks without a signature.
func anonymous(t *testing.T, tg target) {
	t.Helper()
	for _, path := range []string{"/-/admin/v1/knobs", "/-/admin/v1/engines", "/-/admin/v1/knobs/io-uring-shards", "/-/admin/"} {
		for _, method := range []string{http.MethodGet, http.MethodPut} {
			req, err := http.NewRequestWithContext(t.Context(), method, tg.url+path, strings.NewReader("1"))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := rawClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusForbidden && resp.StatusCode != http.StatusUnauthorized {
				t.Errorf("%s %s without a signature: %s", method, path, resp.Status)
			}
		}
	}
	// A bucket can't have the name, so that no object hides the API.
	if a := tg.do(t, request{method: http.MethodPut, bucket: "-", query: url.Values{}}); a.status == http.StatusOK {
		t.Error("a bucket of the name of the API was made")
	}
}

// run runs a command of the gateway's with credentials.
func (g *gateway) run(t *testing.T, environ []string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(suite.binary, args...)
	cmd.Env = environ
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestAdminCommand lists and turns knobs by the command.
func TestAdminCommand(t *testing.T) {
	t.Parallel()
	g := startGateway(t, 2)
	tg := g.target()
	endpoint := []string{"admin", "--endpoint", tg.url, "knobs"}
	out, err := g.run(t, g.environ, endpoint...)
	if err != nil || !strings.Contains(out, "io-uring-buffer-mode") || !strings.Contains(out, "non-fixed") {
		t.Errorf("list: %v\n%s", err, out)
	}
	if out, err := g.run(t, g.environ, append(endpoint, "io-uring-buffer-mode", "static")...); err != nil {
		t.Errorf("set: %v\n%s", err, out)
	}
	if got := tg.knobs(t)["io-uring-buffer-mode"]; got != "static" {
		t.Errorf("the mode is %q", got)
	}
	for _, bad := range [][]string{{"io-uring-buffer-mode", "fixed"}, {"io-uring", "1"}, {"io-uring-shards", "x"}} {
		if out, err := g.run(t, g.environ, append(endpoint, bad...)...); err == nil || strings.Contains(out, "goroutine") {
			t.Errorf("set %v succeeds: %s", bad, out)
		}
	}
	wrong := []string{"RINGFENCE_ROOT_USER=" + testUser, "RINGFENCE_ROOT_PASSWORD=not-the-one"}
	if out, err := g.run(t, wrong, endpoint...); err == nil {
		t.Errorf("wrong credentials list: %s", out)
	}
	g.stop(t)
}

// TestDoctorNamesTiers: for each disk the doctor says what would read it, with
// rings to be had and without, and touches none of it.
func TestDoctorNamesTiers(t *testing.T) {
	t.Parallel()
	needRings(t)
	g := startGateway(t, 4)
	g.stop(t)
	out, err := exec.Command(suite.binary, append([]string{"doctor"}, g.disks...)...).CombinedOutput()
	if err != nil {
		t.Errorf("doctor: %v", err)
	}
	text := string(out)
	for _, disk := range g.disks {
		if !strings.Contains(text, disk+" reads: std: switched off") {
			t.Errorf("the doctor does not say what reads %s, and why", disk)
		}
	}
	for words, n := range map[string]int{"With io-uring-read-enable on: ring": len(g.disks), "RWF_NOWAIT": len(g.disks), "locked memory": 1, "kernel.io_uring_disabled": 1, "seccomp": 1} {
		if strings.Count(text, words) < n {
			t.Errorf("the doctor does not say %q %d times", words, n)
		}
	}
	blocked := newGateway(t.TempDir(), 1)
	blocked.confine = confineRefuse
	cmd := blocked.command()
	cmd.Args = append([]string{cmd.Args[0], suite.binary, "doctor"}, g.disks...)
	out, err = cmd.CombinedOutput()
	if err != nil {
		t.Errorf("doctor, where io_uring is refused: %v", err)
	}
	if strings.Count(string(out), "on it would stay so: std: io_uring") != len(g.disks) || !strings.Contains(string(out), "not permitted") {
		t.Error("the doctor does not say that io_uring is refused")
	}
	if t.Failed() {
		t.Logf("the doctor said:\n%s\n%s", text, out)
	}
}
