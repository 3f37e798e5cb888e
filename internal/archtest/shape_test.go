package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	maxFile      = 500 // lines, production and test alike
	maxFunc      = 70  // lines
	maxInterface = 10  // methods
	maxFields    = 16
)

// banned maps a selector to the one folder that may use it, and why.
var banned = map[string]struct{ only, why string }{
	"os.Getenv":          {"cmd/gateway/", "configuration is parsed in one place"},
	"os.LookupEnv":       {"cmd/gateway/", "configuration is parsed in one place"},
	"os.Exit":            {"cmd/gateway/", "only main ends the process"},
	"context.Background": {"cmd/gateway/", "a context comes from the caller"},
	"context.TODO":       {"-", "a context comes from the caller"},
	"time.Sleep":         {"-", "wait on an event; in tests use testing/synctest"},
	"fmt.Println":        {"-", "use the logger in Options"},
	"fmt.Printf":         {"-", "use the logger in Options"},
}

// forTests lists what tests may use although code may not: the black-box
// suite reads its environment, since nobody hands it a Config.
var forTests = map[string]string{
	"os.Getenv":          "integration/ storage/ erasure/ server/ internal/bench/",
	"os.LookupEnv":       "integration/ storage/ erasure/ server/",
	"context.Background": "integration/ storage/ erasure/ server/ cmd/ internal/",
	"os.Exit":            "integration/",
}

func TestShape(t *testing.T) {
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "ringfence-data") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		checkFile(t, filepath.ToSlash(rel), src)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func checkFile(t *testing.T, rel string, src []byte) {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, rel, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(src), "\n"); n > maxFile {
		t.Errorf("%s: %d lines, at most %d", rel, n, maxFile)
	}
	if strings.Contains(filepath.Base(rel), "-") {
		t.Errorf("%s: file names use underscores", rel)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		checkNode(t, rel, fset, n)
		return true
	})
}

func checkNode(t *testing.T, rel string, fset *token.FileSet, n ast.Node) {
	t.Helper()
	line := func(p token.Pos) int { return fset.Position(p).Line }
	switch n := n.(type) {
	case *ast.FuncDecl:
		if l := line(n.End()) - line(n.Pos()) + 1; l > maxFunc {
			t.Errorf("%s:%d: %s has %d lines, at most %d", rel, line(n.Pos()), n.Name.Name, l, maxFunc)
		}
		if n.Recv == nil && n.Name.Name == "init" {
			t.Errorf("%s:%d: no init functions: state is built in main", rel, line(n.Pos()))
		}
	case *ast.InterfaceType:
		if n.Methods.NumFields() > maxInterface {
			t.Errorf("%s:%d: interface of %d methods, at most %d", rel, line(n.Pos()), n.Methods.NumFields(), maxInterface)
		}
	case *ast.StructType:
		if n.Fields.NumFields() > maxFields {
			t.Errorf("%s:%d: struct of %d fields, at most %d", rel, line(n.Pos()), n.Fields.NumFields(), maxFields)
		}
	case *ast.SelectorExpr:
		x, ok := n.X.(*ast.Ident)
		if !ok {
			return
		}
		name := x.Name + "." + n.Sel.Name
		if b, bad := banned[name]; bad && !strings.HasPrefix(rel, b.only) && !excused(rel, name) {
			t.Errorf("%s:%d: %s: %s", rel, line(n.Pos()), name, b.why)
		}
	case *ast.CallExpr:
		if id, ok := n.Fun.(*ast.Ident); ok && id.Name == "panic" && !strings.HasPrefix(rel, "internal/invariant/") && !strings.HasSuffix(rel, "_test.go") {
			t.Errorf("%s:%d: panic: only internal/invariant may", rel, line(n.Pos()))
		}
	}
}

// excused reports whether a test, or a suite that only tests import, uses what
// tests may use.
func excused(rel, name string) bool {
	suite := strings.HasSuffix(rel, "_test.go") || strings.Contains(rel, "storagetest/") || strings.Contains(rel, "enginetest/")
	if !suite {
		return false
	}
	for _, folder := range strings.Fields(forTests[name]) {
		if strings.HasPrefix(rel, folder) {
			return true
		}
	}
	return false
}
