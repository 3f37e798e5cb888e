package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// Config is what a command runs with. But for the values of Knobs it does not
// change after resolve.
type Config struct {
	Address      string
	Root         rootConfig
	Parity       int // parityAuto or a number of disks
	Region       string
	Domains      []string
	MemoryBytes  int64
	MaxRequests  int
	DrainTimeout time.Duration
	LogLevel     string
	LogFormat    string
	Knobs        *knobs   // what may change; shared by all copies of the Config
	Endpoint     string   // of a running gateway, "" for the one of Address
	Args         []string // what is not a flag
	Warnings     []string // what looks wrong but does no harm
}

// rootConfig is what was said about the root user's credentials. After resolve
// User and Password are both set or both empty, and the files have been read.
type rootConfig struct {
	User, Password         string
	UserFile, PasswordFile string
}

// errHelp: -h was given.
var errHelp = errors.New("help wanted")

// configError lists every problem of a configuration, so that people mend them
// in one go.
type configError struct{ problems []string }

func (e *configError) Error() string { return strings.Join(e.problems, "; ") }

// source says where a value came from; a later one wins.
type source int

const (
	fromDefault source = iota
	fromEnvironment
	fromFlag
)

// resolve makes a Config from defaults, environment and arguments, in this
// order of precedence, or fails with errHelp or a *configError.
func resolve(table []setting, args, environ []string) (Config, error) {
	c := Config{Parity: parityAuto, Knobs: newKnobs()}
	bad := &configError{}
	flags, rest, err := parseArgs(table, args, bad)
	if err != nil {
		return Config{}, err
	}
	c.Args = rest
	env := map[string]string{}
	for _, kv := range environ {
		if name, value, ok := strings.Cut(kv, "="); ok && strings.HasPrefix(name, envPrefix) {
			env[name] = value
		}
	}
	came := map[string]source{}
	for _, s := range table {
		value, called, given := s.def, "default of "+s.name, s.def != ""
		if v, ok := env[s.env()]; ok {
			value, called, given = v, s.env(), true
			came[s.name] = fromEnvironment
		}
		if v, ok := flags[s.name]; ok {
			value, called, given = v, "--"+s.name, true
			came[s.name] = fromFlag
		}
		if !given {
			continue
		}
		if err := s.parse(&c, value); err != nil {
			bad.problems = append(bad.problems, called+": "+err.Error())
		}
	}
	if len(table) > 0 {
		c.Warnings = append(c.Warnings, unknownVariables(env)...)
		c.Root.finish(came, bad)
	}
	if len(bad.problems) > 0 {
		return Config{}, bad
	}
	return c, nil
}

// unknownVariables warns of variables with our prefix that no command reads:
// most are misspelt. RINGFENCE_TEST_ belongs to the tests.
func unknownVariables(env map[string]string) []string {
	known, warnings := slices.Clone(faultVariables), []string(nil)
	for _, s := range append(settings(), adminSettings()...) {
		known = append(known, s.env())
	}
	for name := range env {
		if slices.Contains(known, name) || strings.HasPrefix(name, envPrefix+"TEST_") {
			continue
		}
		warnings = append(warnings, fmt.Sprintf("environment variable %s is not known%s", name, didYouMean(name, known)))
	}
	slices.Sort(warnings)
	return warnings
}

// finish reads the files and checks what is left.
func (r *rootConfig) finish(came map[string]source, bad *configError) {
	complain := func(format string, args ...any) {
		bad.problems = append(bad.problems, fmt.Sprintf(format, args...))
	}
	fromFile := func(name string, value *string, file string) {
		switch {
		case file == "" || *value != "" && came[name] > came[name+"-file"]:
			return
		case *value != "" && came[name] == came[name+"-file"]:
			complain("%s and %s-file are both set: give one", name, name)
			return
		}
		v, err := readSecretFile(file)
		if err != nil {
			complain("%s-file: %v", name, err)
			return
		}
		*value = v
	}
	fromFile("root-user", &r.User, r.UserFile)
	fromFile("root-password", &r.Password, r.PasswordFile)
	r.UserFile, r.PasswordFile = "", ""
	if (r.User == "") != (r.Password == "") && len(bad.problems) == 0 {
		complain("root-user and root-password: give both or neither")
	}
	if r.User != "" {
		if err := checkUser(r.User); err != nil {
			complain("root-user: %v", err)
		}
	}
	if r.Password != "" && len(r.Password) < minPassword {
		complain("root-password: has %d characters, at least %d", len(r.Password), minPassword)
	}
}

// maxSecretFile bounds a credential file, in bytes. A file beyond it is the
// wrong file.
const maxSecretFile = 4 << 10

// readSecretFile returns a file's only line.
func readSecretFile(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	v := strings.TrimRight(string(data), "\r\n")
	switch {
	case v == "":
		return "", fmt.Errorf("%s is empty", path)
	case len(data) > maxSecretFile:
		return "", fmt.Errorf("%s has %d bytes, at most %d", path, len(data), maxSecretFile)
	case strings.ContainsAny(v, "\r\n\x00"):
		return "", fmt.Errorf("%s has more than one line", path)
	}
	return v, nil
}

const (
	minUser     = 3
	maxUser     = 128
	minPassword = 8
)

// checkUser refuses names that can't stand in the credential scope of a
// signature.
func checkUser(user string) error {
	if len(user) < minUser || len(user) > maxUser {
		return fmt.Errorf("has %d characters, must have %d to %d", len(user), minUser, maxUser)
	}
	for _, r := range user {
		if r <= ' ' || r > '~' || strings.ContainsRune("/,=", r) {
			return fmt.Errorf("must be printable ASCII without spaces and any of / , =")
		}
	}
	return nil
}
