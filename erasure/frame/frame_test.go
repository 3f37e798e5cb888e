package frame_test

import (
	"bytes"
	"encoding/hex"
	"testing"

	"ringfence/erasure/frame"
	"ringfence/storage"
)

func pattern(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i*7 + i>>8)
	}
	return p
}

// The sums are on disks: they never change.
func TestSumIsFixed(t *testing.T) {
	uuid := storage.UUID{0: 1, 7: 2, 15: 3}
	for _, tc := range []struct {
		size int
		want string
	}{
		{0, golden0},
		{1, golden1},
		{4096, golden4096},
		{256 << 10, golden256K},
	} {
		sum := frame.Sum(uuid, 9, 4, 77, pattern(tc.size))
		if got := hex.EncodeToString(sum[:]); got != tc.want {
			t.Errorf("sum of %d bytes is %s, want %s", tc.size, got, tc.want)
		}
	}
}

func TestVerifyKnowsThePlace(t *testing.T) {
	data := pattern(4096)
	uuid := storage.UUID{5: 9}
	sum := frame.Sum(uuid, 3, 2, 1, data)
	if !frame.Verify(sum, uuid, 3, 2, 1, data) {
		t.Fatal("an intact block does not verify")
	}
	other := uuid
	other[15] ^= 1
	for name, ok := range map[string]bool{
		"another shard name":   frame.Verify(sum, other, 3, 2, 1, data),
		"another part":         frame.Verify(sum, uuid, 4, 2, 1, data),
		"another index":        frame.Verify(sum, uuid, 3, 3, 1, data),
		"another block number": frame.Verify(sum, uuid, 3, 2, 2, data),
		"a block cut short":    frame.Verify(sum, uuid, 3, 2, 1, data[:4095]),
		"a block grown":        frame.Verify(sum, uuid, 3, 2, 1, append(bytes.Clone(data), 0)),
	} {
		if ok {
			t.Errorf("%s verifies", name)
		}
	}
}

func TestVerifyFindsEveryBitFlip(t *testing.T) {
	data := pattern(512)
	uuid := storage.UUID{1}
	sum := frame.Sum(uuid, 0, 0, 0, data)
	for bit := range len(data) * 8 {
		data[bit/8] ^= 1 << (bit % 8)
		if frame.Verify(sum, uuid, 0, 0, 0, data) {
			t.Fatalf("a flip of bit %d verifies", bit)
		}
		data[bit/8] ^= 1 << (bit % 8)
	}
}

func TestSumAllocatesNothing(t *testing.T) {
	data := pattern(64 << 10)
	var sum storage.Sum
	if n := testing.AllocsPerRun(100, func() { sum = frame.Sum(storage.UUID{1}, 1, 1, 1, data) }); n != 0 {
		t.Errorf("%v allocations per sum, want none", n)
	}
	if sum == (storage.Sum{}) {
		t.Error("sum is zero")
	}
}

func BenchmarkSum(b *testing.B) {
	data := pattern(256 << 10)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		frame.Sum(storage.UUID{1}, 0, 1, 2, data)
	}
}
