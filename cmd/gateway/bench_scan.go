package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"

	"ringfence/internal/bench"
)

// scanFlags is what `gateway bench scan` was asked for.
type scanFlags struct {
	matrix      bench.ScanMatrix // but for files and engines
	roots       []string
	list        string
	devices     int
	engines     []bench.Scanner
	schedulings []bench.Scheduling
	modes       []string
	shards      []int
	direct      bool
	procs       int
	csv         bool
}

func benchScan(ctx context.Context, p *process, args []string) error {
	f, err := parseScan(p, args)
	if err != nil {
		return err
	}
	if f.matrix.Files, err = f.files(ctx); err != nil {
		return err
	}
	legs, err := f.expand().Legs()
	if err != nil {
		return err
	}
	to, people := columnsTo(p, f.csv)
	out, err := bench.NewScanCSV(to)
	if err != nil {
		return err
	}
	var rows []bench.ScanRow
	run := func(ctx context.Context, leg bench.ScanLeg) (bench.ScanRow, error) {
		return child[bench.ScanLeg, bench.ScanRow](ctx, p, "scan", f.procs, leg)
	}
	err = bench.Scans(ctx, legs, run, func(r bench.ScanRow) error {
		rows = append(rows, r)
		return out.Add(r)
	})
	if err != nil {
		return err
	}
	return bench.WriteScanSummary(people, bench.SummarizeScans(rows))
}

func parseScan(p *process, args []string) (scanFlags, error) {
	f := scanFlags{
		engines: []bench.Scanner{bench.ScanStd}, schedulings: []bench.Scheduling{bench.Shared},
		modes: []string{"non-fixed"}, shards: []int{1},
	}
	set := benchFlags(p, "scan")
	f.define(set)
	if err := parseBenchFlags(set, args); err != nil {
		return f, err
	}
	f.roots = set.Args()
	if len(f.roots) == 0 && f.list == "" {
		return f, fmt.Errorf("%w: give the roots to scan, one per disk, or --list", bench.ErrUsage)
	}
	if f.procs < 0 || f.procs > 1024 {
		return f, fmt.Errorf("%w: --procs is %d, must be 0 to 1024", bench.ErrUsage, f.procs)
	}
	return f, nil
}

func (f *scanFlags) define(set *flag.FlagSet) {
	load := &f.matrix.Load
	*load = bench.ScanLoad{Access: bench.Cold, Threads: 2, RequestBytes: 1 << 20, Memory: 1 << 30, TempDir: os.TempDir()}
	set.StringVar(&f.list, "list", "", "`file` with one path per line, instead of all files under the roots")
	set.IntVar(&f.devices, "devices", 0, "use only so many roots, the first ones; 0: all")
	listFlag(set, "engine", "`list` of "+bench.Names(bench.Scanners())+" (std)", &f.engines, word(bench.Scanners()))
	listFlag(set, "scheduling", "`list` of "+bench.Names(bench.Schedulings())+" (shared)", &f.schedulings, word(bench.Schedulings()))
	listFlag(set, "mode", "`list` of buffer modes for uring: non-fixed, legacy, dynamic, static (non-fixed)", &f.modes, func(s string) (string, error) { return s, nil })
	listFlag(set, "shards", "`list` of rings per device for uring, 1 to 16 (1)", &f.shards, strconv.Atoi)
	set.BoolVar(&f.direct, "direct", false, "read with O_DIRECT")
	set.IntVar(&load.Threads, "threads", load.Threads, "that scan, 1 to 1024")
	set.IntVar(&load.Depth, "depth", 32, "requests in flight per thread, 1 to 1024")
	set.Func("request-size", "`size` of a request, 4KiB to 2MiB (1MiB)", func(text string) error {
		n, err := parseSize(text)
		load.RequestBytes = int(min(n, bench.RequestBytesMax+1))
		return err
	})
	set.Func("access", "cold or warm: what the page cache holds before each pass (cold)", func(text string) error {
		load.Access = bench.Access(text)
		return nil
	})
	set.BoolVar(&load.SmallPages, "small-pages", false, "buffers without huge pages")
	sizeFlag(set, "memory", "most memory for buffers (1GiB)", &load.Memory)
	set.IntVar(&f.matrix.Runs, "runs", 7, "passes of each engine that count, in rotated order; a warm-up comes before")
	set.IntVar(&f.procs, "procs", 0, "GOMAXPROCS of the passes; 0: the default")
	set.BoolVar(&f.csv, "csv", false, "rows as CSV to standard output, the summary to standard error")
}

func (f *scanFlags) files(ctx context.Context) (files []bench.ScanFile, err error) {
	if f.list == "" {
		return bench.Collect(ctx, f.roots, f.devices)
	}
	if f.devices != 0 {
		return nil, fmt.Errorf("%w: --devices and --list do not go together", bench.ErrUsage)
	}
	in, err := os.Open(f.list)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }() // it was only read
	return bench.CollectList(ctx, in, f.roots)
}

// expand multiplies the lists.
func (f *scanFlags) expand() bench.ScanMatrix {
	m := f.matrix
	for _, scanner := range f.engines {
		for _, scheduling := range f.schedulings {
			for _, mode := range f.modes {
				for _, shards := range f.shards {
					m.Engines = append(m.Engines, bench.ScanEngine{
						Scanner: scanner, Scheduling: scheduling, Mode: mode, Shards: shards, Direct: f.direct,
					})
				}
			}
		}
	}
	return m
}
