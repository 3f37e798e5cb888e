package erasure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"ringfence/storage"
	"ringfence/storage/storagetest"
)

// hurt damages the shard that sits on a disk, one way of many.
type hurt struct {
	name string
	do   func(rig *dataRig, b blob, slot int)
	tell error // what Damaged hears; nil: nothing
	lost bool  // for good
}

var hurts = []hurt{
	{"missing", func(rig *dataRig, b blob, slot int) { rig.sims[slot].Lose(b.id()) }, storage.ErrNotFound, true},
	{"trailer", func(rig *dataRig, b blob, slot int) { rig.sims[slot].Spoil(b.id()) }, storage.ErrCorrupt, true},
	{"flipped", func(rig *dataRig, b blob, slot int) {
		for s := range int(b.Layout.stripes(b.Size)) {
			rig.sims[slot].FlipBit(b.id(), s, 5+13*s)
		}
	}, storage.ErrCorrupt, true},
	{"misdirected", func(rig *dataRig, _ blob, slot int) {
		rig.sims[slot].SetHook(func(op storagetest.Op) storagetest.Fault {
			if op.Kind == storagetest.OpRead {
				return storagetest.Fault{Kind: storagetest.FaultMisdirect}
			}
			return storagetest.Fault{}
		})
	}, storage.ErrCorrupt, true},
	{"unreadable", func(rig *dataRig, _ blob, slot int) { rig.failOn(slot, storagetest.OpRead, nil) }, storage.ErrFailed, false},
	{"offline", func(rig *dataRig, _ blob, slot int) { rig.sims[slot].Vanish() }, nil, false},
}

// Every loss of up to two disks of 4+2, in every mixture of ways, gives the
// right bytes; any third gives an error and not one wrong byte.
func TestReadSurvivesEveryLoss(t *testing.T) {
	body := randomBytes(1<<20+333, 11)
	for mask := uint(1); mask < 1<<6; mask++ {
		if bits.OnesCount(mask) > 3 {
			continue
		}
		for i := range len(hurts) / 3 {
			testLoss(t, body, mask, int(mask)+3*i)
		}
	}
}

func testLoss(t *testing.T, body []byte, mask uint, first int) {
	rig := newDataRig(t, 6, 2, func(o *dataOptions) { o.Env = inline() })
	b := rig.store(body)
	away, tells := false, map[uint8]error{}
	name := ""
	for slot, n := 0, first; slot < 6; slot++ {
		if mask>>slot&1 == 0 {
			continue
		}
		h := hurts[n%len(hurts)]
		n += 2
		h.do(rig, b, slot)
		name += fmt.Sprintf("%d %s ", slot, h.name)
		away = away || !h.lost
		tells[uint8(b.Layout.indexOf(uint8(slot)))] = h.tell
	}
	got, err := rig.load(b, 0, b.Size)
	if bits.OnesCount(mask) > 2 {
		want := ErrCorrupt
		if away {
			want = ErrUnavailable
		}
		if !errors.Is(err, want) {
			t.Fatalf("%s: %v, want %v", name, err, want)
		}
		if !bytes.HasPrefix(body, got) {
			t.Fatalf("%s: wrong bytes before the error", name)
		}
		return
	}
	if err != nil || !bytes.Equal(got, body) {
		t.Fatalf("%s: %d bytes, %v", name, len(got), err)
	}
	for shard, want := range tells {
		told, ok := rig.damage[shard]
		if int(shard) < int(b.Layout.K) && want != nil && !errors.Is(told, want) {
			t.Errorf("%s: damage of data shard %d is reported as %v, want %v", name, shard, told, want)
		}
		if ok && want == nil {
			t.Errorf("%s: shard %d on a disk that is away is reported as damaged: %v", name, shard, told)
		}
	}
	for shard := range rig.damage {
		if _, ok := tells[shard]; !ok {
			t.Errorf("%s: shard %d is fine and reported as damaged", name, shard)
		}
	}
}

