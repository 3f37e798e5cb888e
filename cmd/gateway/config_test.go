package main

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func mustResolve(t *testing.T, args, environ []string) Config {
	t.Helper()
	c, err := resolve(settings(), args, environ)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// problemsOf resolves and returns what was wrong.
func problemsOf(t *testing.T, args, environ []string) []string {
	t.Helper()
	_, err := resolve(settings(), args, environ)
	var bad *configError
	if err != nil && !errors.As(err, &bad) {
		t.Fatal(err)
	}
	if bad == nil {
		return nil
	}
	return bad.problems
}

func TestDefaultsParse(t *testing.T) {
	c := mustResolve(t, nil, nil)
	if c.Address != ":9000" || c.Parity != parityAuto || c.Region != "us-east-1" || c.MemoryBytes != 256<<20 ||
		c.MaxRequests != 1024 || c.DrainTimeout != 30*time.Second || c.LogLevel != "info" || c.LogFormat != "auto" {
		t.Errorf("defaults: %+v", c)
	}
	if c.Root.User != "" || c.Root.Password != "" {
		t.Error("there must be no default credentials")
	}
}

func TestPrecedence(t *testing.T) {
	env := []string{"RINGFENCE_REGION=from-env", "RINGFENCE_MEMORY=1GiB"}
	c := mustResolve(t, []string{"--region", "from-flag", "disk1"}, env)
	if c.Region != "from-flag" {
		t.Errorf("region %s: a flag must win over the environment", c.Region)
	}
	if c.MemoryBytes != 1<<30 {
		t.Errorf("memory %d: the environment must win over the default", c.MemoryBytes)
	}
	if !slices.Equal(c.Args, []string{"disk1"}) {
		t.Errorf("arguments %q", c.Args)
	}
}

func TestFlagsStandAnywhere(t *testing.T) {
	c := mustResolve(t, []string{"a", "-parity=1", "b", "--region", "x", "--", "--c"}, nil)
	if c.Parity != 1 || c.Region != "x" || !slices.Equal(c.Args, []string{"a", "b", "--c"}) {
		t.Errorf("got %+v", c)
	}
}

func TestEveryProblemIsListed(t *testing.T) {
	got := problemsOf(t,
		[]string{"--adress", "--parity=many", "--memory=1MiB", "--log-level=loud", "--region"},
		[]string{"RINGFENCE_DRAIN_TIMEOUT=soon", "RINGFENCE_ROOT_USER=", "RINGFENCE_MAX_REQUESTS=0", "RINGFENCE_DOMAINS=a..b", "RINGFENCE_ADDRESS=9000", "RINGFENCE_LOG_FORMAT=xml"})
	want := []string{
		"unknown flag --adress (did you mean address?)", "--parity: ", "--memory: ", "--log-level: ", "--region: needs a value",
		"RINGFENCE_DRAIN_TIMEOUT: ", "RINGFENCE_ROOT_USER: is set but empty", "RINGFENCE_MAX_REQUESTS: ", "RINGFENCE_DOMAINS: ", "RINGFENCE_ADDRESS: ", "RINGFENCE_LOG_FORMAT: ",
	}
	for _, w := range want {
		if !slices.ContainsFunc(got, func(p string) bool { return strings.HasPrefix(p, w) }) {
			t.Errorf("no problem begins with %q", w)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d problems, want %d:\n%s", len(got), len(want), strings.Join(got, "\n"))
	}
}

func TestUnknownVariableWarns(t *testing.T) {
	c := mustResolve(t, nil, []string{"RINGFENCE_PARTIY=2", "RINGFENCE_TEST_REQUIRE=x", "HOME=/root"})
	if len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], "RINGFENCE_PARTIY is not known (did you mean RINGFENCE_PARITY?)") {
		t.Errorf("warnings %q", c.Warnings)
	}
}

