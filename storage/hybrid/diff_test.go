package hybrid

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"ringfence/storage"
)

var (
	diffSeed = flag.Uint64("diff.seed", 0, "seed of the differential tests; 0 takes a new one")
	diffRuns = flag.Int("diff.runs", 150, "reads per variant")
)

// place is a file as two Backends see it.
type place struct {
	name          string
	content       []byte
	hybrid, std   storage.RawFile
	closedH       storage.RawFile // closed ones
	closedS       storage.RawFile
	offs, lengths []int64
}

// places makes files of odd sizes.
func places(t testing.TB, r *rig) []*place {
	t.Helper()
	var all []*place
	for _, size := range []int{0, 1, 511, 4095, 4096, 4097, 3*4096 + 7, 64<<10 + 37, 1<<20 + 11} {
		p := &place{name: fmt.Sprint("f", size), content: pattern(size)}
		r.put(t, p.name, p.content)
		p.hybrid, p.std = r.open(t, p.name), openOn(t, r.std, p.name)
		closed := func(b storage.Backend) storage.RawFile {
			f, err := b.Open(t.Context(), p.name)
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			raw, ok := f.(storage.RawFile)
			if !ok {
				t.Fatalf("%T", f)
			}
			return raw
		}
		p.closedH, p.closedS = closed(r.Backend), closed(r.std)
		n := int64(size)
		p.offs = []int64{0, 0, 1, 511, 512, 4095, 4096, n / 2, n - 7, n - 1, n, n + 1, n + 4096, 1 << 40, math.MaxInt64 - 4096, math.MaxInt64, -1, math.MinInt64}
		p.lengths = []int64{0, 1, 17, 511, 512, 513, 4095, 4096, 4097, 8192, n, n + 1, n / 2, 100_000}
		all = append(all, p)
	}
	return all
}

// outcome is everything that a caller sees of a read.
type outcome struct {
	got []byte
	n   int
	err string
}

func outcomeOf(got []byte, n int, err error) outcome {
	o := outcome{got, n, fmt.Sprint(err)}
	if err != nil {
		// How much was read is undefined then.
		o.got, o.n = nil, 0
		for _, s := range []error{storage.ErrNotFound, storage.ErrCorrupt, storage.ErrFailed, storage.ErrOffline, storage.ErrNoBuffer, context.Canceled, context.DeadlineExceeded} {
			o.err += fmt.Sprint(errors.Is(err, s))
		}
	}
	return o
}

func (o outcome) equal(p outcome) bool {
	return o.n == p.n && o.err == p.err && bytes.Equal(o.got, p.got)
}

func (o outcome) String() string { return fmt.Sprintf("%d bytes, %s", o.n, o.err) }

// TestReadsAsReference makes random reads, odd ones among them, with every
// variant and with the reference: bytes, counts and errors must be the same.
func TestReadsAsReference(t *testing.T) {
	seed := *diffSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	for i, v := range variants() {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, v.options(t))
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			all := places(t, r)
			for n := range *diffRuns {
				p := all[rng.IntN(len(all))]
				if rng.IntN(4) == 0 {
					evict(t, r.dir, p.name)
				}
				off, size := p.offs[rng.IntN(len(p.offs))], int(p.lengths[rng.IntN(len(p.lengths))])
				if rng.IntN(2) == 0 {
					off, size = rng.Int64N(int64(len(p.content)+100)), 1+rng.IntN(len(p.content)+100)
				}
				piece := max([]int{1 << 20, 4096, 1000, size/50 + 1}[rng.IntN(4)], size/500+1)
				f, ref := p.hybrid, p.std
				ctx, cancel := context.WithCancel(t.Context())
				switch rng.IntN(20) {
				case 0:
					f, ref = p.closedH, p.closedS
				case 1:
					cancel()
				case 2:
					cancel()
					ctx, cancel = context.WithDeadline(t.Context(), time.Unix(1, 0))
				}
				got, want := outcomeOf(r.read(ctx, f, off, size, piece)), outcomeOf(r.read(ctx, ref, off, size, piece))
				cancel()
				if !got.equal(want) {
					t.Fatalf("-diff.seed=%d, read %d: %s, %d bytes from %d in pieces of %d: %s; the reference: %s",
						seed, n, p.name, size, off, piece, got, want)
				}
			}
			if st := r.Status(); st.Shadow.Mismatch != 0 || st.latch(LatchShadow).On {
				t.Errorf("shadow: %+v", st.Shadow)
			}
		})
	}
}

// TestOddReadsAsReference is the table of what must not differ between a hit and
// a miss, nor between engines.
func TestOddReadsAsReference(t *testing.T) {
	for _, v := range variants() {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, v.options(t))
			content := pattern(10_000)
			r.put(t, "a", content)
			f, ref := r.open(t, "a"), openOn(t, r.std, "a")
			for _, c := range []struct {
				name string
				off  int64
				size int
			}{
				{"nothing", 0, 0}, {"nothing at the end", 10_000, 0}, {"nothing beyond it", 20_000, 0}, {"nothing before all", -1, 0},
				{"at the end", 10_000, 1}, {"across it", 9_999, 2}, {"beyond it", 10_001, 4096}, {"far beyond it", 1 << 50, 1},
				{"all and more", 0, 20_000}, {"up to the last offset", math.MaxInt64 - 1, 1}, {"beyond the last offset", math.MaxInt64, 1},
				{"before all", -1, 1}, {"one", 0, 1}, {"the last", 9_999, 1},
			} {
				for _, hit := range []bool{false, true} {
					if !hit {
						evict(t, r.dir, "a")
					}
					got, want := outcomeOf(r.read(t.Context(), f, c.off, c.size, 4096)), outcomeOf(r.read(t.Context(), ref, c.off, c.size, 4096))
					if !got.equal(want) {
						t.Errorf("%s, cached: %v: %s; the reference: %s", c.name, hit, got, want)
					}
				}
			}
			// A buffer without bytes among others.
			bufs, free := r.bufs(t, 3, 100)
			defer free()
			bufs[1].SetLen(0)
			if n, err := f.ReadVec(t.Context(), bufs, 50); n != 200 || err != nil ||
				!bytes.Equal(bufs[0].Bytes(), content[50:150]) || !bytes.Equal(bufs[2].Bytes(), content[150:250]) {
				t.Errorf("%d bytes, %v", n, err)
			}
			if n, err := f.ReadVec(t.Context(), nil, 0); n != 0 || err != nil {
				t.Errorf("no buffers: %d bytes, %v", n, err)
			}
		})
	}
}

// TestManyBuffersInParts: more than a driver takes at once goes in several
// submissions, one after the other.
func TestManyBuffersInParts(t *testing.T) {
	needRings(t)
	for _, set := range []func(k Knobs){ringOnly, directAll} {
		r := newRig(t, rigOptions{set: func(k Knobs) {
			set(k)
			k.Entries.Store(4)
		}})
		content := pattern(3000*100 + 50)
		r.put(t, "a", content)
		f := r.open(t, "a")
		for _, count := range []int{1, 4, 5, 1025, 3000, 3001} {
			got, n, err := r.read(t.Context(), f, 0, count*100, 100)
			if want := content[:min(len(content), count*100)]; err != nil || n != len(want) || !bytes.Equal(got, want) {
				t.Errorf("%d buffers: %d bytes, %v", count, n, err)
			}
		}
		if s := r.Stats().Reads; s.Ring+s.RingDirect != 6 {
			t.Errorf("6 reads are counted as %+v", s)
		}
	}
}
