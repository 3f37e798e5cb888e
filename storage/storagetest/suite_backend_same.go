package storagetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"ringfence/storage"
)

// The tests of this file hold read engines to one answer: whichever of its
// tiers serves a read, the bytes, the count and the error are the same. Each
// reads what was dropped from the page cache, and then the same again.

// warmth calls read twice for each of several rounds: cold, as far as the
// kernel takes advice, and warm.
func (b backendCase) warmth(t *testing.T, name string, read func(state string)) {
	t.Helper()
	for range 2 {
		if b.root != "" {
			if err := evict(filepath.Join(b.root, filepath.FromSlash(name))); err != nil {
				t.Fatal(err)
			}
		}
		read("cold")
		read("warm")
	}
}

// vector reads into buffers of the sizes and returns what they hold.
func (b backendCase) vector(t *testing.T, f storage.File, off int64, sizes ...int) ([]byte, error) {
	t.Helper()
	var bufs []*storage.Buf
	for _, size := range sizes {
		buf, err := b.pool.Get(size)
		if err != nil {
			t.Fatal(err)
		}
		defer buf.Release()
		bufs = append(bufs, buf)
	}
	n, err := storage.ReadFull(t.Context(), f, bufs, off)
	var got []byte
	for _, buf := range bufs {
		got = append(got, buf.Bytes()...)
	}
	if n < 0 || n > len(got) {
		t.Fatalf("%d bytes read into %d", n, len(got))
	}
	return got[:n], err
}

// testNothingToRead: no bytes asked for, or none there, is no error, anywhere.
func testNothingToRead(t *testing.T, b backendCase) {
	content := pattern(20_001)
	size := int64(len(content))
	b.put(t, "a", content)
	b.put(t, "empty", nil)
	f, empty := b.open(t, "a"), b.open(t, "empty")
	b.warmth(t, "a", func(state string) {
		for _, off := range []int64{0, 1, 4096, size - 1, size, size + 1, size + 4096, 1 << 40, 1 << 62} {
			for _, sizes := range [][]int{{0}, {0, 0, 0}, {}} {
				if got, err := b.vector(t, f, off, sizes...); len(got) != 0 || err != nil {
					t.Errorf("%s: sizes %v at %d: %d bytes, %v", state, sizes, off, len(got), err)
				}
			}
		}
		for _, off := range []int64{size, size + 1, size + 4095, size + 4096, 1 << 40, 1 << 62} {
			for _, sizes := range [][]int{{1}, {4096}, {100_000}, {0, 1}, {4096, 0, 4096}} {
				if got, err := b.vector(t, f, off, sizes...); len(got) != 0 || err != nil {
					t.Errorf("%s: sizes %v at %d, past the end: %d bytes, %v", state, sizes, off, len(got), err)
				}
			}
		}
		if got, err := b.vector(t, empty, 0, 4096); len(got) != 0 || err != nil {
			t.Errorf("%s: an empty file: %d bytes, %v", state, len(got), err)
		}
	})
}

// testOddVectors: buffers of any length, at any offset, and around the end.
func testOddVectors(t *testing.T, b backendCase) {
	content := pattern(300_007)
	b.put(t, "a", content)
	f := b.open(t, "a")
	vectors := [][]int{
		{1, 4095, 4096, 4097}, {4096, 4096, 1}, {0, 511, 512, 513, 0}, {1, 1, 1}, {4095, 1, 8192}, {100_000, 1, 100_000},
		{8192, 4096, 4096, 8192, 7}, {3, 0, 0, 70_000, 4096}, {65_536, 65_536, 65_536},
	}
	offsets := []int{0, 1, 511, 512, 4095, 4096, 8192, 100_000, len(content) - 4096, len(content) - 1, (len(content) - 1) &^ 4095}
	b.warmth(t, "a", func(state string) {
		for _, sizes := range vectors {
			asked := 0
			for _, n := range sizes {
				asked += n
			}
			for _, off := range offsets {
				got, err := b.vector(t, f, int64(off), sizes...)
				if want := content[off:min(len(content), off+asked)]; err != nil || !bytes.Equal(got, want) {
					t.Errorf("%s: sizes %v at %d: %d bytes, %v, want %d", state, sizes, off, len(got), err, len(want))
				}
			}
		}
	})
}

