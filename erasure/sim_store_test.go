package erasure

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"hash"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"ringfence/erasure/meta/quorumlog"
	"ringfence/internal/env"
	"ringfence/storage"
	"ringfence/storage/storagetest"
)

// The simulation runs the whole store below HTTP, with its real engine on six
// simulated disks, in one goroutine: it cuts the power at random steps, takes
// disks away, replaces one, and checks every answer against what the store may
// say. One seed is one run.
//
// Replay: go test -run TestSimStore/holds -sim.seed N -sim.runs 1

var (
	simSeed    = flag.Uint64("sim.seed", 1, "first seed of the simulation")
	simRuns    = flag.Int("sim.runs", 0, "runs of the simulation; 0: as many as the crash points take")
	simCrashes = flag.Int("sim.crashes", 0, "crash points of the simulation; 0: the default")
)

// simRules are mutants: rules of the write path that are broken on purpose.
type simRules struct{ sealLies, dirLies, sealLate, noConds bool }

// absent is the state of a key under which there is nothing.
const absent = 0

// simStore is one run.
type simStore struct {
	t     testing.TB
	rng   *rand.Rand
	rules simRules
	steps storagetest.Steps
	bays  []*simBay
	pool  *storage.Pool
	clock time.Time
	// settled is when removals became durable by themselves.
	settled time.Time
	trace   hash.Hash64

	engine *quorumlog.Engine
	store  *Store

	bodies  map[int][]byte          // all that was ever sent, by number
	allowed map[string]map[int]bool // by key: what may be under it
	wiped   bool                    // a disk lost its shards for good
	wrong   error                   // what must not have happened
	count   simCounts
}

type simCounts struct{ crashes, acked, unknown, reads, rivals int }

var simKeys = []string{"a", "a/b", "c", "\x00\xff"}

const simDisks, simParity = 6, 2

