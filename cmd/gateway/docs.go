package main

import (
	"fmt"
	"strings"
)

// flagsDoc renders the settings table as docs/flags.md.
func flagsDoc() string {
	var b strings.Builder
	b.WriteString("# Settings\n\n")
	b.WriteString("Generated from the table in cmd/gateway/settings.go by `go generate ./cmd/gateway`; do not edit.\n\n")
	b.WriteString("Every setting of `gateway server` is a flag and an environment variable. Default < environment < flag.\n")
	b.WriteString("A configuration with mistakes is refused, all of them listed. An unknown `" + envPrefix + "` variable gives a warning.\n\n")
	b.WriteString("| flag | environment | default | meaning |\n|---|---|---|---|\n")
	for _, s := range settings() {
		fmt.Fprintf(&b, "| `--%s %s` | `%s` | %s | %s |\n", s.name, s.value, s.env(), s.defaultText(), escapeCell(s.help))
	}
	b.WriteString("\n" + strings.ReplaceAll(diskHelp, "DISK", "`DISK`") + "\n")
	b.WriteString("\n## Commands\n\n| command | what it does |\n|---|---|\n")
	for _, c := range commands() {
		fmt.Fprintf(&b, "| `gateway %s` | %s |\n", strings.TrimSpace(c.name+" "+c.args), escapeCell(c.summary))
	}
	b.WriteString("\nExit codes: 0 fine, 1 failed, 2 asked for something that makes no sense.\n")
	return b.String()
}

func escapeCell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
