package main

import (
	"bytes"
	"encoding/csv"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ringfence/internal/bench"
)

// TestMain lets the test binary be the process that a bench starts for a leg.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "bench" && os.Args[2] == "leg" {
		main()
	}
	os.Exit(m.Run())
}

func runGateway(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	p := &process{environ: os.Environ(), stdout: &stdout, stderr: &stderr}
	code = p.run(t.Context(), args)
	return code, stdout.String(), stderr.String()
}

func TestBenchArguments(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"bench", exitUsage, "pread or scan"},
		{"bench -h", exitOK, "bench pread -h"},
		{"bench --help", exitOK, "bench scan -h"},
		{"bench write", exitUsage, "pread or scan"},
		{"bench leg", exitUsage, "for the program itself"},
		{"bench pread -h", exitOK, "-strategy"},
		{"bench scan -h", exitOK, "-scheduling"},
		{"bench pread", exitUsage, "--file"},
		{"bench pread --file F extra", exitUsage, "extra"},
		{"bench pread --file F --strategy mmap", exitUsage, "std_cached"},
		{"bench pread --file F --access hot", exitUsage, "warm"},
		{"bench pread --file F --read-size many", exitUsage, "read-size"},
		{"bench pread --file F --read-size 2GiB", exitUsage, "read size"},
		{"bench pread --file F --read-size 0", exitUsage, "read size"},
		{"bench pread --file F --concurrency 0", exitUsage, "concurrency"},
		{"bench pread --file F --concurrency 4097", exitUsage, "concurrency"},
		{"bench pread --file F --file-size 4KiB --read-size 4KiB", exitUsage, "file size"},
		{"bench pread --file F --runs 0", exitUsage, "runs"},
		{"bench pread --file F --procs -1", exitUsage, "procs"},
		{"bench pread --file F --shards 17 --strategy uring_cached", exitUsage, "shards"},
		{"bench pread --file F --mode fixed --strategy uring_cached", exitUsage, "mode"},
		{"bench pread --file F --entries 100 --strategy uring_cached", exitUsage, "entries"},
		{"bench pread --file F --direct --read-size 1000", exitUsage, "multiple"},
		{"bench pread --file F --align 7", exitUsage, "align"},
		{"bench scan", exitUsage, "roots"},
		{"bench scan --engine mmap D", exitUsage, "uring"},
		{"bench scan --devices 2 D", exitUsage, "devices"},
		{"bench scan --devices 1 --list F", exitUsage, "do not go together"},
		{"bench scan D", exitUsage, "no regular files"},
		{"bench scan --list F/gone", exitFail, "gone"},
	} {
		args := strings.Fields(c.args)
		for i, a := range args {
			args[i] = strings.Replace(strings.Replace(a, "F", file, 1), "D", dir, 1)
		}
		code, out, errs := runGateway(t, args...)
		if code != c.code || !strings.Contains(out+errs, c.says) {
			t.Errorf("%s: exit %d, want %d and %q:\n%s%s", c.args, code, c.code, c.says, out, errs)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("a refused bench left %v, %v", left, err)
	}
}

func TestBenchPread(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	args := []string{
		"bench", "pread", "--file", file, "--file-size", "4MiB", "--strategy", "std_cached,nowait", "--read-size", "16KiB,64KiB",
		"--access", "cold,warm", "--ops", "40", "--runs", "2", "--procs", "3",
	}
	code, out, errs := runGateway(t, append(args, "--csv")...)
	if code != exitOK || !strings.Contains(errs, "made "+file) || !strings.Contains(errs, "std_cached") {
		t.Fatalf("exit %d:\n%s%s", code, out, errs)
	}
	lines, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	if err != nil || len(lines) != 1+2*2*2*2 {
		t.Fatalf("%d lines: %v", len(lines), err)
	}
	procs, device := slices.Index(lines[0], "procs"), slices.Index(lines[0], "device_bytes")
	for _, line := range lines[1:] {
		if line[procs] != "3" {
			t.Errorf("GOMAXPROCS %s of a leg, want 3", line[procs])
		}
		if cold := slices.Contains(line, "cold"); cold == (line[device] == "0") {
			t.Errorf("device bytes: %v", line)
		}
	}
	code, out, errs = runGateway(t, args...)
	if code != exitOK || errs != "" || !strings.Contains(out, "nowait") || strings.Contains(out, ",") && strings.Contains(out, "device_bytes") {
		t.Errorf("without --csv: exit %d:\n%s%s", code, out, errs)
	}
}

