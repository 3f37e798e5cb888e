// Package archtest keeps the architecture by failing the build, not by asking
// reviewers to remember it.
package archtest

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "ringfence"

// may says which of our packages each package may import. A package that isn't
// listed fails the test, so adding one is a reviewed decision.
var may = map[string][]string{
	"internal/archtest":       {},
	"internal/invariant":      {},
	"internal/env":            {},
	"internal/knob":           {},
	"internal/bench":          {"storage", "storage/std", "storage/uring", "storage/uring/ring", "storage/hybrid", "internal/env", "internal/knob"},
	"storage":                 {"internal/invariant", "internal/env"},
	"storage/std":             {"storage", "internal/invariant", "internal/knob"},
	"storage/uring/ring":      {"internal/invariant"},
	"storage/uring/ringtest":  {"storage/uring/ring"},
	"storage/uring":           {"storage", "storage/uring/ring", "internal/invariant", "internal/env"},             // never std
	"storage/hybrid":          {"storage", "storage/uring", "internal/invariant", "internal/env", "internal/knob"}, // never std: the reference is injected
	"storage/local":           {"storage", "internal/invariant", "internal/env", "internal/knob"},                  // never std or uring: the backend is injected
	"storage/storagetest":     {"storage", "internal/env", "internal/invariant"},
	"erasure/rs":              {"internal/invariant"},
	"erasure/frame":           {"storage", "internal/invariant"},
	"erasure/meta":            {"storage"},
	"erasure/meta/quorumlog":  {"erasure/meta", "storage", "internal/invariant", "internal/env"},
	"erasure/meta/enginetest": {"erasure/meta", "storage", "internal/env"},
	"erasure":                 {"storage", "erasure/rs", "erasure/frame", "erasure/meta", "internal/invariant", "internal/env"}, // never net/http
	"server/s3err":            {},
	"server/s3xml":            {},
	"server/checksum":         {},
	"server/sigv4":            {"server/s3err", "server/checksum"},
	"server":                  {"erasure", "server/s3err", "server/s3xml", "server/sigv4", "server/checksum", "internal/env", "internal/invariant", "internal/knob"}, // never storage
	"cmd/gateway":             {"server", "server/sigv4", "erasure", "erasure/meta", "erasure/meta/quorumlog", "storage", "storage/local", "storage/std", "storage/uring", "storage/uring/ring", "storage/hybrid", "internal/bench", "internal/env", "internal/knob"},
	"integration":             {}, // black box: it knows only the wire
}

// testMay adds what the tests of a package may import beyond may: suites and
// the real things below, never anything above.
var testMay = map[string][]string{
	"storage":                 {"storage/storagetest"},
	"storage/std":             {"storage/storagetest"},
	"storage/uring/ring":      {"storage/uring/ringtest"},
	"storage/uring":           {"storage/uring/ringtest", "storage/storagetest"},
	"storage/hybrid":          {"storage/uring/ring", "storage/uring/ringtest", "storage/storagetest", "storage/std", "storage/local"},
	"storage/local":           {"storage/storagetest", "storage/std"},
	"erasure/meta/quorumlog":  {"erasure/meta/enginetest", "storage/storagetest"},
	"erasure/meta/enginetest": {"erasure/meta/quorumlog", "storage/storagetest", "internal/env"},
	"erasure":                 {"erasure/meta/quorumlog", "storage/storagetest", "storage/local", "storage/std", "storage/hybrid", "storage/uring", "storage/uring/ring", "storage/uring/ringtest", "internal/knob"},
	"server":                  {"storage", "erasure/meta/quorumlog", "storage/storagetest", "storage/local", "storage/std"},
	"cmd/gateway":             {"storage/uring/ringtest", "storage/storagetest"},
}

// only names third-party modules that one folder keeps to itself, so that it
// can be replaced without a search.
var only = map[string]string{
	"github.com/go-chi/chi":            "server",
	"github.com/cockroachdb/pebble":    "storage/local",
	"github.com/klauspost/reedsolomon": "erasure/rs",
	"github.com/zeebo/xxh3":            "", // a leaf function: anywhere
	"github.com/alecthomas/kong":       "cmd/gateway",
}

// pkg is what `go list -json` says of a package.
type pkg struct {
	ImportPath, Doc                    string
	Imports, TestImports, XTestImports []string
}

func packages(t *testing.T) []pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports,TestImports,XTestImports,Doc", module+"/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func TestImports(t *testing.T) {
	for _, p := range packages(t) {
		from := strings.TrimPrefix(p.ImportPath, module+"/")
		allowed, ok := may[from]
		if !ok {
			t.Errorf("%s: not in the lattice", from)
		}
		if p.Doc == "" && from != "internal/archtest" && from != "integration" {
			t.Errorf("%s: no package comment", from)
		}
		checkImports(t, from, p.Imports, allowed)
		tests := slices.Concat(allowed, testMay[from], []string{from})
		checkImports(t, from+" (test)", p.TestImports, tests)
		checkImports(t, from+" (test)", p.XTestImports, tests)
	}
}

func checkImports(t *testing.T, from string, imports, allowed []string) {
	t.Helper()
	for _, imp := range imports {
		if to, ours := strings.CutPrefix(imp, module+"/"); ours && !slices.Contains(allowed, to) {
			t.Errorf("%s must not import %s", from, to)
		}
		for mod, home := range only {
			if strings.HasPrefix(imp, mod) && home != "" && strings.TrimSuffix(from, " (test)") != home {
				t.Errorf("%s must not import %s: only %s may", from, imp, home)
			}
		}
		if imp == "net/http" && (strings.HasPrefix(from, "erasure") || strings.HasPrefix(from, "storage")) {
			t.Errorf("%s must not import net/http: the wire is the server's", from)
		}
	}
}
