package erasure

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"ringfence/storage"
	"ringfence/storage/storagetest"
)

// failOn makes a disk fail every step of a kind.
func (rig *dataRig) failOn(slot int, kind storagetest.OpKind, err error) {
	rig.sims[slot].SetHook(func(op storagetest.Op) storagetest.Fault {
		if op.Kind == kind {
			return storagetest.Fault{Kind: storagetest.FaultFail, Err: err}
		}
		return storagetest.Fault{}
	})
}

func (rig *dataRig) heal() {
	for _, sim := range rig.sims {
		sim.SetHook(nil)
	}
}

func TestWriteRefusesWrongLengths(t *testing.T) {
	rig := newDataRig(t, 6, 2, nil)
	cause := errors.New("the client went away")
	for _, tc := range []struct {
		name string
		body io.Reader
		size int64
		want error
	}{
		{"short", bytes.NewReader(make([]byte, 99999)), 100000, io.ErrUnexpectedEOF},
		{"short by a stripe", bytes.NewReader(make([]byte, 1<<20)), 2 << 20, io.ErrUnexpectedEOF},
		{"empty", bytes.NewReader(nil), 1, io.ErrUnexpectedEOF},
		{"long", bytes.NewReader(make([]byte, 100001)), 100000, ErrBodyTooLong},
		{"long by much", bytes.NewReader(make([]byte, 5<<20)), 1 << 20, ErrBodyTooLong},
		{"longer than nothing", bytes.NewReader(make([]byte, 1)), 0, ErrBodyTooLong},
		{"broken at the start", &brokenBody{0, cause}, 100000, cause},
		{"broken in the middle", &brokenBody{3 << 20, cause}, 10 << 20, cause},
		{"broken at the end", &brokenBody{1 << 20, cause}, 1 << 20, cause},
		{"broken, length unknown", &brokenBody{1<<20 + 5, cause}, -1, cause},
		{"broken by an EOF of its own", &brokenBody{5, io.ErrUnexpectedEOF}, -1, io.ErrUnexpectedEOF},
	} {
		in := rig.input(nil)
		in.Body, in.Size = tc.body, tc.size
		if _, err := rig.write(t.Context(), in); err != tc.want {
			t.Errorf("%s: %v, want %v as it is", tc.name, err, tc.want)
		}
		rig.wantNoShards()
		if n := rig.pool.InUse(); n != 0 {
			t.Errorf("%s: %d bytes still in use", tc.name, n)
		}
	}
}

// countBody counts what is read of an endless body.
type countBody struct{ n int64 }

func (c *countBody) Read(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}

func TestWriteReadsOneByteTooMany(t *testing.T) {
	rig := newDataRig(t, 6, 2, nil)
	for _, size := range []int64{0, 1, 4096, 1 << 20, 3<<20 + 17} {
		in := rig.input(nil)
		body := &countBody{}
		in.Body, in.Size = body, size
		if _, err := rig.write(t.Context(), in); !errors.Is(err, ErrBodyTooLong) {
			t.Errorf("endless body: %v, want ErrBodyTooLong", err)
		}
		if body.n != size+1 {
			t.Errorf("%d bytes of the body were read, want %d", body.n, size+1)
		}
	}
	in := rig.input(nil)
	in.Body, in.Size = emptyReads{}, 5
	if _, err := rig.write(t.Context(), in); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("body without progress: %v, want ErrNoProgress", err)
	}
}

type emptyReads struct{}

func (emptyReads) Read([]byte) (int, error) { return 0, nil }

// Up to as many disks as parity allows may be away: the layout gets narrower,
// and the parity stays.
func TestWriteNarrows(t *testing.T) {
	body := randomBytes(3<<20+777, 1)
	for _, how := range []string{"vanished", "full", "create fails"} {
		for out := 0; out <= 4; out++ {
			rig := newDataRig(t, 6, 2, nil)
			for i := range out {
				switch how {
				case "vanished":
					rig.sims[i].Vanish()
				case "full":
					rig.failOn(i, storagetest.OpCreate, storage.ErrFull)
				case "create fails":
					rig.failOn(i, storagetest.OpCreate, nil)
				}
			}
			if out == 4 {
				_, err := rig.write(t.Context(), rig.input(body))
				want := map[string]error{"vanished": ErrUnavailable, "full": ErrFull, "create fails": ErrUnavailable}[how]
				if !errors.Is(err, want) {
					t.Errorf("%s: with %d disks out: %v, want %v", how, out, err, want)
				}
				rig.wantNoShards()
				continue
			}
			b := rig.store(body)
			if int(b.Layout.K) != 4-out || b.Layout.M != 2 || len(b.Missing) != 0 {
				t.Fatalf("%s: with %d disks out: %+v", how, out, b)
			}
			for i := range out {
				if b.Layout.indexOf(uint8(i)) >= 0 {
					t.Fatalf("%s: disk %d is out and used", how, i)
				}
			}
			rig.wantBytes(b, body, 0, b.Size)
		}
	}
}

