package main

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"ringfence/storage/hybrid"
	"ringfence/storage/uring"
)

// ringSeries are the descriptions of what collectRings gives, by name.
var ringSeries = func() map[string]*prometheus.Desc {
	all := map[string]*prometheus.Desc{}
	for _, f := range shardFamilies {
		all[f.name] = describe(f.name, f.help, "disk", "shard")
	}
	for _, f := range diskFamilies {
		all[f.name] = describe(f.name, f.help, "disk")
	}
	for name, d := range map[string]*prometheus.Desc{
		cancels:   describe(cancels, "Cancellations by what the kernel said to them.", "disk", "shard", "outcome"),
		fallbacks: describe(fallbacks, "Reads that a ring was meant to make and the standard engine finished, by reason.", "disk", "reason"),
		latched:   describe(latched, "1 when this was found not to work on the disk, and is not tried for now.", "disk", "kind"),
		inlines:   describe(inlines, "Attempts to read from the page cache while rings serve: hit, miss, or skipped as not worth it.", "disk", "outcome"),
	} {
		all[name] = d
	}
	return all
}()

const (
	cancels   = "ringfence_uring_cancel_total"
	fallbacks = "ringfence_uring_fallback_total"
	latched   = "ringfence_uring_latched"
	inlines   = "ringfence_uring_inline_total"
)

// shardFamily is a number that every ring has.
type shardFamily struct {
	name, help string
	kind       prometheus.ValueType
	value      func(s uring.ShardStats) float64
}

var shardFamilies = []shardFamily{
	{"ringfence_uring_submitted_total", "Reads that a ring accepted.", prometheus.CounterValue, func(s uring.ShardStats) float64 { return float64(s.Submitted) }},
	{"ringfence_uring_delivered_total", "Reads whose outcome a caller took, errors included.", prometheus.CounterValue, func(s uring.ShardStats) float64 { return float64(s.Delivered) }},
	{"ringfence_uring_orphan_reclaimed_total", "Reads that came to an end after their caller had left.", prometheus.CounterValue, func(s uring.ShardStats) float64 { return float64(s.Orphans) }},
	{"ringfence_uring_in_flight", "Reads that have not come to an end.", prometheus.GaugeValue, func(s uring.ShardStats) float64 { return float64(s.InFlight) }},
	{"ringfence_uring_in_flight_bytes", "What the reads in flight may fill.", prometheus.GaugeValue, func(s uring.ShardStats) float64 { return float64(s.InFlightBytes) }},
	{"ringfence_uring_orphan_bytes_total", "Bytes that were read for nobody.", prometheus.CounterValue, func(s uring.ShardStats) float64 { return float64(s.OrphanBytes) }},
	{"ringfence_uring_submit_errors_total", "Failures of the kernel to take what was submitted.", prometheus.CounterValue, func(s uring.ShardStats) float64 { return float64(s.SubmitErrors) }},
	{"ringfence_uring_enters_total", "System calls that entered the ring.", prometheus.CounterValue, func(s uring.ShardStats) float64 { return float64(s.Enters) }},
	{"ringfence_uring_wakes_total", "System calls that woke the ring's thread.", prometheus.CounterValue, func(s uring.ShardStats) float64 { return float64(s.Wakes) }},
	{"ringfence_uring_restarts_total", "Restarts of a ring that had died.", prometheus.CounterValue, func(s uring.ShardStats) float64 { return float64(s.Restarts) }},
	{"ringfence_uring_leaked_total", "Reads that never came to an end and were given up, with their memory.", prometheus.CounterValue, func(s uring.ShardStats) float64 { return float64(s.Leaked) }},
	{"ringfence_uring_oldest_seconds", "Age of the oldest read in flight.", prometheus.GaugeValue, func(s uring.ShardStats) float64 { return s.Oldest.Seconds() }},
	{"ringfence_uring_cq_overflow_total", "Completions that found no room in the ring.", prometheus.CounterValue, func(s uring.ShardStats) float64 { return float64(s.Overflow) }},
	{"ringfence_uring_fixed_reads_total", "Reads into registered memory.", prometheus.CounterValue, func(s uring.ShardStats) float64 { return float64(s.Fixed) }},
	{"ringfence_uring_dead", "1 when the ring died and is not started again.", prometheus.GaugeValue, func(s uring.ShardStats) float64 { return oneIf(s.Dead) }},
}

