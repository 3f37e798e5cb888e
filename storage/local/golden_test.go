package local_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/zeebo/xxh3"

	"ringfence/storage"
	"ringfence/storage/local"
)

var update = flag.Bool("update", false, "write the golden disk anew: review it as a change of the format")

const goldenRoot = "testdata/disk.v1"

var goldenShard = storage.ShardID{UUID: uuid(0x40), Part: 3}

const goldenSize = 2*blockSize + 5

// goldenFiles are the files of the golden disk that must never change.
func goldenFiles() []string {
	return []string{"superblock.a", "superblock.b", "shards/4f/" + goldenShard.String()}
}

// TestGoldenDisk: what this release writes is byte for byte what the first did,
// and it reads what the first wrote.
func TestGoldenDisk(t *testing.T) {
	root := t.TempDir()
	r := newRig(t, vfs.Default, root)
	if err := writeShard(t, r.disk, goldenShard, goldenSize); err != nil {
		t.Fatal(err)
	}
	for _, name := range goldenFiles() {
		got := must[[]byte](t)(os.ReadFile(filepath.Join(root, name)))
		path := filepath.Join(goldenRoot, name)
		if *update {
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, got, 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		if want := must[[]byte](t)(os.ReadFile(path)); !bytes.Equal(got, want) {
			t.Errorf("%s differs from the golden one", name)
		}
	}
	old := t.TempDir()
	if err := os.CopyFS(old, os.DirFS(goldenRoot)); err != nil {
		t.Fatal(err)
	}
	r = rigOn(t, vfs.Default, old)
	r.open(t)
	if r.disk.Identity() != testIdentity {
		t.Fatalf("identity %+v", r.disk.Identity())
	}
	checkShard(t, r.disk, goldenShard, goldenSize)
}

// TestFormatDoc reads the golden shard by docs/format.md alone: offsets below
// are the document's, none is the code's.
func TestFormatDoc(t *testing.T) {
	le := binary.LittleEndian
	data := must[[]byte](t)(os.ReadFile(filepath.Join(goldenRoot, goldenFiles()[2])))
	foot := data[len(data)-64:]
	if string(foot[:8]) != "RNGFFOOT" || le.Uint16(foot[8:]) != 1 || le.Uint64(foot[56:]) != xxh3.Hash(foot[:56]) {
		t.Fatal("footer")
	}
	off, n := le.Uint64(foot[16:]), le.Uint64(foot[24:])
	tr := data[off : off+n]
	sum := xxh3.Hash128(tr[:n-16]).Bytes()
	if !bytes.Equal(sum[:], tr[n-16:]) || !bytes.Equal(sum[:], foot[32:48]) {
		t.Fatal("checksum")
	}
	if string(tr[:8]) != "RNGFSHRD" || le.Uint16(tr[8:]) != 1 || le.Uint16(tr[10:]) != 3 ||
		le.Uint32(tr[12:]) != blockSize || le.Uint64(tr[16:]) != goldenSize ||
		!bytes.Equal(tr[24:40], goldenShard.UUID[:]) || le.Uint32(tr[40:]) != 3 {
		t.Fatal("trailer")
	}
	owner := int(le.Uint16(tr[44:]))
	if !bytes.Equal(tr[64:64+owner], ownerOf(goldenShard)) {
		t.Fatal("owner")
	}
	blocks, sums := blocksOf(goldenShard, goldenSize)
	for i, b := range blocks {
		if !bytes.Equal(data[i*blockSize:][:len(b)], b) || !bytes.Equal(tr[64+owner+16*i:][:16], sums[i][:]) {
			t.Fatalf("block %d", i)
		}
	}
	sb := must[[]byte](t)(os.ReadFile(filepath.Join(goldenRoot, "superblock.a")))
	sum = xxh3.Hash128(sb[:4080]).Bytes()
	if len(sb) != 4096 || string(sb[:8]) != "RNGFDISK" || le.Uint32(sb[8:]) != 1 || le.Uint64(sb[16:]) != 1 || !bytes.Equal(sum[:], sb[4080:]) {
		t.Fatal("superblock")
	}
	id := testIdentity
	if !bytes.Equal(sb[24:40], id.Deployment[:]) || !bytes.Equal(sb[40:56], id.Set[:]) || !bytes.Equal(sb[56:72], id.Disk[:]) ||
		le.Uint16(sb[72:]) != id.SetIndex || le.Uint16(sb[74:]) != id.SetCount || sb[76] != id.Slot || sb[77] != id.SetSize || sb[78] != id.Parity {
		t.Fatal("identity")
	}
}

var lockChild = flag.String("lock.child", "", "directory that TestLockProcess's child tries to open")

// TestLockProcess: a second process is refused while the first lives.
func TestLockProcess(t *testing.T) {
	if *lockChild != "" {
		r := rigOn(t, vfs.Default, *lockChild)
		if _, err := local.Open(t.Context(), r.opts); !errors.Is(err, storage.ErrOffline) {
			t.Fatalf("second process: %v", err)
		}
		return
	}
	root := t.TempDir()
	r := newRig(t, vfs.Default, root)
	child := func() (string, error) {
		out, err := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLockProcess$", "-lock.child="+root).CombinedOutput()
		return string(out), err
	}
	if out, err := child(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := r.disk.Close(); err != nil {
		t.Fatal(err)
	}
	if out, err := child(); err == nil {
		t.Fatalf("refused although nobody has the disk: %s", out)
	}
}
