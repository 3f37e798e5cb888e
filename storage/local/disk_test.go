package local_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/rs/zerolog"

	"ringfence/storage"
	"ringfence/storage/local"
)

const blockSize = storage.BlockAlign

func uuid(n byte) (u storage.UUID) {
	for i := range u {
		u[i] = n + byte(i)
	}
	return u
}

var testIdentity = storage.Identity{
	Deployment: uuid(1), Set: uuid(2), Disk: uuid(3),
	SetIndex: 0, SetCount: 1, Slot: 2, SetSize: 6, Parity: 2,
}

// rig is a disk with the file system it lives in.
type rig struct {
	fs      vfs.FS
	backend *vfsBackend
	opts    local.Options
	disk    *local.Disk
}

// newRig formats and opens a disk in a file system, in memory unless given.
func newRig(t testing.TB, fs vfs.FS, root string) *rig {
	t.Helper()
	if fs == nil {
		fs, root = vfs.NewMem(), "/disk"
	}
	if err := fs.MkdirAll(root, 0o755); err != nil {
		t.Fatal(err)
	}
	r := rigOn(t, fs, root)
	if err := local.Format(t.Context(), r.opts, testIdentity); err != nil {
		t.Fatal(err)
	}
	r.open(t)
	return r
}

func rigOn(t testing.TB, fs vfs.FS, root string) *rig {
	b := newVFSBackend(fs, root)
	return &rig{fs: fs, backend: b, opts: local.Options{
		Root: root, Backend: b, MetaFS: fs, Pool: must[*storage.Pool](t)(testPool()), CloseTimeout: 200 * time.Millisecond,
		Log: zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel),
	}}
}

func (r *rig) open(t testing.TB) {
	t.Helper()
	r.disk = must[*local.Disk](t)(local.Open(t.Context(), r.opts))
	t.Cleanup(func() {
		if err := r.disk.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
}

func (r *rig) reopen(t testing.TB) {
	t.Helper()
	if err := r.disk.Close(); err != nil {
		t.Fatal(err)
	}
	r.open(t)
}

func shardID(n byte, part uint16) storage.ShardID {
	return storage.ShardID{UUID: uuid(n), Part: part}
}

// blocksOf makes the blocks of a shard of size bytes from its id.
func blocksOf(id storage.ShardID, size int) (blocks [][]byte, sums []storage.Sum) {
	rng := rand.New(rand.NewPCG(uint64(id.UUID[0]), uint64(id.Part)))
	for size > 0 {
		b := make([]byte, min(size, blockSize))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		var s storage.Sum
		copy(s[:], b)
		blocks, sums = append(blocks, b), append(sums, s)
		size -= len(b)
	}
	return blocks, sums
}

func ownerOf(id storage.ShardID) []byte { return []byte("owner of " + id.String()) }

func writeShard(t testing.TB, d storage.Disk, id storage.ShardID, size int) error {
	t.Helper()
	w, err := d.CreateShard(t.Context(), id, storage.ShardInfo{BlockSize: blockSize, Size: int64(size), Owner: ownerOf(id)})
	if err != nil {
		return err
	}
	blocks, sums := blocksOf(id, size)
	for i, b := range blocks {
		if err := w.Append(t.Context(), b, sums[i]); err != nil {
			return errors.Join(err, w.Abort())
		}
	}
	return w.Seal(t.Context())
}

// checkShard reads a whole shard and compares everything.
func checkShard(t testing.TB, d storage.Disk, id storage.ShardID, size int) {
	t.Helper()
	if err := readShard(t, d, id, size); err != nil {
		t.Fatalf("shard %s: %v", id, err)
	}
}

func readShard(t testing.TB, d storage.Disk, id storage.ShardID, size int) error {
	t.Helper()
	r, err := d.OpenShard(t.Context(), id)
	if err != nil {
		return err
	}
	defer func() {
		if err := r.Close(); err != nil {
			t.Errorf("close reader: %v", err)
		}
	}()
	info := r.Info()
	if info.Size != int64(size) || info.BlockSize != blockSize || !bytes.Equal(info.Owner, ownerOf(id)) {
		return fmt.Errorf("info %+v", info)
	}
	blocks, sums := blocksOf(id, size)
	bufs := newBufs(t, len(blocks))
	defer release(bufs)
	if err := r.ReadBlocks(t.Context(), 0, bufs); err != nil {
		return err
	}
	for i, b := range bufs {
		if !bytes.Equal(b.Bytes(), blocks[i]) || r.Sum(i) != sums[i] {
			return fmt.Errorf("block %d: %w", i, errDiffers)
		}
	}
	return nil
}

var errDiffers = errors.New("differs from what was written")

// testPool is shared: mapping memory for each test costs more than the test.
var testPool = sync.OnceValues(func() (*storage.Pool, error) {
	return storage.NewPool(storage.PoolOptions{BudgetBytes: 64 << 20})
})

// newBufs gets buffers of a block each, to be released by the caller.
func newBufs(t testing.TB, n int) []*storage.Buf {
	t.Helper()
	pool := must[*storage.Pool](t)(testPool())
	bufs := make([]*storage.Buf, n)
	for i := range bufs {
		bufs[i] = must[*storage.Buf](t)(pool.Get(blockSize))
	}
	return bufs
}

// getBufs gets buffers that are released when the test ends.
func getBufs(t testing.TB, n int) []*storage.Buf {
	t.Helper()
	bufs := newBufs(t, n)
	t.Cleanup(func() { release(bufs) })
	return bufs
}

func release(bufs []*storage.Buf) {
	for _, b := range bufs {
		b.Release()
	}
}

func TestShardRoundTrip(t *testing.T) {
	for _, where := range []string{"memory", "directory"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			var r *rig
			if where == "memory" {
				r = newRig(t, nil, "")
			} else {
				r = newRig(t, vfs.Default, t.TempDir())
			}
			sizes := []int{0, 1, blockSize - 1, blockSize, blockSize + 1, 3*blockSize + 77, 1200 * blockSize}
			for i, size := range sizes {
				id := shardID(byte(i), uint16(i))
				if err := writeShard(t, r.disk, id, size); err != nil {
					t.Fatal(err)
				}
				checkShard(t, r.disk, id, size)
			}
			r.reopen(t)
			if got := r.disk.Identity(); got != testIdentity {
				t.Fatalf("identity %+v", got)
			}
			for i, size := range sizes {
				checkShard(t, r.disk, shardID(byte(i), uint16(i)), size)
			}
		})
	}
}

