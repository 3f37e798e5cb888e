package local_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"ringfence/storage"
	"ringfence/storage/local"
)

var (
	crashPoints = flag.Int("crash.points", 150, "crashes to simulate")
	crashSeed   = flag.Uint64("crash.seed", 0, "seed of the first run; 0: from the clock")
)

// crashRun drives one disk with random operations and takes what a crash would
// leave, in the middle of them.
type crashRun struct {
	t   *testing.T
	rng *rand.Rand // of the driver
	mem *vfs.MemFS
	r   *rig

	mu      sync.Mutex // protects the fields below; file operations come from several goroutines
	chance  *rand.Rand // of the crashes
	want    world
	crashes []crash
}

// world is what has been promised.
type world struct {
	sealed map[storage.ShardID]int // size
	never  map[storage.ShardID]bool
	keys   map[string]string

	// In flight: the operation may have happened or not.
	flyShard storage.ShardID // being sealed or removed
	flySize  int             // of it; -1: none
	sealing  bool            // it is being sealed
	flyKeys  map[string]string
}

func (w world) clone() world {
	w.sealed, w.never = maps.Clone(w.sealed), maps.Clone(w.never)
	w.keys, w.flyKeys = maps.Clone(w.keys), maps.Clone(w.flyKeys)
	return w
}

type crash struct {
	mem  *vfs.MemFS
	want world
	at   string
}

// maybeCrash is called before each file operation.
func (c *crashRun) maybeCrash(op, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.want.keys == nil || len(c.crashes) >= 8 || c.chance.IntN(60) != 0 {
		return
	}
	cfg := vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 20, 50, 80, 100}[c.chance.IntN(5)], RNG: c.chance}
	c.crashes = append(c.crashes, crash{
		mem: c.mem.CrashClone(cfg), want: c.want.clone(),
		at: fmt.Sprintf("%s %s, %d %% unsynced", op, name, cfg.UnsyncedDataPercent),
	})
}

// update changes what is promised.
func (c *crashRun) update(f func(w *world)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.want)
}

func TestCrash(t *testing.T) {
	seed := *crashSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	for done := 0; done < *crashPoints; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { done += crashOnce(t, seed) })
		if t.Failed() {
			return
		}
	}
}

func crashOnce(t *testing.T, seed uint64) int {
	mem := vfs.NewCrashableMem()
	if err := mem.MkdirAll("/disk", 0o755); err != nil {
		t.Fatal(err)
	}
	syncDir(t, mem, "/")
	c := &crashRun{t: t, mem: mem, rng: rand.New(rand.NewPCG(seed, 1)), chance: rand.New(rand.NewPCG(seed, 2))}
	hooked := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			c.maybeCrash("meta", op.Path)
		}
		return nil
	}))
	c.r = rigOn(t, hooked, "/disk")
	c.r.backend.fs = mem
	c.r.backend.fail = func(op, name string) error {
		c.maybeCrash(op, name)
		return nil
	}
	c.r.opts.MemTableBytes = 16 << 10 // flush and compact often
	if err := local.Format(t.Context(), c.r.opts, testIdentity); err != nil {
		t.Fatal(err)
	}
	c.r.open(t)
	c.update(func(w *world) {
		*w = world{sealed: map[storage.ShardID]int{}, never: map[storage.ShardID]bool{}, keys: map[string]string{}, flySize: -1}
	})
	for range 60 {
		c.step()
	}
	c.mu.Lock()
	crashes := slices.Clone(c.crashes) // the store still compacts
	c.mu.Unlock()
	for _, crash := range crashes {
		crash.verify(t)
	}
	return max(1, len(crashes))
}

func syncDir(t testing.TB, fs vfs.FS, name string) {
	t.Helper()
	d := must[vfs.File](t)(fs.OpenDir(name))
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		t.Fatal(err)
	}
}

// step does one random operation.
func (c *crashRun) step() {
	t, ctx, d := c.t, c.t.Context(), c.r.disk
	switch n := c.rng.IntN(100); {
	case n < 30:
		c.shard()
	case n < 40 && len(c.want.sealed) > 0:
		id := slices.SortedFunc(maps.Keys(c.want.sealed), func(a, b storage.ShardID) int { return bytes.Compare(a.UUID[:], b.UUID[:]) })[0]
		c.update(func(w *world) {
			w.flyShard, w.flySize, w.sealing = id, w.sealed[id], false
			delete(w.sealed, id)
		})
		if err := d.RemoveShard(ctx, id); err != nil {
			t.Fatal(err)
		}
	case n < 42:
		c.update(func(w *world) { w.flyKeys = map[string]string{} })
		if err := d.ResetKV(ctx); err != nil {
			t.Fatal(err)
		}
		c.update(func(w *world) { w.keys, w.flyKeys = map[string]string{}, nil })
	case n < 44:
		c.r.reopen(t)
	default:
		c.apply()
	}
}

