package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"ringfence/internal/bench"
)

// runBench is `gateway bench`. Each kind of bench parses flags of its own; none
// of them is an environment variable.
func runBench(ctx context.Context, p *process, args []string) int {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	kinds := map[string]func(context.Context, *process, []string) error{
		"pread": benchPread,
		"scan":  benchScan,
		"leg":   benchLeg, // one measurement, for a process that we start ourselves
	}
	if len(args) > 0 && slices.Contains([]string{"-h", "-help", "--help", "help"}, args[0]) {
		_, _ = io.WriteString(p.stdout, benchHelp) // like every usage
		return exitOK
	}
	var err error
	switch {
	case len(args) == 0 || kinds[args[0]] == nil:
		err = fmt.Errorf("%w: say what to bench: pread or scan, and -h for its flags", bench.ErrUsage)
	default:
		err = kinds[args[0]](ctx, p, args[1:])
	}
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return exitOK
	case errors.Is(err, bench.ErrUsage):
		p.complain(err.Error())
		return exitUsage
	default:
		p.complain(err.Error())
		return exitFail
	}
}

const benchHelp = `Usage: gateway bench pread|scan

Measure the read engines on this machine; see docs/bench.md.

  gateway bench pread -h    the flags for reads of one file
  gateway bench scan -h     the flags for reads of many files
`

// benchFlags makes a flag set that reports mistakes as usage errors.
func benchFlags(p *process, name string) *flag.FlagSet {
	f := flag.NewFlagSet("gateway bench "+name, flag.ContinueOnError)
	f.SetOutput(p.stderr)
	return f
}

func parseBenchFlags(f *flag.FlagSet, args []string) error {
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		return err
	} else if err != nil {
		return fmt.Errorf("%w: %w", bench.ErrUsage, err)
	}
	return nil
}

// listFlag adds a flag that takes a comma-separated list, which replaces the
// default.
func listFlag[T any](f *flag.FlagSet, name, help string, to *[]T, parse func(string) (T, error)) {
	f.Func(name, help, func(text string) error {
		*to = nil
		for word := range strings.SplitSeq(text, ",") {
			v, err := parse(strings.TrimSpace(word))
			if err != nil {
				return err
			}
			*to = append(*to, v)
		}
		return nil
	})
}

func sizeFlag(f *flag.FlagSet, name, help string, to *int64) {
	f.Func(name, help, func(text string) (err error) {
		*to, err = parseSize(text)
		return err
	})
}

func word[T ~string](known []T) func(string) (T, error) {
	return func(s string) (T, error) {
		if !slices.Contains(known, T(s)) {
			return "", fmt.Errorf("%q is none of %s", s, bench.Names(known))
		}
		return T(s), nil
	}
}

// child runs a leg in a process of its own, which is this program again. It
// gets the leg as JSON and answers with JSON.
func child[Leg, Row any](ctx context.Context, p *process, kind string, procs int, leg Leg) (row Row, err error) {
	self, err := os.Executable()
	if err != nil {
		return row, err
	}
	in, err := json.Marshal(leg)
	if err != nil {
		return row, err
	}
	cmd := exec.CommandContext(ctx, self, "bench", "leg", kind)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), p.stderr
	cmd.Env = p.environ
	if procs > 0 {
		cmd.Env = append(slices.Clone(p.environ), "GOMAXPROCS="+strconv.Itoa(procs))
	}
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return row, context.Cause(ctx)
	}
	if err != nil {
		return row, fmt.Errorf("its process: %w", err)
	}
	if err := json.Unmarshal(out, &row); err != nil {
		return row, fmt.Errorf("its answer: %w", err)
	}
	return row, nil
}

// benchLeg is the other side of child.
func benchLeg(ctx context.Context, p *process, args []string) error {
	switch strings.Join(args, " ") {
	case "pread":
		return answer(ctx, p, bench.Run)
	case "scan":
		return answer(ctx, p, bench.Scan)
	}
	return fmt.Errorf("%w: leg is for the program itself", bench.ErrUsage)
}

func answer[Leg, Row any](ctx context.Context, p *process, run func(context.Context, Leg) (Row, error)) error {
	var leg Leg
	if err := json.NewDecoder(os.Stdin).Decode(&leg); err != nil {
		return fmt.Errorf("%w: leg: %w", bench.ErrUsage, err)
	}
	row, err := run(ctx, leg)
	if err != nil {
		return err
	}
	return json.NewEncoder(p.stdout).Encode(row)
}

// columnsTo is where rows go, and where the summary does: rows are for
// programs, on standard output, and push what is for people aside.
func columnsTo(p *process, csv bool) (rows, people io.Writer) {
	if csv {
		return p.stdout, p.stderr
	}
	return io.Discard, p.stdout
}
