package std

import (
	"os"
	"path/filepath"
	"testing"

	"ringfence/storage"
	"ringfence/storage/storagetest"
)

// modes are the ways in which a kernel or a file system can do less.
var modes = map[string]func(*Backend){
	"plain":         func(*Backend) {},
	"no nowait":     func(b *Backend) { b.nowait.Store(false) },
	"no openat2":    func(b *Backend) { b.walks = true },
	"short vectors": func(b *Backend) { b.nowait.Store(false); b.readBlocking = shortReads },
}

func TestBackend(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			storagetest.TestBackend(t, func(t *testing.T) (storage.Backend, string) {
				root := filepath.Join(t.TempDir(), "disk")
				if err := os.Mkdir(root, 0o700); err != nil {
					t.Fatal(err)
				}
				b, err := New(Options{Root: root})
				if err != nil {
					t.Fatal(err)
				}
				mode(b)
				return b, root
			})
		})
	}
}
