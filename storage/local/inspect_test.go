package local_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"ringfence/storage"
	"ringfence/storage/local"
)

type inspectCase struct {
	name   string
	make   func(*testing.T, string)
	want   local.Content
	reason string
}

// check inspects, opens and formats a directory: only a blank one may change.
func (c inspectCase) check(t *testing.T) {
	root := t.TempDir()
	c.make(t, root)
	r := rigOn(t, vfs.Default, root)
	r.opts.Backend = must[storage.Backend](t)(newStd(root))
	count := func() int { return len(must[[]os.DirEntry](t)(os.ReadDir(root))) }
	before := count()
	ins, err := local.Inspect(t.Context(), r.opts)
	if err != nil {
		t.Fatal(err)
	}
	if ins.Content != c.want || !strings.Contains(ins.Reason, c.reason) {
		t.Fatalf("%s: %s, want %s: %s", ins.Content, ins.Reason, c.want, c.reason)
	}
	if _, err = local.Open(t.Context(), r.opts); err == nil {
		t.Fatal("opened")
	}
	if count() != before {
		t.Fatal("looking, or a refused open, changed the directory")
	}
	err = local.Format(t.Context(), r.opts, testIdentity)
	if c.want != local.Blank {
		if !errors.Is(err, storage.ErrExists) {
			t.Fatalf("format: %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	r.open(t)
	if err := local.Format(t.Context(), r.opts, testIdentity); err == nil {
		t.Fatal("formatted twice")
	}
}

func TestInspect(t *testing.T) {
	file := func(name string) func(*testing.T, string) {
		return func(t *testing.T, root string) {
			path := filepath.Join(root, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("x"), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
	dir := func(name string) func(*testing.T, string) {
		return func(t *testing.T, root string) {
			if err := os.MkdirAll(filepath.Join(root, name), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	cases := []inspectCase{
		{"empty", func(*testing.T, string) {}, local.Blank, ""},
		{"new ext4", dir("lost+found"), local.Blank, ""},
		{"interrupted format", dir("shards/ab"), local.Blank, ""},
		{"a file", file("holiday.jpg"), local.Foreign, `"holiday.jpg"`},
		{"hidden file", file(".hidden"), local.Foreign, `".hidden"`},
		{"minio", dir(".minio.sys/format"), local.Foreign, "MinIO"},
		{"no superblock, a shard", file("shards/ab/0123.0"), local.Damaged, "shards/ab/0123.0"},
		{"no superblock, metadata", file("meta/000001.log"), local.Damaged, "meta/000001.log"},
		{"superblock is a folder", dir("superblock.a"), local.Foreign, "superblock.a"},
		{"superblock is a link", func(t *testing.T, root string) {
			if err := os.Symlink("elsewhere", filepath.Join(root, "superblock.a")); err != nil {
				t.Fatal(err)
			}
		}, local.Foreign, "superblock.a"},
		{"garbage superblocks", func(t *testing.T, root string) { file("superblock.a")(t, root); file("superblock.b")(t, root) }, local.Damaged, "superblock"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.check(t)
		})
	}
	r := rigOn(t, vfs.Default, filepath.Join(t.TempDir(), "missing"))
	if _, err := local.Inspect(t.Context(), r.opts); !errors.Is(err, storage.ErrNotFound) {
		t.Fatalf("missing directory: %v", err)
	}
}

func TestFormatChecksIdentity(t *testing.T) {
	r := rigOn(t, memWith(t, "/disk"), "/disk")
	for _, change := range []func(*storage.Identity){
		func(id *storage.Identity) { id.Disk = storage.UUID{} },
		func(id *storage.Identity) { id.SetSize = 17 },
		func(id *storage.Identity) { id.Slot = id.SetSize },
		func(id *storage.Identity) { id.Parity = id.SetSize },
		func(id *storage.Identity) { id.SetIndex = id.SetCount },
	} {
		id := testIdentity
		change(&id)
		if err := local.Format(t.Context(), r.opts, id); err == nil {
			t.Errorf("formatted as %+v", id)
		}
	}
}

func TestSuperblockCopies(t *testing.T) {
	cases := []struct {
		name string
		a, b []byte // nil: as it is; empty: removed
		want error
	}{
		{"a gone", []byte{}, nil, nil},
		{"b gone", nil, []byte{}, nil},
		{"a garbage", []byte("garbage"), nil, nil},
		{"b one bit", nil, flip(local.EncodeSuperblock(1, 1, testIdentity), 80), nil},
		{"both garbage", []byte("x"), []byte("y"), storage.ErrCorrupt},
		{"one gone, one garbage", []byte{}, []byte("y"), storage.ErrCorrupt},
		{"both gone", []byte{}, []byte{}, storage.ErrNotFound},
		{"two disks", nil, local.EncodeSuperblock(1, 1, otherIdentity()), storage.ErrCorrupt},
		{"b later", nil, local.EncodeSuperblock(1, 2, testIdentity), nil},
		{"newer release", nil, local.EncodeSuperblock(2, 2, testIdentity), storage.ErrFailed},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			mem := memWith(t, "/disk")
			r := newRig(t, mem, "/disk")
			if err := r.disk.Close(); err != nil {
				t.Fatal(err)
			}
			for name, data := range map[string][]byte{"a": c.a, "b": c.b} {
				if path := "/disk/superblock." + name; data != nil {
					overwrite(t, mem, path, data)
					if len(data) == 0 {
						if err := mem.Remove(path); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			before := snapshotFiles(t, mem, "superblock.a", "superblock.b")
			d, err := local.Open(t.Context(), r.opts)
			if c.want != nil {
				if !errors.Is(err, c.want) {
					t.Fatalf("open: %v, want %v", err, c.want)
				}
				if got := snapshotFiles(t, mem, "superblock.a", "superblock.b"); !bytes.Equal(got, before) {
					t.Fatal("a refused disk was changed")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := d.Identity(); got != testIdentity {
				t.Fatalf("identity %+v", got)
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			a, b := snapshotFiles(t, mem, "superblock.a"), snapshotFiles(t, mem, "superblock.b")
			if !bytes.Equal(a, b) || len(a) != 4096 {
				t.Fatal("the bad copy was not repaired")
			}
		})
	}
}

func snapshotFiles(t testing.TB, fs *vfs.MemFS, names ...string) []byte {
	t.Helper()
	var all []byte
	for _, n := range names {
		if data, err := fs.UnsafeGetFileDataBuffer("/disk/" + n); err == nil {
			all = append(all, data...)
		}
	}
	return all
}

func flip(b []byte, at int) []byte {
	b[at] ^= 1
	return b
}

func otherIdentity() storage.Identity {
	id := testIdentity
	id.Disk = uuid(99)
	return id
}

// TestLock: one disk has one owner.
func TestLock(t *testing.T) {
	for name, fs := range map[string]vfs.FS{"memory": memWith(t, "/disk"), "directory": vfs.Default} {
		t.Run(name, func(t *testing.T) {
			root := "/disk"
			if fs == vfs.Default {
				root = t.TempDir()
			}
			r := newRig(t, fs, root)
			if _, err := local.Open(t.Context(), r.opts); !errors.Is(err, storage.ErrOffline) || !strings.Contains(err.Error(), "in use") {
				t.Fatalf("second open: %v", err)
			}
			set(t, r.disk.KV(), "a", "1") // the first owner isn't disturbed
			r.reopen(t)
		})
	}
}

func TestClosed(t *testing.T) {
	r := newRig(t, nil, "")
	if err := writeShard(t, r.disk, shardID(1, 0), 100); err != nil {
		t.Fatal(err)
	}
	rd := must[storage.ShardReader](t)(r.disk.OpenShard(t.Context(), shardID(1, 0)))
	kv := r.disk.KV()
	if err := errors.Join(r.disk.Close(), r.disk.Close()); err != nil {
		t.Fatal(err)
	}
	if err := rd.ReadBlocks(t.Context(), 0, getBufs(t, 1)); err != nil {
		t.Fatalf("a reader that was open: %v", err)
	}
	if err := rd.Close(); err != nil {
		t.Fatal(err)
	}
	_, openErr := r.disk.OpenShard(t.Context(), shardID(1, 0))
	_, getErr := kv.Get(t.Context(), []byte("a"))
	_, listErr := r.disk.ListShards(t.Context(), storage.ShardID{}, 1)
	for what, err := range map[string]error{
		"open": openErr, "get": getErr, "list": listErr, "write": writeShard(t, r.disk, shardID(2, 0), 1),
		"remove": r.disk.RemoveShard(t.Context(), shardID(1, 0)), "check": r.disk.Check(t.Context()),
		"reset": r.disk.ResetKV(t.Context()), "apply": r.disk.KV().Apply(t.Context(), &storage.Batch{}),
	} {
		if !errors.Is(err, storage.ErrOffline) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if h := r.disk.Health(); h.State != storage.StateOffline {
		t.Errorf("health %+v", h)
	}
}
