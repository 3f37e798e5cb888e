package main

import (
	"context"
	"flag"
	"fmt"
	"strconv"

	"ringfence/internal/bench"
)

// preadFlags is what `gateway bench pread` was asked for.
type preadFlags struct {
	matrix     bench.Matrix
	engine     bench.Engine // but for strategy, shards and mode
	load       bench.Load   // but for access, read size and concurrency
	strategies []bench.Strategy
	accesses   []bench.Access
	sizes      []int64
	readers    []int
	shards     []int
	modes      []string
	procs      int
	csv        bool
}

func benchPread(ctx context.Context, p *process, args []string) error {
	f, err := parsePread(p, args)
	if err != nil {
		return err
	}
	legs, err := f.expand().Legs()
	if err != nil {
		return err
	}
	created, err := bench.Prepare(f.matrix.File)
	if err != nil {
		return err
	}
	if created {
		p.complain("made " + f.matrix.File.Path + "; remove it when you are done")
	}
	run := func(ctx context.Context, leg bench.Leg) (bench.Row, error) {
		return child[bench.Leg, bench.Row](ctx, p, "pread", f.procs, leg)
	}
	if f.matrix.Verify {
		return bench.Each(ctx, legs, run, func(r bench.Row) error {
			_, err := fmt.Fprintf(p.stdout, "%s, reads of %d bytes by %d: every byte as it must be\n",
				r.Leg.Engine.Label(), r.Leg.Load.ReadSize, r.Leg.Load.Concurrency)
			return err
		})
	}
	to, people := columnsTo(p, f.csv)
	out, err := bench.NewCSV(to)
	if err != nil {
		return err
	}
	var rows []bench.Row
	err = bench.Each(ctx, legs, run, func(r bench.Row) error {
		rows = append(rows, r)
		return out.Add(r)
	})
	if err != nil {
		return err
	}
	return bench.WriteSummary(people, bench.Summarize(rows))
}

func parsePread(p *process, args []string) (preadFlags, error) {
	f := preadFlags{
		strategies: []bench.Strategy{bench.StdCached, bench.Hybrid}, accesses: []bench.Access{bench.Warm},
		sizes: []int64{128 << 10}, readers: []int{8}, shards: []int{1}, modes: []string{"non-fixed"},
	}
	set := benchFlags(p, "pread")
	f.define(set)
	if err := parseBenchFlags(set, args); err != nil {
		return f, err
	}
	if set.NArg() > 0 {
		return f, fmt.Errorf("%w: %q is not a flag", bench.ErrUsage, set.Arg(0))
	}
	if f.matrix.File.Path == "" {
		return f, fmt.Errorf("%w: --file is missing; give a path on the disk to measure", bench.ErrUsage)
	}
	if f.procs < 0 || f.procs > 1024 {
		return f, fmt.Errorf("%w: --procs is %d, must be 0 to 1024", bench.ErrUsage, f.procs)
	}
	return f, nil
}

func (f *preadFlags) define(set *flag.FlagSet) {
	f.matrix.File.Size, f.matrix.Memory = 512<<20, 1<<30
	set.StringVar(&f.matrix.File.Path, "file", "", "`path` of the file to read; made if there is none, never changed")
	sizeFlag(set, "file-size", "`size` of the file (512MiB)", &f.matrix.File.Size)
	listFlag(set, "strategy", "`list` of "+bench.Names(bench.Strategies())+" (std_cached,hybrid); the first is what others are compared with", &f.strategies, word(bench.Strategies()))
	listFlag(set, "access", "`list` of "+bench.Names(bench.Accesses())+" (warm)", &f.accesses, word(bench.Accesses()))
	listFlag(set, "read-size", "`list` of bytes per read, 1 to 1GiB (128KiB)", &f.sizes, parseSize)
	listFlag(set, "concurrency", "`list` of how many goroutines read, 1 to 4096 (8)", &f.readers, strconv.Atoi)
	listFlag(set, "shards", "`list` of rings, for strategies that have them, 1 to 16 (1)", &f.shards, strconv.Atoi)
	listFlag(set, "mode", "`list` of buffer modes: non-fixed, legacy, dynamic, static (non-fixed)", &f.modes, func(s string) (string, error) { return s, nil })
	set.IntVar(&f.load.Depth, "depth", 1, "reads that each goroutine keeps in flight, 1 to 1024; a strategy that can't has as many more goroutines")
	set.Int64Var(&f.load.Ops, "ops", 0, "reads per leg; 0: 8 GiB of them, 2000 to 1000000")
	set.Uint64Var(&f.load.Seed, "seed", 1, "for the offsets")
	set.IntVar(&f.engine.Entries, "entries", 0, "per ring, a power of two; 0: room for all reads in flight, at least 128")
	set.BoolVar(&f.engine.Inline, "inline", true, "hybrid: try the page cache on the caller first")
	set.BoolVar(&f.engine.Direct, "direct", false, "read with O_DIRECT")
	set.IntVar(&f.engine.Align, "align", 0, "of direct reads, in bytes; 0: what the file system says")
	set.BoolVar(&f.engine.SmallPages, "small-pages", false, "buffers without huge pages")
	set.IntVar(&f.matrix.Runs, "runs", 3, "of each leg, in rotated order")
	set.BoolVar(&f.matrix.Verify, "verify", false, "measure nothing: compare every byte with what the file must hold")
	sizeFlag(set, "memory", "most memory for buffers of a leg (1GiB)", &f.matrix.Memory)
	set.IntVar(&f.procs, "procs", 0, "GOMAXPROCS of the legs; 0: the default")
	set.BoolVar(&f.csv, "csv", false, "rows as CSV to standard output, the summary to standard error")
}

// expand multiplies the lists.
func (f *preadFlags) expand() bench.Matrix {
	m := f.matrix
	for _, access := range f.accesses {
		for _, size := range f.sizes {
			for _, readers := range f.readers {
				l := f.load
				l.Access, l.ReadSize, l.Concurrency = access, int(min(size, bench.ReadSizeMax+1)), readers
				m.Loads = append(m.Loads, l)
			}
		}
	}
	for _, s := range f.strategies {
		for _, shards := range f.shards {
			for _, mode := range f.modes {
				e := f.engine
				e.Strategy, e.Shards, e.Mode = s, shards, mode
				m.Engines = append(m.Engines, e)
			}
		}
	}
	return m
}