// diskFamily is a number that every disk has.
type diskFamily struct {
	name, help string
	kind       prometheus.ValueType
	value      func(s hybrid.Status) float64
}

var diskFamilies = []diskFamily{
	{"ringfence_uring_serving", "1 when rings read what the page cache does not hold.", prometheus.GaugeValue, func(s hybrid.Status) float64 { return oneIf(s.Tier == "ring") }},
	{"ringfence_uring_registered_bytes", "Memory that is registered with the kernel.", prometheus.GaugeValue, func(s hybrid.Status) float64 { return float64(s.Rings.RegisteredBytes) }},
	{"ringfence_uring_drivers_started_total", "Sets of rings that were started, by changes of knobs too.", prometheus.CounterValue, func(s hybrid.Status) float64 { return float64(s.Drivers.Started) }},
	{"ringfence_uring_drivers_failed_total", "Sets of rings that could not be started.", prometheus.CounterValue, func(s hybrid.Status) float64 { return float64(s.Drivers.Failed) }},
	{"ringfence_uring_drivers_retiring", "Sets of rings that were replaced and finish what they accepted.", prometheus.GaugeValue, func(s hybrid.Status) float64 { return float64(s.Drivers.Retiring) }},
	{"ringfence_uring_shadow_compared_total", "Ring reads that were read again by the standard engine and compared.", prometheus.CounterValue, func(s hybrid.Status) float64 { return float64(s.Shadow.Compared) }},
	{"ringfence_uring_shadow_mismatch_total", "Ring reads that differed from what the standard engine read.", prometheus.CounterValue, func(s hybrid.Status) float64 { return float64(s.Shadow.Mismatch) }},
	{"ringfence_uring_shadow_dropped_total", "Comparisons that were left out since too many waited.", prometheus.CounterValue, func(s hybrid.Status) float64 { return float64(s.Shadow.Dropped) }},
	{"ringfence_disk_refused_reads_total", "Reads that failed at once since the disk did not answer others.", prometheus.CounterValue, func(s hybrid.Status) float64 { return float64(s.Refused) }},
	{"ringfence_disk_silent_seconds", "For how long the disk has not answered reads; 0 if it does.", prometheus.GaugeValue, func(s hybrid.Status) float64 { return s.Hung.Seconds() }},
}

// collectRings gives the numbers of one disk's rings, all from one snapshot. A
// disk without rings has one of zeros: absent families can't be alerted on.
func collectRings(put putFunc, disk string, s hybrid.Status) {
	shards := s.Rings.Shards
	if len(shards) == 0 {
		shards = make([]uring.ShardStats, 1)
	}
	for i, shard := range shards {
		index := strconv.Itoa(i)
		for _, f := range shardFamilies {
			put(f.name, f.kind, f.value(shard), disk, index)
		}
		put(cancels, prometheus.CounterValue, float64(shard.Cancels.Succeeded), disk, index, "succeeded")
		put(cancels, prometheus.CounterValue, float64(shard.Cancels.NotFound), disk, index, "not_found")
		put(cancels, prometheus.CounterValue, float64(shard.Cancels.Already), disk, index, "already")
	}
	for _, f := range diskFamilies {
		put(f.name, f.kind, f.value(s), disk)
	}
	for reason, n := range s.Fallbacks {
		put(fallbacks, prometheus.CounterValue, float64(n), disk, reason)
	}
	for _, l := range s.Latches {
		put(latched, prometheus.GaugeValue, oneIf(l.On), disk, l.Kind)
	}
	put(inlines, prometheus.CounterValue, float64(s.Inline.Hits), disk, "hit")
	put(inlines, prometheus.CounterValue, float64(s.Inline.Attempts-s.Inline.Hits), disk, "miss")
	put(inlines, prometheus.CounterValue, float64(s.Inline.Skipped), disk, "skipped")
}