// Damage that is scattered over all disks is no loss as long as every stripe
// has enough of its own.
func TestReadScatteredDamage(t *testing.T) {
	for _, shape := range [][2]int{{6, 2}, {2, 1}, {16, 4}} {
		rig := newDataRig(t, shape[0], shape[1], nil)
		n, m := shape[0], shape[1]
		body := randomBytes(9<<20+1234, 12)
		b := rig.store(body)
		for s := range int(b.Layout.stripes(b.Size)) {
			for j := range m {
				slot := (s + j) % n
				if !rig.sims[slot].FlipBit(b.id(), s, 77*s+1) {
					t.Fatal("no block to damage")
				}
			}
		}
		rig.wantBytes(b, body, 0, b.Size)
		rng := rand.New(rand.NewPCG(7, 7))
		for range 50 {
			off := rng.Int64N(b.Size)
			rig.wantBytes(b, body, off, rng.Int64N(b.Size-off+1))
		}
		if got := rig.count.Reconstructed.Load(); got == 0 {
			t.Error("nothing was reconstructed")
		}
		// One more in one stripe, and that stripe is gone, but no other.
		bad := int64(4)
		for j := range m + 1 {
			rig.sims[(int(bad)+j)%n].FlipBit(b.id(), int(bad), 999) // the first m are damaged twice
		}
		size := int64(b.Layout.stripeSize())
		rig.wantBytes(b, body, 0, bad*size)
		rig.wantBytes(b, body, (bad+1)*size, b.Size-(bad+1)*size)
		got, err := rig.load(b, 0, b.Size)
		if !errors.Is(err, ErrCorrupt) || !bytes.HasPrefix(body, got) || int64(len(got)) > bad*size {
			t.Errorf("%d+%d: a lost stripe: %d bytes, %v, want ErrCorrupt after at most %d", n-m, m, len(got), err, bad*size)
		}
	}
}

// One byte of a healthy blob costs one block of one disk.
func TestReadTouchesWhatItNeeds(t *testing.T) {
	rig := newDataRig(t, 6, 2, nil)
	body := randomBytes(5<<20, 13)
	b := rig.store(body)
	var reads atomic.Int64
	for _, sim := range rig.sims {
		sim.SetHook(func(op storagetest.Op) storagetest.Fault {
			if op.Kind == storagetest.OpRead {
				reads.Add(1)
			}
			return storagetest.Fault{}
		})
	}
	block := int64(b.Layout.BlockSize)
	for _, tc := range []struct{ off, n, want int64 }{
		{0, 1, 1}, {b.Size - 1, 1, 1}, {block - 1, 1, 1}, {block - 1, 2, 2}, {block, block, 1}, {1, 4 * block, 5}, {0, b.Size, 20}, {7, 0, 0},
	} {
		reads.Store(0)
		rig.wantBytes(b, body, tc.off, tc.n)
		if got := reads.Load(); got != tc.want {
			t.Errorf("%d bytes from %d cost %d reads, want %d", tc.n, tc.off, got, tc.want)
		}
	}
	if rig.count.Hedged.Load()+rig.count.Retried.Load()+rig.count.Reconstructed.Load() != 0 {
		t.Error("a healthy blob needed help")
	}
}

// There is one way to the bytes: where every read fails, nothing is read.
func TestReadHasOneRoute(t *testing.T) {
	rig := newDataRig(t, 6, 2, nil)
	b := rig.store(randomBytes(2<<20, 14))
	for i := range rig.sims {
		rig.failOn(i, storagetest.OpRead, nil)
	}
	if got, err := rig.load(b, 0, b.Size); !errors.Is(err, ErrUnavailable) || len(got) != 0 {
		t.Errorf("%d bytes, %v, want none and ErrUnavailable", len(got), err)
	}
}

