package erasure

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"ringfence/erasure/meta"
	"ringfence/erasure/meta/quorumlog"
	"ringfence/internal/env"
	"ringfence/storage"
	"ringfence/storage/storagetest"
)

// testStore is a store on simulated disks with engines in memory.
type testStore struct {
	*Store
	t       testing.TB
	pool    *storage.Pool
	sims    []*storagetest.Sim
	engines []*fakeEngine // none with the real one
	clock   atomic.Int64  // milliseconds; every look moves it by one
}

type storeShape struct {
	sets, disks, parity int
	real                bool // the real engine, not one in memory
}

func newTestStore(t testing.TB, shape storeShape) *testStore {
	t.Helper()
	pool, err := storage.NewPool(storage.PoolOptions{BudgetBytes: 256 << 20})
	if err != nil {
		t.Fatal(err)
	}
	ts := &testStore{t: t, pool: pool}
	ts.clock.Store(1_700_000_000_000)
	e := env.System()
	e.Now = func() time.Time { return time.UnixMilli(ts.clock.Add(1)) }
	opts := Options{Pool: pool, Env: e, Region: "eu-test-1"}
	for i := range shape.sets {
		set := SetOptions{Parity: shape.parity}
		for slot := range shape.disks {
			sim := storagetest.NewSim(storagetest.SimOptions{Name: fmt.Sprintf("set%d/disk%d", i, slot)})
			d, err := sim.Open(storage.Identity{
				Deployment: storage.UUID{9}, Set: storage.UUID{byte(i), 8},
				Disk: storage.UUID{byte(i), byte(slot), 1}, SetIndex: uint16(i), SetCount: uint16(shape.sets),
				Slot: uint8(slot), SetSize: uint8(shape.disks), Parity: uint8(shape.parity),
			})
			if err != nil {
				t.Fatal(err)
			}
			ts.sims = append(ts.sims, sim)
			set.Disks = append(set.Disks, ts.place(shape, sim, d))
		}
		set.Engine = ts.newEngine(shape, set.Disks, e)
		opts.Sets = append(opts.Sets, set)
	}
	if ts.Store, err = New(opts); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ts.Wait(context.Background()); err != nil {
			t.Error(err)
		}
		if n := pool.InUse(); n != 0 {
			t.Errorf("%d bytes of block memory are still in use", n)
		}
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	})
	return ts
}

// place puts a disk into a slot that brings it back, when the engine is real.
func (ts *testStore) place(shape storeShape, sim *storagetest.Sim, d storage.Disk) storage.Disk {
	if !shape.real {
		return d
	}
	slot, err := storage.NewSlot(storage.SlotOptions{
		Name: sim.Name(), Expect: d.Identity(), Interval: 5 * time.Millisecond, BackoffMax: 20 * time.Millisecond,
		Open: func(context.Context) (storage.Disk, error) { return sim.Open(d.Identity()) },
	})
	if err != nil {
		ts.t.Fatal(err)
	}
	slot.Tend(context.Background())
	ts.inBackground(slot.Run, slot.Close)
	return slot
}

// inBackground runs something until the test ends.
func (ts *testStore) inBackground(run func(context.Context) error, closing func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	ts.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			ts.t.Error(err)
		}
		if err := closing(); err != nil {
			ts.t.Error(err)
		}
	})
}

func (ts *testStore) newEngine(shape storeShape, disks []storage.Disk, e env.Env) meta.Engine {
	if !shape.real {
		eng := &fakeEngine{epoch: 7}
		ts.engines = append(ts.engines, eng)
		return eng
	}
	eng, err := quorumlog.New(quorumlog.Options{Disks: disks, Env: e})
	if err != nil {
		ts.t.Fatal(err)
	}
	if err := eng.Recover(context.Background()); err != nil {
		ts.t.Fatal(err)
	}
	ts.inBackground(eng.Run, eng.Close)
	return eng
}

func small(t testing.TB) *testStore {
	ts := newTestStore(t, storeShape{sets: 1, disks: 6, parity: 2})
	ts.mustBucket("b")
	return ts
}

func (ts *testStore) mustBucket(name string) {
	ts.t.Helper()
	if _, err := ts.CreateBucket(context.Background(), name, ""); err != nil {
		ts.t.Fatal(err)
	}
}

