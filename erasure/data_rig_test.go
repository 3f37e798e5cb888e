package erasure

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"ringfence/internal/env"
	"ringfence/storage"
	"ringfence/storage/storagetest"
)

// dataRig is a data path on simulated disks.
type dataRig struct {
	*data
	t     testing.TB
	sims  []*storagetest.Sim
	disks []storage.Disk
	pool  *storage.Pool

	mu     sync.Mutex // protects the fields below
	damage map[uint8]error
	n      byte // of the last uuid
}

// inline is an Env as simulations have it: what Go is given runs at once, and
// no timer ever fires.
func inline() env.Env {
	e := env.System()
	e.Go = func(f func()) { f() }
	e.After = func(d time.Duration) (<-chan time.Time, func()) { return nil, func() {} }
	return e
}

// newDataRig makes a data path of n blank disks. change, if not nil, edits the
// options.
func newDataRig(t testing.TB, n, parity int, change func(*dataOptions)) *dataRig {
	t.Helper()
	pool, err := storage.NewPool(storage.PoolOptions{})
	if err != nil {
		t.Fatal(err)
	}
	rig := &dataRig{t: t, pool: pool, damage: map[uint8]error{}}
	for i := range n {
		sim := storagetest.NewSim(storagetest.SimOptions{Name: fmt.Sprintf("disk%d", i)})
		disk, err := sim.Open(storage.Identity{Disk: storage.UUID{byte(i + 1)}, Slot: uint8(i), SetSize: uint8(n), Parity: uint8(parity)})
		if err != nil {
			t.Fatal(err)
		}
		rig.sims = append(rig.sims, sim)
		rig.disks = append(rig.disks, disk)
	}
	opts := dataOptions{
		Disks: rig.disks, Parity: parity, Pool: pool,
		Damaged: func(_ blob, shard uint8, err error) {
			rig.mu.Lock()
			defer rig.mu.Unlock()
			rig.damage[shard] = err
		},
	}
	if change != nil {
		change(&opts)
	}
	rig.data = newData(opts)
	t.Cleanup(func() {
		if err := rig.wait(context.Background()); err != nil {
			t.Error(err)
		}
		if n := pool.InUse(); n != 0 {
			t.Errorf("%d bytes of buffers are still in use", n)
		}
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	})
	return rig
}

// randomBytes gives n bytes of their own for each seed.
func randomBytes(n int, seed uint64) []byte {
	p := make([]byte, n)
	rng := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(n), byte(n >> 8)})
	_, _ = rng.Read(p)
	return p
}

// input is a write of body under a new name.
func (rig *dataRig) input(body []byte) writeInput {
	rig.mu.Lock()
	defer rig.mu.Unlock()
	rig.n++
	return writeInput{
		UUID: storage.UUID{9: rig.n, 10: 7, 11: rig.n, 15: rig.n}, Part: uint16(rig.n), Owner: []byte("owner"),
		Body: bytes.NewReader(body), Size: int64(len(body)),
	}
}

// store writes and seals body.
func (rig *dataRig) store(body []byte) blob {
	rig.t.Helper()
	return rig.storeAs(rig.input(body))
}

func (rig *dataRig) storeAs(in writeInput) blob {
	rig.t.Helper()
	staged, err := rig.write(rig.t.Context(), in)
	if err != nil {
		rig.t.Fatalf("write: %v", err)
	}
	b, err := staged.seal(rig.t.Context())
	if err != nil {
		rig.t.Fatalf("seal: %v", err)
	}
	return b
}

// load reads a range.
func (rig *dataRig) load(b blob, off, n int64) ([]byte, error) {
	rig.t.Helper()
	r, err := rig.open(rig.t.Context(), b)
	if err != nil {
		return nil, err
	}
	defer r.close()
	var out bytes.Buffer
	m, err := r.writeTo(rig.t.Context(), &out, off, n)
	if m != int64(out.Len()) {
		rig.t.Errorf("writeTo reports %d bytes, wrote %d", m, out.Len())
	}
	return out.Bytes(), err
}

// wantBytes reads a range and compares it.
func (rig *dataRig) wantBytes(b blob, body []byte, off, n int64) {
	rig.t.Helper()
	got, err := rig.load(b, off, n)
	if err != nil {
		rig.t.Fatalf("read %d bytes from %d of %d: %v", n, off, len(body), err)
	}
	if !bytes.Equal(got, body[off:off+n]) {
		rig.t.Fatalf("read %d bytes from %d of %d: wrong bytes", n, off, len(body))
	}
}

// wantNoShards fails if any disk holds a shard.
func (rig *dataRig) wantNoShards() {
	rig.t.Helper()
	for i, sim := range rig.sims {
		if ids := sim.Shards(); len(ids) > 0 {
			rig.t.Errorf("disk %d still holds %v", i, ids)
		}
	}
}

// brokenBody fails with err after n bytes.
type brokenBody struct {
	n   int
	err error
}

func (b *brokenBody) Read(p []byte) (int, error) {
	if b.n == 0 {
		return 0, b.err
	}
	n := min(len(p), b.n)
	clear(p[:n])
	b.n -= n
	return n, nil
}

// dribble gives a body in pieces of odd sizes, sometimes none.
type dribble struct {
	body []byte
	rng  *rand.Rand
}

func (d *dribble) Read(p []byte) (int, error) {
	if len(d.body) == 0 {
		return 0, io.EOF
	}
	n := copy(p, d.body[:min(len(d.body), d.rng.IntN(70000))])
	d.body = d.body[n:]
	if len(d.body) == 0 && d.rng.IntN(2) == 0 {
		return n, io.EOF
	}
	return n, nil
}