// testLongReads: more than an engine takes in one operation.
func testLongReads(t *testing.T, b backendCase) {
	content := pattern(5<<20 + 4097)
	b.put(t, "a", content)
	f := b.open(t, "a")
	b.warmth(t, "a", func(state string) {
		for _, c := range []struct {
			off   int
			sizes []int
		}{
			{0, []int{2 << 20, 2 << 20}},
			{4096, []int{2 << 20, 2 << 20, 2 << 20}}, // to the end
			{1, []int{1<<20 + 1, 2<<20 - 1, 77, 2 << 20}},
		} {
			asked := 0
			for _, n := range c.sizes {
				asked += n
			}
			got, err := b.vector(t, f, int64(c.off), c.sizes...)
			if want := content[c.off:min(len(content), c.off+asked)]; err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: sizes %v at %d: %d bytes, %v, want %d", state, c.sizes, c.off, len(got), err, len(want))
			}
		}
	})
}

// testReadStaysInside: what lies around the buffers of a read is not touched.
func testReadStaysInside(t *testing.T, b backendCase) {
	content := pattern(64 << 10)
	b.put(t, "a", content)
	f := b.open(t, "a")
	const count, page = 64, 4096
	canary := bytes.Repeat([]byte{0xa5}, page)
	var bufs []*storage.Buf // every other one is read into
	for range count {
		buf, err := b.pool.Get(page)
		if err != nil {
			t.Fatal(err)
		}
		defer buf.Release()
		bufs = append(bufs, buf)
	}
	b.warmth(t, "a", func(state string) {
		for _, size := range []int{1, 511, 4095, page} {
			var into []*storage.Buf
			for i, buf := range bufs {
				buf.SetLen(page)
				copy(buf.Bytes(), canary)
				if i%2 == 0 {
					buf.SetLen(size)
					into = append(into, buf)
				}
			}
			for _, off := range []int64{0, 1, page, int64(len(content)) - 100} {
				for _, buf := range into[:4] {
					if _, err := f.ReadAt(t.Context(), buf, off); err != nil {
						t.Errorf("%s: %v", state, err)
					}
				}
				if _, err := storage.ReadFull(t.Context(), f, into, off); err != nil {
					t.Errorf("%s: %v", state, err)
				}
			}
			for i, buf := range bufs {
				if i%2 == 1 && !bytes.Equal(buf.Bytes(), canary) {
					t.Errorf("%s: buffers of %d bytes: their neighbour %d was written to", state, size, i)
				}
			}
		}
	})
}

// testReadErrors: what can't be read fails with the same words whether or not
// the page cache holds the file, by one buffer or several.
func testReadErrors(t *testing.T, b backendCase) {
	content := pattern(100_000)
	b.put(t, "a", content)
	f := b.open(t, "a")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	texts := map[string]string{}
	same := func(state, what string, n int, err error, is error) {
		t.Helper()
		if n != 0 || err == nil || (is != nil && !errors.Is(err, is)) {
			t.Errorf("%s: %s: %d bytes, %v, want %v", state, what, n, err, is)
			return
		}
		var disk *storage.DiskError
		if !errors.As(err, &disk) {
			t.Errorf("%s: %s: %v names no disk", state, what, err)
		}
		for _, no := range []error{storage.ErrNotFound, storage.ErrCorrupt, storage.ErrFailed} {
			if errors.Is(err, no) {
				t.Errorf("%s: %s: %v blames the disk", state, what, err)
			}
		}
		if texts[what] == "" {
			texts[what] = err.Error()
		}
		if texts[what] != err.Error() {
			t.Errorf("%s: %s: %q, and before: %q", state, what, err, texts[what])
		}
	}
	sizes := map[string][]int{"one buffer": {4096}, "three": {100, 4096, 1}, "none": {0}}
	b.warmth(t, "a", func(state string) {
		for name, sizes := range sizes {
			for _, off := range []int64{-1, -4096, math.MinInt64} {
				got, err := b.vector(t, f, off, sizes...)
				same(state, fmt.Sprint("offset ", off), len(got), err, nil)
			}
			var bufs []*storage.Buf
			for _, size := range sizes {
				buf, err := b.pool.Get(size)
				if err != nil {
					t.Fatal(err)
				}
				defer buf.Release()
				bufs = append(bufs, buf)
			}
			n, err := storage.ReadFull(ended, f, bufs, 4096)
			same(state, "ended context", n, err, context.Canceled)
			closed, err := b.Open(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			if err := closed.Close(); err != nil {
				t.Fatal(err)
			}
			n, err = storage.ReadFull(t.Context(), closed, bufs, 4096)
			same(state, "closed file, "+name, n, err, os.ErrClosed)
			_, err = closed.Size()
			same(state, "size of a closed file", 0, err, os.ErrClosed)
		}
	})
	if got := b.read(t, f, 0, len(content)); !bytes.Equal(got, content) {
		t.Error("reads that failed changed what is read")
	}
}
