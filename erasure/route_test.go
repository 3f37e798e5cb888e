package erasure_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"ringfence/erasure"
	"ringfence/erasure/meta/quorumlog"
	"ringfence/storage"
	"ringfence/storage/local"
	"ringfence/storage/std"
	"ringfence/storage/storagetest"
)

// faultyStore is a store on real files whose Backends do what a script says.
func faultyStore(t *testing.T, disks, parity int) (*erasure.Store, []*storagetest.Faulty) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	pool, err := storage.NewPool(storage.PoolOptions{BudgetBytes: 64 << 20})
	must(err)
	open := func(root string, wrap bool) (local.Options, *storagetest.Faulty) {
		backend, err := std.New(std.Options{Root: root})
		must(err)
		o := local.Options{Root: root, Backend: backend, Pool: pool}
		if !wrap {
			return o, nil
		}
		f := storagetest.NewFaulty(backend, nil)
		o.Backend = f
		return o, f
	}
	set := erasure.SetOptions{Parity: parity}
	var backends []*storagetest.Faulty
	for slot := range disks {
		root := filepath.Join(t.TempDir(), fmt.Sprint("disk", slot))
		must(os.Mkdir(root, 0o700))
		o, _ := open(root, false)
		must(local.Format(t.Context(), o, storage.Identity{
			Deployment: storage.UUID{1}, Set: storage.UUID{2}, Disk: storage.UUID{3, byte(slot)},
			SetCount: 1, Slot: uint8(slot), SetSize: uint8(disks), Parity: uint8(parity),
		}))
		o, f := open(root, true)
		d, err := local.Open(t.Context(), o)
		must(err)
		t.Cleanup(func() { must(d.Close()) })
		set.Disks, backends = append(set.Disks, d), append(backends, f)
	}
	engine, err := quorumlog.New(quorumlog.Options{Disks: set.Disks, Fresh: true})
	must(err)
	must(engine.Recover(t.Context()))
	set.Engine = engine
	store, err := erasure.New(erasure.Options{Sets: []erasure.SetOptions{set}, Pool: pool})
	must(err)
	t.Cleanup(func() {
		must(store.Wait(context.WithoutCancel(t.Context())))
		must(engine.Close())
	})
	return store, backends
}

// TestEveryShardReadGoesThroughItsBackend proves that there is one way to a
// shard: when every Backend fails every read, no object that has shards can be
// read, however warm the caches are, and as many failing ones as there is
// parity cost nothing.
func TestEveryShardReadGoesThroughItsBackend(t *testing.T) {
	store, backends := faultyStore(t, 6, 2)
	if _, err := store.CreateBucket(t.Context(), "bucket", ""); err != nil {
		t.Fatal(err)
	}
	bodies := map[string][]byte{}
	for _, size := range []int{erasure.MaxInlineSize + 1, 100_000, 1 << 20, 5_000_000} {
		key := fmt.Sprint(size)
		bodies[key] = bytes.Repeat([]byte{byte(size), 7, 1}, size)[:size]
		_, err := store.Put(t.Context(), "bucket", key, erasure.PutInput{
			Body: bytes.NewReader(bodies[key]), Size: int64(size),
			Finish: func(int64) (erasure.Digest, error) { return erasure.Digest{ETag: "e"}, nil },
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	read := func(key string) ([]byte, error) {
		o, err := store.Open(t.Context(), "bucket", key, erasure.GetInput{})
		if err != nil {
			return nil, err
		}
		var b bytes.Buffer
		_, err = o.WriteTo(t.Context(), &b, 0, o.Info().Size)
		return b.Bytes(), errors.Join(err, o.Close())
	}
	wantAll := func(when string) {
		t.Helper()
		for key, body := range bodies {
			if got, err := read(key); err != nil || !bytes.Equal(got, body) {
				t.Fatalf("%s: %s: %d bytes, %v", when, key, len(got), err)
			}
		}
	}
	wantAll("healthy")
	failReads := storagetest.FailCalls(storagetest.CallRead, nil)
	for _, b := range backends[:2] {
		b.SetScript(failReads)
	}
	wantAll("two Backends fail")
	for _, b := range backends[2:] {
		b.SetScript(failReads)
	}
	for key := range bodies {
		if got, err := read(key); err == nil || errors.Is(err, io.EOF) || len(got) > 0 {
			t.Errorf("all Backends fail, yet %s gave %d bytes (%v)", key, len(got), err)
		}
	}
	for _, b := range backends {
		b.SetScript(nil)
	}
	wantAll("healthy again")
}