func TestBenchRefusesWhatExists(t *testing.T) {
	dir := t.TempDir()
	file, target := filepath.Join(dir, "f"), filepath.Join(dir, "target")
	if err := os.WriteFile(target, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, file); err != nil {
		t.Fatal(err)
	}
	for name, says := range map[string]string{file: "symbolic link", target: "8 bytes"} {
		if code, out, errs := runGateway(t, "bench", "pread", "--file", name); code != exitFail || !strings.Contains(errs, says) {
			t.Errorf("%s: exit %d:\n%s%s", name, code, out, errs)
		}
	}
	if data, err := os.ReadFile(target); err != nil || string(data) != "precious" {
		t.Errorf("%q, %v", data, err)
	}
}

func TestBenchVerify(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	args := []string{"bench", "pread", "--file", file, "--file-size", "1MiB", "--strategy", "std_open,std_cached,nowait,pool", "--verify"}
	code, out, errs := runGateway(t, args...)
	if code != exitOK || strings.Count(out, "every byte as it must be") != 4 {
		t.Fatalf("exit %d:\n%s%s", code, out, errs)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	data[123_456] ^= 1
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, errs := runGateway(t, args...); code != exitFail || !strings.Contains(errs, "byte 123456 ") {
		t.Errorf("exit %d:\n%s%s", code, out, errs)
	}
}

func TestBenchScan(t *testing.T) {
	var roots []string
	for _, size := range []int{100_000, 8192, 1} {
		root := t.TempDir()
		if err := os.WriteFile(filepath.Join(root, "f"), make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
		roots = append(roots, root)
	}
	args := append([]string{"bench", "scan", "--scheduling", "shared,per-device", "--threads", "3", "--depth", "2", "--request-size", "8KiB", "--runs", "2", "--csv"}, roots...)
	code, out, errs := runGateway(t, args...)
	if code != exitOK || !strings.Contains(errs, "verdict") {
		t.Fatalf("exit %d:\n%s%s", code, out, errs)
	}
	lines, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	if err != nil || len(lines) != 1+2*3 {
		t.Fatalf("%d lines: %v", len(lines), err)
	}
	coverage := slices.Index(lines[0], "coverage")
	bytesAt := slices.Index(lines[0], "bytes")
	for _, line := range lines[1:] {
		if line[coverage] != lines[1][coverage] || line[bytesAt] != "108193" {
			t.Errorf("covered: %v", line)
		}
	}
	for _, root := range roots {
		if entries, err := os.ReadDir(root); err != nil || len(entries) != 1 {
			t.Errorf("%s has %v, %v", root, entries, err)
		}
	}
}

// TestBenchIsDocumented: docs/bench.md explains every strategy and
// every column.
func TestBenchIsDocumented(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "bench.md"))
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, s := range bench.Strategies() {
		words = append(words, string(s))
	}
	var rows, scans bytes.Buffer
	if _, err := bench.NewCSV(&rows); err != nil {
		t.Fatal(err)
	}
	if _, err := bench.NewScanCSV(&scans); err != nil {
		t.Fatal(err)
	}
	words = append(words, strings.Split(strings.TrimSpace(rows.String())+","+strings.TrimSpace(scans.String()), ",")...)
	for _, w := range words {
		if !bytes.Contains(doc, []byte("`"+w+"`")) {
			t.Errorf("docs/bench.md says nothing of %s", w)
		}
	}
}
