package local_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/rs/zerolog"

	"ringfence/internal/env"
	"ringfence/internal/knob"
	"ringfence/storage"
	"ringfence/storage/local"
)

// opensOf is how many files the disk's backend opens while f runs.
func (r *rig) opensOf(f func()) int {
	before, _ := r.backend.counts()
	f()
	after, _ := r.backend.counts()
	return after - before
}

// TestCacheSwitch turns the cache off and on while the disk is in use.
func TestCacheSwitch(t *testing.T) {
	r := newRig(t, nil, "")
	r.opts.FDCacheOn = knob.NewBool("cache", true, "")
	r.reopen(t)
	for i := range 3 {
		if err := writeShard(t, r.disk, shardID(byte(i), 0), 100); err != nil {
			t.Fatal(err)
		}
	}
	check := func(what string, on bool, opens, cached int) {
		t.Helper()
		r.opts.FDCacheOn.Store(on)
		n := r.opensOf(func() {
			for i := range 3 {
				checkShard(t, r.disk, shardID(byte(i), 0), 100)
			}
		})
		if n != opens || r.disk.CachedShards() != cached {
			t.Errorf("%s: %d opens, %d cached, want %d and %d", what, n, r.disk.CachedShards(), opens, cached)
		}
	}
	check("on, first", true, 3, 3)
	check("on", true, 0, 3)
	reader := must[storage.ShardReader](t)(r.disk.OpenShard(t.Context(), shardID(1, 0)))
	check("off", false, 3, 0)
	if err := reader.ReadBlocks(t.Context(), 0, getBufs(t, 1)); err != nil {
		t.Errorf("a reader from before: %v", err)
	}
	check("still off", false, 3, 0)
	check("on again, first", true, 3, 3)
	check("on again", true, 0, 3)
	if err := reader.Close(); err != nil {
		t.Error(err)
	}
}

// TestCacheAge: an entry is opened anew when it is old, however busy it is.
func TestCacheAge(t *testing.T) {
	r := newRig(t, nil, "")
	var now atomic.Int64
	e := env.System()
	e.Now = func() time.Time { return time.Unix(1_000_000_000, now.Load()) }
	r.opts.Env, r.opts.FDCacheAge = e, 5*time.Second
	r.reopen(t)
	id := shardID(1, 0)
	if err := writeShard(t, r.disk, id, 100); err != nil {
		t.Fatal(err)
	}
	for step, c := range []struct {
		pass  time.Duration
		opens int
	}{{0, 1}, {0, 0}, {3 * time.Second, 0}, {2*time.Second - 1, 0}, {1, 1}, {4 * time.Second, 0}, {time.Hour, 1}, {0, 0}} {
		now.Add(int64(c.pass))
		if n := r.opensOf(func() { checkShard(t, r.disk, id, 100) }); n != c.opens {
			t.Errorf("step %d: %d opens, want %d", step, n, c.opens)
		}
	}
	if n := r.disk.CachedShards(); n != 1 {
		t.Errorf("%d cached", n)
	}
}

// TestFewDescriptors: where the process may open few files the cache is small,
// and says so once.
func TestFewDescriptors(t *testing.T) {
	for _, c := range []struct {
		limit  uint64
		asked  int
		cached int
		warns  int
	}{{1024, 0, 16, 1}, {64, 0, 8, 1}, {4096, 30, 30, 0}, {16383, 0, 30, 1}, {16384, 0, 30, 0}, {0, 0, 30, 0}, {1024, 3, 3, 0}} {
		var log bytes.Buffer
		r := newRig(t, nil, "")
		r.opts.Log = zerolog.New(&log).Level(zerolog.WarnLevel)
		r.opts.FDCache = c.asked
		r.opts.SetOpenFilesMax(c.limit)
		r.reopen(t)
		for i := range 30 {
			if err := writeShard(t, r.disk, shardID(byte(i), 0), 100); err != nil {
				t.Fatal(err)
			}
			checkShard(t, r.disk, shardID(byte(i), 0), 100)
		}
		if n := r.disk.CachedShards(); n != c.cached {
			t.Errorf("limit %d, %d asked for: %d cached, want %d", c.limit, c.asked, n, c.cached)
		}
		if n := strings.Count(log.String(), "few files"); n != c.warns {
			t.Errorf("limit %d, %d asked for: %d warnings:\n%s", c.limit, c.asked, n, &log)
		}
	}
}

