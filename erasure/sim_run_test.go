package erasure

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"ringfence/erasure/meta"
	"ringfence/storage"
)

// run takes steps until something is wrong. It ends with all disks back.
func (s *simStore) run(steps int) error {
	for range steps {
		switch p := s.rng.IntN(100); {
		case p < 62:
			s.request()
		case p < 70:
			s.background()
		case p < 76:
			s.engine.Tend(s.t.Context())
		case p < 92:
			s.crash()
		default:
			s.disturb()
		}
		if s.wrong != nil {
			return s.wrong
		}
	}
	s.settle()
	return s.wrong
}

func (s *simStore) request() {
	switch p := s.rng.IntN(20); {
	case p < 8:
		s.put()
	case p < 10:
		s.delete()
	case p < 12:
		s.multipart()
	case p < 18:
		s.get()
	default:
		s.list()
	}
}

// crash cuts the power, or ends the process, at one of the next steps that
// write.
func (s *simStore) crash() {
	s.count.crashes++
	s.steps.CutAt(s.steps.Count() + 1 + uint64(s.rng.IntN(80)))
	for range 4 {
		switch s.rng.IntN(8) {
		case 0:
			s.engine.Tend(s.t.Context())
		case 1:
			s.background()
		default:
			s.request()
		}
		if s.steps.Dark() || s.wrong != nil {
			break
		}
	}
	s.steps.Cut()
	if s.rng.IntN(4) > 0 {
		for _, b := range s.bays {
			b.sim.Crash(s.rng)
		}
	}
	s.steps.PowerOn()
	for _, b := range s.bays {
		s.reopen(b)
	}
	s.restart()
}

func (s *simStore) reopen(b *simBay) {
	if err := b.open(); err != nil && !errors.Is(err, storage.ErrOffline) {
		s.fail("open: %w", err)
	}
}

// disturb takes a disk away, brings all back, or once in a run replaces one by a
// blank disk: its shards are lost, and every object still has enough.
func (s *simStore) disturb() {
	b := s.bays[s.rng.IntN(len(s.bays))]
	switch s.rng.IntN(5) {
	case 0, 1:
		b.sim.Vanish()
	case 2, 3:
		s.allBack()
	case 4:
		if s.wiped {
			return
		}
		s.allBack()
		for range 20 {
			s.engine.Tend(s.t.Context())
		}
		for _, d := range s.engine.Health().Disks {
			if d.State != "insync" {
				return
			}
		}
		s.wiped = true
		b.sim.Wipe()
		s.reopen(b)
	}
}

func (s *simStore) allBack() {
	for _, b := range s.bays {
		b.sim.Return()
		if b.Health().State != storage.StateOK {
			s.reopen(b)
		}
	}
}

// settle demands that with all disks back everything can be read, everything
// can be written, and nothing is left over.
func (s *simStore) settle() {
	s.allBack()
	s.restart() // a new epoch, in which what the last left behind is swept
	set, ctx := s.store.sets[0], s.t.Context()
	s.rest("metadata in sync", func() bool {
		s.allBack()
		s.engine.Tend(ctx)
		for _, d := range s.engine.Health().Disks {
			if d.State != "insync" {
				return false
			}
		}
		return true
	})
	for _, key := range simKeys {
		if _, err := s.read(key); err != nil && !errors.Is(err, ErrNoObject) {
			s.fail("all disks are there, but %q can't be read: %w", key, err)
		}
	}
	for range 4 {
		s.get()
	}
	s.list()
	s.abortAll()
	s.clock = s.clock.Add(2 * doneKept)
	s.rest("no garbage", func() bool {
		s.clock = s.clock.Add(garbageMost)
		if err := s.store.indexDamage(ctx, set); err != nil {
			return false
		}
		_, err := s.store.collect(ctx, set)
		return err == nil && s.keysUnder(meta.SpaceGarbage) == 0
	})
	if err := s.store.sweep(ctx, set); err != nil {
		s.fail("sweep: %w", err)
	}
	s.noOrphans()
	id, b := s.body()
	_, err := s.store.Put(ctx, "b", "a", input(b))
	if !s.wrote("put", "a", id, err) {
		s.fail("all disks are there, but a put fails: %w", err)
	}
	if n := s.pool.InUse(); n != 0 {
		s.fail("%d bytes of buffers are still in use", n)
	}
}

// rest repeats a step until it says that there is nothing left to do.
func (s *simStore) rest(what string, done func() bool) {
	for range 300 {
		if s.wrong != nil || done() {
			return
		}
	}
	s.fail("never comes to rest: %s, %+v", what, s.engine.Health())
}

