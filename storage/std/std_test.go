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
	"reclaim":       func(b *Backend) { b.opts.Reclaim.Store(true); b.opts.ReclaimThreshold.Store(0) },
	"direct":        func(b *Backend) { b.opts.Direct.Store(true); b.opts.DirectThreshold.Store(0) },
	"direct without bounce": func(b *Backend) {
		b.opts.Direct.Store(true)
		b.opts.DirectThreshold.Store(0)
		b.opts.Pool = nil
	},
}

func TestBackend(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			storagetest.TestBackend(t, func(t *testing.T) (storage.Backend, string) {
				root := filepath.Join(t.TempDir(), "disk")
				if err := os.Mkdir(root, 0o700); err != nil {
					t.Fatal(err)
				}
				pool, err := storage.NewPool(storage.PoolOptions{BudgetBytes: 16 << 20})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := pool.Close(); err != nil {
						t.Error(err)
					}
				})
				b, err := New(Options{Root: root, Pool: pool})
				if err != nil {
					t.Fatal(err)
				}
				mode(b)
				return b, root
			})
		})
	}
}
