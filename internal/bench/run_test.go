package bench

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// benchFile makes a small bench file on a file system with a page cache that
// lets go.
func benchFile(t *testing.T, size int64) File {
	t.Helper()
	f := File{Path: filepath.Join(t.TempDir(), "f"), Size: size}
	if _, err := Prepare(f); err != nil {
		t.Fatal(err)
	}
	return f
}

func plainStrategies() []Strategy { return []Strategy{StdOpen, StdCached, Nowait, Pool} }

// TestRowsSayWhatWasMeasured: device bytes and residency tell a warm leg from a
// cold one, for every strategy.
func TestRowsSayWhatWasMeasured(t *testing.T) {
	f := benchFile(t, 8<<20)
	const read = 64 << 10
	for _, s := range plainStrategies() {
		for _, access := range Accesses() {
			t.Run(string(s)+"_"+string(access), func(t *testing.T) {
				checkRow(t, f, Load{Access: access, ReadSize: read, Concurrency: 4, Ops: 500, Seed: 1}, Engine{Strategy: s, Inline: true})
			})
		}
	}
}

func checkRow(t *testing.T, f File, load Load, e Engine) {
	t.Helper()
	r, err := Run(t.Context(), Leg{Run: 1, File: f, Load: load, Engine: e})
	if err != nil {
		t.Fatal(err)
	}
	ops, read := r.Leg.Load.Ops, int64(load.ReadSize)
	cold := ops
	switch load.Access {
	case Warm:
		cold = 0
		if r.Cost.ResidentBefore < 0.99 || r.Cost.DeviceBytes > f.Size/10 {
			t.Errorf("warm: %.2f resident, %d bytes from the device", r.Cost.ResidentBefore, r.Cost.DeviceBytes)
		}
	case Cold:
		if want := f.Size / read; ops != want || r.Cost.ResidentBefore > 0.01 {
			t.Errorf("cold: %d reads, want %d; %.2f resident", ops, want, r.Cost.ResidentBefore)
		}
	case Mixed:
		cold = ops / 10
		if r.Cost.ResidentBefore < 0.2 || r.Cost.ResidentBefore > 0.3 {
			t.Errorf("mixed: %.2f resident, want the hot quarter", r.Cost.ResidentBefore)
		}
	}
	if got, want := r.Cost.DeviceBytes, cold*read; got < want*9/10 || got > want*11/10+f.Size/20 {
		t.Errorf("%d bytes from the device, want about %d", got, want)
	}
	skirts := e.Direct || e.Strategy == Hybrid && e.Inline // cold reads go past the page cache
	if after := r.Cost.ResidentAfter - r.Cost.ResidentBefore; !skirts && after < 0.9*float64(cold*read)/float64(f.Size) {
		t.Errorf("resident grew by %.2f", after)
	}
	tm := r.Timing
	if tm.Elapsed <= 0 || tm.P50 <= 0 || tm.P99 < tm.P50 || tm.P999 < tm.P99 || tm.P9999 < tm.P999 || tm.Max < tm.P9999 {
		t.Errorf("timing: %+v", tm)
	}
	if r.Cost.CPU <= 0 || r.Cost.Threads < 1 || r.Cost.Memory < 1<<20 || r.Setup.Init <= 0 || r.Setup.FirstRead <= 0 {
		t.Errorf("cost: %+v, setup %+v", r.Cost, r.Setup)
	}
	if e.Strategy == Hybrid && !e.Inline {
		ops = cold // none of the others is a hit either
	}
	if hits := r.Counts.InlineHits; hits >= 0 && (hits > ops || hits < (ops-cold)*8/10) {
		t.Errorf("%d inline hits of %d reads, %d of them cold", hits, ops, cold)
	}
}

func TestCountsOfPlainStrategies(t *testing.T) {
	f := benchFile(t, 1<<20)
	for _, c := range []struct {
		s               Strategy
		opens, syscalls int64
	}{{StdOpen, 100, 300}, {StdCached, 0, 100}, {Nowait, 0, 100}, {Pool, 0, -1}} {
		r, err := Run(t.Context(), Leg{File: f, Load: Load{ReadSize: 4096, Concurrency: 3, Ops: 100}, Engine: Engine{Strategy: c.s}})
		if err != nil {
			t.Fatal(err)
		}
		if r.Counts.Opens != c.opens || r.Counts.Syscalls != c.syscalls || r.Counts.Enters != 0 || r.Counts.Wakes != 0 {
			t.Errorf("%s: %+v", c.s, r.Counts)
		}
	}
}

