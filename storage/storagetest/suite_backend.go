package storagetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ringfence/storage"
)

// OpenBackend makes an empty Backend for a test, which closes it. root is the
// folder behind it, or "" if there is none: tests that plant links and pipes
// are skipped then.
type OpenBackend func(t *testing.T) (b storage.Backend, root string)

// TestBackend checks that a Backend keeps the contract of storage.Backend and
// storage.File.
func TestBackend(t *testing.T, open OpenBackend) {
	for _, c := range []struct {
		name string
		test func(*testing.T, backendCase)
	}{
		{"create is exclusive", testCreate},
		{"names stay beneath the root", testNames},
		{"links are not followed", testLinks},
		{"only regular files open", testIrregular},
		{"folders", testFolders},
		{"rename and remove", testRename},
		{"contexts", testContexts},
		{"check and close", testCheckAndClose},
		{"any range", testRanges},
		{"end of file and holes", testEnd},
		{"vectors", testVectors},
		{"nothing to read", testNothingToRead},
		{"odd vectors", testOddVectors},
		{"long reads", testLongReads},
		{"reads stay inside", testReadStaysInside},
		{"errors of reads", testReadErrors},
		{"random writes", testRandomWrites},
		{"concurrency", testConcurrency},
		{"cancelled reads", testCancelledReads},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, root := open(t)
			pool, err := storage.NewPool(storage.PoolOptions{BudgetBytes: 64 << 20})
			if err != nil {
				t.Fatal(err)
			}
			c.test(t, backendCase{b, root, pool})
			if n := pool.InUse(); n != 0 {
				t.Errorf("%d bytes of buffers are still in use", n)
			}
			if err := errors.Join(b.Close(), pool.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

type backendCase struct {
	storage.Backend
	root string
	pool *storage.Pool
}

// put makes a file with content and closes it.
func (b backendCase) put(t *testing.T, name string, content []byte) {
	t.Helper()
	f, err := b.Create(t.Context(), name, int64(len(content)))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.WriteAt(t.Context(), content, 0), f.Sync(t.Context()), f.Close()); err != nil {
		t.Fatal(err)
	}
}

func (b backendCase) open(t *testing.T, name string) storage.File {
	t.Helper()
	f, err := b.Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// read reads a range through a buffer of exactly its size.
func (b backendCase) read(t *testing.T, f storage.File, off int64, size int) []byte {
	t.Helper()
	buf, err := b.pool.Get(size)
	if err != nil {
		t.Fatal(err)
	}
	defer buf.Release()
	n, err := f.ReadAt(t.Context(), buf, off)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clone(buf.Bytes()[:n])
}

// pattern is content in which no two blocks are alike.
func pattern(n int) []byte {
	p := make([]byte, n)
	x := uint32(2463534242)
	for i := range p {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		p[i] = byte(x)
	}
	return p
}

func want(t *testing.T, what string, got error, is error) {
	t.Helper()
	if !errors.Is(got, is) {
		t.Errorf("%s: %v, want %v", what, got, is)
	}
}

func testCreate(t *testing.T, b backendCase) {
	content := pattern(1000)
	b.put(t, "a", content)
	_, err := b.Create(t.Context(), "a", 0)
	want(t, "create twice", err, storage.ErrExists)
	if got := b.read(t, b.open(t, "a"), 0, 2000); !bytes.Equal(got, content) {
		t.Error("the second create changed the file")
	}
	_, err = b.Create(t.Context(), "no folder/a", 0)
	want(t, "create without a folder", err, storage.ErrNotFound)
	_, err = b.Open(t.Context(), "b")
	want(t, "open what is not there", err, storage.ErrNotFound)
	_, err = b.Open(t.Context(), "a/b")
	want(t, "open beneath a file", err, storage.ErrNotFound)

	// A size that was announced and not reached is no size.
	f, err := b.Create(t.Context(), "short", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.WriteAt(t.Context(), content, 0), f.Sync(t.Context())); err != nil {
		t.Fatal(err)
	}
	if size, err := f.Size(); err != nil || size != 1000 {
		t.Errorf("size %d (%v), want 1000", size, err)
	}
	if got := b.read(t, f, 0, 2000); !bytes.Equal(got, content) {
		t.Error("a created file does not read what was written")
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if f.Close() == nil || f.WriteAt(t.Context(), content, 0) == nil {
		t.Error("a closed file can be used")
	}
}

func testNames(t *testing.T, b backendCase) {
	if err := b.Mkdir(t.Context(), "d"); err != nil {
		t.Fatal(err)
	}
	b.put(t, "inside", []byte("x"))
	for _, name := range []string{
		"", "..", "../x", "/x", "/etc/passwd", "d/../../x", "d/..", "./x", "d//x", "d/", "d/./x", "x/../../../etc/passwd", "a\x00b",
	} {
		_, errCreate := b.Create(t.Context(), name, 0)
		_, errOpen := b.Open(t.Context(), name)
		_, errDir := b.ReadDir(t.Context(), name)
		for op, err := range map[string]error{
			"create": errCreate, "open": errOpen, "readdir": errDir,
			"remove":      b.Remove(t.Context(), name),
			"mkdir":       b.Mkdir(t.Context(), name),
			"rename from": b.Rename(t.Context(), name, "y"),
			"rename to":   b.Rename(t.Context(), "inside", name),
			"syncdir":     b.SyncDir(t.Context(), name),
		} {
			if err == nil {
				t.Errorf("%s %q is allowed", op, name)
			}
		}
	}
	if b.root != "" {
		if _, err := os.Lstat(filepath.Join(filepath.Dir(b.root), "x")); err == nil {
			t.Error("something was made outside the root")
		}
	}
	// Odd, but inside.
	for _, name := range []string{"...", "d/..x", " ", "-", "d/a\nb", "ä", strings.Repeat("n", 255)} {
		b.put(t, name, []byte(name))
		if got := b.read(t, b.open(t, name), 0, 300); string(got) != name {
			t.Errorf("%q: read %q", name, got)
		}
	}
	_, err := b.Create(t.Context(), strings.Repeat("n", 256), 0)
	if b.root != "" && err == nil {
		t.Error("a name of 256 bytes is allowed")
	}
}

func testLinks(t *testing.T, b backendCase) {
	if b.root == "" {
		t.Skip("no folder behind the Backend")
	}
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.put(t, "own", []byte("own"))
	for name, target := range map[string]string{"file": secret, "folder": outside, "inner": "own", "dangling": "nowhere"} {
		if err := os.Symlink(target, filepath.Join(b.root, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"file", "folder/secret", "inner", "dangling", "folder"} {
		_, err := b.Open(t.Context(), name)
		want(t, "open "+name, err, storage.ErrNotFound)
	}
	_, errCreate := b.Create(t.Context(), "dangling", 0)
	_, errInto := b.Create(t.Context(), "folder/new", 0)
	_, errDir := b.ReadDir(t.Context(), "folder")
	for op, err := range map[string]error{
		"create through a dangling link": errCreate,
		"create in a linked folder":      errInto,
		"readdir":                        errDir,
		"mkdir":                          b.Mkdir(t.Context(), "folder/d"),
		"mkdir over a link":              b.Mkdir(t.Context(), "folder"),
		"remove":                         b.Remove(t.Context(), "folder/secret"),
		"rename from":                    b.Rename(t.Context(), "folder/secret", "stolen"),
		"rename to":                      b.Rename(t.Context(), "own", "folder/own"),
		"syncdir":                        b.SyncDir(t.Context(), "folder"),
	} {
		if err == nil {
			t.Errorf("%s follows a link", op)
		}
	}
	entries, err := os.ReadDir(outside)
	if err != nil || len(entries) != 1 {
		t.Errorf("the folder outside holds %v (%v)", entries, err)
	}
	if err := b.Remove(t.Context(), "file"); err != nil { // the link itself
		t.Error(err)
	}
	if _, err := os.Stat(secret); err != nil {
		t.Error(err)
	}
}

func testIrregular(t *testing.T, b backendCase) {
	if err := b.Mkdir(t.Context(), "folder"); err != nil {
		t.Fatal(err)
	}
	names := []string{"folder", "."}
	if b.root != "" {
		if err := plantPipe(filepath.Join(b.root, "pipe")); err != nil {
			t.Fatal(err)
		}
		names = append(names, "pipe")
	}
	for _, name := range names {
		_, err := b.Open(t.Context(), name) // must not hang either
		want(t, "open "+name, err, storage.ErrNotFound)
	}
}

func testFolders(t *testing.T, b backendCase) {
	for range 2 {
		if err := b.Mkdir(t.Context(), "d"); err != nil {
			t.Fatalf("mkdir: %v", err)
		}
	}
	want(t, "mkdir without a parent", b.Mkdir(t.Context(), "no/d"), storage.ErrNotFound)
	b.put(t, "f", nil)
	want(t, "mkdir over a file", b.Mkdir(t.Context(), "f"), storage.ErrExists)
	for _, name := range []string{"d/b", "d/a", "d/B", "d/10", "d/9"} {
		b.put(t, name, []byte(name))
	}
	if err := b.Mkdir(t.Context(), "d/c"); err != nil {
		t.Fatal(err)
	}
	var got []string
	entries, err := b.ReadDir(t.Context(), "d")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		got = append(got, fmt.Sprint(e.Name(), e.IsDir()))
	}
	if want := []string{"10false", "9false", "Bfalse", "afalse", "bfalse", "ctrue"}; !slices.Equal(got, want) {
		t.Errorf("readdir: %v, want %v", got, want)
	}
	entries, err = b.ReadDir(t.Context(), ".")
	if err != nil || len(entries) != 2 {
		t.Errorf("readdir of the root: %v (%v)", entries, err)
	}
	for _, name := range []string{".", "d", "d/c"} {
		if err := b.SyncDir(t.Context(), name); err != nil {
			t.Errorf("syncdir %s: %v", name, err)
		}
	}
	for _, name := range []string{"no", "f"} {
		_, err := b.ReadDir(t.Context(), name)
		want(t, "readdir "+name, err, storage.ErrNotFound)
		want(t, "syncdir "+name, b.SyncDir(t.Context(), name), storage.ErrNotFound)
	}
}

func testRename(t *testing.T, b backendCase) {
	if err := b.Mkdir(t.Context(), "d"); err != nil {
		t.Fatal(err)
	}
	b.put(t, "a", []byte("first"))
	b.put(t, "d/b", []byte("second"))
	old := b.open(t, "d/b")
	if err := b.Rename(t.Context(), "a", "d/b"); err != nil {
		t.Fatal(err)
	}
	if got := b.read(t, b.open(t, "d/b"), 0, 10); string(got) != "first" {
		t.Errorf("target reads %q", got)
	}
	if got := b.read(t, old, 0, 10); string(got) != "second" {
		t.Errorf("the file that was replaced reads %q", got)
	}
	_, err := b.Open(t.Context(), "a")
	want(t, "open source", err, storage.ErrNotFound)
	want(t, "rename what is not there", b.Rename(t.Context(), "a", "c"), storage.ErrNotFound)

	last := b.open(t, "d/b")
	if err := b.Remove(t.Context(), "d/b"); err != nil {
		t.Fatal(err)
	}
	if got := b.read(t, last, 0, 10); string(got) != "first" {
		t.Errorf("a removed file that is open reads %q", got)
	}
	want(t, "remove twice", b.Remove(t.Context(), "d/b"), storage.ErrNotFound)
	want(t, "remove a folder", b.Remove(t.Context(), "d"), storage.ErrNotFound)
}

func testContexts(t *testing.T, b backendCase) {
	b.put(t, "a", pattern(100))
	f := b.open(t, "a")
	cause := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	buf, err := b.pool.Get(100)
	if err != nil {
		t.Fatal(err)
	}
	defer buf.Release()
	_, errCreate := b.Create(ctx, "b", 0)
	_, errOpen := b.Open(ctx, "a")
	_, errRead := f.ReadAt(ctx, buf, 0)
	_, errDir := b.ReadDir(ctx, ".")
	for op, err := range map[string]error{
		"create": errCreate, "open": errOpen, "read": errRead, "readdir": errDir,
		"mkdir": b.Mkdir(ctx, "d"), "rename": b.Rename(ctx, "a", "b"), "remove": b.Remove(ctx, "a"),
		"syncdir": b.SyncDir(ctx, "."), "sync": f.Sync(ctx), "write": f.WriteAt(ctx, []byte("x"), 0),
	} {
		want(t, op, err, context.Canceled)
	}
	if got := b.read(t, f, 0, 100); !bytes.Equal(got, pattern(100)) {
		t.Error("a cancelled call changed the file")
	}
}

func testCheckAndClose(t *testing.T, b backendCase) {
	b.put(t, "a", pattern(5000))
	f := b.open(t, "a")
	if err := b.Check(); err != nil {
		t.Error(err)
	}
	s := b.Stats()
	if s.TotalBytes <= 0 || s.FreeBytes <= 0 || s.FreeBytes > s.TotalBytes {
		t.Errorf("space: %+v", s)
	}
	before := s.Reads
	b.read(t, f, 0, 10)
	r := b.Stats().Reads
	if got := r.Inline + r.Pool + r.Direct + r.Ring + r.RingDirect - before.Inline - before.Pool - before.Direct - before.Ring - before.RingDirect; got != 1 {
		t.Errorf("one read is counted as %d: %+v", got, r)
	}
	if b.root != "" {
		aside := b.root + ".aside"
		if err := os.Rename(b.root, aside); err != nil {
			t.Fatal(err)
		}
		want(t, "check while moved away", b.Check(), storage.ErrOffline)
		if err := os.Mkdir(b.root, 0o700); err != nil {
			t.Fatal(err)
		}
		want(t, "check with another folder in its place", b.Check(), storage.ErrOffline)
		if err := errors.Join(os.Remove(b.root), os.Rename(aside, b.root)); err != nil {
			t.Fatal(err)
		}
		if err := b.Check(); err != nil {
			t.Errorf("check after it came back: %v", err)
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if got := b.read(t, f, 4000, 2000); !bytes.Equal(got, pattern(5000)[4000:]) {
		t.Error("an open file is unusable after the Backend was closed")
	}
	_, err := b.Open(t.Context(), "a")
	want(t, "open after close", err, storage.ErrOffline)
	want(t, "check after close", b.Check(), storage.ErrOffline)
	want(t, "remove after close", b.Remove(t.Context(), "a"), storage.ErrOffline)
}
