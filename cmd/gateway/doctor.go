package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"ringfence/storage"
	"ringfence/storage/hybrid"
)

// grade is how a check came out.
type grade uint8

const (
	gradeOK grade = iota
	gradeWarn
	gradeFail
)

func (g grade) String() string { return [...]string{"ok", "warn", "fail"}[g] }

// finding is one line of the doctor: what was looked at, what it is, and for
// anything but ok what that means and what to do.
type finding struct {
	grade  grade
	what   string
	is     string
	advice string
}

func (f finding) String() string {
	line := fmt.Sprintf("%-4s  %s: %s", f.grade, f.what, f.is)
	if f.advice != "" {
		line += "\n      " + f.advice
	}
	return line
}

// doctor says what will and will not work on this machine, and why. It changes
// nothing but for one small file per disk, which it removes. It exits with 1
// when something would keep the gateway from working.
func doctor(ctx context.Context, p *process, c Config) int {
	disks, err := expandDisks(c.Args)
	if err != nil {
		p.complain(err.Error())
		return exitUsage
	}
	findings := checkMachine()
	findings = append(findings, checkClock(time.Now()))
	for _, w := range c.Warnings {
		findings = append(findings, finding{gradeWarn, "settings", w, ""})
	}
	pool, err := storage.NewPool(storage.PoolOptions{BudgetBytes: c.MemoryBytes})
	if err != nil {
		p.complain(fmt.Sprintf("buffers: %v", err))
		return exitFail
	}
	for _, disk := range disks {
		if ctx.Err() != nil {
			break
		}
		findings = append(findings, checkDisk(disk)...)
		findings = append(findings, checkReads(ctx, disk, pool, c.Knobs))
	}
	if err := pool.Close(); err != nil {
		findings = append(findings, finding{gradeWarn, "buffers", err.Error(), "A ring did not give its memory back."})
	}
	if ctx.Err() != nil {
		return exitFail
	}
	findings = append(findings, checkSameDevice(disks)...)
	code := exitOK
	var b strings.Builder
	fmt.Fprintf(&b, "ringfence %s\n", buildInfo().Release)
	for _, f := range findings {
		b.WriteString(f.String() + "\n")
		if f.grade == gradeFail {
			code = exitFail
		}
	}
	if _, err := fmt.Fprint(p.stdout, b.String()); err != nil {
		return exitFail
	}
	return code
}

// checkReads says what would read the disk in a gateway started with these
// settings, and what would if rings were switched on: it starts them on the
// disk, has them read a file, and ends them. It asks no gateway that runs. Both
// engines read the same bytes, so nothing here is a failure.
func checkReads(ctx context.Context, disk string, pool *storage.Pool, k *knobs) finding {
	f := finding{what: "disk " + disk + " reads"}
	would, allowed, err := hybrid.Probe(ctx, hybrid.ProbeOptions{Dir: existing(disk), Pool: pool, Knobs: k.engines})
	if err != nil {
		f.grade, f.is, f.advice = gradeWarn, "std: "+err.Error(), "Rings could not be tried."
		return f
	}
	switch on := k.engines.Enable.Load(); {
	case on && allowed:
		f.is, f.advice = would, "A gateway started with these settings would read so."
	case on:
		f.grade, f.is, f.advice = gradeWarn, would, "A gateway started with these settings would read so: io-uring-read-enable is on and can't be had. The standard engine reads the same bytes; nothing else is lost."
	case allowed:
		f.is, f.advice = offHere, "With io-uring-read-enable on: "+would+"."
	default:
		f.is, f.advice = offHere, "With io-uring-read-enable on it would stay so: "+would+"."
	}
	return f
}

// offHere is how a gateway would read that nobody told to use rings.
const offHere = "std: switched off in these settings; a gateway started with them would read by the standard engine"

// checkClock catches a clock that was never set. Clients sign the time, and
// 15 minutes of difference refuse every request.
func checkClock(now time.Time) finding {
	f := finding{what: "clock", is: now.UTC().Format(time.RFC3339)}
	if now.Year() < 2025 {
		f.grade = gradeFail
		f.advice = "The clock was never set. Clients' signatures carry the time and would be refused: run an NTP client."
	}
	return f
}

// existing returns disk, or the nearest directory above it that exists.
func existing(disk string) string {
	for {
		if info, err := os.Stat(disk); err == nil && info.IsDir() || filepath.Dir(disk) == disk {
			return disk
		}
		disk = filepath.Dir(disk)
	}
}
