package bench

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
)

// Row is the result of a leg.
type Row struct {
	Leg    Leg // with its defaults filled in, and Load.Ops as many as were made
	Timing Timing
	Cost   Cost
	Counts Counts
	Setup  Setup
}

// Timing of a leg's reads.
type Timing struct {
	Elapsed time.Duration
	// Latencies are from one read's end to the next one's in the same
	// goroutine, so that time which a goroutine spends waiting for a processor
	// counts. With a depth, from submission to the end.
	P50, P99, P999, P9999, Max time.Duration
}

// Cost of a leg's reads.
type Cost struct {
	CPU            time.Duration // of all threads of the process, kernel workers included
	DeviceBytes    int64         // that storage devices gave
	ResidentBefore float64       // share of the file in the page cache
	ResidentAfter  float64
	Threads        int64 // most operating system threads at once
	Memory         int64 // resident set of the process at the end, in bytes
}

// Setup is what came before the reads.
type Setup struct {
	Init      time.Duration // until the engine was ready
	FirstRead time.Duration // of one range that is in the page cache
}

func (r Row) ops() float64 { return float64(max(r.Leg.Load.Ops, 1)) }

// IOPS is reads per second.
func (r Row) IOPS() float64 { return r.ops() / max(r.Timing.Elapsed.Seconds(), 1e-9) }

// MBps is 10^6 bytes per second.
func (r Row) MBps() float64 { return r.IOPS() * float64(r.Leg.Load.ReadSize) / 1e6 }

// CPUPerOp is processor time per read.
func (r Row) CPUPerOp() time.Duration { return time.Duration(float64(r.Cost.CPU) / r.ops()) }

// column is one of the CSV schema. Programs read them by name and by place:
// new ones go to the end.
type column struct {
	name string
	text func(r Row) string
}

func columns() []column {
	load := func(f func(l Load) string) func(Row) string { return func(r Row) string { return f(r.Leg.Load) } }
	eng := func(f func(e Engine) string) func(Row) string { return func(r Row) string { return f(r.Leg.Engine) } }
	return []column{
		{"strategy", eng(func(e Engine) string { return string(e.Strategy) })},
		{"shards", eng(func(e Engine) string { return strconv.Itoa(e.Shards) })},
		{"entries", eng(func(e Engine) string { return strconv.Itoa(e.Entries) })},
		{"mode", eng(func(e Engine) string { return defaulted(e.Mode, "none") })},
		{"direct", eng(func(e Engine) string { return strconv.FormatBool(e.Direct) })},
		{"access", load(func(l Load) string { return string(l.Access) })},
		{"file_size", func(r Row) string { return count(r.Leg.File.Size) }},
		{"read_size", load(func(l Load) string { return strconv.Itoa(l.ReadSize) })},
		{"concurrency", load(func(l Load) string { return strconv.Itoa(l.Concurrency) })},
		{"ops", load(func(l Load) string { return count(l.Ops) })},
		{"secs", func(r Row) string { return fixed(r.Timing.Elapsed.Seconds(), 6) }},
		{"iops", func(r Row) string { return fixed(r.IOPS(), 1) }},
		{"mbps", func(r Row) string { return fixed(r.MBps(), 2) }},
		{"p50_us", func(r Row) string { return micros(r.Timing.P50) }},
		{"p99_us", func(r Row) string { return micros(r.Timing.P99) }},
		{"p999_us", func(r Row) string { return micros(r.Timing.P999) }},
		{"max_us", func(r Row) string { return micros(r.Timing.Max) }},
		{"cpu_us_per_op", func(r Row) string { return micros(r.CPUPerOp()) }},
		{"device_bytes", func(r Row) string { return count(r.Cost.DeviceBytes) }},
		{"resident_before", func(r Row) string { return fixed(r.Cost.ResidentBefore, 4) }},
		{"resident_after", func(r Row) string { return fixed(r.Cost.ResidentAfter, 4) }},
		{"os_threads", func(r Row) string { return count(r.Cost.Threads) }},
		{"opens", func(r Row) string { return count(r.Counts.Opens) }},
		{"enters", func(r Row) string { return count(r.Counts.Enters) }},
		{"wakes", func(r Row) string { return count(r.Counts.Wakes) }},
		{"syscalls", func(r Row) string { return count(r.Counts.Syscalls) }},
		{"inline_hits", func(r Row) string { return count(r.Counts.InlineHits) }},
		{"init_us", func(r Row) string { return micros(r.Setup.Init) }},
		{"first_read_us", func(r Row) string { return micros(r.Setup.FirstRead) }},
		{"registered_bytes", func(r Row) string { return count(r.Counts.Registered) }},
		{"rss_bytes", func(r Row) string { return count(r.Cost.Memory) }},
		{"run", func(r Row) string { return strconv.Itoa(r.Leg.Run) }},
		{"depth", load(func(l Load) string { return strconv.Itoa(l.Depth) })},
		{"inline", eng(func(e Engine) string { return strconv.FormatBool(e.Inline) })},
		{"align", eng(func(e Engine) string { return strconv.Itoa(e.Align) })},
		{"small_pages", eng(func(e Engine) string { return strconv.FormatBool(e.SmallPages) })},
		{"seed", load(func(l Load) string { return strconv.FormatUint(l.Seed, 10) })},
		{"fallbacks", func(r Row) string { return count(r.Counts.Fallbacks) }},
		{"p9999_us", func(r Row) string { return micros(r.Timing.P9999) }},
		{"procs", func(r Row) string { return strconv.Itoa(r.Leg.Procs) }},
	}
}

func micros(d time.Duration) string { return fixed(float64(d)/1e3, 2) }

func fixed(v float64, digits int) string { return strconv.FormatFloat(v, 'f', digits, 64) }

// count leaves a cell empty for what is unknown.
func count(n int64) string {
	if n < 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// CSV writes rows as they come, so that a run that is cut short leaves what it
// measured.
type CSV struct{ w *csv.Writer }

// NewCSV writes the header.
func NewCSV(w io.Writer) (*CSV, error) {
	c := &CSV{w: csv.NewWriter(w)}
	var names []string
	for _, col := range columns() {
		names = append(names, col.name)
	}
	return c, writeLine(c.w, names)
}

// Add writes one row.
func (c *CSV) Add(r Row) error {
	var cells []string
	for _, col := range columns() {
		cells = append(cells, col.text(r))
	}
	return writeLine(c.w, cells)
}

func writeLine(w *csv.Writer, cells []string) error {
	err := w.Write(cells)
	w.Flush()
	if err = errors.Join(err, w.Error()); err != nil {
		return fmt.Errorf("write row: %w", err)
	}
	return nil
}
