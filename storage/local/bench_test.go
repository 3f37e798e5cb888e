package local_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"ringfence/storage"
	"ringfence/storage/local"
	"ringfence/storage/std"
)

// stdRig is a disk in a real directory behind the reference backend.
func stdRig(t testing.TB) *rig {
	t.Helper()
	return stdRigAt(t, t.TempDir())
}

func stdRigAt(t testing.TB, root string) *rig {
	t.Helper()
	r := rigOn(t, vfs.Default, root)
	r.opts.Backend = must[storage.Backend](t)(newStd(root))
	if err := local.Format(t.Context(), r.opts, testIdentity); err != nil {
		t.Fatal(err)
	}
	r.open(t)
	return r
}

func newStd(root string) (storage.Backend, error) { return std.New(std.Options{Root: root}) }

func BenchmarkApply(b *testing.B) {
	for _, par := range []int{1, 16} {
		b.Run(fmt.Sprintf("value=400/committers=%d", par), func(b *testing.B) {
			r := stdRig(b)
			kv := r.disk.KV()
			value := []byte(strings.Repeat("v", 400))
			var n atomic.Int64
			b.ReportAllocs()
			b.SetParallelism(par) // times GOMAXPROCS
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					var batch storage.Batch
					batch.Set(fmt.Appendf(nil, "o/%012d", n.Add(1)), value)
					if err := kv.Apply(b.Context(), &batch); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// BenchmarkIter walks records as a listing does, and reports keys per second.
func BenchmarkIter(b *testing.B) {
	const total = 200_000
	r := stdRig(b)
	kv := r.disk.KV()
	fillKV(b, kv, total)
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		it := must[storage.Iter](b)(kv.Iter(b.Context(), []byte("o/"), []byte("o0")))
		n, size := 0, 0
		for ok := it.SeekGE(nil); ok; ok = it.Next() {
			v, err := it.Value()
			if err != nil {
				b.Fatal(err)
			}
			n, size = n+1, size+len(it.Key())+len(v)
		}
		if err := errors.Join(it.Err(), it.Close()); err != nil || n != total {
			b.Fatalf("%d keys: %v", n, err)
		}
		b.SetBytes(int64(size))
	}
	b.ReportMetric(float64(total)*float64(b.N)/b.Elapsed().Seconds(), "keys/s")
}

func fillKV(b *testing.B, kv storage.KV, total int) {
	b.Helper()
	value := make([]byte, 400)
	rng := rand.New(rand.NewPCG(1, 1))
	var batch storage.Batch
	for i := range total {
		for j := range value[:200] { // half of it doesn't compress
			value[j] = byte(rng.Uint32())
		}
		batch.Set(fmt.Appendf(nil, "o/bucket/folder/%09d", i), append([]byte(nil), value...))
		if len(batch.Ops) == 1000 || i == total-1 {
			if err := kv.Apply(b.Context(), &batch); err != nil {
				b.Fatal(err)
			}
			batch = storage.Batch{}
		}
	}
}

func BenchmarkGet(b *testing.B) {
	r := stdRig(b)
	kv := r.disk.KV()
	const total = 100_000
	fillKV(b, kv, total)
	rng := rand.New(rand.NewPCG(1, 1))
	for _, hot := range []int{1000, total} {
		b.Run(fmt.Sprintf("of=%d", hot), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := kv.Get(b.Context(), fmt.Appendf(nil, "o/bucket/folder/%09d", rng.IntN(hot))); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("missing", func(b *testing.B) {
		for b.Loop() {
			if _, err := kv.Get(b.Context(), fmt.Appendf(nil, "o/bucket/folder/%09dx", rng.IntN(total))); !errors.Is(err, storage.ErrNotFound) {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkOpenShard(b *testing.B) {
	for _, cached := range []bool{true, false} {
		b.Run(fmt.Sprintf("cached=%v", cached), func(b *testing.B) {
			r := stdRig(b)
			if !cached {
				if err := r.disk.Close(); err != nil {
					b.Fatal(err)
				}
				r.opts.FDCache = -1
				r.opts.Backend = must[storage.Backend](b)(newStd(r.opts.Root))
				r.open(b)
			}
			if err := writeShard(b, r.disk, shardID(1, 0), 64*blockSize); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				rd, err := r.disk.OpenShard(b.Context(), shardID(1, 0))
				if err != nil {
					b.Fatal(err)
				}
				if err := rd.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkReadBlocks(b *testing.B) {
	r := stdRig(b)
	const block = 256 << 10
	id := shardID(1, 0)
	w := must[storage.ShardWriter](b)(r.disk.CreateShard(b.Context(), id, storage.ShardInfo{BlockSize: block}))
	data := make([]byte, block)
	for range 16 {
		if err := w.Append(b.Context(), data, storage.Sum{}); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Seal(b.Context()); err != nil {
		b.Fatal(err)
	}
	pool := must[*storage.Pool](b)(testPool())
	for _, n := range []int{1, 4} {
		b.Run(fmt.Sprintf("blocks=%d", n), func(b *testing.B) {
			bufs := make([]*storage.Buf, n)
			for i := range bufs {
				bufs[i] = must[*storage.Buf](b)(pool.Get(block))
			}
			defer release(bufs)
			b.ReportAllocs()
			b.SetBytes(int64(n * block))
			first := 0
			for b.Loop() {
				rd, err := r.disk.OpenShard(b.Context(), id)
				if err != nil {
					b.Fatal(err)
				}
				if err := errors.Join(rd.ReadBlocks(b.Context(), first, bufs), rd.Close()); err != nil {
					b.Fatal(err)
				}
				first = (first + n) % 16
			}
		})
	}
}

func BenchmarkCheck(b *testing.B) {
	r := stdRig(b)
	b.ReportAllocs()
	for b.Loop() {
		if err := r.disk.Check(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSeal(b *testing.B) {
	r := stdRig(b)
	data := make([]byte, 1<<20)
	var n atomic.Uint32
	b.SetBytes(int64(len(data)))
	b.SetParallelism(4)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			i := n.Add(1)
			id := storage.ShardID{UUID: storage.UUID{byte(i), byte(i >> 8), byte(i >> 16), 15: byte(i)}}
			w, err := r.disk.CreateShard(b.Context(), id, storage.ShardInfo{BlockSize: len(data), Size: int64(len(data))})
			if err == nil {
				err = w.Append(b.Context(), data, storage.Sum{})
			}
			if err == nil {
				err = w.Seal(b.Context())
			}
			if err == nil {
				err = r.disk.RemoveShard(b.Context(), id)
			}
			if err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// TestCachedOpenAllocates nothing but the reader.
func TestCachedOpenAllocates(t *testing.T) {
	r := newRig(t, nil, "")
	if err := writeShard(t, r.disk, shardID(1, 0), 2*blockSize); err != nil {
		t.Fatal(err)
	}
	checkShard(t, r.disk, shardID(1, 0), 2*blockSize)
	bufs := getBufs(t, 2)
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		rd, err := r.disk.OpenShard(ctx, shardID(1, 0))
		if err == nil {
			err = errors.Join(rd.ReadBlocks(ctx, 0, bufs), rd.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}); n > 1 {
		t.Fatalf("%v allocations, want the reader's only", n)
	}
}
