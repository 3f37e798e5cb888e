package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
)

// release is set by the linker: -ldflags "-X main.release=v0.1.0".
var release string

// build is what this binary was made from.
type build struct {
	Release  string // a tag, or "dev"
	Revision string // of the source, "" if unknown
	Go       string
}

func buildInfo() build {
	b := build{Release: release, Go: runtime.Version()}
	if b.Release == "" {
		b.Release = "dev"
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			b.Revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			b.Revision += "+changes"
		}
	}
	return b
}

func version(_ context.Context, p *process, _ Config) int {
	b := buildInfo()
	line := "ringfence " + b.Release
	if b.Revision != "" {
		line += " (" + b.Revision + ")"
	}
	if _, err := fmt.Fprintf(p.stdout, "%s %s %s/%s\n", line, b.Go, runtime.GOOS, runtime.GOARCH); err != nil {
		return exitFail
	}
	return exitOK
}