// Nothing of the body is read before every disk has made its shard.
func TestWriteReadsNothingBeforeShards(t *testing.T) {
	rig := newDataRig(t, 6, 2, nil)
	body := &countBody{}
	created := 0
	for i := range rig.sims {
		rig.sims[i].SetHook(func(op storagetest.Op) storagetest.Fault {
			if op.Kind == storagetest.OpCreate {
				rig.mu.Lock()
				defer rig.mu.Unlock()
				created++
				if body.n != 0 {
					t.Error("the body is read before the shards are there")
				}
			}
			return storagetest.Fault{Kind: storagetest.FaultFail}
		})
	}
	in := rig.input(nil)
	in.Body, in.Size = body, 1<<20
	if _, err := rig.write(t.Context(), in); !errors.Is(err, ErrUnavailable) {
		t.Errorf("write on failing disks: %v, want ErrUnavailable", err)
	}
	if body.n != 0 || created == 0 {
		t.Errorf("%d bytes of the body were read in vain, after %d creates", body.n, created)
	}
}

// A disk that fails in the middle or at the seal is left out as long as the
// quorum holds; below it nothing is left on the others.
func TestWriteLosesDisks(t *testing.T) {
	body := randomBytes(4<<20+1, 2)
	for _, kind := range []storagetest.OpKind{storagetest.OpAppend, storagetest.OpSealData, storagetest.OpSealDir} {
		for out := 1; out <= 3; out++ {
			rig := newDataRig(t, 6, 2, nil)
			for i := range out {
				rig.failOn(i, kind, nil)
			}
			b, err := writeAndSeal(rig, rig.input(body))
			rig.heal()
			if out > 1 {
				if !errors.Is(err, ErrUnavailable) || !errors.Is(err, storage.ErrFailed) {
					t.Errorf("%v fails on %d disks: %v, want ErrUnavailable and why", kind, out, err)
				}
				rig.wantNoShards()
				continue
			}
			if err != nil {
				t.Fatalf("%v fails on one disk: %v", kind, err)
			}
			if want := []uint8{uint8(b.Layout.indexOf(0))}; !slices.Equal(b.Missing, want) {
				t.Errorf("%v fails on one disk: shards %v are missing, want %v", kind, b.Missing, want)
			}
			if err := rig.data.wait(t.Context()); err != nil { // for the lane that was left out
				t.Fatal(err)
			}
			if len(rig.sims[0].Shards()) != 0 {
				t.Errorf("%v fails: the disk keeps what it has", kind)
			}
			rig.wantBytes(b, body, 0, b.Size)
		}
	}
}

func writeAndSeal(rig *dataRig, in writeInput) (blob, error) {
	staged, err := rig.write(rig.t.Context(), in)
	if err != nil {
		return blob{}, err
	}
	return staged.seal(rig.t.Context())
}

// A name that was used is not used again, and not touched.
func TestWriteTakesAFreshName(t *testing.T) {
	rig := newDataRig(t, 6, 2, nil)
	first, second := randomBytes(3<<20, 7), randomBytes(2<<20, 8)
	in := rig.input(first)
	in.UUID[2] = 9 // of the epoch
	a := rig.storeAs(in)
	in.Body, in.Size = bytes.NewReader(second), int64(len(second))
	b := rig.storeAs(in)
	if a.UUID == b.UUID || b.id().Epoch() != a.id().Epoch() || b.Layout.K != 4 {
		t.Errorf("stored as %v, then as %+v", a.UUID, b)
	}
	rig.wantBytes(a, first, 0, a.Size)
	rig.wantBytes(b, second, 0, b.Size)
}