func TestVerifySeesOneWrongByte(t *testing.T) {
	f := benchFile(t, 1<<20+4321)
	for _, s := range plainStrategies() {
		for _, read := range []int{777, 64 << 10} {
			leg := Leg{File: f, Load: Load{ReadSize: read, Concurrency: 3, Ops: 50}, Engine: Engine{Strategy: s}, Verify: true}
			r, err := Run(t.Context(), leg)
			if err != nil {
				t.Fatalf("%s: %v", s, err)
			}
			if r.Timing.Elapsed != 0 {
				t.Errorf("%s: a verification was timed", s)
			}
		}
	}
	for _, at := range []int64{0, 500_000, f.Size - 1} {
		flip(t, f.Path, at)
		for _, s := range plainStrategies() {
			leg := Leg{File: f, Load: Load{ReadSize: 64 << 10, Concurrency: 3, Ops: 50}, Engine: Engine{Strategy: s}, Verify: true}
			if _, err := Run(t.Context(), leg); err == nil || !strings.Contains(err.Error(), "byte "+strconv.FormatInt(at, 10)+" ") {
				t.Errorf("%s, byte %d: %v", s, at, err)
			}
		}
		flip(t, f.Path, at)
	}
}

func flip(t *testing.T, path string, at int64) {
	t.Helper()
	h, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	var b [1]byte
	_, err = h.ReadAt(b[:], at)
	must(t, err)
	b[0] ^= 1
	_, err = h.WriteAt(b[:], at)
	must(t, err)
	must(t, h.Close())
}

func TestLargeReadsUseSeveralBuffers(t *testing.T) {
	f := benchFile(t, 3<<20)
	for _, s := range plainStrategies() {
		leg := Leg{File: f, Load: Load{ReadSize: 2<<20 + 4096, Concurrency: 2, Ops: 2}, Engine: Engine{Strategy: s, SmallPages: true}, Verify: true}
		if _, err := Run(t.Context(), leg); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	f := benchFile(t, 1<<20)
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("interrupted")
	cancel(gone)
	for _, s := range plainStrategies() {
		leg := Leg{File: f, Load: Load{ReadSize: 4096, Concurrency: 2, Ops: OpsMax}, Engine: Engine{Strategy: s}}
		if _, err := Run(ctx, leg); !errors.Is(err, gone) && !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", s, err)
		}
	}
}

