package checksum

import (
	"bytes"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/crc64"
	"math/rand/v2"
	"strings"
	"testing"
)

// catalogue are the check values of "123456789", published with the algorithms.
var catalogue = map[Algorithm]string{
	CRC32:     "cbf43926",
	CRC32C:    "e3069283",
	CRC64NVME: "ae8b14860a799888",
	SHA1:      "f7c3bc1d808e04732adf679965ccc34ca7ae3441",
	SHA256:    "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225",
	MD5:       "25f9e794323b453885f5181f1b624d0b",
}

func TestCatalogue(t *testing.T) {
	if len(catalogue) != int(algorithms)-1 {
		t.Fatalf("%d of %d algorithms", len(catalogue), algorithms-1)
	}
	for a, want := range catalogue {
		h := a.New()
		h.Write([]byte("123456789"))
		if got := hex.EncodeToString(h.Sum(nil)); got != want {
			t.Errorf("%s: %s, want %s", a, got, want)
		}
		if h.Size() != a.Size() {
			t.Errorf("%s: size %d, says %d", a, h.Size(), a.Size())
		}
	}
}

func TestNames(t *testing.T) {
	for a := CRC32; a < MD5; a++ {
		for _, name := range []string{a.String(), strings.ToLower(a.String())} {
			if got, ok := Parse(name); !ok || got != a {
				t.Errorf("%s: %v %v", name, got, ok)
			}
			if got, ok := ParseHeader("X-Amz-Checksum-" + name); !ok || got != a {
				t.Errorf("%s: %v %v", name, got, ok)
			}
		}
		if a.Header() != "x-amz-checksum-"+strings.ToLower(a.String()) {
			t.Errorf("%s: %s", a, a.Header())
		}
	}
	for _, name := range []string{"", "MD5", "SHA", "SHA256A", "CRC", "x-amz-checksum-", "x-amz-checksum-sha256a", "x-amz-checksum-algorithm", "x-amz-checksum-type", "crc32 "} {
		if a, ok := Parse(name); ok {
			t.Errorf("%q is %s", name, a)
		}
		if a, ok := ParseHeader(name); ok {
			t.Errorf("%q is %s", name, a)
		}
	}
	for _, a := range []Algorithm{None, algorithms, 255} {
		if a.String() != "" || a.Header() != "" || a.Size() != 0 || a.New() != nil || a.FullObject() || a.Composite() {
			t.Errorf("%d is something", a)
		}
	}
}

func TestKinds(t *testing.T) {
	for a, want := range map[Algorithm][3]bool{ // full object, composite, composite by default
		CRC32: {true, true, true}, CRC32C: {true, true, true}, CRC64NVME: {true, false, false}, SHA1: {false, true, true}, SHA256: {false, true, true},
	} {
		if got := [3]bool{a.FullObject(), a.Composite(), a.DefaultComposite()}; got != want {
			t.Errorf("%s: %v", a, got)
		}
		_, combines := Combine(a, []Part{{Sum: make([]byte, a.Size())}})
		if combines != a.FullObject() {
			t.Errorf("%s: combines %v", a, combines)
		}
	}
}

func TestDecode(t *testing.T) {
	for a := CRC32; a < algorithms; a++ {
		h := a.New()
		h.Write([]byte("x"))
		raw := h.Sum(nil)
		text := Encode(raw)
		if got, err := a.Decode(text); err != nil || !bytes.Equal(got, raw) {
			t.Errorf("%s: %v", a, err)
		}
		for _, bad := range []string{"", "=", text + "=", text[1:], strings.TrimRight(text, "="), " " + text[1:], text[:2] + "\n" + text[2:],
			text[:4] + "\r\n" + text[6:], strings.Repeat("!", len(text)), strings.Repeat("A", len(text)), Encode(append(raw, 0)), Encode(raw[1:]), "dummy"} {
			if got, err := a.Decode(bad); err == nil {
				t.Errorf("%s: %q is %x", a, bad, got)
			}
		}
	}
	if _, err := CRC32.Decode("AAAAAB=="); err == nil {
		t.Error("padding bits are ignored: two texts for one value")
	}
	if raw, err := CRC32.Decode("AAAAAA=="); err != nil || !bytes.Equal(raw, make([]byte, 4)) { // that of nothing
		t.Errorf("%x %v", raw, err)
	}
	if _, err := None.Decode(""); err == nil {
		t.Error("None has a value")
	}
}