// shard writes a shard, and seals it mostly.
func (c *crashRun) shard() {
	t, ctx := c.t, c.t.Context()
	var id storage.ShardID
	for i := range id.UUID {
		id.UUID[i] = byte(c.rng.Uint32())
	}
	size := c.rng.IntN(6 * blockSize)
	c.update(func(w *world) { w.never[id] = true })
	w := must[storage.ShardWriter](t)(c.r.disk.CreateShard(ctx, id, storage.ShardInfo{BlockSize: blockSize, Owner: ownerOf(id)}))
	blocks, sums := blocksOf(id, size)
	for i, b := range blocks {
		if err := w.Append(ctx, b, sums[i]); err != nil {
			t.Fatal(err)
		}
	}
	if c.rng.IntN(5) == 0 {
		if err := w.Abort(); err != nil {
			t.Fatal(err)
		}
		return
	}
	c.update(func(w *world) {
		delete(w.never, id)
		w.flyShard, w.flySize, w.sealing = id, size, true
	})
	if err := w.Seal(ctx); err != nil {
		t.Fatal(err)
	}
	c.update(func(w *world) { w.sealed[id], w.flySize = size, -1 })
}

func (c *crashRun) apply() {
	var b storage.Batch
	next := maps.Clone(c.want.keys)
	for range 1 + c.rng.IntN(6) {
		k := fmt.Sprintf("k%02d", c.rng.IntN(60))
		if c.rng.IntN(4) == 0 {
			b.Delete([]byte(k))
			delete(next, k)
			continue
		}
		v := make([]byte, c.rng.IntN(800))
		for i := range v {
			v[i] = byte(c.rng.Uint32())
		}
		b.Set([]byte(k), v)
		next[k] = string(v)
	}
	c.update(func(w *world) { w.flyKeys = next })
	if err := c.r.disk.KV().Apply(c.t.Context(), &b); err != nil {
		c.t.Fatal(err)
	}
	c.update(func(w *world) { w.keys, w.flyKeys = next, nil })
}

// verify opens what the crash left.
func (c crash) verify(t *testing.T) {
	r := rigOn(t, c.mem, "/disk")
	d, err := local.Open(t.Context(), r.opts)
	if err != nil {
		t.Fatalf("crash at %s: open: %v", c.at, err)
	}
	defer func() {
		if err := d.Close(); err != nil {
			t.Errorf("crash at %s: close: %v", c.at, err)
		}
	}()
	if h := d.Health(); h.State != storage.StateOK {
		t.Fatalf("crash at %s: health %+v", c.at, h)
	}
	for id, size := range c.want.sealed {
		if err := readShard(t, d, id, size); err != nil {
			t.Errorf("crash at %s: sealed shard lost: %v", c.at, err)
		}
	}
	for id := range c.want.never {
		if _, err := d.OpenShard(t.Context(), id); !errors.Is(err, storage.ErrNotFound) && !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("crash at %s: unsealed shard opened: %v", c.at, err)
		}
	}
	if c.want.flySize >= 0 {
		// A trailer can get to the disk before the blocks do: then the sums tell.
		err := readShard(t, d, c.want.flyShard, c.want.flySize)
		if c.want.sealing && errors.Is(err, errDiffers) {
			err = nil
		}
		if err != nil && !errors.Is(err, storage.ErrNotFound) && !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("crash at %s: shard in flight: %v", c.at, err)
		}
	}
	got := map[string]string{}
	it := must[storage.Iter](t)(d.KV().Iter(t.Context(), nil, nil))
	for ok := it.SeekGE(nil); ok; ok = it.Next() {
		got[string(it.Key())] = string(must[[]byte](t)(it.Value()))
	}
	if err := errors.Join(it.Err(), it.Close()); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(got, c.want.keys) && (c.want.flyKeys == nil || !maps.Equal(got, c.want.flyKeys)) {
		t.Errorf("crash at %s: %d keys, want those %d or these %d", c.at, len(got), len(c.want.keys), len(c.want.flyKeys))
	}
}

// TestCrashInFormat: an interrupted Format leaves a directory that can be
// formatted again, or one that is formatted.
func TestCrashInFormat(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	found := map[local.Content]int{}
	for range 40 {
		mem := vfs.NewCrashableMem()
		if err := mem.MkdirAll("/disk", 0o755); err != nil {
			t.Fatal(err)
		}
		syncDir(t, mem, "/")
		r := rigOn(t, mem, "/disk")
		stop := rng.IntN(290) // Format takes about 280 operations
		var left *vfs.MemFS
		r.backend.fail = func(string, string) error {
			if stop--; stop == 0 {
				left = mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
			}
			return nil
		}
		if err := local.Format(t.Context(), r.opts, testIdentity); err != nil {
			t.Fatal(err)
		}
		if left == nil {
			left = mem.CrashClone(vfs.CrashCloneCfg{})
		}
		r = rigOn(t, left, "/disk")
		ins := must[local.Inspection](t)(local.Inspect(t.Context(), r.opts))
		found[ins.Content]++
		switch ins.Content {
		case local.Blank:
			if err := local.Format(t.Context(), r.opts, testIdentity); err != nil {
				t.Fatal(err)
			}
		case local.Formatted:
		default:
			t.Fatalf("found %s: %s", ins.Content, ins.Reason)
		}
		r.open(t)
		if err := writeShard(t, r.disk, shardID(1, 0), 100); err != nil {
			t.Fatal(err)
		}
	}
	if found[local.Blank] == 0 || found[local.Formatted] == 0 {
		t.Fatalf("found %v: both must occur", found)
	}
}
