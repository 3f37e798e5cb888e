package bench

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestContentIsAFunctionOfTheOffset(t *testing.T) {
	whole := make([]byte, 20_000)
	fill(whole, 0)
	for _, off := range []int64{0, 1, 7, 8, 9, 4095, 4096, 12_345} {
		for _, n := range []int{0, 1, 7, 8, 9, 4096, 5001} {
			part := make([]byte, n)
			fill(part, off)
			if !bytes.Equal(part, whole[off:off+int64(n)]) {
				t.Errorf("%d bytes at %d differ from the whole", n, off)
			}
			if err := compare(part, off); err != nil {
				t.Errorf("%d bytes at %d: %v", n, off, err)
			}
			for i := 0; i < n; i += 1 + n/100 {
				part[i] ^= 1
				if compare(part, off) == nil {
					t.Fatalf("%d bytes at %d: a flipped bit in byte %d is not seen", n, off, i)
				}
				part[i] ^= 1
			}
		}
	}
	if err := compare(whole[:4096], 4096); err == nil {
		t.Error("bytes of another offset are taken for these")
	}
}

func TestPrepareMakesTheFile(t *testing.T) {
	f := File{Path: filepath.Join(t.TempDir(), "f"), Size: 3<<20 + 17}
	created, err := Prepare(f)
	if err != nil || !created {
		t.Fatalf("created %t: %v", created, err)
	}
	data, err := os.ReadFile(f.Path)
	if err != nil || int64(len(data)) != f.Size {
		t.Fatalf("%d bytes: %v", len(data), err)
	}
	if err := compare(data, 0); err != nil {
		t.Error(err)
	}
	if created, err := Prepare(f); err != nil || created {
		t.Errorf("once more: created %t: %v", created, err)
	}
}

// TestPrepareNeverTouchesWhatExists: neither truncated nor followed.
func TestPrepareNeverTouchesWhatExists(t *testing.T) {
	precious := []byte("the only copy")
	for name, c := range map[string]struct {
		plant func(t *testing.T, path, target string)
		size  int64
	}{
		"smaller file":  {func(t *testing.T, path, _ string) { write(t, path, precious) }, 1 << 20},
		"larger file":   {func(t *testing.T, path, _ string) { write(t, path, precious) }, 5},
		"symbolic link": {func(t *testing.T, path, target string) { must(t, os.Symlink(target, path)) }, int64(len(precious))},
		"dangling link": {func(t *testing.T, path, target string) { must(t, os.Symlink(target+"gone", path)) }, 1 << 20},
		"folder":        {func(t *testing.T, path, _ string) { must(t, os.Mkdir(path, 0o700)) }, 1 << 20},
		"pipe":          {func(t *testing.T, path, _ string) { must(t, syscall.Mkfifo(path, 0o600)) }, 1 << 20},
		"device":        {func(t *testing.T, path, _ string) { must(t, os.Symlink("/dev/zero", path)) }, 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path, target := filepath.Join(dir, "f"), filepath.Join(dir, "target")
			write(t, target, precious)
			c.plant(t, path, target)
			before := listing(t, dir)
			f := File{Path: path, Size: c.size}
			if created, err := Prepare(f); err == nil || created {
				t.Errorf("created %t: %v, want an error", created, err)
			}
			leg := Leg{File: f, Load: Load{ReadSize: 1, Concurrency: 1}, Engine: Engine{Strategy: StdOpen}}
			if _, err := Run(t.Context(), leg); err == nil {
				t.Error("it was read all the same")
			}
			if after := listing(t, dir); after != before {
				t.Errorf("before:\n%s\nafter:\n%s", before, after)
			}
		})
	}
}

func TestPrepareLeavesNothingHalfMade(t *testing.T) {
	dir := t.TempDir()
	_, err := Prepare(File{Path: filepath.Join(dir, "f"), Size: FileSizeMax}) // no disk here has that
	if err == nil {
		t.Skip("16 TiB fit")
	}
	if got := listing(t, dir); got != "" {
		t.Errorf("left: %s", got)
	}
	for _, size := range []int64{-1, 0, FileSizeMax + 1} {
		if _, err := Prepare(File{Path: filepath.Join(dir, "g"), Size: size}); !errors.Is(err, ErrUsage) {
			t.Errorf("size %d: %v", size, err)
		}
	}
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	must(t, os.WriteFile(path, data, 0o600))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// listing is names, kinds, sizes and what is in regular files.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var b bytes.Buffer
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		b.WriteString(e.Name() + " " + e.Type().String())
		if e.Type().IsRegular() {
			data, err := os.ReadFile(filepath.Join(dir, e.Name()))
			must(t, err)
			b.WriteString(" " + string(data))
		}
		b.WriteString("\n")
	}
	return b.String()
}