func (s *simStore) abortAll() {
	page, err := s.store.ListUploads(s.t.Context(), "b", UploadListInput{Max: 1000})
	if err != nil {
		s.fail("list uploads: %w", err)
		return
	}
	for _, u := range page.Uploads {
		if err := s.store.AbortUpload(s.t.Context(), "b", u.Key, u.UploadID); err != nil {
			s.fail("abort: %w", err)
		}
	}
}

// keysUnder counts keys of the metadata.
func (s *simStore) keysUnder(prefix string) (n int) {
	c, err := s.engine.Scan(s.t.Context(), []byte(prefix), meta.After([]byte(prefix)))
	if err != nil {
		s.fail("scan: %w", err)
		return 0
	}
	for c.Next() {
		n++
	}
	if err := errors.Join(c.Err(), c.Close()); err != nil {
		s.fail("scan: %w", err)
	}
	return n
}

// noOrphans compares the shards on the disks with those that records name.
func (s *simStore) noOrphans() {
	named := map[storage.ShardID]bool{}
	c, err := s.engine.Scan(s.t.Context(), nil, nil)
	if err != nil {
		s.fail("scan: %w", err)
		return
	}
	for c.Next() {
		if k := string(c.Item().Key[:2]); k == "o/" || k == "p/" || k == "m/" {
			if err := eachBlob(c.Item().Val, func(id storage.ShardID) { named[id] = true }); err != nil {
				s.fail("record %q: %w", c.Item().Key, err)
			}
		}
	}
	if err := errors.Join(c.Err(), c.Close()); err != nil {
		s.fail("scan: %w", err)
	}
	for i, b := range s.bays {
		for _, id := range b.sim.Shards() {
			if !named[id] {
				s.fail("disk %d holds shard %s that no record names", i, id)
			}
		}
	}
}

// simulate runs seeds of one residue until enough crash points were visited.
func simulate(t testing.TB, r simRules, first, stride uint64, crashes, runs int) (total simCounts, done int, seed uint64, err error) {
	for seed = first; total.crashes < crashes && done < runs; seed += stride {
		s := newSimStore(t, seed, r)
		err := s.run(60)
		done++
		total.crashes += s.count.crashes
		total.acked += s.count.acked
		total.unknown += s.count.unknown
		total.reads += s.count.reads
		total.rivals += s.count.rivals
		if cerr := s.pool.Close(); cerr != nil && err == nil {
			err = fmt.Errorf("close pool: %w", cerr)
		}
		if err != nil {
			return total, done, seed, err
		}
	}
	return total, done, 0, nil
}

func TestSimStore(t *testing.T) {
	t.Run("holds", simHolds)
	for name, r := range map[string]simRules{
		"shards not synced":           {sealLies: true},
		"shard entries not synced":    {dirLies: true},
		"commit before shards sealed": {sealLate: true},
		"conditions ignored":          {noConds: true},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, seed, err := simulate(t, r, 1, 1, 1<<30, 300)
			if err == nil {
				t.Fatal("breaking the rule goes unnoticed")
			}
			t.Logf("noticed at seed %d: %v", seed, err)
		})
	}
}

func simHolds(t *testing.T) {
	crashes, runs := 600, 1<<30
	if *simCrashes > 0 {
		crashes = *simCrashes
	}
	if *simRuns > 0 {
		runs = *simRuns
	}
	const workers = 2
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		sum   simCounts
		began = time.Now()
	)
	for w := range min(workers, runs) {
		wg.Go(func() {
			n, done, seed, err := simulate(t, simRules{}, *simSeed+uint64(w), workers, crashes/workers, (runs+1)/workers)
			mu.Lock()
			defer mu.Unlock()
			sum = simCounts{sum.crashes + n.crashes, sum.acked + n.acked, sum.unknown + n.unknown, sum.reads + n.reads, sum.rivals + n.rivals}
			if err != nil {
				t.Errorf("seed %d after %d runs: %v\nreplay with -sim.seed %d -sim.runs 1", seed, done, err, seed)
			}
		})
	}
	wg.Wait()
	t.Logf("%d crash points (%.0f/s), %d writes acknowledged, %d unknown, %d reads, %d rivals",
		sum.crashes, float64(sum.crashes)/time.Since(began).Seconds(), sum.acked, sum.unknown, sum.reads, sum.rivals)
}

func TestSimIsDeterministic(t *testing.T) {
	for seed := range uint64(100) {
		var sums [2]uint64
		for i := range sums {
			s := newSimStore(t, seed+1, simRules{})
			if err := s.run(15); err != nil {
				t.Fatalf("seed %d: %v", seed+1, err)
			}
			sums[i] = s.trace.Sum64()
			if err := s.pool.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if sums[0] != sums[1] {
			t.Fatalf("seed %d gave two traces", seed+1)
		}
	}
}
