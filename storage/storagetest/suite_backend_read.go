package storagetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"ringfence/storage"
)

func testRanges(t *testing.T, b backendCase) {
	const page = 4096
	content := pattern(64<<10 + 37)
	b.put(t, "a", content)
	f := b.open(t, "a")
	check := func(off, size int) {
		t.Helper()
		got := b.read(t, f, int64(off), size)
		if want := content[min(off, len(content)):min(off+size, len(content))]; !bytes.Equal(got, want) {
			t.Errorf("offset %d, size %d: %d bytes, not the %d wanted", off, size, len(got), len(want))
		}
	}
	for _, r := range [][2]int{
		{0, len(content)}, {1, 17}, {page - 1, 2}, {page, page}, {page - 1, page + 2}, {len(content) - 7, 7}, {0, 0},
		{len(content) - 7, 100}, {len(content), 1}, {len(content) + 1, 1}, {1 << 40, page}, {0, 1 << 20},
	} {
		check(r[0], r[1])
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		check(rng.IntN(len(content)), rng.IntN(20<<10))
	}
	buf, err := b.pool.Get(1)
	if err != nil {
		t.Fatal(err)
	}
	defer buf.Release()
	if _, err := f.ReadAt(t.Context(), buf, -1); err == nil {
		t.Error("a negative offset is allowed")
	}
}

