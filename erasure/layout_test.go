package erasure

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"testing"

	"ringfence/storage"
)

func TestPlaces(t *testing.T) {
	for disks, want := range []int{0, 0, 1, 1, 2, 2, 2, 2, 4, 4, 4, 4, 4, 4, 4, 4, 4} {
		if got := DefaultParity(disks); got != want {
			t.Errorf("DefaultParity(%d) = %d, want %d", disks, got, want)
		}
		if disks > 0 {
			if err := CheckParity(disks, DefaultParity(disks)); err != nil {
				t.Errorf("the default is refused: %v", err)
			}
		}
	}
	for _, bad := range [][2]int{{0, 0}, {17, 4}, {1, 1}, {2, 2}, {3, 2}, {4, 3}, {16, 9}, {4, -1}} {
		if err := CheckParity(bad[0], bad[1]); err == nil {
			t.Errorf("parity %d of %d disks is accepted", bad[1], bad[0])
		}
	}
	for _, good := range [][2]int{{1, 0}, {2, 1}, {4, 0}, {4, 2}, {16, 8}} {
		if err := CheckParity(good[0], good[1]); err != nil {
			t.Error(err)
		}
	}
}

func TestSplitSets(t *testing.T) {
	for disks, want := range map[int][]int{
		1: {1}, 16: {16}, 17: {9, 8}, 24: {12, 12}, 32: {16, 16}, 33: {11, 11, 11}, 50: {13, 13, 12, 12},
	} {
		if got, err := SplitSets(disks); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("SplitSets(%d) = %v, %v, want %v", disks, got, err, want)
		}
	}
	for disks := 1; disks < 400; disks++ {
		sets, err := SplitSets(disks)
		sum := 0
		for _, n := range sets {
			sum += n
			if n > MaxSetSize || sets[0]-n > 1 {
				t.Fatalf("SplitSets(%d) = %v", disks, sets)
			}
		}
		if err != nil || sum != disks {
			t.Fatalf("SplitSets(%d) = %v, %v", disks, sets, err)
		}
	}
	if _, err := SplitSets(0); err == nil {
		t.Error("no disks make sets")
	}
}

// The stripe maths against a model that cuts bytes one by one.
func TestLayoutMaths(t *testing.T) {
	for k := 1; k <= MaxSetSize; k++ {
		for _, block := range []int{4096, 8192, 65536} {
			l := Layout{K: uint8(k), BlockSize: block}
			full := k * block
			for _, size := range []int{0, 1, k - 1, k, k + 1, block, full - 1, full, full + 1, 2*full - k, 2*full + 7, 3 * full} {
				checkMaths(t, l, int64(size))
			}
		}
	}
}

func checkMaths(t *testing.T, l Layout, size int64) {
	t.Helper()
	var sum, shard int64
	for s := range l.stripes(size) {
		n := l.stripeLen(size, s)
		if n < 1 || n > l.stripeSize() || s < l.stripes(size)-1 && n != l.stripeSize() {
			t.Fatalf("%+v: stripe %d of %d bytes has %d", l, s, size, n)
		}
		b := l.blockLen(n)
		if b*int(l.K) < n || (b-1)*int(l.K) >= n || b > l.BlockSize {
			t.Fatalf("%+v: %d bytes in blocks of %d", l, n, b)
		}
		sum += int64(n)
		shard += int64(b)
		checkSpan(t, l, size, s, n, b)
	}
	if sum != size || l.shardSize(size) != shard {
		t.Fatalf("%+v: %d bytes: stripes hold %d, shards of %d, want %d", l, size, sum, l.shardSize(size), shard)
	}
}

func checkSpan(t *testing.T, l Layout, size, s int64, n, block int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(uint64(size), uint64(s)))
	base := s * int64(l.stripeSize())
	for range 5 {
		from := rng.IntN(n)
		to := from + 1 + rng.IntN(n-from)
		lo, hi, first, last := l.span(size, base+int64(from), base+int64(to), s)
		if lo != from || hi != to || first != from/block || last != (to-1)/block || last >= int(l.K) {
			t.Fatalf("%+v: span of %d..%d in stripe %d of %d bytes: %d %d %d %d", l, from, to, s, size, lo, hi, first, last)
		}
	}
	lo, hi, first, last := l.span(size, 0, size, s)
	if lo != 0 || hi != n || first != 0 || last != (n-1)/block {
		t.Fatalf("%+v: whole span in stripe %d of %d bytes: %d %d %d %d", l, s, size, lo, hi, first, last)
	}
}

