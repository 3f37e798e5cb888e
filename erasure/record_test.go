package erasure

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"pgregory.net/rapid"

	"ringfence/erasure/meta"
	"ringfence/storage"
)

var update = flag.Bool("update", false, "rewrite the golden files of records")

var goldenBlob = blob{
	UUID: storage.UUID{0, 0, 0, 7, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, Part: 3, Size: 1 << 20,
	Layout: Layout{K: 4, M: 2, BlockSize: 256 << 10, Slots: []uint8{2, 3, 4, 5, 0, 1}}, Missing: []uint8{4},
}

var goldenMeta = Meta{
	Headers: map[string]string{"content-type": "text/plain", "cache-control": "no-cache"},
	User:    map[string]string{"b": "2", "a": "1", "empty": ""},
	Tags:    map[string]string{"tag": "t"},
}

var goldenDigest = Digest{ETag: "0123456789abcdef0123456789abcdef-2", Checksums: []Checksum{
	{Algorithm: "CRC64NVME", Value: []byte{1, 2, 3, 4, 5, 6, 7, 8}},
	{Algorithm: "SHA256", Composite: true, Value: bytes.Repeat([]byte{9}, 32), Parts: 2},
}}

// goldens are one record of each kind. Their bytes never change: a store
// written years ago must be read.
func goldens() map[string][]byte {
	upload := storage.UUID{0xaa, 1}
	object := record{Key: "a/\x00key\xff", Size: 1 << 20, ModTime: 1_700_000_000_123, Digest: goldenDigest, Meta: goldenMeta, Run: run{Blob: &goldenBlob}}
	inline := record{Key: "small", VersionID: "v1", Size: 5, ModTime: 1, Digest: goldenDigest, Run: run{Inline: storage.UUID{0xbb}}}
	parts := []PartInfo{{Number: 1, Size: 5 << 20}, {Number: 2, Size: 5 << 20}, {Number: 4, Size: 7}}
	manifest := newManifest(upload, parts)
	multi := record{Key: "multi", Size: manifest.size(), ModTime: -1, Manifest: manifest}
	up := uploadRecord{Key: "multi", Initiated: 77, Meta: goldenMeta, Algorithm: "CRC32", Composite: true}
	part := partRecord{Number: 3, Size: 1 << 20, ModTime: 8, Digest: goldenDigest, Run: run{Blob: &goldenBlob}}
	done := doneRecord{Bucket: storage.UUID{0xcc}, Upload: &up, Object: &multi}
	garbage := garbageRecord{Kind: garbageBlobs, Blobs: []blob{goldenBlob}, Tries: 2}
	again := garbageRecord{Kind: garbageAgain, Blobs: []blob{goldenBlob}, Epoch: 5}
	unlisted := garbageRecord{Kind: garbageUpload, Upload: upload, Keep: keepParts([]uint16{1, 9, 10000})}
	owner := home{Bucket: storage.UUID{0xcc}, Key: "multi", Upload: upload, Part: 3}
	unhealed := owner
	unhealed.Blob = &goldenBlob
	shard := owner
	shard.Metadata = storage.UUID{0xdd}
	id := metadataRecord{ID: storage.UUID{0xdd}}
	bucket := bucketRecord{ID: storage.UUID{0xcc}, Created: 99, Region: "eu-test-1", State: bucketDeleting}
	return map[string][]byte{
		"object": object.encode(), "inline": inline.encode(), "multipart": multi.encode(),
		"marker": (&record{Key: "gone", VersionID: "v2", DeleteMarker: true}).encode(),
		"upload": up.encode(), "part": part.encode(), "done": done.encode(), "detached": manifest.encodeDetached(),
		"garbage": garbage.encode(), "unlisted": unlisted.encode(), "owner": owner.encode(), "unhealed": unhealed.encode(),
		"bucket": bucket.encode(), "shard": shard.encode(), "metadata": id.encode(), "again": again.encode(),
	}
}

func TestGoldenRecords(t *testing.T) {
	for name, b := range goldens() {
		path := filepath.Join("testdata", "records", name+".hex")
		if *update {
			if err := os.WriteFile(path, []byte(hex.EncodeToString(b)+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := hex.EncodeToString(b); got != strings.TrimSpace(string(want)) {
			t.Errorf("%s: the format changed:\n got %s\nwant %s", name, got, want)
		}
		if err := recode(name, b); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// recode decodes a record of a kind and encodes it again; the bytes must be the
// same.
func recode(kind string, b []byte) error {
	var again []byte
	switch kind {
	case "object", "inline", "multipart", "marker":
		r, err := decodeRecord(b)
		if err != nil {
			return err
		}
		again = r.encode()
	case "upload":
		r, err := decodeUpload(b)
		if err != nil {
			return err
		}
		again = r.encode()
	case "part":
		r, err := decodePart(b)
		if err != nil {
			return err
		}
		again = r.encode()
	case "done":
		r, err := decodeDone(b)
		if err != nil || r == nil {
			return fmt.Errorf("done: %v, %w", r, err)
		}
		again = r.encode()
	case "detached":
		m := &manifest{Count: 3}
		if err := m.decodeDetached(b); err != nil {
			return err
		}
		again = m.encodeDetached()
	case "garbage", "unlisted", "again":
		r, err := decodeGarbage(b)
		if err != nil {
			return err
		}
		again = r.encode()
	case "metadata":
		r, err := decodeMetadata(b)
		if err != nil {
			return err
		}
		again = r.encode()
	case "owner", "unhealed", "shard":
		r, err := decodeHome(b)
		if err != nil {
			return err
		}
		again = r.encode()
	case "bucket":
		r, err := decodeBucket(b)
		if err != nil {
			return err
		}
		again = r.encode()
	}
	if !bytes.Equal(again, b) {
		return fmt.Errorf("encoded again it is %x", again)
	}
	return nil
}

func TestRecordRoundTrip(t *testing.T) {
	want := record{Key: "k", VersionID: "v", Size: 1 << 20, ModTime: 5, Digest: goldenDigest, Meta: goldenMeta, Run: run{Blob: &goldenBlob}}
	got, err := decodeRecord(want.encode())
	if err != nil || !reflect.DeepEqual(*got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
}

// Fields of a newer program survive a rewrite; a newer format is refused.
func TestRecordsOfTheFuture(t *testing.T) {
	r := record{Key: "k", Size: 1 << 20, Run: run{Blob: &goldenBlob}}
	b := protowire.AppendBytes(protowire.AppendTag(r.encode(), 17, protowire.BytesType), []byte("envelope"))
	b = protowire.AppendVarint(protowire.AppendTag(b, 900, protowire.VarintType), 42)
	b = protowire.AppendFixed64(protowire.AppendTag(b, 901, protowire.Fixed64Type), 43)
	got, err := decodeRecord(b)
	if err != nil || !bytes.Equal(got.encode(), b) {
		t.Errorf("unknown fields are lost: %v", err)
	}
	newer := (&encoder{})
	newer.uint(fieldFormat, recordFormat+1)
	for name, decode := range decoders {
		if err := decode(newer.b); !errors.Is(err, errRecordNewer) {
			t.Errorf("%s of a newer format: %v", name, err)
		}
	}
}

var decoders = map[string]func([]byte) error{
	"object":  func(b []byte) error { _, err := decodeRecord(b); return err },
	"upload":  func(b []byte) error { _, err := decodeUpload(b); return err },
	"part":    func(b []byte) error { _, err := decodePart(b); return err },
	"done":    func(b []byte) error { _, err := decodeDone(b); return err },
	"garbage": func(b []byte) error { _, err := decodeGarbage(b); return err },
	"home":    func(b []byte) error { _, err := decodeHome(b); return err },
	"bucket":  func(b []byte) error { _, err := decodeBucket(b); return err },
	"id":      func(b []byte) error { _, err := decodeMetadata(b); return err },
	"listed":  func(b []byte) error { _, err := decodeListed("k", b, "b", nil); return err },
}

// Contradictions are refused by the decoder, so that no reader has to think of
// them.
func TestImpossibleRecords(t *testing.T) {
	bad := func(change func(b *blob)) *blob {
		b := goldenBlob
		b.Layout.Slots = append([]uint8(nil), b.Layout.Slots...)
		change(&b)
		return &b
	}
	m := newManifest(storage.UUID{1}, []PartInfo{{Number: 1, Size: 5}})
	for name, r := range map[string]record{
		"size without bytes":  {Size: 1},
		"two places":          {Size: 1 << 20, Run: run{Blob: &goldenBlob, Inline: storage.UUID{1}}},
		"manifest and run":    {Size: 5, Manifest: m, Run: run{Inline: storage.UUID{1}}},
		"manifest of another": {Size: 6, Manifest: m},
		"large inline":        {Size: MaxInlineSize + 1, Run: run{Inline: storage.UUID{1}}},
		"blob of another":     {Size: 5, Run: run{Blob: &goldenBlob}},
		"slot out of range":   {Size: 1 << 20, Run: run{Blob: bad(func(b *blob) { b.Layout.Slots[0] = 16 })}},
		"slot twice":          {Size: 1 << 20, Run: run{Blob: bad(func(b *blob) { b.Layout.Slots[0] = b.Layout.Slots[1] })}},
		"shards and slots":    {Size: 1 << 20, Run: run{Blob: bad(func(b *blob) { b.Layout.K = 3 })}},
		"odd block size":      {Size: 1 << 20, Run: run{Blob: bad(func(b *blob) { b.Layout.BlockSize = 5000 })}},
		"too much missing":    {Size: 1 << 20, Run: run{Blob: bad(func(b *blob) { b.Missing = []uint8{0, 1, 2} })}},
		"missing shard 6":     {Size: 1 << 20, Run: run{Blob: bad(func(b *blob) { b.Missing = []uint8{6} })}},
		"no name":             {Size: 1 << 20, Run: run{Blob: bad(func(b *blob) { b.UUID = storage.UUID{} })}},
	} {
		if _, err := decodeRecord(r.encode()); !errors.Is(err, errRecord) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestManifestRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var parts []PartInfo
		number := 0
		for range rapid.IntRange(1, 300).Draw(rt, "n") {
			number += rapid.SampledFrom([]int{1, 1, 1, 2, 30}).Draw(rt, "step")
			size := rapid.SampledFrom([]int64{0, 5 << 20, 5 << 20, 5 << 30, 12345678}).Draw(rt, "size")
			parts = append(parts, PartInfo{Number: number, Size: size})
		}
		want := newManifest(storage.UUID{1}, parts)
		r := record{Key: "k", Size: want.size(), Manifest: want}
		got, err := decodeRecord(r.encode())
		if err != nil {
			rt.Fatal(err)
		}
		if want.Detached {
			if err := got.Manifest.decodeDetached(want.encodeDetached()); err != nil {
				rt.Fatal(err)
			}
		}
		if !reflect.DeepEqual(got.Manifest, want) {
			rt.Fatalf("got %+v, want %+v", got.Manifest, want)
		}
	})
}

// The largest records that the store accepts fit a value of every engine.
func TestLargestRecordsFit(t *testing.T) {
	var parts []PartInfo
	for n := 1; n <= MaxParts; n++ {
		parts = append(parts, PartInfo{Number: n, Size: 5<<30 - int64(n)})
	}
	m := newManifest(storage.UUID{1}, parts)
	if n := len(m.encodeDetached()); n > meta.MaxValue {
		t.Errorf("manifest of %d bytes", n)
	}
	big := Meta{User: map[string]string{}}
	for i := range maxPairs {
		big.User[fmt.Sprintf("%012d", i)] = "1234"
	}
	if err := checkWrite("k", &big); err != nil {
		t.Fatal(err)
	}
	digest := Digest{ETag: strings.Repeat("e", maxText)}
	for range maxChecksums {
		digest.Checksums = append(digest.Checksums, Checksum{Algorithm: "CRC64NVME", Value: make([]byte, 64), Parts: MaxParts})
	}
	m.Detached = false
	m.Numbers, m.Sizes = m.Numbers[:manifestInline/8], m.Sizes[:manifestInline/8]
	m.Count = len(m.Numbers)
	rec := record{Key: strings.Repeat("k", MaxKeyBytes), Size: m.size(), Digest: digest, Meta: big, Manifest: m}
	done := doneRecord{Bucket: storage.UUID{1}, Upload: &uploadRecord{Key: rec.Key, Meta: big}, Object: &rec}
	for name, n := range map[string]int{"object": len(rec.encode()), "done": len(done.encode())} {
		if n > meta.MaxValue && name == "object" || n > 2*meta.MaxValue {
			t.Errorf("%s record of %d bytes", name, n)
		}
	}
	rec.Meta = Meta{}
	if n := len(done.encode()); n > meta.MaxValue {
		t.Errorf("done record of %d bytes", n)
	}
	owner := home{Bucket: storage.UUID{1}, Key: rec.Key, Version: strings.Repeat("v", 64), Upload: storage.UUID{2}, Part: MaxParts}
	if n := len(owner.encode()); n > maxOwner {
		t.Errorf("owner of %d bytes", n)
	}
}

func FuzzRecords(f *testing.F) {
	for _, b := range goldens() {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > meta.MaxValue {
			return
		}
		for name, decode := range decoders {
			if err := decode(b); err != nil && !errors.Is(err, errRecord) && !errors.Is(err, errRecordNewer) {
				t.Errorf("%s: %v", name, err)
			}
		}
		r, err := decodeRecord(b)
		if err != nil {
			return
		}
		again, err := decodeRecord(r.encode())
		if err != nil || !reflect.DeepEqual(again, r) {
			t.Errorf("encoded again: %+v, %v; was %+v", again, err, r)
		}
		if r.Manifest != nil && len(r.Manifest.Numbers) > MaxParts {
			t.Errorf("%d parts", len(r.Manifest.Numbers))
		}
	})
}