func TestRootCredentials(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	user, password := file("user", "filed\n"), file("password", "filed-password\n")
	empty, lines := file("empty", "\n"), file("lines", "one\ntwo-two-two\n")
	for _, tc := range []struct {
		name           string
		args, environ  []string
		user, password string
		problem        string
	}{
		{name: "both", environ: []string{"RINGFENCE_ROOT_USER=admin", "RINGFENCE_ROOT_PASSWORD=longenough"}, user: "admin", password: "longenough"},
		{name: "files", environ: []string{"RINGFENCE_ROOT_USER_FILE=" + user, "RINGFENCE_ROOT_PASSWORD_FILE=" + password}, user: "filed", password: "filed-password"},
		{name: "flag over file in the environment", args: []string{"--root-user=flagged"},
			environ: []string{"RINGFENCE_ROOT_USER_FILE=" + user, "RINGFENCE_ROOT_PASSWORD=longenough"}, user: "flagged", password: "longenough"},
		{name: "file flag over environment", args: []string{"--root-user-file", user},
			environ: []string{"RINGFENCE_ROOT_USER=admin", "RINGFENCE_ROOT_PASSWORD=longenough"}, user: "filed", password: "longenough"},
		{name: "both of one level", environ: []string{"RINGFENCE_ROOT_USER=admin", "RINGFENCE_ROOT_USER_FILE=" + user, "RINGFENCE_ROOT_PASSWORD=longenough"}, problem: "both set"},
		{name: "only user", environ: []string{"RINGFENCE_ROOT_USER=admin"}, problem: "both or neither"},
		{name: "only password", environ: []string{"RINGFENCE_ROOT_PASSWORD=longenough"}, problem: "both or neither"},
		{name: "short user", environ: []string{"RINGFENCE_ROOT_USER=ab", "RINGFENCE_ROOT_PASSWORD=longenough"}, problem: "root-user: has 2"},
		{name: "short password", environ: []string{"RINGFENCE_ROOT_USER=admin", "RINGFENCE_ROOT_PASSWORD=seven77"}, problem: "root-password: has 7"},
		{name: "slash", environ: []string{"RINGFENCE_ROOT_USER=a/b/c", "RINGFENCE_ROOT_PASSWORD=longenough"}, problem: "printable"},
		{name: "empty file", environ: []string{"RINGFENCE_ROOT_USER_FILE=" + empty, "RINGFENCE_ROOT_PASSWORD=longenough"}, problem: "is empty"},
		{name: "two lines", environ: []string{"RINGFENCE_ROOT_USER=admin", "RINGFENCE_ROOT_PASSWORD_FILE=" + lines}, problem: "more than one line"},
		{name: "no file", environ: []string{"RINGFENCE_ROOT_USER_FILE=" + dir + "/none", "RINGFENCE_ROOT_PASSWORD=longenough"}, problem: "no such file"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := resolve(settings(), tc.args, tc.environ)
			if tc.problem != "" {
				if err == nil || !strings.Contains(err.Error(), tc.problem) {
					t.Fatalf("error %v, want one about %q", err, tc.problem)
				}
				if strings.Contains(err.Error(), "longenough") || strings.Contains(err.Error(), "seven77") {
					t.Error("the error shows the secret")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if c.Root.User != tc.user || c.Root.Password != tc.password {
				t.Errorf("got %s / %s", c.Root.User, c.Root.Password)
			}
		})
	}
}

func TestParseSize(t *testing.T) {
	for in, want := range map[string]int64{"0": 0, "64": 64, "1KiB": 1 << 10, "3MiB": 3 << 20, "2GiB": 2 << 30, "1TiB": 1 << 40} {
		if got, err := parseSize(in); err != nil || got != want {
			t.Errorf("%s: %d, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "-1", "MiB", "1MB", "1.5GiB", "9999999999999TiB", "0x10"} {
		if got, err := parseSize(in); err == nil {
			t.Errorf("%q: %d, want an error", in, got)
		}
	}
}

func TestExpandDisks(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want []string
	}{
		{"/a", []string{"/a"}},
		{"/d{1...3}", []string{"/d1", "/d2", "/d3"}},
		{"/d{3...1}x", []string{"/d3x", "/d2x", "/d1x"}},
		{"/r{1...2}/d{08...10}", []string{"/r1/d08", "/r1/d09", "/r1/d10", "/r2/d08", "/r2/d09", "/r2/d10"}},
	} {
		got, err := expandDisks([]string{tc.in})
		if err != nil || !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, %v", tc.in, got, err)
		}
	}
	for _, in := range []string{"", "/d{1...", "/d1...3}", "/d{}", "/d{1..3}", "/d{a...c}", "/d{1...300}", "/{1...20}/{1...20}", "/d{-1...3}", "/d}x{1...2}", "/d{{1...2}}"} {
		if got, err := expandDisks([]string{in}); err == nil {
			t.Errorf("%q: %d disks, want an error", in, len(got))
		}
	}
	if got, err := expandDisks(nil); err != nil || len(got) != 6 || !filepath.IsAbs(got[0]) {
		t.Errorf("default: %q, %v", got, err)
	}
}

var update = flag.Bool("update", false, "rewrite generated files")

// TestFlagsDocIsFresh compares docs/flags.md with the table; -update writes it.
func TestFlagsDocIsFresh(t *testing.T) { checkGenerated(t, "flags.md", flagsDoc()) }

func checkGenerated(t *testing.T, name, want string) {
	t.Helper()
	path := filepath.Join("..", "..", "docs", name)
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("docs/%s is stale: run go generate ./cmd/gateway", name)
	}
}

func TestHelpShowsEverySetting(t *testing.T) {
	var out strings.Builder
	p := &process{stdout: &out, stderr: &out}
	if code := p.run(t.Context(), []string{"server", "-h"}); code != exitOK {
		t.Fatalf("exit code %d", code)
	}
	for _, s := range settings() {
		if !strings.Contains(out.String(), "--"+s.name+" ") || !strings.Contains(out.String(), s.env()) {
			t.Errorf("help lacks %s", s.name)
		}
	}
}

func TestUsageErrors(t *testing.T) {
	for _, tc := range []struct {
		args []string
		says string
	}{
		{nil, "Usage"},
		{[]string{"sever"}, "did you mean server?"},
		{[]string{"server", "--parity", "x", "--memory", "y"}, "--memory"},
		{[]string{"doctor", "--parity", "2"}, "unknown flag --parity"},
	} {
		var out, errs strings.Builder
		p := &process{stdout: &out, stderr: &errs}
		if code := p.run(t.Context(), tc.args); code != exitUsage {
			t.Errorf("%q: exit code %d", tc.args, code)
		}
		if !strings.Contains(errs.String(), tc.says) {
			t.Errorf("%q: says %q, want %q in it", tc.args, errs.String(), tc.says)
		}
	}
}