// text makes n bytes that depend on the seed.
func text(seed uint64, n int) []byte {
	b := make([]byte, n)
	rng := rand.New(rand.NewPCG(seed, uint64(n)))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

func etag(b []byte) string {
	sum := md5.Sum(b)
	return hex.EncodeToString(sum[:])
}

// input is a Put of b as a server would make it.
func input(b []byte) PutInput {
	return PutInput{
		Body: bytes.NewReader(b),
		Size: int64(len(b)),
		Finish: func(n int64) (Digest, error) {
			if n != int64(len(b)) {
				return Digest{}, fmt.Errorf("finish got %d bytes, want %d", n, len(b))
			}
			return Digest{ETag: etag(b), Checksums: []Checksum{{Algorithm: "CRC64NVME", Value: b[:min(8, len(b))]}}}, nil
		},
	}
}

func (ts *testStore) mustPut(bucket, key string, b []byte) ObjectInfo {
	ts.t.Helper()
	info, err := ts.Put(context.Background(), bucket, key, input(b))
	if err != nil {
		ts.t.Fatalf("put %q: %v", key, err)
	}
	return info
}

func (ts *testStore) read(bucket, key string) ([]byte, error) {
	o, err := ts.Open(context.Background(), bucket, key, GetInput{})
	if err != nil {
		return nil, err
	}
	defer o.Close()
	var out bytes.Buffer
	size := o.Info().Size
	if err := o.Prefetch(context.Background(), 0, size); err != nil {
		return nil, err
	}
	n, err := o.WriteTo(context.Background(), &out, 0, size)
	if err == nil && n != size {
		err = fmt.Errorf("wrote %d of %d bytes", n, size)
	}
	return out.Bytes(), err
}

func (ts *testStore) wantBody(bucket, key string, want []byte) {
	ts.t.Helper()
	got, err := ts.read(bucket, key)
	if err != nil {
		ts.t.Fatalf("read %q: %v", key, err)
	}
	if !bytes.Equal(got, want) {
		ts.t.Fatalf("read %q: %d bytes differ from the %d written", key, len(got), len(want))
	}
}

// collectAll works through all garbage that is due.
func (ts *testStore) collectAll() {
	ts.t.Helper()
	for _, set := range ts.sets {
		for {
			worked, err := ts.collect(context.Background(), set)
			if err != nil {
				ts.t.Fatalf("collect: %v", err)
			}
			if !worked {
				break
			}
		}
	}
}

// shards counts the shard files on all disks.
func (ts *testStore) shards() (n int) {
	for _, sim := range ts.sims {
		n += len(sim.Shards())
	}
	return n
}

// wantClean fails unless nothing is left but buckets and entries for later.
func (ts *testStore) wantClean() {
	ts.t.Helper()
	ts.collectAll()
	if n := ts.shards(); n != 0 {
		ts.t.Errorf("%d shards are left", n)
	}
	ts.clock.Add(garbageAfter.Milliseconds())
	ts.collectAll() // for the second time
	for _, e := range ts.engines {
		for _, space := range []string{"o/", "u/", "i/", "m/", "h/"} {
			if keys := e.keys(space); len(keys) > 0 {
				ts.t.Errorf("%q are left", keys)
			}
		}
	}
}

var sizes = []int{0, 1, 100, MaxInlineSize - 1, MaxInlineSize, MaxInlineSize + 1, 100_000, 1 << 20, 3<<20 + 17}

func TestPutOpenDelete(t *testing.T) {
	ts := small(t)
	for _, size := range sizes {
		for _, known := range []bool{true, false} {
			key := fmt.Sprintf("size-%d-%v", size, known)
			body := text(1, size)
			in := input(body)
			in.Body = io.MultiReader(bytes.NewReader(body)) // hides Len
			in.Meta = Meta{Headers: map[string]string{"content-type": "text/x"}, User: map[string]string{"a": "b"}}
			if !known {
				in.Size = -1
			}
			info, err := ts.Put(t.Context(), "b", key, in)
			if err != nil {
				t.Fatal(err)
			}
			if info.Size != int64(size) || info.Digest.ETag != etag(body) || info.Redundancy != (Redundancy{Disks: 6, Target: 6}) {
				t.Errorf("put gave %+v", info)
			}
			ts.wantBody("b", key, body)
			got, err := ts.Stat(t.Context(), "b", key, GetInput{})
			if err != nil || got.Meta.User["a"] != "b" || got.Meta.Headers["content-type"] != "text/x" || !got.ModTime.Equal(info.ModTime) {
				t.Errorf("stat gave %+v, %v", got, err)
			}
			if _, err := ts.Delete(t.Context(), "b", key, DeleteInput{}); err != nil {
				t.Fatal(err)
			}
			if _, err := ts.Stat(t.Context(), "b", key, GetInput{}); !errors.Is(err, ErrNoObject) {
				t.Errorf("stat after delete: %v", err)
			}
			if _, err := ts.Delete(t.Context(), "b", key, DeleteInput{}); err != nil {
				t.Errorf("second delete: %v", err)
			}
		}
	}
	ts.wantClean()
}
