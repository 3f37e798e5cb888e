package uring

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// TestReadsAreWhatTheFileHolds compares ranges of all kinds with the file.
func TestReadsAreWhatTheFileHolds(t *testing.T) {
	data := content(1<<20 + 13)
	f := openFile(t, writeFile(t, data), 0)
	pool := newPool(t, 64<<20)
	for _, shards := range []int{0, 1, 4} {
		d := start(t, Options{Shards: shards, Pool: pool})
		rng := rand.New(rand.NewPCG(1, 2))
		for range 64 {
			off, n := rng.IntN(len(data)+8192), rng.IntN(128<<10)
			b := getBuf(t, pool, n)
			got, err := d.ReadAt(t.Context(), f, b, int64(off))
			if err != nil {
				t.Fatal(err)
			}
			want := data[min(off, len(data)):min(off+n, len(data))]
			if !bytes.Equal(b.Bytes()[:got], want) {
				t.Fatalf("%d bytes at %d: got %d, want %d, or other bytes", n, off, got, len(want))
			}
			b.Release()
		}
		s := d.Stats()
		conserved(t, s)
		if total := s.Total(); total.Delivered != 64 || total.Orphans != 0 {
			t.Errorf("%d shards: %+v", shards, total)
		}
	}
	if pool.InUse() != 0 {
		t.Errorf("%d bytes of buffers are still in use", pool.InUse())
	}
}