func TestWriteRefusesTheEndless(t *testing.T) {
	rig := newDataRig(t, 6, 2, nil)
	in := rig.input(nil)
	in.Size = 5 << 40
	if _, err := rig.write(t.Context(), in); !errors.Is(err, ErrBodyTooLong) {
		t.Errorf("a body of 5 TiB: %v, want ErrBodyTooLong", err)
	}
}

func TestWriteAborts(t *testing.T) {
	rig := newDataRig(t, 6, 2, nil)
	staged, err := rig.write(t.Context(), rig.input(randomBytes(3<<20, 3)))
	if err != nil {
		t.Fatal(err)
	}
	staged.abort()
	rig.wantNoShards()
	staged.abort()
	b := rig.store(randomBytes(100, 4))
	staged, err = rig.write(t.Context(), rig.input(randomBytes(100, 5)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := staged.seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	staged.abort() // harmless after seal
	if n := len(rig.sims[0].Shards()); n != 2 {
		t.Errorf("%d shards after an abort that came too late, want 2", n)
	}
	rig.wantBytes(b, randomBytes(100, 4), 0, 100)

	ctx, cancel := context.WithCancel(t.Context())
	in := rig.input(nil)
	in.Body, in.Size = readerFunc(func(p []byte) (int, error) { cancel(); return len(p), nil }), 100<<20
	if _, err := rig.write(ctx, in); !errors.Is(err, context.Canceled) {
		t.Errorf("write after cancel: %v, want Canceled", err)
	}
	if n := len(rig.sims[0].Shards()); n != 2 {
		t.Errorf("%d shards after a cancelled write, want 2", n)
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// A write holds a few MiB, however long it is.
func TestWriteMemory(t *testing.T) {
	rig := newDataRig(t, 6, 2, nil)
	var most int64
	rng := rand.New(rand.NewPCG(1, 1))
	left := 40 << 20
	in := rig.input(nil)
	in.Size = -1
	in.Body = readerFunc(func(p []byte) (int, error) {
		most = max(most, rig.pool.InUse())
		if left == 0 {
			return 0, io.EOF
		}
		n := min(len(p), left, 1+rng.IntN(1<<20))
		left -= n
		return n, nil
	})
	b := rig.storeAs(in)
	if most == 0 || most > 4<<20 {
		t.Errorf("the write held up to %d bytes, want up to 4 MiB", most)
	}
	if b.Size != 40<<20 {
		t.Errorf("stored %d bytes", b.Size)
	}
	if err := rig.remove(t.Context(), b); err != nil {
		t.Fatal(err)
	}
}

func TestWriteWithoutMemory(t *testing.T) {
	rig := newDataRig(t, 6, 2, func(o *dataOptions) { o.ReserveWait = 20 * time.Millisecond })
	all, err := rig.pool.Reserve(t.Context(), 256<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer all.Release()
	if _, err := rig.write(t.Context(), rig.input(make([]byte, 1000))); !errors.Is(err, ErrOverload) {
		t.Errorf("write without memory: %v, want ErrOverload", err)
	}
	rig.wantNoShards()
}

func TestRemoveNamesWhatRemains(t *testing.T) {
	rig := newDataRig(t, 6, 2, nil)
	b := rig.store(randomBytes(50000, 6))
	rig.sims[4].Vanish()
	rig.failOn(1, storagetest.OpRemove, nil)
	err := rig.remove(t.Context(), b)
	var left *removeError
	if !errors.As(err, &left) {
		t.Fatalf("remove with two disks out: %v", err)
	}
	slices.Sort(left.Slots)
	if !slices.Equal(left.Slots, []uint8{1, 4}) || !errors.Is(err, storage.ErrOffline) || !errors.Is(err, storage.ErrFailed) {
		t.Errorf("remove with disks 1 and 4 out: %v (slots %v)", err, left.Slots)
	}
	rig.sims[4].Return()
	rig.heal()
	disk, err := rig.sims[4].Open(rig.disks[4].Identity())
	if err != nil {
		t.Fatal(err)
	}
	rig.data.opts.Disks[4] = disk
	if err := rig.removeFrom(t.Context(), b, left.Slots); err != nil {
		t.Fatal(err)
	}
	rig.wantNoShards()
}
