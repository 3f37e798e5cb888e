package erasure

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ringfence/storage"
	"ringfence/storage/hybrid"
	"ringfence/storage/storagetest"
)

// faultyRig is a rig of 4+2 on real folders; a script can be put between a disk
// and its files.
func faultyRig(t *testing.T) (*dataRig, []*storagetest.Faulty) {
	t.Helper()
	if testing.Short() {
		t.Skip("formats disks")
	}
	var all []*storagetest.Faulty
	disks, _ := localDisksOn(t, 6, 2, func(_ string, b storage.Backend) storage.Backend {
		f := storagetest.NewFaulty(b, nil)
		all = append(all, f)
		return f
	})
	return newDataRig(t, 6, 2, func(o *dataOptions) { o.Disks = disks }), all
}

// There is no way around the backends to the bytes of a shard, whether it is
// open or not: every byte is read through one, and no more than what is needed.
func TestShardsAreReadThroughBackends(t *testing.T) {
	rig, all := faultyRig(t)
	body := randomBytes(5<<20+77, 41)
	b := rig.store(body)
	var read, tails atomic.Int64
	for _, f := range all {
		f.SetScript(func(c storagetest.Call) storagetest.Fault {
			switch {
			case c.Kind != storagetest.CallRead || !strings.HasPrefix(c.Name, "shards/"):
			case c.Off+int64(c.Len) > b.Layout.shardSize(b.Size):
				tails.Add(1)
			default:
				read.Add(int64(c.Len))
			}
			return storagetest.Fault{}
		})
	}
	for range 2 {
		read.Store(0)
		rig.wantBytes(b, body, 0, b.Size)
		if got := read.Load(); got < b.Size || got > b.Size+int64(b.Layout.K) {
			t.Errorf("%d bytes of shards were read through backends for %d bytes", got, b.Size)
		}
	}
	// A descriptor per disk that is open already serves the second read.
	if got := tails.Load(); got > int64(b.Layout.K) {
		t.Errorf("%d trailers were read, want one per data shard at most", got)
	}
	for _, f := range all {
		f.SetScript(storagetest.FailCalls(storagetest.CallRead, nil))
	}
	for _, r := range [][2]int64{{0, b.Size}, {0, 1}, {b.Size - 1, 1}, {1 << 20, 5}} {
		if got, err := rig.load(b, r[0], r[1]); !errors.Is(err, ErrUnavailable) || len(got) != 0 {
			t.Errorf("every read fails: %d bytes, %v, want none and ErrUnavailable", len(got), err)
		}
	}
}

// A disk that is slow to open or to read is passed in time for the first byte,
// though nobody has opened the shard elsewhere yet.
func TestPhysicalReadsAreHedged(t *testing.T) {
	for _, kind := range []storagetest.CallKind{storagetest.CallOpen, storagetest.CallRead} {
		t.Run(string(kind), func(t *testing.T) {
			rig, all := faultyRig(t)
			body := randomBytes(2<<20, 42)
			b := rig.store(body)
			gate := make(chan struct{})
			timer := time.AfterFunc(3*time.Second, func() { close(gate) })
			defer timer.Stop()
			all[b.Layout.Slots[1]].SetScript(func(c storagetest.Call) storagetest.Fault {
				if c.Kind == kind && strings.HasPrefix(c.Name, "shards/") {
					return storagetest.Fault{Wait: gate}
				}
				return storagetest.Fault{}
			})
			r, err := rig.open(t.Context(), b)
			if err != nil {
				t.Fatal(err)
			}
			defer r.close()
			var got bytes.Buffer
			var first time.Duration
			start := time.Now()
			_, err = r.writeTo(t.Context(), writerFunc(func(p []byte) (int, error) {
				if first == 0 {
					first = time.Since(start)
				}
				return got.Write(p)
			}), 0, b.Size)
			if err != nil || !bytes.Equal(got.Bytes(), body) {
				t.Fatalf("%d bytes, %v", got.Len(), err)
			}
			// What a busy machine adds must not fail the test; 3 s would.
			if first >= time.Second {
				t.Errorf("the first byte took %v", first)
			}
			t.Logf("first byte after %v", first)
			if rig.count.Hedged.Load() == 0 {
				t.Error("no extra read")
			}
		})
	}
}

// engines are the ways to read: the settings of rings, nil without any.
var engines = []struct {
	name string
	set  map[string]string
}{
	{"std", nil},
	{"inline first", map[string]string{"io-uring-read-enable": "on"}},
	{"rings", map[string]string{"io-uring-read-enable": "on", "io-uring-inline": "off"}},
	{"rings past the page cache", map[string]string{"io-uring-read-enable": "on", "io-uring-inline": "off", "o-direct-read-enable": "on", "o-direct-read-threshold": "0"}},
	{"registered memory", map[string]string{"io-uring-read-enable": "on", "io-uring-inline": "off", "io-uring-buffer-mode": "static"}},
}

