package uring

import (
	"fmt"
	"sync/atomic"
	"testing"
)

// BenchmarkRead reads what the page cache holds: what the driver itself costs.
func BenchmarkRead(b *testing.B) {
	const fileBytes = 16 << 20
	f := openFile(b, writeFile(b, content(fileBytes)), 0)
	for _, size := range []int{4 << 10, 128 << 10, 1 << 20} {
		for _, callers := range []int{1, 32} {
			b.Run(fmt.Sprintf("size=%dKiB/callers=%d", size>>10, callers), func(b *testing.B) {
				pool := newPool(b, 256<<20)
				d := start(b, Options{Pool: pool})
				b.SetBytes(int64(size))
				b.ReportAllocs()
				b.SetParallelism(callers)
				var at atomic.Int64
				read := func() {
					buf := getBuf(b, pool, size)
					defer buf.Release()
					off := at.Add(int64(size)) % (fileBytes - int64(size))
					if _, err := d.ReadAt(b.Context(), f, buf, off); err != nil {
						b.Error(err)
					}
				}
				if callers == 1 {
					for b.Loop() {
						read()
					}
					return
				}
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						read()
					}
				})
			})
		}
	}
}