func TestHasher(t *testing.T) {
	h := NewHasher(SHA256, CRC32, SHA256, MD5, None, CRC64NVME)
	for range 2 {
		data := bytes.Repeat([]byte("0123456789"), 1000)
		for rest := data; len(rest) > 0; {
			n := min(len(rest), 777)
			if got, err := h.Write(rest[:n]); got != n || err != nil {
				t.Fatal(got, err)
			}
			rest = rest[n:]
		}
		if h.Size() != int64(len(data)) {
			t.Errorf("size %d", h.Size())
		}
		for _, a := range []Algorithm{MD5, CRC64NVME, SHA256, CRC32} {
			want := a.New()
			want.Write(data)
			for range 2 { // Sum changes nothing
				if got := h.Sum(a); !bytes.Equal(got, want.Sum(nil)) {
					t.Errorf("%s: %x", a, got)
				}
			}
		}
		if h.Sum(SHA1) != nil || h.Sum(None) != nil || h.Sum(200) != nil {
			t.Error("a sum that nobody asked for")
		}
		h.Reset()
	}
	block := make([]byte, 100)
	if n := testing.AllocsPerRun(100, func() { h.Write(block) }); n > 0 {
		t.Errorf("%v allocations per write", n)
	}
}

// TestCombine compares with the checksum of the bytes.
func TestCombine(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, a := range []Algorithm{CRC32, CRC32C, CRC64NVME} {
		for range 200 {
			whole := a.New()
			var parts []Part
			for range 1 + random.IntN(6) {
				data := make([]byte, random.IntN(3)*random.IntN(5000))
				for i := range data {
					data[i] = byte(random.Uint32())
				}
				whole.Write(data)
				h := a.New()
				h.Write(data)
				parts = append(parts, Part{Sum: h.Sum(nil), Size: int64(len(data))})
			}
			got, ok := Combine(a, parts)
			if !ok || !bytes.Equal(got, whole.Sum(nil)) {
				t.Fatalf("%s of %d parts: %x, want %x", a, len(parts), got, whole.Sum(nil))
			}
		}
		// Sizes that no test can hash: (A‖B)‖C is A‖(B‖C).
		const size = 5 << 30
		p := func(x byte) Part { return Part{Sum: bytes.Repeat([]byte{x}, a.Size()), Size: size + int64(x)} }
		left, _ := Combine(a, []Part{p(1), p(2)})
		left, _ = Combine(a, []Part{{left, 2*size + 3}, p(3)})
		right, _ := Combine(a, []Part{p(2), p(3)})
		right, _ = Combine(a, []Part{p(1), {right, 2*size + 5}})
		if all, ok := Combine(a, []Part{p(1), p(2), p(3)}); !ok || !bytes.Equal(left, right) || !bytes.Equal(all, left) {
			t.Errorf("%s: %x %x %x", a, left, right, all)
		}
		for _, bad := range [][]Part{nil, {{Sum: nil, Size: 1}}, {p(1), {Sum: make([]byte, a.Size()), Size: -1}}, {p(1), {Sum: make([]byte, a.Size()), Size: 1<<60 + 1}}, {p(1), {Sum: make([]byte, 3), Size: 1}}} {
			if got, ok := Combine(a, bad); ok {
				t.Errorf("%s of %v: %x", a, bad, got)
			}
		}
	}
	// An independent implementation of the 64-bit polynomial.
	data := []byte("the quick brown fox")
	want := crc64.Checksum(data, crc64.MakeTable(0x9a6c9329ac4bc9b5))
	h := CRC64NVME.New()
	h.Write(data)
	if got := fmt.Sprintf("%x", h.Sum(nil)); got != fmt.Sprintf("%016x", want) {
		t.Errorf("%s, want %016x", got, want)
	}
}

func TestComposite(t *testing.T) {
	one, two := sha256.Sum256([]byte("one")), sha256.Sum256([]byte("two"))
	want := sha256.Sum256(append(one[:], two[:]...))
	if got := Composite(SHA256, [][]byte{one[:], two[:]}); !bytes.Equal(got, want[:]) {
		t.Errorf("%x", got)
	}
	m1, m2 := md5.Sum([]byte("one")), md5.Sum([]byte("two"))
	etag := md5.Sum(append(m1[:], m2[:]...))
	if got := Composite(MD5, [][]byte{m1[:], m2[:]}); !bytes.Equal(got, etag[:]) {
		t.Errorf("%x", got)
	}
	empty := sha1.Sum(nil)
	if got := Composite(SHA1, nil); !bytes.Equal(got, empty[:]) {
		t.Errorf("%x", got)
	}
	if Composite(None, nil) != nil {
		t.Error("None has a composite")
	}
}

func BenchmarkHasher(b *testing.B) {
	data := make([]byte, 256<<10)
	for _, extra := range [][]Algorithm{nil, {CRC32}, {SHA256}} {
		b.Run(fmt.Sprintf("extra=%v", extra), func(b *testing.B) {
			h := NewHasher(extra...)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				h.Write(data)
			}
		})
	}
}

func BenchmarkCombine(b *testing.B) {
	parts := make([]Part, 10000)
	for i := range parts {
		parts[i] = Part{Sum: []byte{1, 2, 3, 4, 5, 6, 7, byte(i)}, Size: 8 << 20}
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := Combine(CRC64NVME, parts); !ok {
			b.Fatal("refused")
		}
	}
}
