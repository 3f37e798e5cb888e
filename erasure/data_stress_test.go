package erasure

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"ringfence/storage"
	"ringfence/storage/storagetest"
)

// Random blobs under random faults: at most as many disks misbehave as parity
// allows, each in a random way at random steps, and all bytes come back right.
// Beyond that there are errors, and never a wrong byte.
func TestRandomFaults(t *testing.T) {
	rounds := 120
	if testing.Short() {
		rounds = 20
	}
	for seed := range rounds {
		rng := rand.New(rand.NewPCG(uint64(seed), 77))
		shape := [][2]int{{2, 1}, {3, 1}, {4, 2}, {6, 2}, {8, 4}, {16, 4}}[rng.IntN(6)]
		rig := newDataRig(t, shape[0], shape[1], func(o *dataOptions) {
			if seed%2 == 0 {
				o.Env = inline()
			}
		})
		size := rng.IntN(1 << (8 + rng.IntN(15)))
		body := randomBytes(size, uint64(seed))
		in := rig.input(body)
		in.Body = &dribble{body: body, rng: rng}
		if rng.IntN(2) == 0 {
			in.Size = -1
		}
		b := rig.storeAs(in)
		faulty := rig.breakSome(rng, shape[1]+rng.IntN(2))
		for range 6 {
			off := rng.Int64N(b.Size + 1)
			n := rng.Int64N(b.Size - off + 1)
			got, err := rig.load(b, off, n)
			if !bytes.HasPrefix(body[off:off+n], got) {
				t.Fatalf("seed %d: wrong bytes", seed)
			}
			if err == nil && int64(len(got)) != n {
				t.Fatalf("seed %d: %d bytes of %d and no error", seed, len(got), n)
			}
			if err != nil && (faulty <= shape[1] || !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrCorrupt)) {
				t.Fatalf("seed %d: %d of %d+%d disks misbehave: %v", seed, faulty, shape[0]-shape[1], shape[1], err)
			}
		}
	}
}

// breakSome makes n random disks fail or lie at random reads.
func (rig *dataRig) breakSome(rng *rand.Rand, n int) int {
	for _, slot := range rng.Perm(len(rig.sims))[:n] {
		kind := []storagetest.FaultKind{storagetest.FaultFail, storagetest.FaultFlip, storagetest.FaultMisdirect}[rng.IntN(3)]
		err := []error{nil, storage.ErrOffline, storage.ErrCorrupt, storage.ErrNotFound}[rng.IntN(4)]
		often, bit := 1+rng.IntN(3), rng.IntN(1<<15)
		var mu sync.Mutex
		count := 0
		rig.sims[slot].SetHook(func(op storagetest.Op) storagetest.Fault {
			if op.Kind != storagetest.OpRead && op.Kind != storagetest.OpOpenShard {
				return storagetest.Fault{}
			}
			mu.Lock()
			defer mu.Unlock()
			if count++; count%often != 0 {
				return storagetest.Fault{}
			}
			if op.Kind == storagetest.OpOpenShard && kind != storagetest.FaultFail {
				return storagetest.Fault{}
			}
			return storagetest.Fault{Kind: kind, Err: err, Bit: bit}
		})
	}
	return n
}

// What seal reported survives a power failure; what it did not report is never
// read as if it were whole.
func TestCrashAfterSeal(t *testing.T) {
	for seed := range 40 {
		rng := rand.New(rand.NewPCG(uint64(seed), 78))
		rig := newDataRig(t, 6, 2, nil)
		body := randomBytes(1+rng.IntN(3<<20), uint64(seed))
		b := rig.store(body)
		half, err := rig.write(t.Context(), rig.input(body))
		if err != nil {
			t.Fatal(err)
		}
		for i, sim := range rig.sims {
			sim.Crash(rng)
			disk, err := sim.Open(rig.disks[i].Identity())
			if err != nil {
				t.Fatal(err)
			}
			rig.opts.Disks[i] = disk
		}
		rig.wantBytes(b, body, 0, b.Size)
		if _, err := half.seal(t.Context()); !errors.Is(err, ErrUnavailable) {
			t.Fatalf("seal after a crash: %v", err)
		}
		if _, err := rig.load(blob{UUID: half.id.UUID, Part: half.id.Part, Size: half.size, Layout: half.layout}, 0, 1); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("what was never sealed reads: %v", err)
		}
	}
}