func testEnd(t *testing.T, b backendCase) {
	f, err := b.Create(t.Context(), "a", 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := b.read(t, f, 0, 10); len(got) != 0 {
		t.Errorf("an empty file reads %d bytes", len(got))
	}
	const hole = 3<<20 + 5
	if err := f.WriteAt(t.Context(), []byte("tail"), hole); err != nil {
		t.Fatal(err)
	}
	if err := f.WriteAt(t.Context(), nil, hole+100); err != nil {
		t.Fatal(err)
	}
	if size, err := f.Size(); err != nil || size != hole+4 {
		t.Errorf("size %d (%v), want %d", size, err, hole+4)
	}
	if got := b.read(t, f, hole-3, 100); string(got) != "\x00\x00\x00tail" {
		t.Errorf("end of the hole reads %q", got)
	}
	if got := b.read(t, f, 12345, 1<<20); !bytes.Equal(got, make([]byte, 1<<20)) {
		t.Error("a hole does not read as zeros")
	}
	if err := errors.Join(f.Sync(t.Context()), f.Close()); err != nil {
		t.Error(err)
	}
}

func testVectors(t *testing.T, b backendCase) {
	content := pattern(1<<20 + 11)
	b.put(t, "a", content)
	f := b.open(t, "a")
	rng := rand.New(rand.NewPCG(3, 4))
	for _, c := range []struct{ count, most int }{{1, 5000}, {2, 4096}, {7, 100_000}, {1024, 600}, {1025, 600}, {2500, 400}, {3000, 3}} {
		t.Run(fmt.Sprintf("%d buffers", c.count), func(t *testing.T) {
			var bufs []*storage.Buf
			total := 0
			for range c.count {
				buf, err := b.pool.Get(rng.IntN(c.most + 1))
				if err != nil {
					t.Fatal(err)
				}
				defer buf.Release()
				bufs = append(bufs, buf)
				total += len(buf.Bytes())
			}
			for _, off := range []int{0, 1, 4095, len(content) - total, len(content) - total/2, len(content)} {
				if off < 0 {
					continue
				}
				checkVector(t, f, bufs, content, off)
			}
		})
	}
}

func checkVector(t *testing.T, f storage.File, bufs []*storage.Buf, content []byte, off int) {
	t.Helper()
	for _, b := range bufs {
		clear(b.Bytes())
	}
	n, err := storage.ReadFull(t.Context(), f, bufs, int64(off))
	if err != nil {
		t.Fatal(err)
	}
	var got []byte
	for _, b := range bufs {
		got = append(got, b.Bytes()...)
	}
	want := content[off:min(len(content), off+len(got))]
	if n != len(want) || !bytes.Equal(got[:n], want) {
		t.Errorf("offset %d: %d bytes, want %d", off, n, len(want))
	}
	if !bytes.Equal(got[n:], make([]byte, len(got)-n)) {
		t.Errorf("offset %d: something was written behind the end of the file", off)
	}
}

func testRandomWrites(t *testing.T, b backendCase) {
	for seed := range uint64(5) {
		rng := rand.New(rand.NewPCG(seed, 5))
		name := fmt.Sprint("f", seed)
		f, err := b.Create(t.Context(), name, int64(rng.IntN(1<<18)))
		if err != nil {
			t.Fatal(err)
		}
		var model []byte
		for range 100 {
			off, p := rng.IntN(200_000), pattern(1+rng.IntN(20_000))
			if err := f.WriteAt(t.Context(), p, int64(off)); err != nil {
				t.Fatal(err)
			}
			if end := off + len(p); end > len(model) {
				model = append(model, make([]byte, end-len(model))...)
			}
			copy(model[off:], p)
			if rng.IntN(10) == 0 {
				if err := f.Sync(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			at := rng.IntN(len(model))
			if got := b.read(t, f, int64(at), 10_000); !bytes.Equal(got, model[at:min(len(model), at+10_000)]) {
				t.Fatalf("seed %d: offset %d differs", seed, at)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if got := b.read(t, b.open(t, name), 0, len(model)+1); !bytes.Equal(got, model) {
			t.Errorf("seed %d: the file differs", seed)
		}
	}
}

// testConcurrency has every method run at once on files of its own and on one
// that all share.
func testConcurrency(t *testing.T, b backendCase) {
	content := pattern(256 << 10)
	b.put(t, "shared", content)
	shared := b.open(t, "shared")
	for _, folder := range []string{"d0", "d1"} {
		if err := b.Mkdir(t.Context(), folder); err != nil {
			t.Fatal(err)
		}
	}
	rounds := 30
	if testing.Short() {
		rounds = 8
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 6))
			for i := range rounds {
				folder := fmt.Sprint("d", rng.IntN(2))
				if err := writeOnce(t.Context(), b, folder, fmt.Sprintf("%d.%d", g, i), content[:1+rng.IntN(8192)]); err != nil {
					t.Error(err)
					return
				}
				for range 10 {
					off, size := rng.IntN(len(content)), 1+rng.IntN(50_000)
					buf, err := b.pool.Get(size)
					if err != nil {
						t.Error(err)
						return
					}
					n, err := shared.ReadAt(t.Context(), buf, int64(off))
					if err != nil || !bytes.Equal(buf.Bytes()[:n], content[off:min(len(content), off+size)]) {
						t.Errorf("offset %d, size %d: %d bytes, %v", off, size, n, err)
					}
					buf.Release()
				}
			}
		})
	}
	wg.Wait()
	found := 0
	for _, folder := range []string{"d0", "d1"} {
		entries, err := b.ReadDir(t.Context(), folder)
		if err != nil {
			t.Fatal(err)
		}
		found += len(entries)
	}
	if found != 8*rounds/2 {
		t.Errorf("%d files are left, want %d", found, 8*rounds/2)
	}
}

// writeOnce makes a file durable under a new name, and removes every other one.
func writeOnce(ctx context.Context, b backendCase, folder, name string, content []byte) error {
	tmp, final := folder+"/tmp."+name, folder+"/"+name
	f, err := b.Create(ctx, tmp, int64(len(content)))
	if err != nil {
		return err
	}
	if err := errors.Join(f.WriteAt(ctx, content, 0), f.Sync(ctx), f.Close()); err != nil {
		return err
	}
	if err := errors.Join(b.Rename(ctx, tmp, final), b.SyncDir(ctx, folder)); err != nil {
		return err
	}
	if name[len(name)-1]%2 == 1 {
		return b.Remove(ctx, final)
	}
	return nil
}

// testCancelledReads cancels reads at any moment and gives the buffers away at
// once: a read that goes on must not write into memory of the next one.
func testCancelledReads(t *testing.T, b backendCase) {
	content := pattern(4 << 20)
	b.put(t, "a", content)
	f := b.open(t, "a")
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 7))
			for range 100 {
				ctx, cancel := context.WithCancel(t.Context())
				go cancel()
				off, size := rng.IntN(len(content)), 1+rng.IntN(1<<20)
				buf, err := b.pool.Get(size)
				if err != nil {
					t.Error(err)
					return
				}
				n, err := f.ReadAt(ctx, buf, int64(off))
				switch {
				case err == nil && !bytes.Equal(buf.Bytes()[:n], content[off:min(len(content), off+size)]):
					t.Errorf("offset %d, size %d: wrong bytes", off, size)
				case err != nil && !errors.Is(err, context.Canceled):
					t.Error(err)
				}
				buf.Release()
				cancel()
			}
		})
	}
	wg.Wait()
	// What was abandoned gives its memory back when it is over.
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if got := b.read(t, f, 0, 1000); !slices.Equal(got, content[:1000]) {
		t.Error("wrong bytes at the end")
	}
}
