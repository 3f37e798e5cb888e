package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Matrix is what to measure: every engine under every load, Runs times, turn
// by turn.
type Matrix struct {
	File    File
	Loads   []Load
	Engines []Engine
	Runs    int
	Memory  int64
	Verify  bool
}

// RunsMax bounds Matrix.Runs.
const RunsMax = 1000

// Legs gives the legs in the order in which to run them: load by load, and for
// each load all engines once per run, in an order that is rotated by one from
// run to run. What drifts (a disk's quota, other load, heat) then meets every
// engine alike.
func (m Matrix) Legs() ([]Leg, error) {
	switch {
	case m.Runs < 1 || m.Runs > RunsMax:
		return nil, usagef("runs is %d, must be 1 to %d", m.Runs, RunsMax)
	case len(m.Loads) == 0 || len(m.Engines) == 0:
		return nil, usagef("no engines or no loads")
	}
	var legs []Leg
	var errs []error
	for _, load := range m.Loads {
		var round []Leg
		for _, e := range m.Engines {
			leg := Leg{File: m.File, Load: load, Engine: e, Verify: m.Verify, Memory: m.Memory}.WithDefaults()
			if slices.ContainsFunc(round, func(l Leg) bool { return l.Engine == leg.Engine }) {
				continue // settings that this strategy has not
			}
			if err := leg.Check(); err != nil && len(errs) < 5 {
				errs = append(errs, err)
			}
			round = append(round, leg)
		}
		for run := range m.Runs {
			for i := range round {
				leg := round[(i+run)%len(round)]
				leg.Run = run + 1
				legs = append(legs, leg)
			}
			if m.Verify {
				break // once is enough: the outcome does not vary
			}
		}
	}
	return legs, errors.Join(errs...)
}

// Each runs the legs one after the other, each by run, which gives it a process
// of its own, and hands on every row.
func Each[L fmt.Stringer, R any](ctx context.Context, legs []L, run func(context.Context, L) (R, error), got func(R) error) error {
	for _, leg := range legs {
		if err := ctx.Err(); err != nil {
			return err
		}
		row, err := run(ctx, leg)
		if err != nil {
			return fmt.Errorf("%s: %w", leg, err)
		}
		if err := got(row); err != nil {
			return err
		}
	}
	return nil
}

func (l Leg) String() string {
	return fmt.Sprintf("%s, %s reads of %d bytes by %d, run %d", l.Engine.Label(), l.Load.Access, l.Load.ReadSize, l.Load.Concurrency, l.Run)
}

// Summary is the median of an engine's rows under one load, and how it compares
// with the first engine of the matrix: the median of the ratios within a run,
// so that a slow moment of the machine hits both sides of a ratio.
type Summary struct {
	Load   Load
	Engine Engine
	Runs   int
	Median Medians
	Ratio  Medians // of the first engine's; 0 where that is 0
}

// Medians are the figures that summaries compare.
type Medians struct {
	IOPS, MBps, P50, P99, P999, P9999, CPU, Device, Threads float64 // times in µs
}

func figures(r Row) Medians {
	return Medians{
		IOPS: r.IOPS(), MBps: r.MBps(),
		P50: us(r.Timing.P50), P99: us(r.Timing.P99), P999: us(r.Timing.P999), P9999: us(r.Timing.P9999), CPU: us(r.CPUPerOp()),
		Device: float64(r.Cost.DeviceBytes), Threads: float64(r.Cost.Threads),
	}
}

func us[T ~int64](d T) float64 { return float64(d) / 1e3 }

// fields lists the figures for arithmetic on all of them.
func (m *Medians) fields() []*float64 {
	return []*float64{&m.IOPS, &m.MBps, &m.P50, &m.P99, &m.P999, &m.P9999, &m.CPU, &m.Device, &m.Threads}
}

// Summarize groups rows by load and engine, in the order of their first rows in
// run 1.
func Summarize(rows []Row) []Summary {
	type key struct {
		load   Load
		engine Engine
	}
	groups, first := map[key][]Row{}, map[Load]Engine{}
	var order []key
	for _, r := range rows {
		k := key{r.Leg.Load, r.Leg.Engine}
		if _, ok := first[k.load]; !ok {
			first[k.load] = k.engine
		}
		if groups[k] == nil {
			order = append(order, k)
		}
		groups[k] = append(groups[k], r)
	}
	var list []Summary
	for _, k := range order {
		group, base := groups[k], groups[key{k.load, first[k.load]}]
		list = append(list, Summary{
			Load: k.load, Engine: k.engine, Runs: len(group),
			Median: medians(group, nil), Ratio: medians(group, base),
		})
	}
	return list
}

// medians of rows, or of their ratios to the rows of the same run in base.
func medians(rows, base []Row) (m Medians) {
	samples := make([][]float64, len(m.fields()))
	for _, r := range rows {
		f := figures(r)
		if base != nil {
			i := slices.IndexFunc(base, func(b Row) bool { return b.Leg.Run == r.Leg.Run })
			if i < 0 {
				continue
			}
			b := figures(base[i])
			for j, v := range b.fields() {
				if *v == 0 {
					*f.fields()[j] = 0
				} else {
					*f.fields()[j] /= *v
				}
			}
		}
		for j, v := range f.fields() {
			samples[j] = append(samples[j], *v)
		}
	}
	for j, v := range m.fields() {
		*v = median(samples[j])
	}
	return m
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	mid := len(v) / 2
	if len(v)%2 == 1 {
		return v[mid]
	}
	return (v[mid-1] + v[mid]) / 2
}

// Label names an engine with its settings that matter.
func (e Engine) Label() string {
	var b strings.Builder
	b.WriteString(string(e.Strategy))
	if e.Strategy.rings() {
		fmt.Fprintf(&b, "/%d", e.Shards)
		if e.Mode != "non-fixed" {
			b.WriteString(" " + e.Mode)
		}
	}
	if e.Strategy == Hybrid && !e.Inline {
		b.WriteString(" no-inline")
	}
	if e.Direct {
		b.WriteString(" direct")
	}
	if e.SmallPages {
		b.WriteString(" small-pages")
	}
	return b.String()
}

// WriteSummary writes a table for people. x columns are ratios to the first
// engine of the same load.
func WriteSummary(w io.Writer, list []Summary) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	var load Load
	for i, s := range list {
		if i == 0 || s.Load != load {
			load = s.Load
			_, _ = fmt.Fprintf(t, "\n%s, %d B reads, c=%d, depth %d, %d ops, %d runs\n",
				load.Access, load.ReadSize, load.Concurrency, load.Depth, load.Ops, s.Runs)
			_, _ = fmt.Fprintln(t, "engine\tIOPS\tx\tMB/s\tp50 us\tp99 us\tx\tp999 us\tx\tp9999 us\tx\tCPU us/op\tx\tdevice MB\tthreads\t")
		}
		m, r := s.Median, s.Ratio
		_, _ = fmt.Fprintf(t, "%s\t%.0f\t%.2f\t%.0f\t%.1f\t%.1f\t%.2f\t%.1f\t%.2f\t%.1f\t%.2f\t%.2f\t%.2f\t%.0f\t%.0f\t\n",
			s.Engine.Label(), m.IOPS, r.IOPS, m.MBps, m.P50, m.P99, r.P99, m.P999, r.P999, m.P9999, r.P9999, m.CPU, r.CPU, m.Device/1e6, m.Threads)
	}
	if err := t.Flush(); err != nil { // it keeps the error of earlier writes
		return fmt.Errorf("write summary: %w", err)
	}
	return nil
}
