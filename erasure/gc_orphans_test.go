package erasure

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"ringfence/storage"
	"ringfence/storage/storagetest"
)

// restart makes the store see the epoch of its engines as a new process would.
func (ts *testStore) restart(epoch uint64) {
	for i, set := range ts.sets {
		ts.engines[i].mu.Lock()
		ts.engines[i].epoch = epoch
		ts.engines[i].mu.Unlock()
		set.orphans = orphans{}
		set.claimed.Store(nil)
		ts.eventually("claim", func() error { _, err := ts.claim(ts.t.Context(), set); return err })
	}
}

// orphan leaves the shards of a write that was cut short before its commit.
// metadata is what they belong to, zero for none.
func (ts *testStore) orphan(metadata storage.UUID, epoch uint32, sealed bool) storage.ShardID {
	ts.t.Helper()
	return ts.orphanIn(ts.sets[0], metadata, epoch, sealed)
}

func (ts *testStore) orphanIn(set *set, metadata storage.UUID, epoch uint32, sealed bool) storage.ShardID {
	ts.t.Helper()
	id := ts.newUUID()
	binary.BigEndian.PutUint32(id[:], epoch)
	body := text(uint64(epoch), 50_000)
	h := home{Bucket: storage.UUID{1}, Key: "lost", Metadata: metadata}
	w, err := set.data.write(ts.t.Context(), writeInput{UUID: id, Owner: h.encode(), Body: bytes.NewReader(body), Size: int64(len(body))})
	if err != nil {
		ts.t.Fatal(err)
	}
	if sealed {
		if _, err := w.seal(ts.t.Context()); err != nil {
			ts.t.Fatal(err)
		}
	} else {
		ts.t.Cleanup(w.abort)
	}
	return storage.ShardID{UUID: id}
}

// on counts the disks that have a shard.
func (ts *testStore) on(id storage.ShardID) (n int) {
	for _, sim := range ts.sims {
		for _, s := range sim.Shards() {
			if s == id {
				n++
			}
		}
	}
	return n
}

func TestOrphansAreSwept(t *testing.T) {
	ts := small(t)
	ts.restart(3)
	id := ts.sets[0].claimed.Load().metadata
	bodies := map[string][]byte{}
	for i := range 20 {
		key := fmt.Sprint(i)
		bodies[key] = text(uint64(i), 30_000)
		ts.mustPut("b", key, bodies[key])
	}
	up := ts.mustUpload("open")
	ts.mustPart(up, 1, text(1, 40_000))
	read := ts.mustUpload("done")
	ts.mustPart(read, 1, text(2, 40_000))
	if _, err := ts.CompleteUpload(t.Context(), "b", "done", read.UploadID, completion(1)); err != nil {
		t.Fatal(err)
	}
	bodies["done"] = text(2, 40_000)
	sealed, cut := ts.orphan(id, 4, true), ts.orphan(id, 1, false)
	running := ts.orphan(id, 5, true)

	ts.restart(5)
	pinned, err := ts.Open(t.Context(), "b", "0", GetInput{})
	if err != nil {
		t.Fatal(err)
	}
	ts.mustPut("b", "0", []byte("new")) // what it held is garbage now, and read
	bodies["0"] = []byte("new")
	ts.sims[1].Vanish()
	if err := ts.sweep(t.Context(), ts.sets[0]); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		id   storage.ShardID
		want int
	}{
		"sealed": {sealed, 1}, "unsealed": {cut, 1}, "of this process": {running, 6},
	} {
		if n := ts.on(c.id); n != c.want {
			t.Errorf("orphan %s is on %d disks, want %d", name, n, c.want)
		}
	}
	ts.sweepAgain(5) // what was removed is gone for good
	ts.returnDisk(1)
	ts.sweepAgain(1)
	ts.sweepAgain(1)
	ts.sweepAgain(0)
	if n := ts.on(sealed) + ts.on(cut); n != 0 {
		t.Errorf("%d shards are left on the disk that came back", n)
	}
	for key, body := range bodies {
		ts.wantBody("b", key, body)
	}
	var out bytes.Buffer
	if _, err := pinned.WriteTo(t.Context(), &out, 0, 30_000); err != nil || !bytes.Equal(out.Bytes(), text(0, 30_000)) {
		t.Errorf("an open object lost its bytes: %v", err)
	}
	if err := pinned.Close(); err != nil {
		t.Error(err)
	}
	if _, err := ts.CompleteUpload(t.Context(), "b", "open", up.UploadID, completion(1)); err != nil {
		t.Errorf("complete: %v", err)
	}
	ts.wantBody("b", "open", text(1, 40_000))
}

// sweepAgain sweeps when it is time to, and wants to see so many disks listed.
func (ts *testStore) sweepAgain(want int) {
	ts.t.Helper()
	ts.clock.Add(orphanRetry.Milliseconds())
	lists := 0
	for _, sim := range ts.sims {
		sim.SetHook(func(op storagetest.Op) storagetest.Fault {
			if op.Kind == storagetest.OpList {
				lists++
			}
			return storagetest.Fault{}
		})
	}
	if err := ts.sweep(ts.t.Context(), ts.sets[0]); err != nil {
		ts.t.Fatal(err)
	}
	if lists != want {
		ts.t.Errorf("%d disks were listed, want %d", lists, want)
	}
}

// Before the first recovery there is no epoch, and no write begins.
func TestNoWriteBeforeRecovery(t *testing.T) {
	ts := small(t)
	ts.engines[0].mu.Lock()
	ts.engines[0].epoch = 0
	ts.engines[0].mu.Unlock()
	if _, err := ts.Put(t.Context(), "b", "k", input(text(1, 50_000))); !errors.Is(err, ErrUnavailable) {
		t.Errorf("put: %v", err)
	}
	if n := ts.shards(); n != 0 {
		t.Errorf("%d shards were written", n)
	}
}
