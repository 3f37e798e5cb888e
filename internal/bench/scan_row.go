package bench

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"
)

// ScanRow is the result of a pass over all files.
type ScanRow struct {
	Leg      ScanLeg
	Coverage Coverage
	Bytes    int64 // that there are to read
	Elapsed  time.Duration
	Cost     Cost
	Counts   Counts
	Setup    Setup
	Grow     time.Duration // that making memory known to the kernel took
}

// GBps is 10^9 bytes per second.
func (r ScanRow) GBps() float64 {
	return float64(r.Coverage.Bytes) / 1e9 / max(r.Elapsed.Seconds(), 1e-9)
}

// CPUPerRequest is processor time per request.
func (r ScanRow) CPUPerRequest() time.Duration {
	return time.Duration(float64(r.Cost.CPU) / float64(max(r.Coverage.Requests, 1)))
}

// scanColumn is one of the CSV schema of scans. New ones go to the end.
type scanColumn struct {
	name string
	text func(r ScanRow) string
}

func scanColumns() []scanColumn {
	return []scanColumn{
		{"run", func(r ScanRow) string { return strconv.Itoa(r.Leg.Run) }},
		{"engine", func(r ScanRow) string { return string(r.Leg.Engine.Scanner) }},
		{"scheduling", func(r ScanRow) string { return string(r.Leg.Engine.Scheduling) }},
		{"mode", func(r ScanRow) string { return defaulted(r.Leg.Engine.Mode, "none") }},
		{"shards", func(r ScanRow) string { return strconv.Itoa(r.Leg.Engine.Shards) }},
		{"direct", func(r ScanRow) string { return strconv.FormatBool(r.Leg.Engine.Direct) }},
		{"access", func(r ScanRow) string { return string(r.Leg.Load.Access) }},
		{"devices", func(r ScanRow) string { return strconv.Itoa(r.Leg.Devices) }},
		{"threads", func(r ScanRow) string { return strconv.Itoa(r.Leg.Load.Threads) }},
		{"depth", func(r ScanRow) string { return strconv.Itoa(r.Leg.Load.Depth) }},
		{"request_bytes", func(r ScanRow) string { return strconv.Itoa(r.Leg.Load.RequestBytes) }},
		{"files", func(r ScanRow) string { return count(r.Coverage.Files) }},
		{"bytes", func(r ScanRow) string { return count(r.Coverage.Bytes) }},
		{"requests", func(r ScanRow) string { return count(r.Coverage.Requests) }},
		{"coverage", func(r ScanRow) string { return fmt.Sprintf("%016x", r.Coverage.Digest) }},
		{"content", func(r ScanRow) string { return digestText(r.Coverage.Content) }},
		{"secs", func(r ScanRow) string { return fixed(r.Elapsed.Seconds(), 6) }},
		{"gbps", func(r ScanRow) string { return fixed(r.GBps(), 4) }},
		{"cpu_us_per_request", func(r ScanRow) string { return micros(r.CPUPerRequest()) }},
		{"device_bytes", func(r ScanRow) string { return count(r.Cost.DeviceBytes) }},
		{"resident_before", func(r ScanRow) string { return fixed(r.Cost.ResidentBefore, 4) }},
		{"resident_after", func(r ScanRow) string { return fixed(r.Cost.ResidentAfter, 4) }},
		{"os_threads", func(r ScanRow) string { return count(r.Cost.Threads) }},
		{"enters", func(r ScanRow) string { return count(r.Counts.Enters) }},
		{"wakes", func(r ScanRow) string { return count(r.Counts.Wakes) }},
		{"init_us", func(r ScanRow) string { return micros(r.Setup.Init) }},
		{"first_read_us", func(r ScanRow) string { return micros(r.Setup.FirstRead) }},
		{"grow_us", func(r ScanRow) string { return micros(r.Grow) }},
		{"registered_bytes", func(r ScanRow) string { return count(r.Counts.Registered) }},
		{"rss_bytes", func(r ScanRow) string { return count(r.Cost.Memory) }},
		{"procs", func(r ScanRow) string { return strconv.Itoa(r.Leg.Procs) }},
	}
}

// digestText leaves a cell empty where content was not looked at.
func digestText(sum uint64) string {
	if sum == 0 {
		return ""
	}
	return fmt.Sprintf("%016x", sum)
}

// ScanCSV writes rows of scans as they come.
type ScanCSV struct{ w *csv.Writer }

// NewScanCSV writes the header.
func NewScanCSV(w io.Writer) (*ScanCSV, error) {
	c := &ScanCSV{w: csv.NewWriter(w)}
	var names []string
	for _, col := range scanColumns() {
		names = append(names, col.name)
	}
	return c, writeLine(c.w, names)
}

// Add writes one row.
func (c *ScanCSV) Add(r ScanRow) error {
	var cells []string
	for _, col := range scanColumns() {
		cells = append(cells, col.text(r))
	}
	return writeLine(c.w, cells)
}

// ScanMatrix is which scans to compare.
type ScanMatrix struct {
	Files   []ScanFile
	Load    ScanLoad
	Engines []ScanEngine
	Runs    int // that count; a warm-up of each engine, run 0, comes before
}

