package storagetest

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"ringfence/storage"
)

func identity(n byte) storage.Identity {
	return storage.Identity{Disk: storage.UUID{n}, Set: storage.UUID{9}, SetCount: 1, SetSize: 6, Slot: n, Parity: 2}
}

func openSim(t testing.TB, s *Sim) *SimDisk {
	t.Helper()
	d, err := s.Open(identity(1))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestTreeAgainstMap(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		model := map[string]string{}
		var now tree
		type old struct {
			t tree
			m map[string]string
		}
		var history []old
		for edit := range uint32(30) {
			var b storage.Batch
			for range 1 + rng.IntN(8) {
				k := fmt.Sprintf("%02d", rng.IntN(40))
				switch rng.IntN(6) {
				case 0:
					b.Delete([]byte(k))
					delete(model, k)
				case 1:
					hi := fmt.Sprintf("%02d", rng.IntN(40))
					b.DeleteRange([]byte(k), []byte(hi))
					maps.DeleteFunc(model, func(key, _ string) bool { return k <= key && key < hi })
				default:
					v := fmt.Sprint(rng.IntN(1000))
					b.Set([]byte(k), []byte(v))
					model[k] = v
				}
			}
			now = now.apply(&b, edit+1)
			history = append(history, old{now, maps.Clone(model)})
		}
		for i, h := range history {
			sameTree(t, fmt.Sprintf("seed %d, state %d", seed, i), h.t, h.m, rng)
		}
	}
}

// sameTree compares a tree with a map by whole walk, bounded walk and get.
func sameTree(t *testing.T, what string, got tree, want map[string]string, rng *rand.Rand) {
	t.Helper()
	lo, hi := fmt.Sprintf("%02d", rng.IntN(40)), fmt.Sprintf("%02d", rng.IntN(40))
	for _, w := range []walk{{tree: got}, {tree: got, lo: []byte(lo), hi: []byte(hi)}} {
		keys := slices.Sorted(maps.Keys(want))
		if w.hi != nil {
			keys = slices.DeleteFunc(keys, func(k string) bool { return k < lo || k >= hi })
		}
		for _, k := range keys {
			if !w.next() || string(w.at().key) != k || string(w.at().value) != want[k] {
				t.Fatalf("%s: want %s=%s next", what, k, want[k])
			}
		}
		if w.next() {
			t.Fatalf("%s: %s after the end", what, w.at().key)
		}
	}
	for k, v := range want {
		if g, ok := got.get([]byte(k)); !ok || string(g) != v {
			t.Fatalf("%s: get %s = %q, %t; want %q", what, k, g, ok, v)
		}
	}
}

