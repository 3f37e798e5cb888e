package bench

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// scanTree makes three roots of uneven size: one file is empty, one is not
// cut evenly by requests, one is a link that must not be followed.
func scanTree(t *testing.T) []string {
	t.Helper()
	var roots []string
	for device, sizes := range [][]int{{100_000, 0, 64 << 10}, {1}, {4096, 300_001, 8192, 8193, 12_288}} {
		root := filepath.Join(t.TempDir(), "disk")
		must(t, os.MkdirAll(filepath.Join(root, "below"), 0o700))
		for i, size := range sizes {
			data := make([]byte, size)
			fill(data, int64(device*1000+i)*8)
			write(t, filepath.Join(root, []string{"", "below"}[i%2], string(rune('a'+i))), data)
		}
		must(t, os.Symlink("/dev/zero", filepath.Join(root, "link")))
		roots = append(roots, root)
	}
	return roots
}

func collect(t *testing.T, roots []string) []ScanFile {
	t.Helper()
	files, err := Collect(t.Context(), roots, 0)
	must(t, err)
	return files
}

func TestCollect(t *testing.T) {
	roots := scanTree(t)
	files := collect(t, roots)
	if len(files) != 9 || devices(files) != 3 {
		t.Fatalf("%d files of %d devices: %v", len(files), devices(files), files)
	}
	for _, f := range files {
		if strings.HasSuffix(f.Path, "link") || !strings.HasPrefix(f.Path, roots[f.Device]) {
			t.Errorf("listed: %+v", f)
		}
	}
	two, err := Collect(t.Context(), roots, 2)
	if err != nil || devices(two) != 2 || len(two) != 4 {
		t.Errorf("two devices: %v, %v", two, err)
	}
	for name, roots := range map[string][]string{"missing": {"/does/not/exist"}, "nothing in it": {t.TempDir()}} {
		if _, err := Collect(t.Context(), roots, 0); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for _, n := range []int{-1, 4, DevicesMax + 1} {
		if _, err := Collect(t.Context(), roots, n); !errors.Is(err, ErrUsage) {
			t.Errorf("%d devices of 3: %v", n, err)
		}
	}
	lines := files[8].Path + "\n\n " + files[0].Path + "\n" + filepath.Join(t.TempDir(), "..") + "\n"
	if _, err := CollectList(t.Context(), strings.NewReader(lines), roots); err == nil {
		t.Error("a folder in a list is no error")
	}
	listed, err := CollectList(t.Context(), strings.NewReader(lines[:strings.LastIndex(lines[:len(lines)-1], "\n")]), roots)
	if err != nil || len(listed) != 2 || listed[0].Device != 1 || listed[1].Device != 0 || listed[0].Path != files[8].Path {
		t.Errorf("list: %+v, %v", listed, err)
	}
}

// TestSchedules: whatever the schedule, each file is read once; per device, no
// thread leaves its devices.
func TestSchedules(t *testing.T) {
	files := collect(t, scanTree(t))
	for _, how := range Schedulings() {
		for _, threads := range []int{1, 3, 6} {
			seen := make([]int, len(files))
			for i, q := range schedule(files, threads, how) {
				for n, ok := q.take(); ok; n, ok = q.take() {
					seen[n]++
					if d := files[n].Device; how == PerDevice && d%threads != i%3 {
						t.Errorf("%d threads: thread %d reads device %d", threads, i, d)
					}
				}
			}
			if slices.Max(seen) != 1 || slices.Min(seen) != 1 {
				t.Errorf("%s, %d threads: files are read %v times", how, threads, seen)
			}
		}
	}
	order := interleave(files, func(int) bool { return true })
	var turn []int
	for _, n := range order {
		turn = append(turn, files[n].Device)
	}
	if !slices.Equal(turn, []int{0, 1, 2, 0, 2, 0, 2, 2, 2}) {
		t.Errorf("devices in turn: %v", turn)
	}
}

func scanLeg(files []ScanFile, e ScanEngine) ScanLeg {
	return ScanLeg{Files: files, Engine: e, Load: ScanLoad{Threads: 3, Depth: 4, RequestBytes: 8192, TempDir: os.TempDir()}}
}

// TestCoverageIsEqual: every way of scanning reads the same files, requests and
// bytes, with the same content, and writes nothing.
func TestCoverageIsEqual(t *testing.T) {
	roots := scanTree(t)
	files := collect(t, roots)
	want := expected(files, 8192)
	if want.Files != 9 || want.Bytes != totalBytes(files) || want.Requests != 13+8+1+1+37+1+2+2 {
		t.Fatalf("expected: %+v", want)
	}
	var before []string
	for _, root := range roots {
		before = append(before, listing(t, root), listing(t, filepath.Join(root, "below")))
	}
	var content uint64
	for _, e := range scanEngines(t) {
		for _, how := range Schedulings() {
			e.Scheduling = how
			r, err := Scan(t.Context(), scanLeg(files, e))
			if err != nil {
				t.Errorf("%s: %v", e.Label(), err)
				continue
			}
			if content == 0 {
				content = r.Coverage.Content
			}
			if r.Coverage.Content != content || content == 0 {
				t.Errorf("%s: content %x, want %x", e.Label(), r.Coverage.Content, content)
			}
			if r.Elapsed <= 0 || r.Cost.CPU <= 0 || r.Cost.Threads < 1 || r.Setup.FirstRead <= 0 || r.Cost.ResidentBefore > 0.01 {
				t.Errorf("%s: %+v", e.Label(), r)
			}
		}
	}
	for i, root := range roots {
		if listing(t, root) != before[2*i] || listing(t, filepath.Join(root, "below")) != before[2*i+1] {
			t.Errorf("%s was changed", root)
		}
	}
}

// scanEngines are the engines that this host has, in all their modes.
func scanEngines(t *testing.T) []ScanEngine {
	list := []ScanEngine{{Scanner: ScanStd}, {Scanner: ScanStd, Direct: true}}
	if !haveRings(t) {
		return list
	}
	for _, mode := range []string{"non-fixed", "legacy", "dynamic", "static"} {
		for _, direct := range []bool{false, true} {
			list = append(list, ScanEngine{Scanner: ScanUring, Shards: 2, Mode: mode, Direct: direct})
		}
	}
	return list
}

func TestCoverageSeesDifferences(t *testing.T) {
	files := []ScanFile{{Size: 100}, {Size: 100}}
	want := expected(files, 50)
	var other Coverage
	other.Files = 2
	other.add(0, 0, 50, 1)
	other.add(0, 50, 50, 1)
	other.add(1, 50, 50, 1)
	twice := other
	twice.add(1, 50, 50, 1) // right numbers, but one request twice
	if err := twice.verify(want); err == nil || twice.Bytes != want.Bytes || twice.Requests != want.Requests {
		t.Errorf("a request made twice for another is not seen: %v", err)
	}
	other.add(1, 0, 50, 1)
	if err := other.verify(want); err != nil {
		t.Errorf("another order counts: %v", err)
	}
}

func TestScanFailsWhenAFileChanges(t *testing.T) {
	files := collect(t, scanTree(t))
	write(t, files[0].Path, make([]byte, 77))
	if _, err := Scan(t.Context(), scanLeg(files, ScanEngine{Scanner: ScanStd})); err == nil {
		t.Error("a file of another size was scanned")
	}
	must(t, os.Remove(files[0].Path))
	must(t, os.Symlink(files[1].Path, files[0].Path))
	if _, err := Scan(t.Context(), scanLeg(files, ScanEngine{Scanner: ScanStd})); err == nil {
		t.Error("a symbolic link was followed")
	}
}

func TestScansCompareLegs(t *testing.T) {
	m := ScanMatrix{
		Files: []ScanFile{{Path: "a", Size: 10}}, Runs: 2, Load: ScanLoad{Threads: 1},
		Engines: []ScanEngine{{Scanner: ScanStd}, {Scanner: ScanStd, Mode: "static"}, {Scanner: ScanUring}, {Scanner: ScanUring, Mode: "static"}},
	}
	legs, err := m.Legs()
	must(t, err)
	var order []string
	for _, l := range legs {
		order = append(order, string(rune('0'+l.Run))+" "+l.Engine.Label())
	}
	std, ring, fixed := " std shared", " uring/1 non-fixed shared", " uring/1 static shared"
	want := []string{"0" + std, "0" + ring, "0" + fixed, "1" + std, "1" + ring, "1" + fixed, "2" + ring, "2" + fixed, "2" + std}
	if !slices.Equal(order, want) {
		t.Errorf("got  %q\nwant %q", order, want)
	}
	for name, spoil := range map[string]func(r *ScanRow){
		"":                  func(*ScanRow) {},
		"fewer bytes":       func(r *ScanRow) { r.Coverage.Bytes-- },
		"other requests":    func(r *ScanRow) { r.Coverage.Digest++ },
		"other content":     func(r *ScanRow) { r.Coverage.Content++ },
		"other file count":  func(r *ScanRow) { r.Coverage.Files++ },
		"one request fewer": func(r *ScanRow) { r.Coverage.Requests-- },
	} {
		got := 0
		err := Scans(t.Context(), legs, func(_ context.Context, l ScanLeg) (ScanRow, error) {
			r := ScanRow{Leg: l, Coverage: Coverage{Files: 1, Requests: 2, Bytes: 3, Digest: 4, Content: 5}}
			if l.Engine.Mode == "static" {
				spoil(&r)
			}
			return r, nil
		}, func(ScanRow) error { got++; return nil })
		if (err == nil) != (name == "") || (err != nil && got != 2) {
			t.Errorf("%q: %d rows, %v", name, got, err)
		}
	}
}

func TestScanVerdicts(t *testing.T) {
	row := func(s Scanner, run int, secs float64) ScanRow {
		return ScanRow{
			Leg: ScanLeg{Run: run, Engine: ScanEngine{Scanner: s}}, Coverage: Coverage{Bytes: 1e9}, Elapsed: time.Duration(secs * 1e9),
		}
	}
	for _, c := range []struct {
		secs float64
		want string
	}{{0.5, "faster"}, {0.94, "faster"}, {0.97, "same"}, {1, "same"}, {1.04, "same"}, {1.06, "slower"}, {3, "slower"}} {
		list := SummarizeScans([]ScanRow{
			row(ScanStd, 0, 9), row(ScanUring, 0, 0.1), row(ScanStd, 1, 1), row(ScanUring, 1, c.secs), row(ScanUring, 2, 4*c.secs), row(ScanStd, 2, 4),
		})
		if len(list) != 2 || list[0].Verdict != "first" || list[1].Verdict != c.want || list[1].Runs != 2 {
			t.Errorf("%v s against 1: %+v", c.secs, list)
		}
		var out bytes.Buffer
		must(t, WriteScanSummary(&out, list))
		if !strings.Contains(out.String(), c.want) || !strings.Contains(out.String(), "5 %") {
			t.Errorf("summary:\n%s", out.String())
		}
	}
}

func TestScanArguments(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(l *ScanLeg)
		ok     bool
	}{
		{"as it is", func(*ScanLeg) {}, true},
		{"no files", func(l *ScanLeg) { l.Files = nil }, false},
		{"no threads", func(l *ScanLeg) { l.Load.Threads = 0 }, false},
		{"too many threads", func(l *ScanLeg) { l.Load.Threads = ThreadsMax + 1 }, false},
		{"depth -1", func(l *ScanLeg) { l.Load.Depth = -1 }, false},
		{"depth too large", func(l *ScanLeg) { l.Load.Depth = DepthMax + 1 }, false},
		{"request 2 MiB", func(l *ScanLeg) { l.Load.RequestBytes = 2 << 20 }, true},
		{"request 4 MiB", func(l *ScanLeg) { l.Load.RequestBytes = 4 << 20 }, false},
		{"request 4097", func(l *ScanLeg) { l.Load.RequestBytes = 4097 }, false},
		{"request 512", func(l *ScanLeg) { l.Load.RequestBytes = 512 }, false},
		{"buffers beyond the memory", func(l *ScanLeg) { l.Load.Memory = 1 << 20 }, false},
		{"mixed", func(l *ScanLeg) { l.Load.Access = Mixed }, false},
		{"warm", func(l *ScanLeg) { l.Load.Access = Warm }, true},
		{"unknown engine", func(l *ScanLeg) { l.Engine.Scanner = "mmap" }, false},
		{"unknown scheduling", func(l *ScanLeg) { l.Engine.Scheduling = "random" }, false},
		{"unknown mode", func(l *ScanLeg) { l.Engine.Mode = "fixed" }, false},
		{"17 shards", func(l *ScanLeg) { l.Engine.Shards = 17 }, false},
		{"4 threads, 2 devices", func(l *ScanLeg) { l.Load.Threads, l.Engine.Scheduling = 4, PerDevice }, true},
		{"1 thread, 2 devices", func(l *ScanLeg) { l.Load.Threads, l.Engine.Scheduling = 1, PerDevice }, true},
		{"3 threads, 2 devices", func(l *ScanLeg) { l.Load.Threads, l.Engine.Scheduling = 3, PerDevice }, false},
		{"3 threads, 2 devices, shared", func(l *ScanLeg) { l.Load.Threads = 3 }, true},
	} {
		l := ScanLeg{
			Files: []ScanFile{{Path: "a", Size: 1}, {Path: "b", Device: 1}}, Load: ScanLoad{Threads: 2},
			Engine: ScanEngine{Scanner: ScanUring},
		}
		c.change(&l)
		if err := l.WithDefaults().Check(); (err == nil) != c.ok || (err != nil && !errors.Is(err, ErrUsage)) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestScanCSVSchema: others read these columns by name and by place.
func TestScanCSVSchema(t *testing.T) {
	const golden = "run,engine,scheduling,mode,shards,direct,access,devices,threads,depth,request_bytes,files,bytes,requests,coverage,content," +
		"secs,gbps,cpu_us_per_request,device_bytes,resident_before,resident_after,os_threads,enters,wakes," +
		"init_us,first_read_us,grow_us,registered_bytes,rss_bytes,procs\n" +
		"1,uring,per-device,static,2,true,cold,3,6,8,1048576,5,6000000000,7,00000000000000ff,,2.000000,3.0000,1.00,9,0.1000,0.2000,10,11,12," +
		"13.00,14.00,15.00,16,17,18\n"
	var out bytes.Buffer
	c, err := NewScanCSV(&out)
	must(t, err)
	must(t, c.Add(ScanRow{
		Leg: ScanLeg{
			Run: 1, Load: ScanLoad{Access: Cold, Threads: 6, Depth: 8, RequestBytes: 1 << 20},
			Engine:  ScanEngine{Scanner: ScanUring, Scheduling: PerDevice, Mode: "static", Shards: 2, Direct: true},
			Devices: 3, Procs: 18,
		},
		Coverage: Coverage{Files: 5, Requests: 7, Bytes: 6e9, Digest: 0xff},
		Elapsed:  2 * time.Second,
		Cost:     Cost{CPU: 7e3, DeviceBytes: 9, ResidentBefore: 0.1, ResidentAfter: 0.2, Threads: 10, Memory: 17},
		Counts:   Counts{Enters: 11, Wakes: 12, Registered: 16},
		Setup:    Setup{Init: 13e3, FirstRead: 14e3}, Grow: 15e3,
	}))
	if out.String() != golden {
		t.Errorf("got:\n%swant:\n%s", out.String(), golden)
	}
	if lines, err := csv.NewReader(&out).ReadAll(); err != nil || len(lines) != 2 {
		t.Errorf("%v: %v", lines, err)
	}
}