func TestLegArguments(t *testing.T) {
	good := Leg{
		File: File{Path: "f", Size: 1 << 30}, Load: Load{Access: Warm, ReadSize: 4096, Concurrency: 8, Depth: 1, Ops: 10},
		Engine: Engine{Strategy: StdCached},
	}
	for _, c := range []struct {
		name   string
		change func(l *Leg)
		ok     bool
	}{
		{"as it is", func(*Leg) {}, true},
		{"no file", func(l *Leg) { l.File.Path = "" }, false},
		{"read 0", func(l *Leg) { l.Load.ReadSize = 0 }, false},
		{"read -1", func(l *Leg) { l.Load.ReadSize = -1 }, false},
		{"read 1", func(l *Leg) { l.Load.ReadSize = 1 }, true},
		{"read 1 GiB", func(l *Leg) { l.Load.ReadSize, l.Load.Concurrency, l.File.Size, l.Memory = 1<<30, 1, 1<<31, 1<<31 }, true},
		{"read 1 GiB + 1", func(l *Leg) { l.Load.ReadSize, l.Load.Concurrency, l.File.Size, l.Memory = 1<<30+1, 1, 1<<32, 1<<32 }, false},
		{"file just large enough", func(l *Leg) { l.File.Size = 8192 }, true},
		{"file one byte short", func(l *Leg) { l.File.Size = 8191 }, false},
		{"file too large", func(l *Leg) { l.File.Size = FileSizeMax + 1 }, false},
		{"concurrency 0", func(l *Leg) { l.Load.Concurrency = 0 }, false},
		{"concurrency 4096", func(l *Leg) { l.Load.Concurrency = 4096 }, true},
		{"concurrency 4097", func(l *Leg) { l.Load.Concurrency = 4097 }, false},
		{"depth 0 is 1", func(l *Leg) { l.Load.Depth = 0 }, true},
		{"depth 1025", func(l *Leg) { l.Load.Depth = 1025 }, false},
		{"ops -1", func(l *Leg) { l.Load.Ops = -1 }, false},
		{"ops too many", func(l *Leg) { l.Load.Ops = OpsMax + 1 }, false},
		{"buffers beyond the memory", func(l *Leg) { l.Load.ReadSize, l.Load.Concurrency = 64<<20, 100 }, false},
		{"unknown access", func(l *Leg) { l.Load.Access = "hot" }, false},
		{"unknown strategy", func(l *Leg) { l.Engine.Strategy = "mmap" }, false},
		{"align 3", func(l *Leg) { l.Engine.Align = 3 }, false},
		{"align 512", func(l *Leg) { l.Engine.Align = 512 }, true},
		{"direct", func(l *Leg) { l.Engine.Direct = true }, true},
		{"direct by odd sizes", func(l *Leg) { l.Engine.Direct, l.Load.ReadSize = true, 1000 }, false},
		{"direct by more than the offsets' alignment", func(l *Leg) { l.Engine.Direct, l.Engine.Align, l.Load.ReadSize = true, 8192, 8192 }, false},
		{"rings: defaults", func(l *Leg) { l.Engine.Strategy = UringCached }, true},
		{"rings: 16 shards", func(l *Leg) { l.Engine.Strategy, l.Engine.Shards = Hybrid, 16 }, true},
		{"rings: 17 shards", func(l *Leg) { l.Engine.Strategy, l.Engine.Shards = Hybrid, 17 }, false},
		{"rings: -1 shards", func(l *Leg) { l.Engine.Strategy, l.Engine.Shards = UringOpen, -1 }, false},
		{"rings: 3 entries", func(l *Leg) { l.Engine.Strategy, l.Engine.Entries = UringOpen, 3 }, false},
		{"rings: 65536 entries", func(l *Leg) { l.Engine.Strategy, l.Engine.Entries = UringOpen, 65536 }, false},
		{"rings: unknown mode", func(l *Leg) { l.Engine.Strategy, l.Engine.Mode = UringCached, "fixed" }, false},
		{"rings: static", func(l *Leg) { l.Engine.Strategy, l.Engine.Mode = UringCached, "static" }, true},
		{"mode of an engine without one", func(l *Leg) { l.Engine.Mode = "fixed" }, true},
	} {
		l := good
		c.change(&l)
		if err := l.WithDefaults().Check(); (err == nil) != c.ok || (err != nil && !errors.Is(err, ErrUsage)) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestCSVSchema: others read these columns by name and by place.
func TestCSVSchema(t *testing.T) {
	const golden = "strategy,shards,entries,mode,direct,access,file_size,read_size,concurrency,ops,secs,iops,mbps,p50_us,p99_us,p999_us,max_us," +
		"cpu_us_per_op,device_bytes,resident_before,resident_after,os_threads,opens,enters,wakes,syscalls,inline_hits," +
		"init_us,first_read_us,registered_bytes,rss_bytes,run,depth,inline,align,small_pages,seed,fallbacks,p9999_us,procs\n" +
		"hybrid,2,256,static,false,mixed,1048576,65536,32,100,0.500000,200.0,13.11,10.00,20.00,30.00,40.00," +
		"50.00,4096,0.2500,0.5000,9,,7,8,9,90,1000.00,2.00,2097152,33554432,3,4,true,512,true,11,1,35.00,2\n"
	var out bytes.Buffer
	c, err := NewCSV(&out)
	must(t, err)
	must(t, c.Add(Row{
		Leg: Leg{
			Run: 3, Procs: 2, File: File{Path: "f", Size: 1 << 20},
			Load:   Load{Access: Mixed, ReadSize: 65536, Concurrency: 32, Depth: 4, Ops: 100, Seed: 11},
			Engine: Engine{Strategy: Hybrid, Shards: 2, Entries: 256, Mode: "static", Inline: true, Align: 512, SmallPages: true},
		},
		Timing: Timing{Elapsed: 5e8, P50: 10e3, P99: 20e3, P999: 30e3, P9999: 35e3, Max: 40e3},
		Cost:   Cost{CPU: 5e6, DeviceBytes: 4096, ResidentBefore: 0.25, ResidentAfter: 0.5, Threads: 9, Memory: 32 << 20},
		Counts: Counts{Opens: -1, Enters: 7, Wakes: 8, Syscalls: 9, InlineHits: 90, Fallbacks: 1, Registered: 2 << 20},
		Setup:  Setup{Init: 1e6, FirstRead: 2e3},
	}))
	if out.String() != golden {
		t.Errorf("got:\n%swant:\n%s", out.String(), golden)
	}
	lines, err := csv.NewReader(&out).ReadAll()
	if err != nil || len(lines) != 2 || len(lines[0]) != len(lines[1]) {
		t.Errorf("%v: %v", lines, err)
	}
}