// TestReplacedBehindTheCache first shows the hazard, a file that someone
// renames over a shard's is not seen, and then what ends it: the switch, the
// entry's age, and removing the shard as healing does.
func TestReplacedBehindTheCache(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(t *testing.T, r *rig, clock *atomic.Int64)
	}{
		{"switch", func(_ *testing.T, r *rig, _ *atomic.Int64) { r.opts.FDCacheOn.Store(false) }},
		{"age", func(_ *testing.T, _ *rig, clock *atomic.Int64) { clock.Add(int64(time.Minute)) }},
		{"reopened disk", func(t *testing.T, r *rig, _ *atomic.Int64) {
			if err := r.disk.Close(); err != nil {
				t.Fatal(err)
			}
			r.opts.Backend = must[storage.Backend](t)(newStd(r.opts.Root))
			r.open(t)
		}},
		{"removed and written again", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, clock := replaceableRig(t)
			id := shardID(1, 0)
			if err := writeShard(t, r.disk, id, 5000); err != nil {
				t.Fatal(err)
			}
			checkShard(t, r.disk, id, 5000)
			// A shard of the same id and another size, sealed on another disk.
			other, _ := replaceableRig(t)
			if err := writeShard(t, other.disk, id, 100); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(shardPath(t, other, id), shardPath(t, r, id)); err != nil {
				t.Fatal(err)
			}
			if err := readShard(t, r.disk, id, 5000); err != nil {
				t.Fatalf("the cache does not hide what was replaced: %v", err)
			}
			want := 100
			if c.end != nil {
				c.end(t, r, clock)
			} else {
				want = 7000
				if err := errors.Join(r.disk.RemoveShard(t.Context(), id), writeShard(t, r.disk, id, want)); err != nil {
					t.Fatal(err)
				}
			}
			checkShard(t, r.disk, id, want)
		})
	}
}

// replaceableRig is a disk on a real file system, with a clock that stands.
func replaceableRig(t *testing.T) (*rig, *atomic.Int64) {
	t.Helper()
	root := t.TempDir()
	r := rigOn(t, vfs.Default, root)
	r.opts.Backend = must[storage.Backend](t)(newStd(root))
	if err := local.Format(t.Context(), r.opts, testIdentity); err != nil {
		t.Fatal(err)
	}
	clock := new(atomic.Int64)
	e := env.System()
	e.Now = func() time.Time { return time.Unix(1_000_000_000, clock.Load()) }
	r.opts.Env, r.opts.FDCacheOn = e, knob.NewBool("cache", true, "")
	r.open(t)
	return r, clock
}

func shardPath(t *testing.T, r *rig, id storage.ShardID) string {
	t.Helper()
	found := must[[]string](t)(filepath.Glob(filepath.Join(r.opts.Root, "shards", "*", id.String())))
	if len(found) != 1 {
		t.Fatalf("found %v", found)
	}
	return found[0]
}