// A cancelled seal leaves nothing, whichever disks had sealed already.
func TestSealIsCancelled(t *testing.T) {
	for slot := range 6 {
		synctest.Test(t, func(t *testing.T) {
			rig := newDataRig(t, 6, 2, nil)
			staged, err := rig.write(t.Context(), rig.input(randomBytes(2<<20, 1)))
			if err != nil {
				t.Fatal(err)
			}
			rig.hang(slot, storagetest.OpSealDir)
			rig.hang((slot+1)%6, storagetest.OpSealData)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				synctest.Wait()
				cancel()
			}()
			if _, err := staged.seal(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("cancelled seal: %v", err)
			}
			synctest.Wait()
			rig.wantNoShards()
		})
	}
}

// Many at once: bytes stay apart, memory comes back, and every layout in use
// reads while disks come and go.
func TestManyAtOnce(t *testing.T) {
	rig := newDataRig(t, 6, 2, nil)
	workers, rounds := 16, 6
	if testing.Short() {
		workers, rounds = 6, 2
	}
	stop := make(chan struct{})
	var churn, work sync.WaitGroup
	churn.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			slot := i % 6
			rig.failOn(slot, []storagetest.OpKind{storagetest.OpRead, storagetest.OpAppend, storagetest.OpCreate}[i%3], nil)
			for range 200 {
				rig.health()
			}
			rig.sims[slot].SetHook(nil)
		}
	})
	for w := range workers {
		work.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 79))
			for range rounds {
				body := randomBytes(rng.IntN(2<<20), rng.Uint64())
				b, err := writeAndSeal(rig, rig.input(body))
				if errors.Is(err, ErrUnavailable) {
					continue // two disks at an unlucky moment
				}
				if err != nil {
					t.Error(err)
					return
				}
				if len(b.Missing) > 1 {
					t.Errorf("stored with %v missing", b.Missing)
				}
				off := rng.Int64N(b.Size + 1)
				got, err := rig.load(b, off, b.Size-off)
				if err != nil && !errors.Is(err, ErrUnavailable) || err == nil && !bytes.Equal(got, body[off:]) || !bytes.HasPrefix(body[off:], got) {
					t.Errorf("read of %d: %d bytes, %v", b.Size-off, len(got), err)
				}
				if err := rig.remove(t.Context(), b); err != nil {
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
	close(stop)
	churn.Wait()
}

// Every shard file says where it belongs.
func TestShardsCarryTheirPlace(t *testing.T) {
	rig := newDataRig(t, 6, 2, nil)
	rig.sims[2].Vanish()
	b := rig.store(randomBytes(100000, 1))
	for i, slot := range b.Layout.Slots {
		rd, err := rig.disks[slot].OpenShard(t.Context(), b.id())
		if err != nil {
			t.Fatal(err)
		}
		p, caller, err := splitOwner(rd.Info().Owner)
		if err != nil || string(caller) != "owner" || int(p.Shard) != i || p.Size != b.Size || !slices.Equal(p.Layout.Slots, b.Layout.Slots) || p.Layout.BlockSize != b.Layout.BlockSize {
			t.Errorf("shard %d says %+v, %q, %v", i, p, caller, err)
		}
		if err := rd.Close(); err != nil {
			t.Error(err)
		}
	}
	in := rig.input(nil)
	in.Owner = make([]byte, maxOwner+1)
	if _, err := rig.write(t.Context(), in); err == nil {
		t.Error("an owner that is too long is accepted")
	}
	in = rig.input(nil)
	in.Owner = make([]byte, maxOwner)
	rig.storeAs(in)
}

// The padding of the last stripe is zeros, not what another request left in
// the memory.
func TestPaddingIsZero(t *testing.T) {
	rig := newDataRig(t, 6, 2, nil)
	in := rig.input(nil)
	body := append(bytes.Repeat([]byte{0xee}, writeWindow<<20), 1, 2, 3, 4, 5)
	in.Body, in.Size = bytes.NewReader(body), int64(len(body))
	b := rig.storeAs(in)
	var got []byte
	for _, slot := range b.Layout.Slots[:4] {
		rd, err := rig.disks[slot].OpenShard(t.Context(), b.id())
		if err != nil {
			t.Fatal(err)
		}
		buf, err := rig.pool.Get(b.Layout.BlockSize)
		if err != nil {
			t.Fatal(err)
		}
		if err := rd.ReadBlocks(t.Context(), writeWindow, []*storage.Buf{buf}); err != nil {
			t.Fatal(err)
		}
		got = append(got, buf.Bytes()...)
		buf.Release()
		if err := rd.Close(); err != nil {
			t.Error(err)
		}
	}
	if want := []byte{1, 2, 3, 4, 5, 0, 0, 0}; !bytes.Equal(got, want) {
		t.Errorf("the data blocks of the last stripe are %v, want %v", got, want)
	}
}
