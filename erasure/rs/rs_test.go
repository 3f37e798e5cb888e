package rs_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"math/bits"
	"math/rand/v2"
	"testing"

	"ringfence/erasure/rs"
)

func stripe(t *testing.T, c *rs.Codec, k, m, size int) [][]byte {
	t.Helper()
	rng := rand.NewChaCha8([32]byte{byte(k), byte(m)})
	blocks := make([][]byte, k+m)
	for i := range blocks {
		blocks[i] = make([]byte, size)
		if i < k {
			_, _ = rng.Read(blocks[i])
		}
	}
	if err := c.Encode(blocks); err != nil {
		t.Fatal(err)
	}
	return blocks
}

// Every shape loses every set of up to M blocks and gets back what was wanted.
func TestReconstructEveryLoss(t *testing.T) {
	for k := 1; k <= 8; k++ {
		for m := 0; m <= 4 && k+m <= 10; m++ {
			t.Run(fmt.Sprintf("%d+%d", k, m), func(t *testing.T) { testLosses(t, k, m, 100) })
		}
	}
	t.Run("12+4", func(t *testing.T) { testLosses(t, 12, 4, 65) })
	t.Run("8+8", func(t *testing.T) { testLosses(t, 8, 8, 1) })
}

func testLosses(t *testing.T, k, m, size int) {
	c, err := rs.New(k, m)
	if err != nil {
		t.Fatal(err)
	}
	whole := stripe(t, c, k, m, size)
	n := k + m
	for lost := range uint(1) << n {
		if bits.OnesCount(lost) > m || n > 12 && lost%37 != 0 {
			continue
		}
		blocks, want := make([][]byte, n), make([]bool, n)
		for i := range n {
			blocks[i] = whole[i]
			if lost>>i&1 == 1 {
				blocks[i] = make([]byte, 0, size)
				want[i] = i%2 == 0 // only some are wanted
			}
		}
		if err := c.Reconstruct(blocks, want); err != nil {
			t.Fatalf("lost %b: %v", lost, err)
		}
		for i := range n {
			if lost>>i&1 == 1 && want[i] && !bytes.Equal(blocks[i], whole[i]) {
				t.Fatalf("lost %b: block %d differs", lost, i)
			}
			if lost>>i&1 == 1 && !want[i] && len(blocks[i]) != 0 {
				t.Fatalf("lost %b: block %d was not wanted", lost, i)
			}
		}
	}
}

func TestReconstructInPlace(t *testing.T) {
	c, err := rs.New(4, 2)
	if err != nil {
		t.Fatal(err)
	}
	blocks := stripe(t, c, 4, 2, 4096)
	mem := make([]byte, 4096)
	want := bytes.Clone(blocks[1])
	blocks[1] = mem[:0]
	if err := c.Reconstruct(blocks, []bool{1: true, 5: false}); err != nil {
		t.Fatal(err)
	}
	if &blocks[1][0] != &mem[0] || !bytes.Equal(mem, want) {
		t.Error("the wanted block was not filled in its own memory")
	}
}

func TestRefusals(t *testing.T) {
	for _, s := range [][2]int{{0, 0}, {0, 2}, {-1, 2}, {1, -1}, {16, 1}, {13, 4}} {
		if _, err := rs.New(s[0], s[1]); err == nil {
			t.Errorf("New(%d, %d) succeeds", s[0], s[1])
		}
	}
	c, err := rs.New(2, 1)
	if err != nil {
		t.Fatal(err)
	}
	eight := make([]byte, 8)
	if err := c.Encode([][]byte{eight, eight[:7], eight}); err == nil {
		t.Error("blocks of unequal length encode")
	}
	if err := c.Encode([][]byte{eight, eight}); err == nil {
		t.Error("two of three blocks encode")
	}
	want := []bool{true, false, false}
	if err := c.Reconstruct([][]byte{make([]byte, 0, 8), eight, nil}, want); !errors.Is(err, rs.ErrTooFew) {
		t.Errorf("reconstruct from one of two: %v, want ErrTooFew", err)
	}
	if err := c.Reconstruct([][]byte{nil, eight, eight}, want); err == nil {
		t.Error("reconstruct into no memory succeeds")
	}
	if err := c.Reconstruct([][]byte{make([]byte, 0, 8), eight, eight[:7]}, want); err == nil {
		t.Error("reconstruct from unequal blocks succeeds")
	}
	none, err := rs.New(3, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := none.Reconstruct([][]byte{make([]byte, 0, 8), eight, eight}, want); !errors.Is(err, rs.ErrTooFew) {
		t.Errorf("reconstruct without parity: %v, want ErrTooFew", err)
	}
}

// Parity is on disks: the matrix never changes.
func TestParityIsFixed(t *testing.T) {
	var all []byte
	for k := 1; k < rs.MaxShards; k++ {
		for m := 1; k+m <= rs.MaxShards; m++ {
			c, err := rs.New(k, m)
			if err != nil {
				t.Fatal(err)
			}
			blocks := make([][]byte, k+m)
			for i := range blocks {
				blocks[i] = make([]byte, 300)
				for j := range blocks[i] {
					blocks[i][j] = byte(i*31 + j*j)
				}
			}
			if err := c.Encode(blocks); err != nil {
				t.Fatal(err)
			}
			for _, p := range blocks[k:] {
				all = append(all, p...)
			}
			if k == 4 && m == 2 {
				if got := hex.EncodeToString(blocks[5][:16]); got != goldenParity42 {
					t.Errorf("parity of 4+2 begins with %s, want %s", got, goldenParity42)
				}
			}
		}
	}
	if got := crc32.ChecksumIEEE(all); got != goldenParity {
		t.Errorf("CRC-32 over the parity of all shapes is %#x, want %#x", got, goldenParity)
	}
}

func TestCache(t *testing.T) {
	var cache rs.Cache
	a, err := cache.Get(4, 2)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := cache.Get(4, 2); err != nil || a != b {
		t.Errorf("second Get: %p, %v, want %p", b, err, a)
	}
	if _, err := cache.Get(0, 2); err == nil {
		t.Error("a code without data blocks is cached")
	}
}

func TestEncodeAllocatesNothing(t *testing.T) {
	c, err := rs.New(4, 2)
	if err != nil {
		t.Fatal(err)
	}
	blocks := stripe(t, c, 4, 2, 64<<10)
	n := testing.AllocsPerRun(20, func() {
		if err := c.Encode(blocks); err != nil {
			t.Fatal(err)
		}
	})
	if n > 1 { // the library's matrix scratch, unless it comes from its pool
		t.Errorf("%v allocations per stripe", n)
	}
}

func BenchmarkEncode(b *testing.B) {
	c, err := rs.New(4, 2)
	if err != nil {
		b.Fatal(err)
	}
	blocks := make([][]byte, 6)
	for i := range blocks {
		blocks[i] = make([]byte, 256<<10)
	}
	b.SetBytes(4 * 256 << 10)
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Encode(blocks); err != nil {
			b.Fatal(err)
		}
	}
}
