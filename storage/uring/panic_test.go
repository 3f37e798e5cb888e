package uring

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"ringfence/storage/uring/ring"
)

// panicking is a ring that panics once its driver has started.
type panicking struct {
	ring.Ring
	armed *atomic.Bool
}

func (p panicking) Next() (ring.CQE, bool) {
	if p.armed.Load() {
		panic("ring broke")
	}
	return p.Ring.Next()
}

// TestPanicEndsTheProcess: nothing may be unmapped under a read in flight, so
// nothing may unwind.
func TestPanicEndsTheProcess(t *testing.T) {
	const child = "RINGFENCE_TEST_PANIC_CHILD"
	if os.Getenv(child) != "" {
		var armed atomic.Bool
		d, err := Start(t.Context(), Options{Dir: t.TempDir(), Setup: func(o ring.Options) (ring.Ring, error) {
			r, err := ring.New(o)
			return panicking{Ring: r, armed: &armed}, err
		}})
		if err != nil {
			t.Fatal(err)
		}
		armed.Store(true)
		blocked(t, d, newPool(t, 8<<20), 1)
		<-d.lanes[0].shard.exited
		t.Log("survived")
		return
	}
	needRing(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPanicEndsTheProcess$", "-test.v")
	cmd.Env = append(os.Environ(), child+"=1")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "panic: ring broke") || strings.Contains(string(out), "survived") {
		t.Errorf("%v:\n%s", err, out)
	}
}

// TestNothingRecovers: the goroutine of a shard has no defer and no recover; nor
// has anything else here the latter.
func TestNothingRecovers(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range parsed.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			onShard := f.Recv != nil && len(f.Recv.List[0].Names) > 0 && f.Recv.List[0].Names[0].Name == "s"
			ast.Inspect(f, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					if id, ok := call.Fun.(*ast.Ident); ok && id.Name == "recover" {
						t.Errorf("%s: %s recovers", name, f.Name.Name)
					}
				}
				if _, ok := n.(*ast.DeferStmt); ok && onShard {
					t.Errorf("%s: %s defers", name, f.Name.Name)
				}
				return true
			})
		}
	}
}
