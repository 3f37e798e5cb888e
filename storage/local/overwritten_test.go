package local_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"ringfence/storage"
)

// TestOverwrittenInPlace fills files of an open disk with garbage: every name
// and inode stays, so only reading them tells.
func TestOverwrittenInPlace(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "disk")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	r := stdRigAt(t, root)
	spoil := func(name string) {
		if err := os.WriteFile(filepath.Join(root, name), make([]byte, 4096), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	spoil("superblock.a")
	if err := r.disk.Check(t.Context()); err != nil {
		t.Fatalf("one good superblock is enough: %v", err)
	}
	spoil("superblock.b")
	if err := r.disk.Check(t.Context()); !errors.Is(err, storage.ErrOffline) {
		t.Fatalf("check of a disk without superblocks: %v", err)
	}
	if h := r.disk.Health(); h.State != storage.StateOffline || h.Reason == "" {
		t.Fatalf("health %+v", h)
	}
	if err := writeShard(t, r.disk, shardID(1, 0), 100); !errors.Is(err, storage.ErrOffline) {
		t.Fatalf("write to it: %v", err)
	}
}