// engineRig is a rig of 4+2 on real folders that are read as the settings say.
// With rings, they must have read something in the end, unless the page cache
// came first.
func engineRig(t *testing.T, set map[string]string) (*dataRig, []string) {
	t.Helper()
	if set == nil {
		disks, roots := localDisks(t, 6, 2)
		return newDataRig(t, 6, 2, func(o *dataOptions) { o.Disks = disks }), roots
	}
	knobs := hybrid.NewKnobs()
	for _, k := range knobs.All() {
		if text, ok := set[k.Name()]; ok {
			if err := k.Set(text); err != nil {
				t.Fatal(err)
			}
		}
	}
	pool, err := storage.NewPool(storage.PoolOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	})
	var all []*hybrid.Backend
	t.Cleanup(func() {
		reads := int64(0)
		for _, b := range all {
			st := b.Status()
			reads += st.Reads.Ring + st.Reads.RingDirect
		}
		if reads == 0 && !knobs.Inline.Load() && !t.Skipped() {
			t.Error("no ring read anything")
		}
	})
	disks, roots := localDisksOn(t, 6, 2, func(root string, base storage.Backend) storage.Backend {
		b := ringBackend(t, hybrid.Options{Base: base, Dir: root, Pool: pool, Knobs: knobs})
		all = append(all, b)
		return b
	})
	return newDataRig(t, 6, 2, func(o *dataOptions) { o.Disks, o.Pool = disks, pool }), roots
}

// ringBackend runs a backend that reads through rings until its disk closes.
func ringBackend(t *testing.T, o hybrid.Options) *hybrid.Backend {
	t.Helper()
	b, err := hybrid.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); b.Run(context.WithoutCancel(t.Context())) }()
	t.Cleanup(func() { <-ended })
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for late := time.After(10 * time.Second); b.Status().Tier != "ring"; {
		select {
		case <-tick.C:
		case <-late:
			// The probe has had its 2 s: the reason is not time.
			if err := b.Close(); err != nil {
				t.Error(err)
			}
			why := b.Status().Reason
			if slices.Contains(strings.Split(os.Getenv("RINGFENCE_TEST_REQUIRE"), ","), "uring") || !strings.Contains(why, "not permitted") {
				t.Fatalf("no rings: %s", why)
			}
			t.Skipf("SKIP %s: %s", t.Name(), why)
		}
	}
	return b
}

// Bytes that changed on the medium are noticed before any of them goes out,
// are made good, and are reported for repair, whichever engine reads.
func TestBitrotUnderEachEngine(t *testing.T) {
	if testing.Short() {
		t.Skip("formats disks")
	}
	for _, engine := range engines {
		t.Run(engine.name, func(t *testing.T) {
			rig, roots := engineRig(t, engine.set)
			rng := rand.New(rand.NewPCG(4, 3))
			for _, size := range []int{100_000, 3<<20 + 5} {
				body := randomBytes(size, uint64(size))
				b := rig.store(body)
				shard := int(b.Layout.shardSize(b.Size))
				for _, i := range []int{0, 2} {
					damageFile(t, shardFile(t, roots[b.Layout.Slots[i]], b), 0, shard, rng)
				}
				rig.damage = map[uint8]error{}
				rig.wantBytes(b, body, 0, b.Size)
				rig.wantBytes(b, body, 0, b.Size)
				for _, i := range []uint8{0, 2} {
					if err := rig.damage[i]; !errors.Is(err, storage.ErrCorrupt) {
						t.Errorf("%d bytes: damage of shard %d is reported as %v, want ErrCorrupt", size, i, err)
					}
				}
				if len(rig.damage) != 2 {
					t.Errorf("%d bytes: reported are %v", size, rig.damage)
				}
				wantNoWrongByte(t, rig, roots, b, body)
			}
		})
	}
}

// wantNoWrongByte damages every block of a third shard, so that nothing can be
// delivered, and looks at each byte that comes out all the same.
func wantNoWrongByte(t *testing.T, rig *dataRig, roots []string, b blob, body []byte) {
	t.Helper()
	rng := rand.New(rand.NewPCG(5, 6))
	for _, i := range []int{1, 3, 5} {
		for s := range int(b.Layout.stripes(b.Size)) {
			name := shardFile(t, roots[b.Layout.Slots[i]], b)
			flipByte(t, name, int64(s)*int64(b.Layout.BlockSize)+rng.Int64N(int64(b.Layout.blockLen(b.Layout.stripeLen(b.Size, int64(s))))))
		}
	}
	r, err := rig.open(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	var once sync.Once
	n, err := r.writeTo(t.Context(), writerFunc(func(p []byte) (int, error) {
		once.Do(func() { t.Error("a byte went out of a stripe that can't be read") })
		return len(p), nil
	}), 0, int64(len(body)))
	if !errors.Is(err, ErrCorrupt) || n != 0 {
		t.Errorf("%d bytes, %v, want none and ErrCorrupt", n, err)
	}
}
