package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestLegsAreInterleavedInRotatedOrder(t *testing.T) {
	m := Matrix{
		File: File{Path: "f", Size: 1 << 30}, Runs: 4,
		Loads:   []Load{{ReadSize: 4096, Concurrency: 1}, {ReadSize: 8192, Concurrency: 1}},
		Engines: []Engine{{Strategy: StdCached}, {Strategy: Nowait}, {Strategy: Pool}},
	}
	legs, err := m.Legs()
	must(t, err)
	var got []string
	for _, l := range legs {
		got = append(got, fmt.Sprintf("%d:%d:%s", l.Load.ReadSize, l.Run, l.Engine.Strategy))
	}
	var want []string
	for _, size := range []int{4096, 8192} {
		for run, order := range []string{"std_cached nowait pool", "nowait pool std_cached", "pool std_cached nowait", "std_cached nowait pool"} {
			for s := range strings.FieldsSeq(order) {
				want = append(want, fmt.Sprintf("%d:%d:%s", size, run+1, s))
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestLegsOfSettingsThatAStrategyHasNot(t *testing.T) {
	m := Matrix{File: File{Path: "f", Size: 1 << 30}, Runs: 1, Loads: []Load{{ReadSize: 4096, Concurrency: 1}}}
	for _, s := range []Strategy{StdCached, UringCached} {
		for _, shards := range []int{1, 2} {
			for _, mode := range []string{"non-fixed", "static"} {
				m.Engines = append(m.Engines, Engine{Strategy: s, Shards: shards, Mode: mode})
			}
		}
	}
	legs, err := m.Legs()
	must(t, err)
	var got []string
	for _, l := range legs {
		got = append(got, l.Engine.Label())
	}
	want := []string{"std_cached", "uring_cached/1", "uring_cached/1 static", "uring_cached/2", "uring_cached/2 static"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	for _, runs := range []int{-1, 0, RunsMax + 1} {
		m.Runs = runs
		if _, err := m.Legs(); !errors.Is(err, ErrUsage) {
			t.Errorf("%d runs: %v", runs, err)
		}
	}
	if _, err := (Matrix{Runs: 1}).Legs(); !errors.Is(err, ErrUsage) {
		t.Errorf("no engines: %v", err)
	}
}

func TestEachStopsAtTheFirstFailure(t *testing.T) {
	broken := errors.New("broken")
	legs := make([]Leg, 5)
	runs, rows := 0, 0
	err := Each(t.Context(), legs, func(context.Context, Leg) (Row, error) {
		if runs++; runs == 3 {
			return Row{}, broken
		}
		return Row{}, nil
	}, func(Row) error { rows++; return nil })
	if !errors.Is(err, broken) || runs != 3 || rows != 2 {
		t.Errorf("%d runs, %d rows: %v", runs, rows, err)
	}
}

func TestSummaryIsOfMediansAndOfRatiosWithinRuns(t *testing.T) {
	load := Load{Access: Warm, ReadSize: 1_000_000, Concurrency: 1, Depth: 1, Ops: 100}
	row := func(s Strategy, run int, secs float64, p99 time.Duration) Row {
		return Row{
			Leg:    Leg{Run: run, Load: load, Engine: Engine{Strategy: s}},
			Timing: Timing{Elapsed: time.Duration(secs * 1e9), P99: p99},
		}
	}
	// The machine was ten times slower in run 2: the ratios do not care.
	list := Summarize([]Row{
		row(StdCached, 1, 1, 100), row(Pool, 1, 0.5, 50),
		row(Pool, 2, 5, 500), row(StdCached, 2, 10, 1000),
		row(StdCached, 3, 2, 200), row(Pool, 3, 1, 100),
	})
	if len(list) != 2 || list[0].Engine.Strategy != StdCached || list[1].Engine.Strategy != Pool {
		t.Fatalf("%+v", list)
	}
	std, pool := list[0], list[1]
	if std.Runs != 3 || std.Median.IOPS != 50 || std.Median.MBps != 50 || std.Median.P99 != 0.2 || std.Ratio.IOPS != 1 {
		t.Errorf("std: %+v", std)
	}
	if pool.Median.IOPS != 100 || pool.Ratio.IOPS != 2 || pool.Ratio.P99 != 0.5 || pool.Ratio.CPU != 0 {
		t.Errorf("pool: %+v", pool)
	}
	var out bytes.Buffer
	must(t, WriteSummary(&out, list))
	for _, want := range []string{"warm, 1000000 B reads, c=1", "std_cached", "pool", "2.00", "0.50"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if median(nil) != 0 || median([]float64{4, 1, 3, 2}) != 2.5 {
		t.Error("median")
	}
}
