package local

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"ringfence/storage"
)

func sampleTrailer(size int64, owner int) *trailer {
	t := &trailer{
		id:   storage.ShardID{UUID: storage.UUID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, Part: 7},
		info: storage.ShardInfo{BlockSize: 8192, Size: size, Owner: bytes.Repeat([]byte{'o'}, owner)},
	}
	for i := range t.info.Blocks() * sumSize {
		t.sums = append(t.sums, byte(i))
	}
	return t
}

// decodeFile is what OpenShard does with the bytes of a whole file.
func decodeFile(data []byte, id storage.ShardID) (*trailer, error) {
	size := int64(len(data))
	if size < storage.BlockAlign || size%storage.BlockAlign != 0 {
		return nil, errors.New("length")
	}
	ft, err := decodeFooter(data[len(data)-footerSize:], size)
	if err != nil {
		return nil, err
	}
	return decodeTrailer(data[ft.off:ft.off+ft.len], ft, id)
}

func encodeFile(t *trailer) []byte {
	return encodeTrailer(make([]byte, dataEnd(t.info)), t)
}

func TestTrailerRoundTrip(t *testing.T) {
	for _, size := range []int64{0, 1, 4095, 4096, 4097, 8192, 8193, 1 << 20, 1<<20 + 5} {
		for _, owner := range []int{0, 1, 100, storage.MaxOwner} {
			want := sampleTrailer(size, owner)
			file := encodeFile(want)
			if len(file)%storage.BlockAlign != 0 {
				t.Fatalf("file of %d bytes", len(file))
			}
			got, err := decodeFile(file, want.id)
			if err != nil {
				t.Fatalf("size %d, owner %d: %v", size, owner, err)
			}
			if got.id != want.id || got.info.Size != size || got.info.BlockSize != 8192 ||
				!bytes.Equal(got.info.Owner, want.info.Owner) || !bytes.Equal(got.sums, want.sums) {
				t.Fatalf("size %d, owner %d: got %+v", size, owner, got)
			}
			for n := range want.info.Blocks() {
				if got.sum(n) != want.sum(n) {
					t.Fatalf("sum %d", n)
				}
			}
		}
	}
}

// TestTrailerDamage: no flip of a bit and no cut of a file goes unnoticed, but
// for the zeros between trailer and footer, which mean nothing.
func TestTrailerDamage(t *testing.T) {
	want := sampleTrailer(3*8192+9, 50)
	file := encodeFile(want)
	start := int(dataEnd(want.info))
	end := start + int(trailerLen(50, 4))
	for i := start; i < len(file); i++ {
		for bit := range 8 {
			file[i] ^= 1 << bit
			_, err := decodeFile(file, want.id)
			if padding := i >= end && i < len(file)-footerSize; err == nil != padding {
				t.Fatalf("bit %d of byte %d: %v", bit, i, err)
			}
			file[i] ^= 1 << bit
		}
	}
	for cut := range len(file) / storage.BlockAlign {
		if _, err := decodeFile(file[:cut*storage.BlockAlign], want.id); err == nil {
			t.Fatalf("cut to %d blocks: no error", cut)
		}
		if _, err := decodeFile(file[(cut+1)*storage.BlockAlign:], want.id); err == nil {
			t.Fatalf("first %d blocks missing: no error", cut+1)
		}
	}
	if _, err := decodeFile(append(file, make([]byte, storage.BlockAlign)...), want.id); err == nil {
		t.Fatal("longer file: no error")
	}
	other := want.id
	other.Part++
	if _, err := decodeFile(file, other); err == nil {
		t.Fatal("renamed file: no error")
	}
}

// FuzzTrailer feeds the decoders what an attacker or a dying disk could: they
// must neither panic nor accept what doesn't encode to the same bytes. The
// checksums are made good, so that the fuzzer gets behind them.
func FuzzTrailer(f *testing.F) {
	for _, size := range []int64{0, 1, 8192, 100_000} {
		f.Add(encodeFile(sampleTrailer(size, 20)))
	}
	f.Add(make([]byte, storage.BlockAlign))
	id := sampleTrailer(0, 0).id
	f.Fuzz(func(t *testing.T, data []byte) {
		data = bytes.Clone(data)
		got, err := decodeFile(data, id)
		if err != nil {
			resign(data)
			if got, err = decodeFile(data, id); err != nil {
				return
			}
		}
		again := encodeFile(got)
		off := dataEnd(got.info)
		if int64(len(data)) != int64(len(again)) {
			t.Fatalf("accepted %d bytes, encodes to %d", len(data), len(again))
		}
		if _, err := decodeFile(again, id); err != nil {
			t.Fatalf("encoded again at %d: %v", off, err)
		}
	})
}

// resign makes the checksums of a file fit what it says, where they have a
// place to be.
func resign(data []byte) {
	if len(data) < footerSize {
		return
	}
	ft := data[len(data)-footerSize:]
	copy(ft, footerMagic[:])
	off, n := leUint64(ft[16:]), leUint64(ft[24:])
	if off <= uint64(len(data)) && n <= uint64(len(data))-off && n >= sumSize {
		body := data[off : off+n]
		sum := hash128(body[:n-sumSize])
		copy(body[n-sumSize:], sum[:])
		copy(ft[32:], sum[:])
	}
	putFooterSum(ft)
}

func TestResignReachesTheChecks(t *testing.T) {
	file := encodeFile(sampleTrailer(8192, 20))
	rng := rand.New(rand.NewPCG(1, 2))
	accepted := 0
	for range 2000 {
		b := bytes.Clone(file)
		b[8192+rng.IntN(64)] ^= 1 << rng.IntN(8)
		resign(b)
		if _, err := decodeFile(b, sampleTrailer(0, 0).id); err == nil {
			accepted++ // unused bytes of the header
		}
	}
	if accepted == 0 || accepted > 1000 {
		t.Fatalf("%d of 2000 accepted", accepted)
	}
}

func FuzzSuperblock(f *testing.F) {
	id := storage.Identity{Deployment: storage.UUID{1}, Set: storage.UUID{2}, Disk: storage.UUID{3}, SetCount: 1, SetSize: 4, Parity: 1}
	good := superblock{Version: 1, Generation: 3, Identity: id}.encode()
	f.Add(good)
	f.Add(good[:100])
	f.Fuzz(func(t *testing.T, data []byte) {
		data = bytes.Clone(data)
		if len(data) == superblockSize {
			sum := hash128(data[:superblockSize-sumSize])
			copy(data[superblockSize-sumSize:], sum[:])
		}
		s, err := decodeSuperblock(data)
		if err != nil {
			return
		}
		if again, err := decodeSuperblock(s.encode()); err != nil || again != s {
			t.Fatalf("%+v became %+v: %v", s, again, err)
		}
	})
}

func TestSuperblockDamage(t *testing.T) {
	id := storage.Identity{Deployment: storage.UUID{1}, Set: storage.UUID{2}, Disk: storage.UUID{3}, SetCount: 1, SetSize: 4, Parity: 1}
	b := superblock{Version: formatVersion, Generation: 1, Identity: id}.encode()
	for i := range b {
		b[i] ^= 0x10
		if _, err := decodeSuperblock(b); err == nil {
			t.Fatalf("byte %d changed: no error", i)
		}
		b[i] ^= 0x10
	}
	newer := superblock{Version: formatVersion + 1, Generation: 1, Identity: id}.encode()
	if _, err := decodeSuperblock(newer); !errors.Is(err, errNewer) {
		t.Fatalf("newer version: %v", err)
	}
}