// apply sets n keys "0".."n-1" one batch each.
func applyN(t testing.TB, kv storage.KV, n int) {
	t.Helper()
	for i := range n {
		var b storage.Batch
		b.Set([]byte{byte(i)}, []byte{1})
		if err := kv.Apply(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
	}
}

func countKeys(t testing.TB, kv storage.KV) int {
	t.Helper()
	it, err := kv.Iter(t.Context(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for it.Next() {
		if it.Key()[0] != byte(n) {
			t.Fatalf("key %d is missing: batches did not survive as a prefix", n)
		}
		n++
	}
	if err := errors.Join(it.Err(), it.Close()); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestSimCrashKeepsWhatWasSynced(t *testing.T) {
	for seed := range uint64(100) {
		s := NewSim(SimOptions{})
		d := openSim(t, s)
		applyN(t, d.KV(), 10)
		id, content := sealShard(t, d, rand.New(rand.NewPCG(seed, 2)))
		s.Crash(rand.New(rand.NewPCG(seed, 3)))
		if err := d.Check(t.Context()); !errors.Is(err, storage.ErrOffline) {
			t.Fatalf("instance after the crash: %v", err)
		}
		d = openSim(t, s)
		if n := countKeys(t, d.KV()); n != 10 {
			t.Fatalf("seed %d: %d keys of 10 after the crash", seed, n)
		}
		if got := readShard(t, d, id); !bytes.Equal(got, content) {
			t.Fatalf("seed %d: sealed shard changed", seed)
		}
	}
}

// sealShard writes three blocks, the last one short.
func sealShard(t testing.TB, d storage.Disk, rng *rand.Rand) (storage.ShardID, []byte) {
	t.Helper()
	id := newID(rng)
	content := make([]byte, 2*storage.BlockAlign+100)
	for i := range content {
		content[i] = byte(1 + rng.IntN(255))
	}
	w, err := d.CreateShard(t.Context(), id, storage.ShardInfo{BlockSize: storage.BlockAlign})
	if err != nil {
		t.Fatal(err)
	}
	for b := range slices.Chunk(content, storage.BlockAlign) {
		if err := w.Append(t.Context(), b, storage.Sum{b[0]}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	return id, content
}

func readShard(t testing.TB, d storage.Disk, id storage.ShardID) []byte {
	t.Helper()
	r, err := d.OpenShard(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	pool, err := storage.NewPool(storage.PoolOptions{BudgetBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	var all []byte
	for i := range r.Info().Blocks() {
		b, err := pool.Get(r.Info().BlockSize)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.ReadBlocks(t.Context(), i, []*storage.Buf{b}); err != nil {
			t.Fatal(err)
		}
		all = append(all, b.Bytes()...)
		b.Release()
	}
	if err := errors.Join(r.Close(), pool.Close()); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestSimCrashLosesWhatWasNot asks that every outcome that a real disk can
// have comes up, so that a missing sync above is found.
func TestSimCrashLosesWhatWasNot(t *testing.T) {
	lie := func(kinds ...OpKind) func(Op) Fault {
		return func(op Op) Fault {
			if slices.Contains(kinds, op.Kind) {
				return Fault{Kind: FaultLie}
			}
			return Fault{}
		}
	}
	keys, shards := map[int]int{}, map[string]int{}
	for seed := range uint64(300) {
		s := NewSim(SimOptions{})
		d := openSim(t, s)
		applyN(t, d.KV(), 2)
		kinds := [][]OpKind{{OpApply, OpSealData}, {OpApply, OpSealDir}, {OpApply, OpSealData, OpSealDir}}[seed%3]
		s.SetHook(lie(kinds...))
		kv := d.KV()
		for i := 2; i < 6; i++ {
			var b storage.Batch
			b.Set([]byte{byte(i)}, []byte{1})
			if err := kv.Apply(t.Context(), &b); err != nil {
				t.Fatal(err)
			}
		}
		id, content := sealShard(t, d, rand.New(rand.NewPCG(seed, 2)))
		s.Crash(rand.New(rand.NewPCG(seed, 3)))
		d = openSim(t, s)
		keys[countKeys(t, d.KV())]++
		switch _, err := d.OpenShard(t.Context(), id); {
		case errors.Is(err, storage.ErrNotFound):
			shards["no entry"]++
		case errors.Is(err, storage.ErrCorrupt):
			shards["no trailer"]++
		case err != nil:
			t.Fatal(err)
		case bytes.Equal(readShard(t, d, id), content):
			shards["whole"]++
		default:
			shards["blocks damaged"]++
		}
	}
	for n := 2; n <= 6; n++ {
		if keys[n] == 0 {
			t.Errorf("no run kept exactly %d batches: %v", n, keys)
		}
	}
	if len(keys) != 5 {
		t.Errorf("synced batches were lost: %v", keys)
	}
	for _, what := range []string{"no entry", "no trailer", "whole", "blocks damaged"} {
		if shards[what] == 0 {
			t.Errorf("no run had a shard with %s: %v", what, shards)
		}
	}
}

func TestSimUnlinkMayComeBack(t *testing.T) {
	back, synced := 0, 0
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 2))
		s := NewSim(SimOptions{})
		d := openSim(t, s)
		id, _ := sealShard(t, d, rng)
		if err := d.RemoveShard(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if seed%2 == 0 { // a later seal in the same folder makes the unlink durable
			other := id
			other.Part++
			w, err := d.CreateShard(t.Context(), other, storage.ShardInfo{BlockSize: storage.BlockAlign})
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Seal(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		s.Crash(rng)
		if _, err := openSim(t, s).OpenShard(t.Context(), id); err == nil {
			back++
			if seed%2 == 0 {
				synced++
			}
		}
	}
	if back < 10 || back > 40 || synced != 0 {
		t.Errorf("%d of 50 unsynced unlinks came back, %d of 50 synced ones", back, synced)
	}
}

func TestSimPowerCutAtEveryStep(t *testing.T) {
	run := func(cut uint64, trace func(Op, error)) (acked int, sims []*Sim, steps *Steps) {
		steps = &Steps{}
		steps.CutAt(cut)
		var disks []*SimDisk
		for i := range 2 {
			s := NewSim(SimOptions{Name: fmt.Sprint(i), Steps: steps, Trace: trace})
			sims = append(sims, s)
			disks = append(disks, openSim(t, s))
		}
		for i := range 5 {
			for _, d := range disks {
				var b storage.Batch
				b.Set([]byte{byte(i)}, []byte{1})
				if err := d.KV().Apply(t.Context(), &b); err != nil {
					return acked, sims, steps
				}
			}
			acked++
		}
		return acked, sims, steps
	}
	_, _, steps := run(0, nil)
	if steps.Count() != 10 {
		t.Fatalf("%d steps, want 10", steps.Count())
	}
	hash := func(cut uint64) uint64 {
		h := fnv.New64a()
		acked, sims, steps := run(cut, func(op Op, err error) { fmt.Fprintf(h, "%v %v\n", op, err) })
		if !steps.Dark() {
			t.Fatalf("cut at %d: power is on", cut)
		}
		rng := rand.New(rand.NewPCG(cut, 4))
		for _, s := range sims {
			if _, err := s.Open(identity(1)); !errors.Is(err, storage.ErrOffline) {
				t.Fatalf("open in the dark: %v", err)
			}
			s.Crash(rng)
		}
		steps.PowerOn()
		for _, s := range sims {
			if n := countKeys(t, openSim(t, s).KV()); n < acked || n > acked+1 {
				t.Fatalf("cut at %d: %d keys, %d acknowledged", cut, n, acked)
			}
			fmt.Fprintln(h, s.KVDigest(nil, nil))
		}
		return h.Sum64()
	}
	for cut := uint64(1); cut <= 10; cut++ {
		if first, second := hash(cut), hash(cut); first != second {
			t.Fatalf("cut at %d: two runs differ", cut)
		}
	}
}

func BenchmarkSimApply(b *testing.B) {
	s := NewSim(SimOptions{})
	d := openSim(b, s)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		var batch storage.Batch
		for j := range 10 {
			batch.Set(fmt.Appendf(nil, "k%03d", (i*7+j*31)%300), []byte("a value of some bytes"))
		}
		if err := d.KV().Apply(b.Context(), &batch); err != nil {
			b.Fatal(err)
		}
		i++
	}
}

// BenchmarkCrashPoint is one simulated run: six disks, twenty commits of ten
// keys and ten small shards, a power cut somewhere, all disks opened again.
func BenchmarkCrashPoint(b *testing.B) {
	block := make([]byte, storage.BlockAlign)
	run := func(cut uint64) *Steps {
		steps := &Steps{}
		steps.CutAt(cut)
		rng := rand.New(rand.NewPCG(cut, 5))
		var sims []*Sim
		var disks []*SimDisk
		for range 6 {
			s := NewSim(SimOptions{Steps: steps})
			sims, disks = append(sims, s), append(disks, openSim(b, s))
		}
		for i := range 20 {
			var batch storage.Batch
			for j := range 10 {
				batch.Set(fmt.Appendf(nil, "k%03d", (i*7+j*31)%300), []byte("a value of some bytes"))
			}
			id := newID(rng)
			for _, d := range disks {
				if w, err := d.CreateShard(b.Context(), id, storage.ShardInfo{BlockSize: storage.BlockAlign}); err == nil && i%2 == 0 {
					// After the cut these fail, which is the point.
					_ = w.Append(b.Context(), block, storage.Sum{})
					_ = w.Seal(b.Context())
				}
				_ = d.KV().Apply(b.Context(), &batch)
			}
		}
		for _, s := range sims {
			s.Crash(rng)
		}
		steps.PowerOn()
		for _, s := range sims {
			openSim(b, s)
		}
		return steps
	}
	total := run(0).Count()
	cut := uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		cut = cut%total + 1
		run(cut)
	}
}
