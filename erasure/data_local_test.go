package erasure

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"ringfence/storage"
)

// The whole data path down to files: what is written reads back, and what
// happens to the files is noticed and made good.
func TestOnFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("formats disks")
	}
	disks, roots := localDisks(t, 6, 2)
	rig := newDataRig(t, 6, 2, func(o *dataOptions) { o.Disks = disks })
	rng := rand.New(rand.NewPCG(1, 2))
	for _, size := range edgeSizes {
		if size == 0 {
			continue // no block to damage
		}
		body := randomBytes(size, uint64(size))
		in := rig.input(body)
		in.Body = &dribble{body: body, rng: rng}
		if size%3 == 0 {
			in.Size = -1
		}
		b := rig.storeAs(in)
		ways := rng.Perm(3)
		for i := range 2 {
			damageFile(t, shardFile(t, roots[b.Layout.Slots[i]], b), ways[i], int(b.Layout.shardSize(b.Size)), rng)
		}
		rig.damage = map[uint8]error{}
		rig.wantBytes(b, body, 0, b.Size)
		for i := range uint8(2) {
			if err := rig.damage[i]; !errors.Is(err, storage.ErrCorrupt) && !errors.Is(err, storage.ErrNotFound) && size >= int(b.Layout.K) {
				t.Errorf("%d bytes: damage of shard %d (way %d) is reported as %v", size, i, ways[i], err)
			}
		}
		off := rng.Int64N(b.Size)
		rig.wantBytes(b, body, off, rng.Int64N(b.Size-off)+1)
		if err := rig.remove(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		for _, root := range roots {
			if name := shardFile(t, root, b); name != "" {
				t.Errorf("%s is still there", name)
			}
		}
	}
}

// shardFile finds the file of a blob's shard on a disk, or "".
func shardFile(t *testing.T, root string, b blob) (name string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(root, "shards"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == b.id().String() {
			name = path
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// damageFile flips a bit of the data, cuts the file short, or removes it.
func damageFile(t *testing.T, name string, way, size int, rng *rand.Rand) {
	t.Helper()
	if name == "" {
		t.Fatal("no shard file")
	}
	p, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	switch way {
	case 0:
		p[rng.IntN(size)] ^= 1 << rng.IntN(8)
		err = os.WriteFile(name, p, 0o600)
	case 1:
		err = os.Truncate(name, int64(rng.IntN(size)))
	case 2:
		err = os.Remove(name)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// flipByte changes one byte of a file in place.
func flipByte(t *testing.T, name string, off int64) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	var p [1]byte
	if _, err := f.ReadAt(p[:], off); err != nil {
		t.Fatal(err)
	}
	p[0] ^= 0x40
	_, err = f.WriteAt(p[:], off)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}
