package ring

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestAllocations: a turn of a driver costs the collector nothing.
func TestAllocations(t *testing.T) {
	r := need(t, realKernel(), Options{Entries: 8})
	fd, mem := openFile(t, testFile(t, pattern(4096)), 0), mapped(t, 4096)
	if n := testing.AllocsPerRun(100, func() {
		batch(t, r, readAt(fd, mem, 0, 1), 1)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// batch submits an entry n times at once, and waits for all.
func batch(t testing.TB, r Ring, e SQE, n int) {
	for range n {
		if !r.Push(e) {
			t.Fatal("the queue is full")
		}
	}
	for done := 0; done < n; {
		if c, ok := r.Next(); !ok {
			if err := r.Enter(1, time.Second); err != nil && err != unix.EINTR {
				t.Fatal(err)
			}
		} else if done++; c.Res != int32(e.Len) {
			t.Fatalf("%d of %d bytes", c.Res, e.Len)
		}
	}
}

// BenchmarkRead reads a cached block, depth times at once, on each kind of
// ring.
func BenchmarkRead(b *testing.B) {
	for i, rung := range ladder {
		for _, depth := range []int{1, 32} {
			b.Run(fmt.Sprintf("setup=%s-%d/depth=%d", SetupName(rung), i, depth), func(b *testing.B) {
				r := need(b, only(rung), Options{Entries: 32})
				fd, mem := openFile(b, testFile(b, pattern(4096)), 0), mapped(b, 4096)
				b.SetBytes(4096)
				b.ReportAllocs()
				for done := 0; done < b.N; done += depth {
					batch(b, r, readAt(fd, mem, 0, 1), depth)
				}
			})
		}
	}
}
