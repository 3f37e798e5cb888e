package quorumlog

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"testing"

	"ringfence/erasure/meta"
	"ringfence/storage"
)

func samples() (cell, promise, entry) {
	base := link(point{}, 3, 1, 1, nil)
	at := link(base, 3, 2, 4, []meta.Op{{Key: []byte("a"), Val: []byte("1")}, {Key: []byte("b"), Delete: true}})
	c := cell{phase: phaseCopying, at: base, towards: at, cursor: []byte("uk"), witness: []mark{{3, 4}, {0, 0}, {2, 300}}}
	return c, promise{epoch: 7, slot: 5, set: storage.UUID{1, 2, 3}}, entry{at: at, first: 2, keys: [][]byte{[]byte("a"), []byte("b")}}
}

// TestFormat pins the bytes: a change needs a new format version.
func TestFormat(t *testing.T) {
	c, p, en := samples()
	for what, tt := range map[string]struct {
		got  []byte
		want string
	}{
		"cell":    {c.encode(), goldenCell},
		"promise": {p.encode(), goldenPromise},
		"entry":   {en.encode(), goldenEntry},
		"value":   {encodeValue([]byte("key"), 9, []byte("value")), goldenValue},
	} {
		if got := hex.EncodeToString(tt.got); got != tt.want {
			t.Errorf("%s is\n%s, want\n%s", what, got, tt.want)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	c, p, en := samples()
	if got, err := decodeCell(c.encode()); err != nil || !reflect.DeepEqual(got, c) {
		t.Errorf("cell: %+v, %v", got, err)
	}
	if got, err := decodePromise(p.encode()); err != nil || got != p {
		t.Errorf("promise: %+v, %v", got, err)
	}
	if got, err := decodeEntry(en.encode()); err != nil || !reflect.DeepEqual(got, en) {
		t.Errorf("entry: %+v, %v", got, err)
	}
	rev, val, err := decodeValue([]byte("key"), encodeValue([]byte("key"), 9, []byte("value")))
	if err != nil || rev != 9 || string(val) != "value" {
		t.Errorf("value: %d %q %v", rev, val, err)
	}
}

// TestDamageIsSeen flips every bit of everything that is stored.
func TestDamageIsSeen(t *testing.T) {
	c, p, en := samples()
	for what, tt := range map[string]struct {
		raw    []byte
		decode func(raw []byte) error
	}{
		"cell":    {c.encode(), func(raw []byte) error { _, err := decodeCell(raw); return err }},
		"promise": {p.encode(), func(raw []byte) error { _, err := decodePromise(raw); return err }},
		"entry":   {en.encode(), func(raw []byte) error { _, err := decodeEntry(raw); return err }},
		"value": {encodeValue([]byte("key"), 9, []byte("value")), func(raw []byte) error {
			_, _, err := decodeValue([]byte("key"), raw)
			return err
		}},
	} {
		for bit := range 8 * len(tt.raw) {
			raw := bytes.Clone(tt.raw)
			raw[bit/8] ^= 1 << (bit % 8)
			if err := tt.decode(raw); !errors.Is(err, storage.ErrCorrupt) {
				t.Errorf("%s with bit %d flipped: %v", what, bit, err)
			}
		}
		for n := range tt.raw {
			if err := tt.decode(tt.raw[:n]); !errors.Is(err, storage.ErrCorrupt) {
				t.Errorf("%s cut to %d bytes: %v", what, n, err)
			}
		}
	}
	if _, _, err := decodeValue([]byte("other"), encodeValue([]byte("key"), 9, nil)); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("a value under another key: %v", err)
	}
}

// FuzzDecode seals arbitrary bytes, so that the parsers behind the checksum are
// reached: they must not panic, nor take memory that the input doesn't pay for.
func FuzzDecode(f *testing.F) {
	c, p, en := samples()
	for _, raw := range [][]byte{c.encode(), p.encode(), en.encode()} {
		f.Add(raw[1 : len(raw)-8])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		raw := seal(append([]byte{formatVersion}, body...))
		_, _ = decodePromise(raw)
		if c, err := decodeCell(raw); err == nil {
			if again, err := decodeCell(c.encode()); err != nil || !reflect.DeepEqual(again, c) {
				t.Errorf("cell %+v reads back as %+v, %v", c, again, err)
			}
		}
		if en, err := decodeEntry(raw); err == nil {
			if again, err := decodeEntry(en.encode()); err != nil || !reflect.DeepEqual(again, en) {
				t.Errorf("entry %+v reads back as %+v, %v", en, again, err)
			}
		}
	})
}