// Legs gives the legs in the order in which to run them: see Matrix.Legs.
func (m ScanMatrix) Legs() ([]ScanLeg, error) {
	if m.Runs < 1 || m.Runs > RunsMax {
		return nil, usagef("runs is %d, must be 1 to %d", m.Runs, RunsMax)
	}
	if len(m.Engines) == 0 {
		return nil, usagef("no engines")
	}
	var round []ScanLeg
	var errs []error
	for _, e := range m.Engines {
		leg := ScanLeg{Files: m.Files, Load: m.Load, Engine: e, Devices: devices(m.Files)}.WithDefaults()
		if slices.ContainsFunc(round, func(l ScanLeg) bool { return l.Engine == leg.Engine }) {
			continue // settings that this engine has not
		}
		errs = append(errs, leg.Check())
		round = append(round, leg)
	}
	legs := slices.Clone(round)
	for run := range m.Runs {
		for i := range round {
			leg := round[(i+run)%len(round)]
			leg.Run = run + 1
			legs = append(legs, leg)
		}
	}
	return legs, errors.Join(errs...)
}

// Scans runs the legs, and fails as soon as one of them covers something else
// than the others, or reads other content.
func Scans(ctx context.Context, legs []ScanLeg, run func(context.Context, ScanLeg) (ScanRow, error), got func(ScanRow) error) error {
	var first *ScanRow
	return Each(ctx, legs, run, func(r ScanRow) error {
		if first == nil {
			first = &r
		}
		if err := r.Coverage.verify(first.Coverage); err != nil {
			return fmt.Errorf("%s: %w", r.Leg, err)
		}
		if r.Leg.Run == 0 && r.Coverage.Content != first.Coverage.Content {
			return fmt.Errorf("%s: read other content (%016x) than %s (%016x)", r.Leg, r.Coverage.Content, first.Leg, first.Coverage.Content)
		}
		return got(r)
	})
}

// Threshold is the least relative difference of throughput that counts. It is
// fixed here, before anything is measured.
const Threshold = 0.05

// ScanSummary is the median of an engine's passes, and how it compares with the
// first engine.
type ScanSummary struct {
	Engine  ScanEngine
	Runs    int
	GBps    float64
	CPU     float64 // µs per request
	Ratio   float64 // of throughput, the median of those within a run
	Verdict string  // "first", "faster", "slower" or "same"
	Init    time.Duration
	Grow    time.Duration
	Memory  int64
}

// SummarizeScans groups rows by engine. The warm-up does not count.
func SummarizeScans(rows []ScanRow) []ScanSummary {
	var order []ScanEngine
	groups := map[ScanEngine][]ScanRow{}
	for _, r := range rows {
		if r.Leg.Run == 0 {
			continue
		}
		if groups[r.Leg.Engine] == nil {
			order = append(order, r.Leg.Engine)
		}
		groups[r.Leg.Engine] = append(groups[r.Leg.Engine], r)
	}
	var list []ScanSummary
	for i, e := range order {
		s := summarizeScan(groups[e], groups[order[0]])
		switch {
		case i == 0:
			s.Verdict = "first"
		case s.Ratio >= 1+Threshold:
			s.Verdict = "faster"
		case s.Ratio <= 1-Threshold:
			s.Verdict = "slower"
		default:
			s.Verdict = "same"
		}
		list = append(list, s)
	}
	return list
}

func summarizeScan(rows, base []ScanRow) ScanSummary {
	var speed, cpu, ratio, start, grow, memory []float64
	for _, r := range rows {
		speed = append(speed, r.GBps())
		cpu = append(cpu, us(r.CPUPerRequest()))
		start = append(start, float64(r.Setup.Init))
		grow = append(grow, float64(r.Grow))
		memory = append(memory, float64(r.Cost.Memory))
		i := slices.IndexFunc(base, func(b ScanRow) bool { return b.Leg.Run == r.Leg.Run })
		if i >= 0 && base[i].GBps() > 0 {
			ratio = append(ratio, r.GBps()/base[i].GBps())
		}
	}
	return ScanSummary{
		Engine: rows[0].Leg.Engine, Runs: len(rows), GBps: median(speed), CPU: median(cpu), Ratio: median(ratio),
		Init: time.Duration(median(start)), Grow: time.Duration(median(grow)), Memory: int64(median(memory)),
	}
}

// WriteScanSummary writes a table for people.
func WriteScanSummary(w io.Writer, list []ScanSummary) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(t, "differences of less than %.0f %% do not count\nengine\truns\tGB/s\tx\tverdict\tCPU us/request\tinit us\tgrow us\tRSS MB\t\n", 100*Threshold)
	for _, s := range list {
		_, _ = fmt.Fprintf(t, "%s\t%d\t%.3f\t%.3f\t%s\t%.2f\t%.0f\t%.0f\t%.0f\t\n",
			s.Engine.Label(), s.Runs, s.GBps, s.Ratio, s.Verdict, s.CPU, us(s.Init), us(s.Grow), float64(s.Memory)/1e6)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write summary: %w", err)
	}
	return nil
}
