package main

import (
	"runtime"
	"slices"
	"strings"
	"testing"
)

// TestKnobsDocIsFresh compares docs/knobs.md with the knobs; -update writes it.
func TestKnobsDocIsFresh(t *testing.T) { checkGenerated(t, "knobs.md", knobsDoc()) }

// The names are a contract: variables in deployments are made of them.
func TestKnobNames(t *testing.T) {
	var names []string
	for _, s := range knobSettings() {
		names = append(names, s.env())
	}
	for _, want := range []string{
		"RINGFENCE_IO_URING_READ_ENABLE", "RINGFENCE_IO_URING_SHARDS", "RINGFENCE_IO_URING_ENTRIES", "RINGFENCE_IO_URING_FD_CACHE",
		"RINGFENCE_IO_URING_BUFFER_MODE", "RINGFENCE_IO_URING_INLINE", "RINGFENCE_IO_URING_SHADOW_SHARE",
		"RINGFENCE_O_DIRECT_READ_ENABLE", "RINGFENCE_O_DIRECT_READ_THRESHOLD",
		"RINGFENCE_PAGE_CACHE_RECLAIM_ENABLE", "RINGFENCE_PAGE_CACHE_RECLAIM_THRESHOLD",
	} {
		if !slices.Contains(names, want) {
			t.Errorf("no %s in %q", want, names)
		}
	}
	k := newKnobs()
	if want := len(k.engines.All()) + 1; len(names) != want {
		t.Errorf("%d knobs are named, %d were made: two share a name", len(names), want)
	}
	all := settings()
	for i, s := range all {
		for _, other := range all[:i] {
			if other.env() == s.env() {
				t.Errorf("two settings are named %s", s.env())
			}
		}
	}
}

// Rings are off unless somebody asks for them.
func TestKnobDefaults(t *testing.T) {
	k := mustResolve(t, nil, nil).Knobs
	if k.engines.Enable.Load() || k.engines.Direct.Load() || !k.engines.Inline.Load() || k.engines.Shadow.Load() != 0 || !k.fdCache.Load() {
		t.Errorf("enable %v, direct %v, inline %v, shadow %v, fd cache %v",
			k.engines.Enable, k.engines.Direct, k.engines.Inline, k.engines.Shadow, k.fdCache)
	}
	if got, want := k.engines.Shards.Load(), int64(min(max(runtime.GOMAXPROCS(0)/4, 1), 4)); got != want {
		t.Errorf("%d shards, want %d", got, want)
	}
	if other := mustResolve(t, nil, nil).Knobs; other == k {
		t.Error("two configurations share their knobs")
	}
}

func TestKnobsAtStart(t *testing.T) {
	auto := newKnobs().engines.Shards.String()
	for _, c := range []struct {
		name, text, value string
		warning           string // in one warning; "" for no warning at all
	}{
		{"io-uring-read-enable", " TRUE ", "on", ""},
		{"io-uring-read-enable", "enabled", "on", ""},
		{"io-uring-read-enable", "inactive", "off", ""},
		{"io-uring-read-enable", "perhaps", "off", `"perhaps" is neither on nor off`},
		{"io-uring-read-enable", "", "off", "neither on nor off"},
		{"io-uring-shards", "0", "1", "1 to 16"},
		{"io-uring-shards", "1", "1", ""},
		{"io-uring-shards", "8", "8", ""},
		{"io-uring-shards", "16", "16", ""},
		{"io-uring-shards", "100000", "16", "1 to 16"},
		{"io-uring-shards", "-1", auto, "not a number"},
		{"io-uring-shards", " 8", auto, "not a number"},
		{"io-uring-shards", "abc", auto, "not a number"},
		{"io-uring-shards", "auto", auto, ""},
		{"io-uring-shadow-share", "1%", "0.01", ""},
		{"io-uring-shadow-share", "7", "1", "0 to 1"},
		{"o-direct-read-threshold", "1MiB", "1MiB", ""},
		{"o-direct-read-threshold", "1 MB", "4MiB", "not a size"},
		{"io-uring-buffer-mode", "static", "static", ""},
	} {
		for _, flag := range []bool{false, true} {
			args, environ := []string{"--" + c.name + "=" + c.text}, []string(nil)
			if !flag {
				args, environ = nil, []string{setting{name: c.name}.env() + "=" + c.text}
			}
			got := mustResolve(t, args, environ)
			k, ok := got.Knobs.set.Lookup(c.name)
			if !ok || k.String() != c.value {
				t.Errorf("%s=%q: %v, want %s", c.name, c.text, k, c.value)
			}
			warnings := strings.Join(got.Warnings, "\n")
			if (c.warning == "") != (warnings == "") || !strings.Contains(warnings, c.warning) || strings.Contains(warnings, "\n") {
				t.Errorf("%s=%q: warnings %q, want one about %q", c.name, c.text, got.Warnings, c.warning)
			}
		}
	}
	problems := problemsOf(t, []string{"--io-uring-buffer-mode=statik"}, nil)
	if len(problems) != 1 || !strings.Contains(problems[0], "non-fixed, legacy, dynamic, static") {
		t.Errorf("an unknown buffer mode: %q", problems)
	}
}

func TestKnobFlagBeatsEnvironment(t *testing.T) {
	c := mustResolve(t, []string{"--io-uring-read-enable", "off"}, []string{"RINGFENCE_IO_URING_READ_ENABLE=on"})
	if c.Knobs.engines.Enable.Load() {
		t.Error("the environment won over a flag")
	}
}

// Commands share the names of variables, and none warns of another's.
func TestVariablesOfOtherCommands(t *testing.T) {
	c := mustResolve(t, nil, []string{"RINGFENCE_ENDPOINT=http://127.0.0.1:9000", "RINGFENCE_ENDPONT=x"})
	if len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], "RINGFENCE_ENDPONT") || !strings.Contains(c.Warnings[0], "RINGFENCE_ENDPOINT?") {
		t.Errorf("warnings %q", c.Warnings)
	}
}