func TestPrefetch(t *testing.T) {
	rig := newDataRig(t, 6, 2, nil)
	body := randomBytes(3<<20+5, 15)
	b := rig.store(body)
	r, err := rig.open(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	read := func(off, n int64) {
		t.Helper()
		var out bytes.Buffer
		if _, err := r.writeTo(t.Context(), &out, off, n); err != nil || !bytes.Equal(out.Bytes(), body[off:off+n]) {
			t.Errorf("%d bytes from %d: %d bytes, %v", n, off, out.Len(), err)
		}
	}
	for _, tc := range []struct{ off, n, off2, n2 int64 }{{0, b.Size, 0, b.Size}, {5, 10, 5, 10}, {5, 10, 6, 2 << 20}, {1 << 20, 1 << 20, 0, 1}, {0, 0, 0, b.Size}} {
		if err := r.prefetch(t.Context(), tc.off, tc.n); err != nil {
			t.Fatal(err)
		}
		read(tc.off2, tc.n2)
	}
	if err := r.prefetch(t.Context(), 0, b.Size); err != nil { // left for close
		t.Fatal(err)
	}
	for _, bad := range [][2]int64{{-1, 1}, {0, -1}, {0, b.Size + 1}, {b.Size, 1}, {b.Size + 1, 0}, {1, 1<<63 - 1}} {
		if err := r.prefetch(t.Context(), bad[0], bad[1]); err == nil {
			t.Errorf("prefetch of %d bytes from %d succeeds", bad[1], bad[0])
		}
		if _, err := r.writeTo(t.Context(), io.Discard, bad[0], bad[1]); err == nil {
			t.Errorf("read of %d bytes from %d succeeds", bad[1], bad[0])
		}
	}
	for i := range 3 {
		rig.sims[i].Lose(b.id())
	}
	lost, err := rig.open(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	defer lost.close()
	if err := lost.prefetch(t.Context(), 0, b.Size); !errors.Is(err, ErrCorrupt) {
		t.Errorf("prefetch of what is lost: %v, want ErrCorrupt before anything is delivered", err)
	}
}

// What was reconstructed for a prefetch is not reconstructed again.
func TestPrefetchReconstructs(t *testing.T) {
	rig := newDataRig(t, 6, 2, nil)
	body := randomBytes(3<<20+5, 19)
	b := rig.store(body)
	rig.sims[b.Layout.Slots[0]].Lose(b.id())
	rig.sims[b.Layout.Slots[3]].Lose(b.id())
	r, err := rig.open(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	for range 3 {
		before := rig.count.Reconstructed.Load()
		if err := r.prefetch(t.Context(), 0, b.Size); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if _, err := r.writeTo(t.Context(), &out, 0, b.Size); err != nil || !bytes.Equal(out.Bytes(), body) {
			t.Fatalf("%d bytes, %v", out.Len(), err)
		}
		// The last stripe of five bytes has no fourth block that anyone wants.
		if got, want := rig.count.Reconstructed.Load()-before, int64(3*2+1); got != want {
			t.Errorf("%d blocks were reconstructed, want %d", got, want)
		}
	}
}

// failingWriter takes n bytes.
type failingWriter struct {
	n   int
	err error
}

func (f *failingWriter) Write(p []byte) (int, error) {
	if len(p) > f.n {
		return f.n, f.err
	}
	f.n -= len(p)
	return len(p), nil
}

func TestReadEndsWithItsReader(t *testing.T) {
	rig := newDataRig(t, 6, 2, nil)
	b := rig.store(randomBytes(8<<20, 16))
	cause := errors.New("connection reset")
	for _, n := range []int{0, 1, 256 << 10, 3<<20 + 1} {
		r, err := rig.open(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.writeTo(t.Context(), &failingWriter{n, cause}, 0, b.Size)
		r.close()
		if err != cause || got != int64(n) {
			t.Errorf("a client that leaves after %d bytes: %d, %v", n, got, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	r, err := rig.open(ctx, b)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	_, err = r.writeTo(ctx, writerFunc(func(p []byte) (int, error) { cancel(); return len(p), nil }), 0, b.Size)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a read that is cancelled: %v, want Canceled", err)
	}
	if _, err := rig.open(ctx, b); !errors.Is(err, context.Canceled) {
		t.Errorf("open after cancel: %v, want Canceled", err)
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// A record that names what cannot be is an error, never a panic.
func TestReadOfNonsense(t *testing.T) {
	rig := newDataRig(t, 3, 1, nil)
	b := rig.store(randomBytes(100000, 17))
	wrong := b
	wrong.Size++ // the shards are of another size
	wrong.Size += int64(wrong.Layout.K)
	if _, err := rig.load(wrong, 0, 10); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a blob of another size: %v, want ErrCorrupt", err)
	}
	wrong = b
	wrong.Layout.Slots = []uint8{7, 8, 9}
	if _, err := rig.load(wrong, 0, 10); !errors.Is(err, ErrUnavailable) {
		t.Errorf("a blob on disks that the set does not have: %v, want ErrUnavailable", err)
	}
	wrong.Layout.K = 0
	if _, err := rig.load(wrong, 0, 10); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a blob without data shards: %v, want ErrCorrupt", err)
	}
}

func TestReadWithoutMemory(t *testing.T) {
	rig := newDataRig(t, 6, 2, func(o *dataOptions) { o.ReserveWait = 20 * time.Millisecond })
	b := rig.store(randomBytes(100000, 18))
	all, err := rig.pool.Reserve(t.Context(), 256<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer all.Release()
	if _, err := rig.load(b, 0, 10); !errors.Is(err, ErrOverload) {
		t.Errorf("read without memory: %v, want ErrOverload", err)
	}
}