func TestReadBlocksRanges(t *testing.T) {
	r := newRig(t, nil, "")
	id := shardID(7, 0)
	if err := writeShard(t, r.disk, id, 5*blockSize+100); err != nil {
		t.Fatal(err)
	}
	rd := must[storage.ShardReader](t)(r.disk.OpenShard(t.Context(), id))
	blocks, _ := blocksOf(id, 5*blockSize+100)
	for first := range blocks {
		for n := 1; first+n <= len(blocks); n++ {
			bufs := getBufs(t, n)
			_, before := r.backend.counts()
			if err := rd.ReadBlocks(t.Context(), first, bufs); err != nil {
				t.Fatal(err)
			}
			if _, after := r.backend.counts(); after != before+1 {
				t.Fatalf("%d reads for one call", after-before)
			}
			for i, b := range bufs {
				if !bytes.Equal(b.Bytes(), blocks[first+i]) {
					t.Fatalf("blocks %d+%d: block %d differs", first, n, first+i)
				}
			}
		}
	}
	for _, bad := range [][2]int{{-1, 1}, {6, 1}, {5, 2}, {0, 7}} {
		if err := rd.ReadBlocks(t.Context(), bad[0], getBufs(t, bad[1])); err == nil {
			t.Errorf("blocks %d+%d: no error", bad[0], bad[1])
		}
	}
	// The reader outlives the shard.
	if err := r.disk.RemoveShard(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if err := rd.ReadBlocks(t.Context(), 0, getBufs(t, 6)); err != nil {
		t.Fatalf("after remove: %v", err)
	}
	if _, err := r.disk.OpenShard(t.Context(), id); !errors.Is(err, storage.ErrNotFound) {
		t.Fatalf("open after remove: %v", err)
	}
	if err := r.disk.RemoveShard(t.Context(), id); err != nil {
		t.Fatalf("remove twice: %v", err)
	}
	if err := errors.Join(rd.Close(), rd.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestWriterContract(t *testing.T) {
	r := newRig(t, nil, "")
	ctx, d := t.Context(), r.disk
	info := storage.ShardInfo{BlockSize: blockSize}
	w := must[storage.ShardWriter](t)(d.CreateShard(ctx, shardID(1, 0), info))
	if _, err := d.CreateShard(ctx, shardID(1, 0), info); !errors.Is(err, storage.ErrExists) {
		t.Fatalf("create twice: %v", err)
	}
	if _, err := d.OpenShard(ctx, shardID(1, 0)); !errors.Is(err, storage.ErrCorrupt) {
		t.Fatalf("open unsealed: %v", err)
	}
	block := make([]byte, blockSize+1)
	for _, n := range []int{0, blockSize + 1} {
		if err := w.Append(ctx, block[:n], storage.Sum{}); err == nil {
			t.Fatalf("append of %d bytes succeeded", n)
		}
	}
	if err := w.Append(ctx, block[:10], storage.Sum{}); err != nil {
		t.Fatal(err)
	}
	if err := w.Append(ctx, block[:blockSize], storage.Sum{}); err == nil {
		t.Fatal("append after a short block succeeded")
	}
	if ids := must[[]storage.ShardID](t)(d.ListShards(ctx, storage.ShardID{}, 10)); len(ids) != 1 {
		t.Fatalf("unsealed shard not listed: %v", ids)
	}
	if err := errors.Join(w.Abort(), w.Abort()); err != nil {
		t.Fatal(err)
	}
	if err := w.Seal(ctx); err == nil {
		t.Fatal("seal after abort succeeded")
	}
	if _, err := d.OpenShard(ctx, shardID(1, 0)); !errors.Is(err, storage.ErrNotFound) {
		t.Fatalf("open aborted: %v", err)
	}
	for _, bad := range []storage.ShardInfo{{BlockSize: 0}, {BlockSize: 4095}, {BlockSize: 12288}, {BlockSize: blockSize, Size: -1},
		{BlockSize: blockSize, Owner: make([]byte, storage.MaxOwner+1)}} {
		if _, err := d.CreateShard(ctx, shardID(2, 0), bad); err == nil {
			t.Errorf("create with %+v succeeded", bad)
		}
	}
	if h := d.Health(); h.State != storage.StateOK {
		t.Fatalf("misuse changed the health: %+v", h)
	}
}

func TestListShards(t *testing.T) {
	r := newRig(t, nil, "")
	want := map[storage.ShardID]bool{}
	for i := range 40 {
		id := shardID(byte(i*7), uint16(i%3))
		want[id] = true
		if err := writeShard(t, r.disk, id, 10); err != nil {
			t.Fatal(err)
		}
	}
	// What isn't a shard is not listed.
	f := must[vfs.File](t)(r.fs.Create("/disk/shards/0f/README", "test"))
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for _, page := range []int{1, 3, 100} {
		got := map[storage.ShardID]bool{}
		after := storage.ShardID{}
		for {
			ids := must[[]storage.ShardID](t)(r.disk.ListShards(t.Context(), after, page))
			for _, id := range ids {
				if got[id] {
					t.Fatalf("%s listed twice", id)
				}
				got[id] = true
			}
			if len(ids) < page {
				break
			}
			after = ids[len(ids)-1]
		}
		if len(got) != len(want) {
			t.Fatalf("page of %d: %d shards, want %d", page, len(got), len(want))
		}
	}
}

func TestSyncFailureIsFinal(t *testing.T) {
	for _, op := range []string{"sync", "syncdir", "write"} {
		t.Run(op, func(t *testing.T) {
			r := newRig(t, nil, "")
			if err := writeShard(t, r.disk, shardID(1, 0), 100); err != nil {
				t.Fatal(err)
			}
			r.backend.fail = failOnce(op, errIO)
			if err := writeShard(t, r.disk, shardID(2, 0), 100); !errors.Is(err, storage.ErrFailed) {
				t.Fatalf("seal: %v", err)
			}
			if h := r.disk.Health(); h.State != storage.StateFailed || h.Reason == "" {
				t.Fatalf("health %+v", h)
			}
			if err := writeShard(t, r.disk, shardID(3, 0), 100); !errors.Is(err, storage.ErrFailed) {
				t.Fatalf("write after failure: %v", err)
			}
			if err := r.disk.Check(t.Context()); !errors.Is(err, storage.ErrFailed) {
				t.Fatalf("check: %v", err)
			}
			var b storage.Batch
			b.Set([]byte("k"), []byte("v"))
			if err := r.disk.KV().Apply(t.Context(), &b); !errors.Is(err, storage.ErrFailed) {
				t.Fatalf("apply: %v", err)
			}
			if _, err := r.disk.OpenShard(t.Context(), shardID(2, 0)); !errors.Is(err, storage.ErrNotFound) {
				t.Fatalf("the shard that failed: %v", err)
			}
			checkShard(t, r.disk, shardID(1, 0), 100) // what was durable can be read
		})
	}
}

func TestFull(t *testing.T) {
	r := newRig(t, nil, "")
	r.backend.setSpace(1000<<30, 51<<30)
	if err := writeShard(t, r.disk, shardID(1, 0), 100); err != nil {
		t.Fatal(err)
	}
	r.backend.setSpace(1000<<30, 50<<30)
	if err := writeShard(t, r.disk, shardID(2, 0), 100); !errors.Is(err, storage.ErrFull) {
		t.Fatalf("create at the watermark: %v", err)
	}
	if h := r.disk.Health(); h.State != storage.StateFull || h.TotalBytes != 1000<<30 || h.FreeBytes != 50<<30 {
		t.Fatalf("health %+v", h)
	}
	checkShard(t, r.disk, shardID(1, 0), 100)
	var b storage.Batch
	b.Delete([]byte("k"))
	if err := r.disk.KV().Apply(t.Context(), &b); err != nil {
		t.Fatalf("apply on a full disk: %v", err)
	}
	if err := r.disk.RemoveShard(t.Context(), shardID(1, 0)); err != nil {
		t.Fatal(err)
	}
	r.backend.setSpace(1<<30, 128<<20)
	if err := writeShard(t, r.disk, shardID(2, 0), 100); !errors.Is(err, storage.ErrFull) {
		t.Fatalf("create in the reserve of a small disk: %v", err)
	}
	r.backend.setSpace(64<<20, 17<<20)
	if err := writeShard(t, r.disk, shardID(2, 0), 100); err != nil {
		t.Fatalf("create after space returned: %v", err)
	}
	r.backend.fail = failOnce("write", syscall.ENOSPC)
	if err := writeShard(t, r.disk, shardID(3, 0), 100); !errors.Is(err, storage.ErrFull) {
		t.Fatalf("write without space: %v", err)
	}
	if h := r.disk.Health(); h.State != storage.StateFull {
		t.Fatalf("health %+v", h)
	}
	if err := writeShard(t, r.disk, shardID(4, 0), 100); !errors.Is(err, storage.ErrFull) {
		t.Fatalf("create right after: %v", err)
	}
	if _, err := r.disk.OpenShard(t.Context(), shardID(3, 0)); !errors.Is(err, storage.ErrNotFound) {
		t.Fatalf("half a shard stayed: %v", err)
	}
}

// TestGone takes the directory away in the ways people do.
func TestGone(t *testing.T) {
	empty := func(t *testing.T, root string) {
		for _, e := range must[[]os.DirEntry](t)(os.ReadDir(root)) {
			if err := os.RemoveAll(filepath.Join(root, e.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
	ways := map[string]func(t *testing.T, root string) error{
		"removed": func(_ *testing.T, root string) error { return os.RemoveAll(root) },
		"moved":   func(_ *testing.T, root string) error { return os.Rename(root, root+".moved") },
		"emptied": func(t *testing.T, root string) error { empty(t, root); return nil },
		"without metadata": func(_ *testing.T, root string) error {
			return os.RemoveAll(filepath.Join(root, "meta"))
		},
		"replaced": func(t *testing.T, root string) error {
			// The same content in other files: a copy put in its place.
			copied := must[[]byte](t)(os.ReadFile(filepath.Join(root, "superblock.a")))
			keep := must[*os.File](t)(os.Open(filepath.Join(root, "superblock.a"))) // so that its inode isn't used again
			t.Cleanup(func() { _ = keep.Close() })
			empty(t, root)
			if err := os.Mkdir(filepath.Join(root, "meta"), 0o755); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(root, "superblock.a"), copied, 0o600)
		},
	}
	for name, take := range ways {
		for _, op := range []string{"seal", "apply"} {
			t.Run(name+"/"+op, func(t *testing.T) {
				t.Parallel()
				root := filepath.Join(t.TempDir(), "disk")
				if err := os.Mkdir(root, 0o755); err != nil {
					t.Fatal(err)
				}
				r := stdRigAt(t, root)
				kv := r.disk.KV()
				w := must[storage.ShardWriter](t)(r.disk.CreateShard(t.Context(), shardID(1, 0), storage.ShardInfo{BlockSize: blockSize}))
				if err := take(t, root); err != nil {
					t.Fatal(err)
				}
				var err error
				if op == "seal" {
					err = w.Seal(t.Context())
				} else {
					var b storage.Batch
					b.Set([]byte("k"), []byte("v"))
					err = kv.Apply(t.Context(), &b)
				}
				if !errors.Is(err, storage.ErrOffline) {
					t.Fatalf("%s: %v", op, err)
				}
				if h := r.disk.Health(); h.State != storage.StateOffline {
					t.Fatalf("health %+v", h)
				}
				if _, err := kv.Get(t.Context(), []byte("k")); op == "apply" && !errors.Is(err, storage.ErrOffline) {
					t.Fatalf("get of what was never durable: %v", err)
				}
				if _, err := r.disk.OpenShard(t.Context(), shardID(1, 0)); !errors.Is(err, storage.ErrOffline) {
					t.Fatalf("open: %v", err)
				}
				if err := w.Abort(); err != nil {
					t.Log(err)
				}
			})
		}
	}
}
