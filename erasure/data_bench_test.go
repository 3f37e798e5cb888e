package erasure

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"ringfence/storage"
	"ringfence/storage/local"
	"ringfence/storage/std"
)

// localDisks formats and opens n disks on directories.
func localDisks(tb testing.TB, n, parity int) (disks []storage.Disk, roots []string) {
	tb.Helper()
	return localDisksOn(tb, n, parity, func(_ string, b storage.Backend) storage.Backend { return b })
}

// localDisksOn does so with the backends that on makes of the reference.
func localDisksOn(tb testing.TB, n, parity int, on func(root string, b storage.Backend) storage.Backend) (disks []storage.Disk, roots []string) {
	tb.Helper()
	for i := range n {
		root := tb.TempDir()
		roots = append(roots, root)
		backend, err := std.New(std.Options{Root: root})
		if err != nil {
			tb.Fatal(err)
		}
		opts := local.Options{Root: root, Backend: on(root, backend)}
		id := storage.Identity{Deployment: storage.UUID{1}, Set: storage.UUID{2}, Disk: storage.UUID{3, byte(i)}, SetCount: 1, Slot: uint8(i), SetSize: uint8(n), Parity: uint8(parity)}
		if err := local.Format(tb.Context(), opts, id); err != nil {
			tb.Fatal(err)
		}
		disk, err := local.Open(tb.Context(), opts)
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() {
			if err := disk.Close(); err != nil {
				tb.Error(err)
			}
		})
		disks = append(disks, disk)
	}
	return disks, roots
}

func benchSizes(b *testing.B, f func(b *testing.B, rig *dataRig, body []byte)) {
	for _, size := range []int{64 << 10, 1 << 20, 10 << 20} {
		b.Run(fmt.Sprintf("size=%dKiB", size>>10), func(b *testing.B) {
			disks, _ := localDisks(b, 6, 2)
			rig := newDataRig(b, 6, 2, func(o *dataOptions) { o.Disks = disks })
			f(b, rig, randomBytes(size, 1))
		})
	}
}

func BenchmarkRead(b *testing.B) {
	benchSizes(b, func(b *testing.B, rig *dataRig, body []byte) {
		stored := rig.store(body)
		b.SetBytes(int64(len(body)))
		b.ReportAllocs()
		for b.Loop() {
			r, err := rig.open(b.Context(), stored)
			if err != nil {
				b.Fatal(err)
			}
			if err := r.prefetch(b.Context(), 0, stored.Size); err != nil {
				b.Fatal(err)
			}
			if _, err := r.writeTo(b.Context(), io.Discard, 0, stored.Size); err != nil {
				b.Fatal(err)
			}
			r.close()
		}
	})
}

func BenchmarkWrite(b *testing.B) {
	benchSizes(b, func(b *testing.B, rig *dataRig, body []byte) {
		b.SetBytes(int64(len(body)))
		b.ReportAllocs()
		for b.Loop() {
			in := rig.input(nil)
			rig.opts.Env.Rand(in.UUID[:])
			in.Body, in.Size = bytes.NewReader(body), int64(len(body))
			stored := rig.storeAs(in)
			b.StopTimer()
			if err := rig.remove(b.Context(), stored); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	})
}

// A healthy read allocates for the request, not for the stripe.
func TestReadAllocations(t *testing.T) {
	if testing.Short() {
		t.Skip("formats disks")
	}
	disks, _ := localDisks(t, 6, 2)
	rig := newDataRig(t, 6, 2, func(o *dataOptions) { o.Disks = disks })
	allocs := func(stripes int) float64 {
		stored := rig.store(randomBytes(stripes<<20, uint64(stripes)))
		return testing.AllocsPerRun(10, func() {
			r, err := rig.open(t.Context(), stored)
			if err != nil {
				t.Fatal(err)
			}
			defer r.close()
			if _, err := r.writeTo(t.Context(), io.Discard, 0, stored.Size); err != nil {
				t.Fatal(err)
			}
		})
	}
	// A busy machine evicts pages and makes reads late: the best of a few runs
	// is what the path itself needs.
	few, many := allocs(4), allocs(24)
	for range 5 {
		few, many = min(few, allocs(4)), min(many, allocs(24))
		if many-few < 10 {
			break
		}
	}
	t.Logf("4 stripes: %v allocations, 24 stripes: %v", few, many)
	if per := (many - few) / 20; per > 0.5 {
		t.Errorf("%.2f allocations per stripe, want none", per)
	}
	if few > 100 {
		t.Errorf("%v allocations per read", few)
	}
}

// BenchmarkReadParallel is many clients at once: what a request costs when no
// core is idle.
func BenchmarkReadParallel(b *testing.B) {
	benchSizes(b, func(b *testing.B, rig *dataRig, body []byte) {
		stored := rig.store(body)
		b.SetBytes(int64(len(body)))
		b.SetParallelism(8)
		b.ResetTimer()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				r, err := rig.open(b.Context(), stored)
				if err != nil {
					b.Error(err)
					return
				}
				if _, err := r.writeTo(b.Context(), io.Discard, 0, stored.Size); err != nil {
					b.Error(err)
				}
				r.close()
			}
		})
		b.ReportMetric(float64(rig.count.Hedged.Load())/float64(b.N), "hedges/op")
	})
}
