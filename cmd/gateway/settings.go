package main

import (
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"
	"time"
)

//go:generate go test -count=1 -run DocIsFresh$ . -update

// envPrefix begins the name of every environment variable of ours.
const envPrefix = "RINGFENCE_"

// diskHelp explains DISK where usage is shown.
const diskHelp = `DISK is a directory on a disk of its own. {1...6} in it expands: /mnt/disk{1...6}.
Without any: ` + defaultDisks + `.`

const defaultDisks = "./ringfence-data/disk{1...6}"

// setting is one row of the table from which flags, environment variables,
// help and docs/flags.md are made.
type setting struct {
	name   string // of the flag; the environment variable is made from it
	value  string // what to write for the value in help
	def    string // default, as one would write it; "" with secret or optional ones
	help   string // one line
	secret bool   // never shown
	live   bool   // a knob, which may change while the gateway runs
	// parse checks v and puts it into c. Its error completes "name: ".
	parse func(c *Config, v string) error
}

// env is the name of the environment variable.
func (s setting) env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(s.name, "-", "_"))
}

func (s setting) defaultText() string {
	if s.def == "" {
		return "none"
	}
	return s.def
}

// liveText says in help what is special about a knob.
func (s setting) liveText() string {
	if s.live {
		return ", live"
	}
	return ""
}

// settings is the table of `gateway server`. A new setting is a new row and a
// field of Config, or a knob.
func settings() []setting { return append(fixedSettings(), knobSettings()...) }

// fixedSettings are those that hold from start to end.
func fixedSettings() []setting {
	return []setting{
		{name: "address", value: "HOST:PORT", def: ":9000", help: "address to listen on; an empty host means all interfaces",
			parse: parseAddress},
		{name: "root-user", value: "NAME", help: "access key of the root user, at least 3 characters; without it and root-password a pair is generated at the first start and kept on the disks",
			parse: func(c *Config, v string) error { return parseSecret(&c.Root.User, v) }},
		{name: "root-password", value: "SECRET", secret: true, help: "secret key of the root user, at least 8 characters; prefer the environment or root-password-file, since other users of the machine can read flags",
			parse: func(c *Config, v string) error { return parseSecret(&c.Root.Password, v) }},
		{name: "root-user-file", value: "FILE", help: "file that holds root-user",
			parse: func(c *Config, v string) error { return parseSecret(&c.Root.UserFile, v) }},
		{name: "root-password-file", value: "FILE", help: "file that holds root-password",
			parse: func(c *Config, v string) error { return parseSecret(&c.Root.PasswordFile, v) }},
		{name: "parity", value: "N", def: "auto", help: "disks of a set that may be lost without losing data, fixed when the store is made; auto: 1 disk 0, 2-3 disks 1, 4-7 disks 2, 8 and more 4",
			parse: parseParity},
		{name: "region", value: "NAME", def: "us-east-1", help: "region that clients sign for",
			parse: parseRegion},
		{name: "domains", value: "NAME,...", help: "host names under which bucket.NAME is accepted beside NAME/bucket",
			parse: parseDomains},
		{name: "memory", value: "SIZE", def: "256MiB", help: "memory for object data in flight, 64MiB to 1TiB; a large upload or download holds 3 MiB for as long as its client takes; others wait up to 10 s for a share",
			parse: parseMemory},
		{name: "max-requests", value: "N", def: "1024", help: "requests served at once, 1 to 1000000; more are answered 503 SlowDown",
			parse: parseMaxRequests},
		{name: "drain-timeout", value: "DURATION", def: "30s", help: "how long requests may go on after SIGTERM or SIGINT; disks that hang may take up to 7s more; a second signal, from one second after the first on, ends the process",
			parse: parseDrain},
		{name: "log-level", value: "LEVEL", def: "info", help: "debug, info, warn or error; debug logs every request",
			parse: func(c *Config, v string) error {
				return parseChoice(&c.LogLevel, v, "debug", "info", "warn", "error")
			}},
		{name: "log-format", value: "FORMAT", def: "auto", help: "json, console, or auto: console on a terminal",
			parse: func(c *Config, v string) error { return parseChoice(&c.LogFormat, v, "auto", "json", "console") }},
	}
}

// doctorSettings are those that say how disks would be read.
func doctorSettings() []setting { return append(named(settings(), "memory"), knobSettings()...) }

func parseAddress(c *Config, v string) error {
	_, port, err := net.SplitHostPort(v)
	if err != nil {
		return fmt.Errorf("%q is not HOST:PORT", v)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("port %q is not a number from 0 to 65535", port)
	}
	c.Address = v
	return nil
}

// parseSecret takes any value but the empty one: an empty secret is a broken
// deployment script, never a wish. Its error must not show the value.
func parseSecret(to *string, v string) error {
	if v == "" {
		return fmt.Errorf("is set but empty")
	}
	*to = v
	return nil
}

// parityAuto as Config.Parity means the default for the number of disks.
const parityAuto = -1

func parseParity(c *Config, v string) error {
	if v == "auto" {
		c.Parity = parityAuto
		return nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 0 || n > math.MaxUint8 {
		return fmt.Errorf("%q is neither auto nor a number of disks", v)
	}
	c.Parity = n
	return nil
}

func parseRegion(c *Config, v string) error {
	if v == "" || len(v) > 64 || strings.Trim(v, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
		return fmt.Errorf("%q is not a region: lower-case letters, digits, - and _, 1 to 64 of them", v)
	}
	c.Region = v
	return nil
}

func parseDomains(c *Config, v string) error {
	c.Domains = nil
	if v == "" {
		return nil
	}
	for name := range strings.SplitSeq(v, ",") {
		name = strings.TrimSpace(name)
		if !isHostName(name) {
			return fmt.Errorf("%q is not a host name", name)
		}
		c.Domains = append(c.Domains, strings.ToLower(name))
	}
	return nil
}

func isHostName(s string) bool {
	if s == "" || len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(strings.ToLower(s), ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' ||
			strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return false
		}
	}
	return true
}

func parseMemory(c *Config, v string) error {
	n, err := parseSize(v)
	if err != nil {
		return err
	}
	if n < 64<<20 || n > 1<<40 {
		return fmt.Errorf("%s is not between 64MiB and 1TiB", v)
	}
	c.MemoryBytes = n
	return nil
}

// parseSize reads a number of bytes with an optional KiB, MiB, GiB or TiB.
func parseSize(v string) (int64, error) {
	digits, unit := v, int64(1)
	for i, suffix := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if s, ok := strings.CutSuffix(v, suffix); ok {
			digits, unit = s, int64(1)<<(10*(i+1))
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/unit {
		return 0, fmt.Errorf("%q is not a size such as 256MiB", v)
	}
	return n * unit, nil
}

func parseMaxRequests(c *Config, v string) error {
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > 1_000_000 {
		return fmt.Errorf("%q is not a number from 1 to 1000000", v)
	}
	c.MaxRequests = n
	return nil
}

func parseDrain(c *Config, v string) error {
	d, err := time.ParseDuration(v)
	if err != nil || d < 0 || d > time.Hour {
		return fmt.Errorf("%q is not a duration from 0s to 1h", v)
	}
	c.DrainTimeout = d
	return nil
}

func parseChoice(to *string, v string, choices ...string) error {
	for _, choice := range choices {
		if v == choice {
			*to = v
			return nil
		}
	}
	return fmt.Errorf("%q is none of %s", v, strings.Join(choices, ", "))
}
