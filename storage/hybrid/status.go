package hybrid

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ringfence/storage"
	"ringfence/storage/uring"
)

// Status is a snapshot of a Backend.
type Status struct {
	// Tier is what makes the reads that the page cache does not: "ring" or
	// "std".
	Tier string
	// Reason is why: how the rings are set up, or why there are none.
	Reason string
	// Latches has one of each kind.
	Latches []Latch
	// Rings are the counters of all drivers since the Backend was made, by index
	// of the shard. Those only rise, and Submitted is Delivered, Orphans and
	// InFlight together for each. Setup and Mode are those of the driver that
	// serves.
	Rings uring.Stats
	// Drivers counts them.
	Drivers DriverStats
	Shadow  ShadowStats
	Inline  InlineStats
	// Fallbacks are reads that the reference finished although rings were
	// switched on, by reason. Every reason is there, also at 0.
	Fallbacks map[string]int64
	// Refused are reads that failed at once since the disk does not answer.
	Refused int64
	// Hung is for how long it has not answered; 0 if it does.
	Hung time.Duration
	// Reads are all reads, by the tier that finished them.
	Reads storage.ReadCounts
}

// DriverStats counts drivers.
type DriverStats struct {
	Started  int64
	Failed   int64 // to start
	Retiring int   // finishing what they accepted
	Leaked   int64 // ended with operations that never came to an end
}

// InlineStats counts attempts to read from the page cache while rings served.
type InlineStats struct {
	Attempts int64
	Hits     int64 // that found everything
	Skipped  int64 // not made: they would have found nothing
}

func (c *counts) inline() InlineStats {
	hits, misses := c.hits.Load(), c.misses.Load()
	return InlineStats{Attempts: hits + misses, Hits: hits, Skipped: c.skipped.Load()}
}

func (s Status) String() string { return s.Tier + ": " + s.Reason }

// Status looks at everything. It waits for nothing but short locks, but is not
// meant for every read.
func (b *Backend) Status() Status {
	serving := b.serving.Load()
	s := Status{
		Tier: "std", Latches: b.latches.all(), Rings: b.rings.stats(serving),
		Shadow: b.shadow.snapshot(), Fallbacks: make(map[string]int64, reasons),
		Inline:  b.count.inline(),
		Refused: b.count.refused.Load(), Reads: b.Stats().Reads,
	}
	b.rings.mu.Lock()
	why := b.rings.why
	s.Drivers = DriverStats{Started: b.rings.started, Failed: b.rings.failed, Retiring: len(b.rings.live), Leaked: b.rings.leaked}
	b.rings.mu.Unlock()
	for r, name := range reasonNames {
		s.Fallbacks[name] = b.count.fallbacks[r].Load()
	}
	if since := b.hung.since.Load(); since != 0 {
		s.Hung = b.opts.Env.Now().Sub(time.Unix(0, since))
	}
	switch {
	case !b.knobs.Enable.Load():
		s.Reason = "switched off"
	case serving == nil && why == "":
		s.Reason = "rings are being started"
	case serving == nil:
		s.Reason = why
	default:
		s.Tier, s.Reason = "ring", serving.String()
		s.Drivers.Retiring--
		if why != "" {
			s.Reason += "; not as set: " + why
		}
		if s.Hung > 0 {
			s.Reason += fmt.Sprintf("; the disk does not answer reads for %s", s.Hung.Round(time.Millisecond))
		}
	}
	return s
}

func (s *shadow) snapshot() ShadowStats {
	v := &s.stats
	return ShadowStats{v.compared.Load(), v.mismatch.Load(), v.changed.Load(), v.failed.Load(), v.dropped.Load()}
}

// ProbeOptions configures Probe. Dir and Pool are required.
type ProbeOptions struct {
	Dir   string
	Pool  *storage.Pool
	Knobs Knobs // shards, entries and mode
	Rings uring.Options
}

// Probe says what a Backend on the directory would read with if rings were
// switched on: it starts a driver as the knobs say, has it read a file that it
// makes, and ends it. It needs no Backend, and leaves nothing behind. Allowed is
// whether rings would serve.
func Probe(ctx context.Context, o ProbeOptions) (text string, allowed bool, err error) {
	if o.Dir == "" || o.Pool == nil {
		return "", false, errors.New("hybrid: Dir and Pool are required")
	}
	c := o.Knobs.withDefaults().config()
	r := o.Rings
	r.Dir, r.Pool, r.Shards, r.Entries, r.Mode = o.Dir, o.Pool, c.shards, c.entries, c.mode
	d, err := startRings(ctx, r)
	if err != nil {
		var probe *uring.ProbeError
		if !errors.As(err, &probe) {
			return "", false, fmt.Errorf("probe: %w", err)
		}
		return "std: " + reasonText(err), false, nil
	}
	s := &serving{driver: d, config: c}
	text = "ring: " + s.String()
	if _, err := d.Retire(ctx); err != nil {
		return "", false, fmt.Errorf("probe: %w", err)
	}
	return text, true, nil
}
