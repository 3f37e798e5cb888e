package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// Exit codes. Scripts rely on them.
const (
	exitOK    = 0
	exitFail  = 1 // what was asked for did not work
	exitUsage = 2 // what was asked for makes no sense
)

func main() {
	p := &process{
		environ: os.Environ(),
		stdout:  os.Stdout,
		stderr:  os.Stderr,
	}
	os.Exit(p.run(context.Background(), os.Args[1:]))
}

// process is what the operating system gave us, so that tests can give
// something else.
type process struct {
	environ        []string // "NAME=value"
	stdout, stderr io.Writer
}

// command is one word after "gateway".
type command struct {
	name    string
	args    string // for the usage line
	summary string
	table   []setting // the settings it takes, nil for none
	run     func(ctx context.Context, p *process, c Config) int
}

func commands() []command {
	return []command{
		{"server", "[DISK...]", "serve the disks over S3", settings(), serve},
		{"doctor", "[DISK...]", "check kernel, file systems and limits, and say what to do", doctorSettings(), doctor},
		{"admin", "knobs [NAME [VALUE]] | engines", "show and set the live settings of a running gateway, and how its disks are read", adminSettings(), admin},
		{"health", "[URL]", "ask a running gateway whether it is ready; for health checks", named(settings(), "address"), health},
		{"bench", "pread|scan", "measure the read engines on this machine; see docs/bench.md", nil, nil},
		{"version", "", "print the version", nil, version},
	}
}

// named picks rows of a table.
func named(table []setting, names ...string) []setting {
	return slices.DeleteFunc(table, func(s setting) bool { return !slices.Contains(names, s.name) })
}

// run finds the command and its configuration, and runs it.
func (p *process) run(ctx context.Context, args []string) int {
	if len(args) == 0 {
		p.usage(p.stderr)
		return exitUsage
	}
	switch args[0] {
	case "-h", "--help", "-help", "help":
		p.usage(p.stdout)
		return exitOK
	case "bench":
		return runBench(ctx, p, args[1:]) // it has flags of its own
	case "-v", "--version", "-version":
		args = []string{"version"}
	}
	for _, cmd := range commands() {
		if cmd.name == args[0] {
			return p.runCommand(ctx, cmd, args[1:])
		}
	}
	names := make([]string, 0, len(commands()))
	for _, cmd := range commands() {
		names = append(names, cmd.name)
	}
	p.complain(fmt.Sprintf("unknown command %q%s; see gateway -h", args[0], didYouMean(args[0], names)))
	return exitUsage
}

func (p *process) runCommand(ctx context.Context, cmd command, args []string) int {
	c, err := resolve(cmd.table, args, p.environ)
	var bad *configError
	switch {
	case errors.Is(err, errHelp):
		p.commandUsage(p.stdout, cmd)
		return exitOK
	case errors.As(err, &bad):
		for _, problem := range bad.problems {
			p.complain(problem)
		}
		return exitUsage
	case err != nil:
		p.complain(err.Error())
		return exitUsage
	}
	return cmd.run(ctx, p, c)
}

// complain writes one line for people. A failed write to stderr has no better
// place to be reported.
func (p *process) complain(line string) {
	_, _ = fmt.Fprintf(p.stderr, "gateway: %s\n", line)
}

func (p *process) usage(w io.Writer) {
	var b strings.Builder
	b.WriteString("Ringfence turns local disks into an S3 store.\n\nUsage:\n")
	for _, cmd := range commands() {
		fmt.Fprintf(&b, "  gateway %-38s %s\n", strings.TrimSpace(cmd.name+" "+cmd.args), cmd.summary)
	}
	b.WriteString("\n`gateway COMMAND -h` shows the settings of a command.\n")
	_, _ = io.WriteString(w, b.String())
}

func (p *process) commandUsage(w io.Writer, cmd command) {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage: gateway %s\n\n%s.\n", strings.TrimSpace(cmd.name+" "+cmd.args), upperFirst(cmd.summary))
	if strings.Contains(cmd.args, "DISK") {
		b.WriteString("\n" + diskHelp + "\n")
	}
	if len(cmd.table) > 0 {
		b.WriteString("\nSettings, each a flag or an environment variable; a flag wins:\n\n")
		for _, s := range cmd.table {
			fmt.Fprintf(&b, "  --%s %s\n", s.name, s.value)
			fmt.Fprintf(&b, "      %s\n", s.help)
			fmt.Fprintf(&b, "      environment %s, default %s%s\n", s.env(), s.defaultText(), s.liveText())
		}
	}
	_, _ = io.WriteString(w, b.String())
}

func upperFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