// TestEveryChangeForgets goes through all that changes or ends a shard's file:
// none may leave an entry behind.
func TestEveryChangeForgets(t *testing.T) {
	id, size := shardID(1, 0), 5000
	for name, change := range map[string]func(t *testing.T, r *rig){
		"remove": func(t *testing.T, r *rig) {
			if err := r.disk.RemoveShard(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		},
		"remove that fails": func(t *testing.T, r *rig) {
			r.backend.fail = failOnce("remove", errIO) // after the fact
			if err := r.disk.RemoveShard(t.Context(), id); err == nil {
				t.Fatal("no error")
			}
		},
		"removed twice": func(t *testing.T, r *rig) {
			if err := errors.Join(r.disk.RemoveShard(t.Context(), id), r.disk.RemoveShard(t.Context(), id)); err != nil {
				t.Fatal(err)
			}
		},
		"rewrite that is aborted": func(t *testing.T, r *rig) {
			if err := r.disk.RemoveShard(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			w := must[storage.ShardWriter](t)(r.disk.CreateShard(t.Context(), id, storage.ShardInfo{BlockSize: blockSize, Owner: ownerOf(id)}))
			if err := w.Abort(); err != nil {
				t.Fatal(err)
			}
		},
		"rewrite whose seal fails": func(t *testing.T, r *rig) {
			if err := r.disk.RemoveShard(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			r.backend.fail = failOnce("sync", errIO)
			if err := writeShard(t, r.disk, id, size); err == nil {
				t.Fatal("no error")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil, "")
			if err := writeShard(t, r.disk, id, size); err != nil {
				t.Fatal(err)
			}
			checkShard(t, r.disk, id, size)
			if r.disk.CachedShards() != 1 {
				t.Fatal("the shard is not cached")
			}
			change(t, r)
			if n := r.disk.CachedShards(); n != 0 {
				t.Errorf("%d cached", n)
			}
			if err := readShard(t, r.disk, id, size); !errors.Is(err, storage.ErrNotFound) {
				t.Errorf("open: %v", err)
			}
		})
	}
}

// TestRemoveForgetsOneShard: neighbours stay cached, be they of the same
// object, the same folder, or of the same name on another disk.
func TestRemoveForgetsOneShard(t *testing.T) {
	r, other := newRig(t, nil, ""), newRig(t, nil, "")
	near := []storage.ShardID{shardID(1, 1), shardID(1, 10), shardID(2, 0)}
	id := shardID(1, 0)
	for _, on := range []*rig{r, other} {
		for _, s := range append(near, id) {
			if err := writeShard(t, on.disk, s, 100); err != nil {
				t.Fatal(err)
			}
			checkShard(t, on.disk, s, 100)
		}
	}
	if err := r.disk.RemoveShard(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if n := r.opensOf(func() {
		for _, s := range near {
			checkShard(t, r.disk, s, 100)
		}
	}); n != 0 {
		t.Errorf("%d neighbours were forgotten", n)
	}
	if n := other.opensOf(func() { checkShard(t, other.disk, id, 100) }); n != 0 {
		t.Error("another disk's shard was forgotten")
	}
}

// fusedContext ends when it was asked for the nth time.
type fusedContext struct {
	context.Context
	left atomic.Int64
}

func (c *fusedContext) Err() error {
	if c.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// TestOpenGivenUpLeavesNothing ends an open at every point where it looks: no
// descriptor stays, and no entry.
func TestOpenGivenUpLeavesNothing(t *testing.T) {
	r, _ := replaceableRig(t)
	id := shardID(1, 0)
	if err := writeShard(t, r.disk, id, 3000*blockSize); err != nil { // a trailer of several reads
		t.Fatal(err)
	}
	descriptors := func() int {
		return len(must[[]os.DirEntry](t)(os.ReadDir("/proc/self/fd")))
	}
	before := descriptors()
	for n := range int64(100) {
		ctx := &fusedContext{Context: t.Context()}
		ctx.left.Store(n)
		rd, err := r.disk.OpenShard(ctx, id)
		if err == nil {
			if n < 3 {
				t.Errorf("opened, having looked %d times", n)
			}
			if err := rd.Close(); err != nil {
				t.Error(err)
			}
			return
		}
		if !errors.Is(err, context.Canceled) || errors.Is(err, storage.ErrFailed) || errors.Is(err, storage.ErrNotFound) {
			t.Errorf("given up after %d looks: %v", n, err)
		}
		if now := descriptors(); now != before || r.disk.CachedShards() != 0 {
			t.Errorf("given up after %d looks: %d descriptors before, %d after; %d cached", n, before, now, r.disk.CachedShards())
		}
	}
	t.Error("it never opens")
}
