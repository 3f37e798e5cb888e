package quorumlog

import (
	"fmt"
	"sync/atomic"
	"testing"

	"ringfence/erasure/meta"
)

func benchEngine(b *testing.B) *Engine {
	b.Helper()
	w := newWorld(b, 6)
	e, err := New(Options{Disks: w.disks()})
	if err != nil {
		b.Fatal(err)
	}
	if err := e.Recover(b.Context()); err != nil {
		b.Fatal(err)
	}
	return e
}

func BenchmarkCommit(b *testing.B) {
	val := make([]byte, 400)
	for _, conds := range []int{0, 1} {
		b.Run(fmt.Sprintf("conds=%d/callers=1", conds), func(b *testing.B) {
			e := benchEngine(b)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				key := fmt.Appendf(nil, "key%d", i)
				if _, err := e.Commit(b.Context(), meta.Group{}, make([]meta.Cond, conds), []meta.Op{{Key: key, Val: val}}); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("conds=%d/callers=64", conds), func(b *testing.B) {
			e := benchEngine(b)
			b.ReportAllocs()
			b.SetParallelism(32)
			var n atomic.Int64
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					key := fmt.Appendf(nil, "key%d", n.Add(1))
					if _, err := e.Commit(b.Context(), meta.Group{}, make([]meta.Cond, conds), []meta.Op{{Key: key, Val: val}}); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

func BenchmarkGet(b *testing.B) {
	e := benchEngine(b)
	key, val := []byte("key"), make([]byte, 400)
	if _, err := e.Commit(b.Context(), meta.Group{}, nil, []meta.Op{{Key: key, Val: val}}); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := e.Get(b.Context(), key); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkScan(b *testing.B) {
	e := benchEngine(b)
	for i := range 1000 {
		if _, err := e.Commit(b.Context(), meta.Group{}, nil, []meta.Op{{Key: fmt.Appendf(nil, "key%04d", i), Val: make([]byte, 400)}}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		c, err := e.Scan(b.Context(), nil, nil)
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		for c.Next() {
			n += len(c.Item().Val)
		}
		if err := c.Close(); err != nil || n != 400_000 {
			b.Fatal(n, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/key")
}
