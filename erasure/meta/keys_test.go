package meta

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
	"ringfence/storage"
)

// rawKey draws object keys that are nasty for order: 0x00, 0xff, extensions of
// each other.
func rawKey(t *rapid.T, label string) string {
	b := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, '/', 'a', 0xfe, 0xff}), 0, 6).Draw(t, label)
	return string(b)
}

func rawUUID(t *rapid.T, label string) (u storage.UUID) {
	copy(u[:], rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 0xff}), 16, 16).Draw(t, label))
	return u
}

func TestKeysRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, key, id := rawUUID(t, "bucket"), rawKey(t, "key"), rawKey(t, "id")
		order, part := rapid.Uint64().Draw(t, "order"), rapid.Uint16().Draw(t, "part")
		shard := storage.ShardID{UUID: b, Part: part}

		if n, ok := ParseBucketKey(BucketKey(key)); !ok || n != key {
			t.Fatalf("bucket: %q %v", n, ok)
		}
		if n, ok := ParseConfigKey(ConfigKey(key)); !ok || n != key {
			t.Fatalf("config: %q %v", n, ok)
		}
		if gb, gk, ok := ParseObjectKey(ObjectKey(b, key)); !ok || gb != b || gk != key {
			t.Fatalf("object: %v %q %v", gb, gk, ok)
		}
		if gb, gk, o, v, ok := ParseVersionKey(VersionKey(b, key, order, id)); !ok || gb != b || gk != key || o != order || v != id {
			t.Fatalf("version: %v %q %d %q %v", gb, gk, o, v, ok)
		}
		if gb, gk, u, ok := ParseUploadKey(UploadKey(b, key, id)); !ok || gb != b || gk != key || u != id {
			t.Fatalf("upload: %v %q %q %v", gb, gk, u, ok)
		}
		if u, p, ok := ParsePartKey(PartKey(b, part)); !ok || u != b || p != part {
			t.Fatalf("part: %v %d %v", u, p, ok)
		}
		if u, p, ok := ParseManifestKey(ManifestKey(b, part)); !ok || u != b || p != part {
			t.Fatalf("manifest: %v %d %v", u, p, ok)
		}
		if u, ok := ParseInlineKey(InlineKey(b)); !ok || u != b {
			t.Fatalf("inline: %v %v", u, ok)
		}
		if o, s, ok := ParseGarbageKey(GarbageKey(order, shard)); !ok || o != order || s != shard {
			t.Fatalf("garbage: %d %v %v", o, s, ok)
		}
		if s, ok := ParseUnhealedKey(UnhealedKey(shard)); !ok || s != shard {
			t.Fatalf("unhealed: %v %v", s, ok)
		}
	})
}

func TestKeysOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rawUUID(t, "bucket")
		k1, k2 := rawKey(t, "k1"), rawKey(t, "k2")
		id1, id2 := rawKey(t, "id1"), rawKey(t, "id2")
		o1, o2 := rapid.Uint64Range(0, 3).Draw(t, "o1"), rapid.Uint64Range(0, 3).Draw(t, "o2")

		if bytes.Compare(ObjectKey(b, k1), ObjectKey(b, k2)) != strings.Compare(k1, k2) {
			t.Fatal("objects out of order")
		}
		want := cmp.Or(strings.Compare(k1, k2), strings.Compare(id1, id2))
		if bytes.Compare(UploadKey(b, k1, id1), UploadKey(b, k2, id2)) != want {
			t.Fatal("uploads out of order")
		}
		want = cmp.Or(strings.Compare(k1, k2), cmp.Compare(o2, o1), strings.Compare(id1, id2))
		if bytes.Compare(VersionKey(b, k1, o1, id1), VersionKey(b, k2, o2, id2)) != want {
			t.Fatal("versions out of order")
		}
		// Prefixes cover exactly what they say.
		if bytes.HasPrefix(UploadKey(b, k2, id2), UploadsOf(b, k1)) != (k1 == k2) {
			t.Fatal("UploadsOf covers another key, or not its own")
		}
		if bytes.HasPrefix(UploadKey(b, k2, id2), UploadsFrom(b, k1)) != strings.HasPrefix(k2, k1) {
			t.Fatal("UploadsFrom is not the prefix scan")
		}
		if (bytes.Compare(UploadKey(b, k2, id2), UploadsFrom(b, k1)) >= 0) != (k2 >= k1) {
			t.Fatal("UploadsFrom is not the lower bound")
		}
		if bytes.HasPrefix(VersionKey(b, k2, o2, id2), VersionsOf(b, k1)) != (k1 == k2) {
			t.Fatal("VersionsOf covers another key, or not its own")
		}
	})
}

func TestAfterIsTheEndOfThePrefix(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, k := []byte(rawKey(t, "prefix")), []byte(rawKey(t, "key"))
		end := After(p)
		inside := bytes.Compare(k, p) >= 0 && (end == nil || bytes.Compare(k, end) < 0)
		if inside != bytes.HasPrefix(k, p) {
			t.Fatalf("prefix %x end %x key %x: inside %v", p, end, k, inside)
		}
	})
}

func TestLongestKeysFit(t *testing.T) {
	worst := strings.Repeat("\x00", 1024)
	id := strings.Repeat("x", 128)
	for _, k := range [][]byte{ObjectKey(storage.UUID{}, worst), UploadKey(storage.UUID{}, worst, id), VersionKey(storage.UUID{}, worst, 1, id)} {
		if len(k) > MaxKey {
			t.Errorf("%s: %d bytes, limit %d", k[:2], len(k), MaxKey)
		}
	}
}

func TestSpacesArePrefixFree(t *testing.T) {
	all := []string{SpaceBuckets, SpaceConfig, SpaceGarbage, SpaceUnhealed, SpaceInline, SpaceManifests, SpaceObjects, SpaceParts, SpaceUploads, SpaceVersions}
	slices.Sort(all)
	for i := 1; i < len(all); i++ {
		if strings.HasPrefix(all[i], all[i-1]) {
			t.Errorf("%q is a prefix of %q", all[i-1], all[i])
		}
	}
}

// FuzzParse feeds every parser arbitrary bytes: what parses must encode back
// to the same bytes, so that no two keys mean one thing.
func FuzzParse(f *testing.F) {
	f.Add(UploadKey(storage.UUID{1}, "a\x00b", "id"))
	f.Add(VersionKey(storage.UUID{1}, "k", 7, "id"))
	f.Add(GarbageKey(7, storage.ShardID{Part: 3}))
	f.Fuzz(func(t *testing.T, k []byte) {
		same := func(again []byte) {
			if !bytes.Equal(again, k) {
				t.Fatalf("%x reads as %x", k, again)
			}
		}
		if b, key, ok := ParseObjectKey(k); ok {
			same(ObjectKey(b, key))
		}
		if b, key, id, ok := ParseUploadKey(k); ok {
			same(UploadKey(b, key, id))
		}
		if b, key, o, id, ok := ParseVersionKey(k); ok {
			same(VersionKey(b, key, o, id))
		}
		if o, id, ok := ParseGarbageKey(k); ok {
			same(GarbageKey(o, id))
		}
		if u, p, ok := ParsePartKey(k); ok {
			same(PartKey(u, p))
		}
		if id, ok := ParseUnhealedKey(k); ok {
			same(UnhealedKey(id))
		}
	})
}
