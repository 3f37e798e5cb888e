package hybrid

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/rs/zerolog"

	"ringfence/storage"
	"ringfence/storage/local"
	"ringfence/storage/storagetest"
)

var diskIdentity = storage.Identity{
	Deployment: storage.UUID{1}, Set: storage.UUID{2}, Disk: storage.UUID{3},
	SetIndex: 0, SetCount: 1, Slot: 2, SetSize: 6, Parity: 2,
}

// disks are whole disks over Backends of a variant.
type disks struct {
	variant
	mu    sync.Mutex
	roots map[storage.Disk]string // protected by mu
}

func (d *disks) root(disk storage.Disk) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.roots[disk]
}

// start opens a disk. Closing it closes its Backend, which ends Run.
func (d *disks) start(t *testing.T, root string, format bool) storage.Disk {
	t.Helper()
	o := d.options(t)
	o.dir = root
	opts := local.Options{Root: root, Backend: newRig(t, o).Backend, Log: zerolog.Nop()}
	if format {
		if err := local.Format(t.Context(), opts, diskIdentity); err != nil {
			t.Fatal(err)
		}
	}
	disk, err := local.Open(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.roots[disk] = root
	return disk
}

// TestDiskSuite runs the suite of whole disks: over all variants where rings
// are required, else over one that sends it all through them.
func TestDiskSuite(t *testing.T) {
	for _, v := range variants() {
		if v.name != "ring only" && !required("uring") {
			continue
		}
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			d := &disks{variant: v, roots: map[storage.Disk]string{}}
			storagetest.TestDisk(t, storagetest.DiskHarness{
				Open:   func(t *testing.T) storage.Disk { return d.start(t, t.TempDir(), true) },
				Reopen: func(t *testing.T, closed storage.Disk) storage.Disk { return d.start(t, d.root(closed), false) },
				Damage: func(t *testing.T, disk storage.Disk, id storage.ShardID, how storagetest.Damage) {
					found, err := filepath.Glob(filepath.Join(d.root(disk), "shards", "*", id.String()))
					if err != nil || len(found) != 1 {
						t.Fatalf("found %v (%v)", found, err)
					}
					spoil(t, found[0], how)
				},
			})
		})
	}
}

func spoil(t *testing.T, path string, how storagetest.Damage) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
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

// TestShardsReadTheSameWhateverSwitches writes shards and reads them, whole and
// in parts, while switches are turned.
func TestShardsReadTheSameWhateverSwitches(t *testing.T) {
	needRings(t)
	root := t.TempDir()
	r := newRig(t, rigOptions{dir: root})
	opts := local.Options{Root: root, Backend: r.Backend, Log: zerolog.Nop()}
	if err := local.Format(t.Context(), opts, diskIdentity); err != nil {
		t.Fatal(err)
	}
	disk, err := local.Open(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := disk.Close(); err != nil {
			t.Error(err)
		}
	}()
	const block, blocks = 64 << 10, 9
	content := pattern(block * blocks)
	id := storage.ShardID{UUID: storage.UUID{9}}
	w, err := disk.CreateShard(t.Context(), id, storage.ShardInfo{BlockSize: block, Size: block * blocks})
	if err != nil {
		t.Fatal(err)
	}
	for i := range blocks {
		if err := w.Append(t.Context(), content[i*block:][:block], storage.Sum{byte(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, set := range []func(k Knobs){
		func(Knobs) {}, ringOnly, directAll, func(k Knobs) { k.Direct.Store(false); k.Shadow.Store(1) },
		func(k Knobs) { k.Mode.Store("static") }, func(k Knobs) { k.Shards.Store(4) },
		func(k Knobs) { k.Enable.Store(false) }, func(k Knobs) { k.Enable.Store(true); k.Inline.Store(true) },
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			r.switchTo(set)
			rd, err := disk.OpenShard(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			for first := range blocks {
				for n := 1; first+n <= blocks; n++ {
					bufs, free := r.bufs(t, n, block)
					if err := rd.ReadBlocks(t.Context(), first, bufs); err != nil {
						t.Error(err)
					}
					for j, b := range bufs {
						if !bytes.Equal(b.Bytes(), content[(first+j)*block:][:block]) {
							t.Errorf("block %d of %d from %d is wrong", j, n, first)
						}
					}
					free()
				}
			}
			if err := rd.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