func newSimStore(t testing.TB, seed uint64, r simRules) *simStore {
	s := &simStore{
		t: t, rng: rand.New(rand.NewPCG(seed, 2)), rules: r, clock: time.UnixMilli(1_700_000_000_000), trace: fnv.New64a(),
		bodies: map[int][]byte{}, allowed: map[string]map[int]bool{},
	}
	for _, k := range simKeys {
		s.allowed[k] = map[int]bool{absent: true}
	}
	pool, err := storage.NewPool(storage.PoolOptions{BudgetBytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	s.pool = pool
	for i := range simDisks {
		id := storage.Identity{
			Deployment: storage.UUID{9}, Set: storage.UUID{8}, Disk: storage.UUID{byte(i + 1)},
			SetCount: 1, Slot: uint8(i), SetSize: simDisks, Parity: simParity,
		}
		b := &simBay{id: id, sealLate: r.sealLate}
		b.sim = storagetest.NewSim(storagetest.SimOptions{Name: fmt.Sprint(i), Steps: &s.steps, Hook: s.fault, Trace: s.note})
		s.bays = append(s.bays, b)
		if err := b.open(); err != nil {
			t.Fatal(err)
		}
	}
	s.restart()
	for range 20 {
		if _, err = s.store.CreateBucket(t.Context(), "b", ""); err == nil {
			return s
		}
	}
	t.Fatalf("create bucket: %v", err)
	return nil
}

// note adds a step to the trace.
func (s *simStore) note(op storagetest.Op, err error) {
	failed := byte(0)
	if err != nil {
		failed = 1
	}
	_, _ = s.trace.Write([]byte{byte(op.Kind), op.Disk[0], failed, byte(op.N), byte(op.N >> 8)})
	_, _ = s.trace.Write(op.Shard.UUID[:])
}

// fault is the hook of all disks: the mutants' lies.
func (s *simStore) fault(op storagetest.Op) storagetest.Fault {
	if s.rules.sealLies && op.Kind == storagetest.OpSealData || s.rules.dirLies && op.Kind == storagetest.OpSealDir {
		return storagetest.Fault{Kind: storagetest.FaultLie}
	}
	return storagetest.Fault{}
}

func (s *simStore) env() env.Env {
	return env.Env{
		Now: func() time.Time {
			s.clock = s.clock.Add(300 * time.Millisecond)
			if s.clock.Sub(s.settled) > garbageAfter/2 { // so does the file system
				s.settled = s.clock
				for _, b := range s.bays {
					b.sim.SettleRemovals()
				}
			}
			return s.clock
		},
		Rand: func(p []byte) {
			for i := range p {
				p[i] = byte(s.rng.Uint32())
			}
		},
		Go:    func(f func()) { f() },
		After: func(time.Duration) (<-chan time.Time, func()) { return nil, func() {} },
	}
}

// restart begins a new process on the disks as they are.
func (s *simStore) restart() {
	disks := make([]storage.Disk, 0, len(s.bays))
	for _, b := range s.bays {
		disks = append(disks, b)
	}
	var err error
	if s.engine, err = quorumlog.New(quorumlog.Options{Disks: disks, Env: s.env(), LogKeep: 16, LogMax: 64}); err != nil {
		s.t.Fatal(err)
	}
	engine := &simEngine{Engine: s.engine, s: s}
	open := func() *Store {
		store, err := New(Options{
			Sets: []SetOptions{{Disks: disks, Parity: simParity, Engine: engine}}, Pool: s.pool, Env: s.env(), Region: "x",
		})
		if err != nil {
			s.t.Fatal(err)
		}
		return store
	}
	s.store, engine.store = open(), open()
}

func (s *simStore) fail(format string, args ...any) {
	if s.wrong == nil {
		s.wrong = fmt.Errorf(format, args...)
	}
}

func (s *simStore) key() string { return simKeys[s.rng.IntN(len(simKeys))] }

// body makes bytes that were never sent before, of a size on either side of
// what is kept inline.
func (s *simStore) body() (id int, b []byte) {
	id = len(s.bodies) + 1
	size := 1 + s.rng.IntN(200)
	if s.rng.IntN(2) == 0 {
		size = MaxInlineSize + 1 + s.rng.IntN(8000)
	}
	b = make([]byte, size)
	for i := 0; i < size; i += 8 {
		var n [8]byte
		binary.LittleEndian.PutUint64(n[:], s.rng.Uint64())
		copy(b[i:], n[:])
	}
	s.bodies[id] = b
	return id, b
}

// wrote takes an outcome of a write that leaves id under key. It reports
// whether the write is known to be done.
func (s *simStore) wrote(what, key string, id int, err error) bool {
	switch {
	case err == nil:
		s.count.acked++
		s.allowed[key] = map[int]bool{id: true}
		return true
	case errors.Is(err, ErrUnknown):
		s.count.unknown++
		s.allowed[key][id] = true
	case !errors.Is(err, ErrUnavailable):
		s.fail("%s %q: %w", what, key, err)
	}
	return false
}

var errSimExists = errors.New("exists")

func (s *simStore) put() {
	key := s.key()
	id, b := s.body()
	in := input(b)
	create := s.rng.IntN(4) == 0
	if create {
		in.Precond = func(current *ObjectInfo) error {
			if current != nil {
				return errSimExists
			}
			return nil
		}
	}
	_, err := s.store.Put(s.t.Context(), "b", key, in)
	switch {
	case create && errors.Is(err, errSimExists):
		s.saw(key, func(id int) bool { return id != absent }, "create refused")
	case create && err == nil && !s.allowed[key][absent]:
		s.fail("create %q: done although there is %v", key, s.allowed[key])
	default:
		s.wrote("put", key, id, err)
	}
}

func (s *simStore) delete() {
	key := s.key()
	_, err := s.store.Delete(s.t.Context(), "b", key, DeleteInput{})
	s.wrote("delete", key, absent, err)
}

// saw takes what an answer says about a key.
func (s *simStore) saw(key string, may func(id int) bool, what string) {
	left := maps.Clone(s.allowed[key])
	maps.DeleteFunc(left, func(id int, _ bool) bool { return !may(id) })
	if len(left) == 0 {
		s.fail("%q: %s, allowed is %v", key, what, slices.Sorted(maps.Keys(s.allowed[key])))
	}
	if s.engine.Health().Writable { // reads without a quorum decide nothing
		s.allowed[key] = left
	}
}

func (s *simStore) get() {
	key := s.key()
	s.count.reads++
	b, err := s.read(key)
	switch {
	case errors.Is(err, ErrNoObject):
		s.saw(key, func(id int) bool { return id == absent }, "nothing")
	case err == nil:
		s.saw(key, func(id int) bool { return id != absent && bytes.Equal(s.bodies[id], b) }, fmt.Sprintf("%d bytes", len(b)))
	case !errors.Is(err, ErrUnavailable):
		s.fail("get %q: %w", key, err)
	}
}

func (s *simStore) read(key string) ([]byte, error) {
	o, err := s.store.Open(s.t.Context(), "b", key, GetInput{})
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	_, err = o.WriteTo(s.t.Context(), &b, 0, o.Info().Size)
	if err = errors.Join(err, o.Close()); err != nil {
		return nil, err
	}
	if got := etag(b.Bytes()); o.Info().Digest.ETag != got && len(o.Info().PartSizes) == 0 {
		return nil, fmt.Errorf("bytes of %q have etag %s, its record says %s", key, got, o.Info().Digest.ETag)
	}
	return b.Bytes(), nil
}

func (s *simStore) list() {
	page, err := s.store.List(s.t.Context(), "b", ListInput{Max: 100})
	if err != nil {
		if !errors.Is(err, ErrUnavailable) {
			s.fail("list: %w", err)
		}
		return
	}
	sizes := map[string]int64{}
	for _, o := range page.Objects {
		sizes[o.Key] = o.Size
	}
	for _, key := range simKeys {
		size, there := sizes[key]
		s.saw(key, func(id int) bool {
			return there == (id != absent) && (!there || int64(len(s.bodies[id])) == size)
		}, fmt.Sprintf("listed %v with %d bytes", there, size))
	}
}

// multipart uploads two parts and completes or aborts; a completion of unknown
// outcome is sent again, as clients do.
func (s *simStore) multipart() {
	ctx, key := s.t.Context(), s.key()
	up, err := s.store.CreateUpload(ctx, "b", key, CreateUploadInput{Checksum: "CRC32", Composite: true})
	var whole []byte
	for n := 1; n <= 2 && err == nil; n++ {
		_, b := s.body()
		whole = append(whole, b...)
		_, err = s.store.PutPart(ctx, "b", key, up.UploadID, n, input(b))
	}
	if err == nil && s.rng.IntN(4) == 0 {
		err = s.store.AbortUpload(ctx, "b", key, up.UploadID)
		if err == nil {
			return
		}
	}
	if err != nil {
		if !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrUnknown) {
			s.fail("upload to %q: %w", key, err)
		}
		return
	}
	id := len(s.bodies) + 1
	s.bodies[id] = whole
	for range 3 {
		_, err = s.store.CompleteUpload(ctx, "b", key, up.UploadID, completion(1, 2))
		if s.wrote("complete", key, id, err) || errors.Is(err, ErrUnavailable) {
			return
		}
	}
}

// background is a round of what Run does.
func (s *simStore) background() {
	ctx, set := s.t.Context(), s.store.sets[0]
	if s.rng.IntN(3) == 0 {
		s.clock = s.clock.Add(garbageMost)
	}
	err := s.store.indexDamage(ctx, set)
	if err == nil {
		_, err = s.store.collect(ctx, set)
	}
	if err == nil {
		err = s.store.sweep(ctx, set)
	}
	if err != nil && !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrUnknown) {
		s.fail("background: %w", err)
	}
}
