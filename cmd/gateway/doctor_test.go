package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// doctorSays runs `gateway doctor` on one new directory.
func doctorSays(t *testing.T, environ []string, args ...string) string {
	t.Helper()
	var out, errs strings.Builder
	p := &process{environ: environ, stdout: &out, stderr: &errs}
	if code := p.run(t.Context(), append([]string{"doctor", t.TempDir()}, args...)); code == exitUsage || errs.Len() > 0 {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	return out.String()
}

// The doctor says what reads a disk as it is set, and what would with rings on.
func TestDoctorSaysWhatReads(t *testing.T) {
	off := doctorSays(t, nil)
	for _, s := range []string{"reads: std: switched off in these settings", "a gateway started with them would read by", "io-uring-read-enable on", "kernel.io_uring_disabled: ", "seccomp: ", "locked memory: "} {
		if !strings.Contains(off, s) {
			t.Errorf("lacks %q:\n%s", s, off)
		}
	}
	needRings(t)
	if !strings.Contains(off, "With io-uring-read-enable on: ring: ") {
		t.Errorf("rings are there, and the doctor does not say so:\n%s", off)
	}
	on := doctorSays(t, []string{"RINGFENCE_IO_URING_READ_ENABLE=yes", "RINGFENCE_IO_URING_SHARDS=junk"}, "--io-uring-shards=3", "--io-uring-buffer-mode=dynamic")
	if !strings.Contains(on, "reads: ring: ") || !strings.Contains(on, "A gateway started with these settings would read so.") || !strings.Contains(on, "3 shards of 128 entries, dynamic buffers") {
		t.Errorf("not as set:\n%s", on)
	}
	if said := doctorSays(t, []string{"RINGFENCE_IO_URING_SHARDS=junk"}); !strings.Contains(said, `warn  settings: io-uring-shards: "junk"`) {
		t.Errorf("a value that means nothing is not mentioned:\n%s", said)
	}
	if n := openRings(t); n != 0 {
		t.Errorf("the doctor left %d rings", n)
	}
}

func TestDoctorReadsTheKernelsFiles(t *testing.T) {
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	none := filepath.Join(t.TempDir(), "none")
	for _, c := range []struct {
		f     finding
		grade grade
		is    string
	}{
		{checkRingPolicy(file("0\n")), gradeOK, "everybody"},
		{checkRingPolicy(file("1\n")), gradeWarn, "privileged"},
		{checkRingPolicy(file("2\n")), gradeWarn, "nobody"},
		{checkRingPolicy(none), gradeOK, "before 6.6"},
		{checkSeccomp(file("Name:\tx\nSeccomp:\t0\nSeccomp_filters:\t0\n")), gradeOK, "no filter"},
		{checkSeccomp(file("Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n")), gradeOK, "a filter is in force"},
		{checkSeccomp(file("Seccomp:\t1\n")), gradeOK, "mode 1"},
		{checkSeccomp(file("Name:\tx\n")), gradeOK, "unknown"},
		{checkSeccomp(none), gradeWarn, "unknown"},
	} {
		if c.f.grade != c.grade || !strings.Contains(c.f.is, c.is) {
			t.Errorf("%+v, want %v, %q", c.f, c.grade, c.is)
		}
	}
}
