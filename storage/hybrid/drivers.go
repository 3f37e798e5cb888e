package hybrid

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"ringfence/storage/uring"
)

// driver is what is needed of a uring.Driver.
type driver interface {
	Read(ctx context.Context, r uring.Request) (int, error)
	Stats() uring.Stats
	// Retire finishes what was accepted, refuses everything else, and closes.
	Retire(ctx context.Context) (uring.Stats, error)
}

var _ driver = (*uring.Driver)(nil)

// starter makes a driver.
type starter func(ctx context.Context, o uring.Options) (driver, error)

func startRings(ctx context.Context, o uring.Options) (driver, error) {
	d, err := uring.Start(ctx, o)
	if err != nil {
		return nil, err // not a nil *Driver in an interface
	}
	return d, nil
}

// serving is a driver and what it was started with.
type serving struct {
	driver driver
	config config
	since  time.Time
}

func (s *serving) String() string {
	st := s.driver.Stats()
	plural := "s"
	if len(st.Shards) == 1 {
		plural = ""
	}
	return fmt.Sprintf("%s, %d shard%s of %d entries, %s buffers", st.Setup, len(st.Shards), plural, s.config.entries, st.Mode)
}

// rings are the drivers of a disk, and the counters of those that are gone:
// what is summed up never goes back, and conserves as each driver does.
type rings struct {
	mu sync.Mutex
	// mu protects the fields below
	live    []*serving
	gone    []uring.ShardStats // of ended drivers, by index of the shard
	leaked  int64              // drivers that left operations behind
	started int64
	failed  int64  // starts that failed
	why     string // there is no driver, or another than the knobs say
}

func (r *rings) add(s *serving) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.live = append(r.live, s)
	r.started++
}

// end moves the counters of a driver that was closed to those that stay.
func (r *rings) end(s *serving) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.Index(r.live, s)
	if i < 0 {
		return
	}
	r.live = slices.Delete(r.live, i, i+1)
	last := s.driver.Stats()
	if last.Total().InFlight > 0 {
		r.leaked++
	}
	for i := range last.Shards {
		last.Shards[i].Oldest = 0 // nobody waits for it any more
	}
	r.gone = sum(r.gone, last.Shards)
}

func (r *rings) say(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.why = why
}

func (r *rings) fail() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed++
}

// stats sums up all drivers that ever were, by index of the shard. What is no
// sum is that of s, which may be nil.
func (r *rings) stats(s *serving) uring.Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all uring.Stats
	all.Shards = slices.Clone(r.gone)
	for i := range all.Shards {
		all.Shards[i].Dead = false
	}
	for _, l := range r.live {
		st := l.driver.Stats()
		all.RegisteredBytes += st.RegisteredBytes
		if l == s {
			all.Setup, all.Mode = st.Setup, st.Mode
		} else {
			for i := range st.Shards {
				st.Shards[i].Dead = false
			}
		}
		all.Shards = sum(all.Shards, st.Shards)
	}
	return all
}

// total is all live drivers in one.
func (r *rings) total() uring.ShardStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all uring.Stats
	for _, l := range r.live {
		all.Shards = append(all.Shards, l.driver.Stats().Shards...)
	}
	return all.Total()
}

// sum adds counters by index.
func sum(a, b []uring.ShardStats) []uring.ShardStats {
	for i := range b {
		if i == len(a) {
			a = append(a, uring.ShardStats{})
		}
		dead := a[i].Dead || b[i].Dead
		two := uring.Stats{Shards: []uring.ShardStats{a[i], b[i]}}
		a[i] = two.Total()
		a[i].Dead = dead
	}
	return a
}
