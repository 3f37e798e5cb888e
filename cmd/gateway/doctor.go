package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
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
	for _, disk := range disks {
		if ctx.Err() != nil {
			return exitFail
		}
		findings = append(findings, checkDisk(disk)...)
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
