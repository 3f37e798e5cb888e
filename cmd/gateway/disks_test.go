package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"ringfence/storage"
	"ringfence/storage/local"
)

func testOpener(t *testing.T) opener {
	t.Helper()
	pool, err := storage.NewPool(storage.PoolOptions{BudgetBytes: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	engines := newEngines(newKnobs(), (&process{}).newFaults(), pool, zerolog.Nop())
	t.Cleanup(func() {
		engines.close()
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	})
	return opener{engines: engines}
}

// directories names n directories that don't exist yet.
func directories(t *testing.T, n int) []string {
	t.Helper()
	dir := t.TempDir()
	var paths []string
	for i := range n {
		paths = append(paths, filepath.Join(dir, "parent", fmt.Sprintf("disk%d", i+1)))
	}
	return paths
}

// planOf looks at paths and plans.
func planOf(t *testing.T, o opener, paths []string) plan {
	t.Helper()
	looks, err := o.lookAt(t.Context(), paths)
	if err != nil {
		t.Fatal(err)
	}
	p, err := planDisks(looks, parityAuto, newUUID)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// makeStore formats a store and returns its plan.
func makeStore(t *testing.T, o opener, paths []string) plan {
	t.Helper()
	p := planOf(t, o, paths)
	if err := o.format(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if err := p.settle(); err != nil {
		t.Fatal(err)
	}
	return p
}

func identities(p plan) []storage.Identity {
	var ids []storage.Identity
	for _, set := range p.sets {
		for _, at := range set {
			ids = append(ids, at.id)
		}
	}
	return ids
}

func TestFormatIsFoundAgain(t *testing.T) {
	o, paths := testOpener(t), directories(t, 4)
	made := makeStore(t, o, paths)
	if _, _, _, err := settleCredentials(t.Context(), rootConfig{}, made.sets[0][0].id.Deployment, made.roots()); err != nil {
		t.Fatal(err)
	}
	again := planOf(t, o, paths)
	if again.fresh || !slices.Equal(identities(made), identities(again)) || len(again.notes) > 0 {
		t.Errorf("found again: %+v", again)
	}
	d, err := o.open(t.Context(), "place", paths[2])
	if err != nil {
		t.Fatal(err)
	}
	if d.Identity() != made.sets[0][2].id {
		t.Errorf("opened %+v", d.Identity())
	}
	if _, err := o.open(t.Context(), "place", paths[2]); !errors.Is(err, local.ErrInUse) {
		t.Errorf("opened twice: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// A first start that is cut short anywhere is finished by the next one: the
// first n disks are formatted, the others only marked.
func TestFormatIsResumed(t *testing.T) {
	for n := range 2 {
		t.Run(fmt.Sprintf("%d formatted", n), func(t *testing.T) {
			o, paths := testOpener(t), directories(t, 2)
			first := planOf(t, o, paths)
			if err := o.format(t.Context(), first); err != nil {
				t.Fatal(err)
			}
			for _, path := range paths[n:] { // as if format had not come so far
				for _, name := range []string{"superblock.a", "superblock.b", "meta", "shards"} {
					if err := os.RemoveAll(filepath.Join(path, name)); err != nil {
						t.Fatal(err)
					}
				}
			}
			second := makeStore(t, o, paths)
			if n > 0 && !slices.Equal(identities(first), identities(second)) {
				t.Error("the second start chose other identities")
			}
			third := planOf(t, o, paths)
			if !slices.Equal(identities(second), identities(third)) || len(third.vacant) > 0 {
				t.Errorf("the store is not whole: %+v", third)
			}
			if left, err := filepath.Glob(filepath.Join(filepath.Dir(paths[0]), "*", local.NamePending)); err != nil || len(left) > 0 {
				t.Errorf("marks are left: %q, %v", left, err)
			}
		})
	}
}

func TestLookAt(t *testing.T) {
	o := testOpener(t)
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"blank", "foreign", "mountpoint"} {
		if err := os.Mkdir(path(name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(path("mountpoint"), "lost+found"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"foreign/x", "file"} {
		if err := os.WriteFile(path(name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(path("blank"), path("link")); err != nil {
		t.Fatal(err)
	}
	makeStore(t, o, []string{path("ours")})
	want := map[string]look{"blank": lookBlank, "mountpoint": lookBlank, "foreign": lookForeign, "file": lookForeign, "none": lookAbsent, "ours": lookFormatted}
	for name, look := range want {
		disks, err := o.lookAt(t.Context(), []string{path(name)})
		if err != nil || disks[0].look != look {
			t.Errorf("%s: look %d, want %d: %s, %v", name, disks[0].look, look, disks[0].reason, err)
		}
	}
	for _, twice := range [][]string{{path("blank"), path("blank")}, {path("blank"), path("link")}} {
		if _, err := o.lookAt(t.Context(), twice); err == nil {
			t.Errorf("%q: no error", twice)
		}
	}
	if _, err := os.Stat(path("none")); !os.IsNotExist(err) {
		t.Errorf("looking made a directory: %v", err)
	}
}

// A place whose disk was missing at the start finds it in whatever vacant
// directory it turns up.
func TestFindReturnedDisk(t *testing.T) {
	o, paths := testOpener(t), directories(t, 4)
	made := makeStore(t, o, paths)
	want := made.sets[0][3].id
	want.Disk = storage.UUID{}
	vacant := append(directories(t, 2), paths[0])
	_, err := o.find(t.Context(), "place", want, vacant)
	if !errors.Is(err, storage.ErrOffline) || !strings.Contains(err.Error(), "no such directory") || !strings.Contains(err.Error(), "another disk") {
		t.Errorf("nowhere: %v", err)
	}
	if err := makeDir(filepath.Dir(vacant[1])); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(paths[3], vacant[1]); err != nil {
		t.Fatal(err)
	}
	d, err := o.find(t.Context(), "place", want, vacant)
	if err != nil {
		t.Fatal(err)
	}
	if d.Identity() != made.sets[0][3].id {
		t.Errorf("found %+v", d.Identity())
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

func TestDoctor(t *testing.T) {
	var out, errs strings.Builder
	p := &process{stdout: &out, stderr: &errs}
	dir := t.TempDir()
	code := p.run(t.Context(), []string{"doctor", dir + "/disk{1...2}"})
	if code == exitUsage || errs.Len() > 0 {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	for _, s := range []string{"kernel: ", "io_uring: ", "open files: ", "clock: ", "disk " + dir + "/disk1", "would be made", "MiB free", "2 disks share one file system"} {
		if !strings.Contains(out.String(), s) {
			t.Errorf("the doctor does not mention %q:\n%s", s, out.String())
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("the doctor left %v, %v", left, err)
	}
	if f := checkClock(time.Unix(0, 0)); f.grade != gradeFail {
		t.Errorf("1970 is %v", f.grade)
	}
}

func TestHealth(t *testing.T) {
	ready := http.StatusOK
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/-/ready" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		w.WriteHeader(ready)
		if _, err := w.Write([]byte(`{"ready":true}`)); err != nil {
			t.Error(err)
		}
	}))
	defer srv.Close()
	run := func(args ...string) (int, string) {
		var out, errs strings.Builder
		p := &process{stdout: &out, stderr: &errs}
		return p.run(t.Context(), append([]string{"health"}, args...)), out.String() + errs.String()
	}
	if code, said := run(srv.URL); code != exitOK || !strings.Contains(said, `"ready":true`) {
		t.Errorf("ready: %d %s", code, said)
	}
	byEnv := &process{environ: []string{"RINGFENCE_ADDRESS=" + strings.TrimPrefix(srv.URL, "http://")}, stdout: io.Discard, stderr: io.Discard}
	if code := byEnv.run(t.Context(), []string{"health"}); code != exitOK {
		t.Errorf("address from the environment: %d", code)
	}
	ready = http.StatusServiceUnavailable
	if code, said := run(srv.URL + "/"); code != exitFail || !strings.Contains(said, "503") {
		t.Errorf("not ready: %d %s", code, said)
	}
	srv.Close()
	if code, _ := run(srv.URL); code != exitFail {
		t.Errorf("gone: %d", code)
	}
	if code, _ := run("a", "b"); code != exitUsage {
		t.Errorf("two URLs: %d", code)
	}
}

func TestWelcomeCanBePasted(t *testing.T) {
	text := welcome(credentials{User: "U", Password: "P"}, endpointURL("[::]:9000"), "eu-1", "/d/f")
	for _, s := range []string{"export AWS_ACCESS_KEY_ID=U\n", "export AWS_SECRET_ACCESS_KEY=P\n", "export AWS_DEFAULT_REGION=eu-1\n", "aws --endpoint-url http://127.0.0.1:9000 s3 mb ", "/d/f"} {
		if !strings.Contains(text, s) {
			t.Errorf("lacks %q:\n%s", s, text)
		}
	}
	for address, want := range map[string]string{":9000": "http://127.0.0.1:9000", "0.0.0.0:1": "http://127.0.0.1:1", "[::1]:1": "http://[::1]:1", "box:1": "http://box:1"} {
		if got := endpointURL(address); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}
