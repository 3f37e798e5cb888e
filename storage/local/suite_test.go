package local_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"ringfence/storage"
	"ringfence/storage/local"
	"ringfence/storage/storagetest"
)

// TestDiskSuite runs the contract's suite over the reference backend on a real
// file system.
func TestDiskSuite(t *testing.T) {
	var mu sync.Mutex
	rigs := map[storage.Disk]*rig{}
	faults := map[storage.Disk]*faultyFS{}
	start := func(t *testing.T, root string, format bool) storage.Disk {
		f := &faultyFS{err: syscall.EIO, match: writes(".log")}
		r := rigOn(t, errorfs.Wrap(vfs.Default, f), root)
		r.opts.Backend = must[storage.Backend](t)(newStd(root))
		if format {
			if err := local.Format(t.Context(), r.opts, testIdentity); err != nil {
				t.Fatal(err)
			}
		}
		r.disk = must[*local.Disk](t)(local.Open(t.Context(), r.opts))
		mu.Lock()
		defer mu.Unlock()
		rigs[r.disk], faults[r.disk] = r, f
		return r.disk
	}
	rigOf := func(d storage.Disk) *rig {
		mu.Lock()
		defer mu.Unlock()
		return rigs[d]
	}
	storagetest.TestDisk(t, storagetest.DiskHarness{
		Open:   func(t *testing.T) storage.Disk { return start(t, t.TempDir(), true) },
		Reopen: func(t *testing.T, closed storage.Disk) storage.Disk { return start(t, rigOf(closed).opts.Root, false) },
		Damage: func(t *testing.T, d storage.Disk, id storage.ShardID, how storagetest.Damage) {
			found := must[[]string](t)(filepath.Glob(filepath.Join(rigOf(d).opts.Root, "shards", "*", id.String())))
			if len(found) != 1 {
				t.Fatalf("found %v", found)
			}
			spoil(t, found[0], how)
		},
		FailApply: func(_ *testing.T, d storage.Disk) {
			mu.Lock()
			defer mu.Unlock()
			faults[d].armed.Store(true)
		},
	})
}

func spoil(t *testing.T, path string, how storagetest.Damage) {
	t.Helper()
	data := must[[]byte](t)(os.ReadFile(path))
	switch how {
	case storagetest.DamageTruncate:
		data = data[:len(data)-1]
	case storagetest.DamageHalf:
		data = data[:len(data)/2]
	case storagetest.DamageEmpty:
		data = nil
	case storagetest.DamageGarbage:
		rng := rand.New(rand.NewPCG(1, 1))
		data = bytes.Map(func(rune) rune { return 'x' }, data)
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