func TestBlockSizeFor(t *testing.T) {
	for _, tc := range []struct {
		size int64
		k    int
		want int
	}{
		{0, 4, 4096}, {1, 1, 4096}, {16 << 10, 4, 4096}, {16<<10 + 1, 4, 8192}, {64 << 10, 4, 16 << 10},
		{1 << 20, 4, 256 << 10}, {1 << 40, 4, 256 << 10}, {-1, 4, 256 << 10}, {-1, 1, 256 << 10},
		{-1, 5, 128 << 10}, {-1, 8, 128 << 10}, {-1, 12, 64 << 10}, {-1, 16, 64 << 10}, {1 << 30, 12, 64 << 10},
	} {
		if got := blockSizeFor(tc.size, tc.k); got != tc.want {
			t.Errorf("blockSizeFor(%d, %d) = %d, want %d", tc.size, tc.k, got, tc.want)
		}
	}
	for k := 1; k <= MaxSetSize; k++ {
		for size := int64(-1); size < 3<<20; size = size*5/3 + 2 {
			l := Layout{K: uint8(k), BlockSize: blockSizeFor(size, k), Slots: make([]uint8, k)}
			for i := range l.Slots {
				l.Slots[i] = uint8(i)
			}
			if err := l.check(); err != nil || l.stripeSize() > stripeMax {
				t.Fatalf("%d bytes on %d: %+v, %v", size, k, l, err)
			}
			if size > 0 && size <= int64(min(stripeMax, k*blockMax)/2) && l.stripes(size) != 1 {
				t.Fatalf("%d bytes on %d take %d stripes", size, k, l.stripes(size))
			}
		}
	}
}

func TestChooseLayout(t *testing.T) {
	six := []uint8{0, 1, 2, 3, 4, 5}
	data := map[uint8]int{}
	for i := range 6000 {
		l, ok := chooseLayout(storage.UUID{10: byte(i >> 8), 11: byte(i)}, 1<<20, six, 2)
		if !ok || l.K != 4 || l.M != 2 || l.check() != nil {
			t.Fatalf("layout %+v, %t", l, ok)
		}
		for _, s := range l.Slots[:4] {
			data[s]++
		}
	}
	for s, n := range data {
		if n < 3900 || n > 4100 {
			t.Errorf("disk %d has a data shard of %d in 6000 blobs, want about 4000", s, n)
		}
	}
	for _, tc := range []struct {
		slots  []uint8
		parity int
		k      uint8
	}{
		{six[:5], 2, 3}, {six[2:], 2, 2}, {six[3:], 2, 1}, {six[4:], 2, 0}, {six[:1], 1, 0}, {six[:1], 0, 1}, {nil, 0, 0},
	} {
		l, ok := chooseLayout(storage.UUID{}, -1, tc.slots, tc.parity)
		if ok != (tc.k > 0) || ok && (l.K != tc.k || int(l.M) != tc.parity || l.check() != nil) {
			t.Errorf("layout on %v with parity %d: %+v, %t, want %d data shards", tc.slots, tc.parity, l, ok, tc.k)
		}
	}
	for k := uint8(1); k <= 8; k++ {
		for m := range k + 1 {
			want := int(k) + 1
			if m == 0 {
				want = int(k)
			}
			if got := (Layout{K: k, M: m}).quorum(); got != want {
				t.Errorf("quorum of %d+%d is %d, want %d", k, m, got, want)
			}
		}
	}
}

func TestBlobCheck(t *testing.T) {
	good := blob{Size: 10, Layout: Layout{K: 2, M: 1, BlockSize: 4096, Slots: []uint8{2, 0, 1}}, Missing: []uint8{2}}
	if err := good.check(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*blob){
		"no data shards":     func(b *blob) { b.Layout.K = 0 },
		"too many shards":    func(b *blob) { b.Layout.K = 255 },
		"too few slots":      func(b *blob) { b.Layout.Slots = b.Layout.Slots[:2] },
		"one slot twice":     func(b *blob) { b.Layout.Slots = []uint8{1, 1, 2} },
		"a slot of no set":   func(b *blob) { b.Layout.Slots = []uint8{1, 16, 2} },
		"no block size":      func(b *blob) { b.Layout.BlockSize = 0 },
		"odd block size":     func(b *blob) { b.Layout.BlockSize = 5000 },
		"huge block size":    func(b *blob) { b.Layout.BlockSize = 1 << 30 },
		"negative block":     func(b *blob) { b.Layout.BlockSize = -4096 },
		"negative size":      func(b *blob) { b.Size = -1 },
		"absurd size":        func(b *blob) { b.Size = 1 << 62 },
		"a shard of no blob": func(b *blob) { b.Missing = []uint8{3} },
	} {
		b := good
		spoil(&b)
		if b.check() == nil {
			t.Errorf("a blob with %s is accepted", name)
		}
	}
}

func TestOwner(t *testing.T) {
	p := place{Layout: Layout{K: 4, M: 2, BlockSize: 1 << 18, Slots: []uint8{5, 0, 1, 2, 3, 4}}, Shard: 3, Size: -1}
	b := joinOwner(p, []byte("caller"))
	want := append([]byte{1, 4, 2, 3, 18, 255, 255, 255, 255, 255, 255, 255, 255, 5, 0, 1, 2, 3, 4}, "caller"...)
	if !bytes.Equal(b, want) {
		t.Errorf("owner is %v, want %v", b, want)
	}
	got, rest, err := splitOwner(b)
	if err != nil || !reflect.DeepEqual(got, p) || string(rest) != "caller" {
		t.Errorf("decoded %+v, %q, %v", got, rest, err)
	}
}

func FuzzSplitOwner(f *testing.F) {
	f.Add(joinOwner(place{Layout: Layout{K: 1, BlockSize: 4096, Slots: []uint8{0}}, Size: 5}, []byte("x")))
	f.Add([]byte{1, 255, 255, 0, 63})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, rest, err := splitOwner(b)
		if err == nil && !bytes.Equal(joinOwner(p, rest), b) {
			t.Errorf("%x decodes to %+v and back to something else", b, p)
		}
	})
}
