package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"ringfence/erasure"
	"ringfence/server"
	"ringfence/storage"
)

// register gives the registry the process's own numbers, the runtime's, and
// those of the disks and sets.
func (g *gateway) register(registry *prometheus.Registry) error {
	b := buildInfo()
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "ringfence_build_info", Help: "1; the labels say what runs.",
		ConstLabels: prometheus.Labels{"version": b.Release, "revision": b.Revision, "go": b.Go},
	})
	build.Set(1)
	for _, c := range []prometheus.Collector{
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		build,
		&diskCollector{g},
	} {
		if err := registry.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// diskCollector reads disks and sets when it is asked; nothing is counted
// twice.
type diskCollector struct{ g *gateway }

// series are the descriptions of what diskCollector gives, by name.
var series = map[string]*prometheus.Desc{
	"ringfence_disk_state":          describe("ringfence_disk_state", "1 for the state that the disk is in, 0 for the others.", "disk", "state"),
	"ringfence_disk_total_bytes":    describe("ringfence_disk_total_bytes", "Size of the disk's file system.", "disk"),
	"ringfence_disk_free_bytes":     describe("ringfence_disk_free_bytes", "Free space of the disk's file system.", "disk"),
	"ringfence_disk_reads_total":    describe("ringfence_disk_reads_total", "File reads by the tier that served them.", "disk", "tier"),
	"ringfence_disk_damaged_total":  describe("ringfence_disk_damaged_total", "Reads that met a damaged shard on the disk, served from others.", "disk"),
	"ringfence_set_readable":        describe("ringfence_set_readable", "1 when the set can be read from.", "set"),
	"ringfence_set_writable":        describe("ringfence_set_writable", "1 when the set can be written to.", "set"),
	"ringfence_meta_epoch":          describe("ringfence_meta_epoch", "Epoch of the set's metadata log; it grows with every recovery.", "set"),
	"ringfence_meta_head":           describe("ringfence_meta_head", "Last acknowledged commit of the set's metadata log.", "set"),
	"ringfence_meta_disk_applied":   describe("ringfence_meta_disk_applied", "Last commit that the disk has.", "set", "disk"),
	"ringfence_meta_disks":          describe("ringfence_meta_disks", "Disks of the set by where they stand in the metadata log.", "set", "state"),
	"ringfence_buffer_bytes":        describe("ringfence_buffer_bytes", "Memory for object data that is handed out or reserved."),
	"ringfence_buffer_budget_bytes": describe("ringfence_buffer_budget_bytes", "Memory for object data that may be handed out."),
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// Describe implements prometheus.Collector.
func (c *diskCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range series {
		to <- d
	}
	for _, d := range ringSeries {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *diskCollector) Collect(to chan<- prometheus.Metric) {
	put := func(name string, kind prometheus.ValueType, v float64, labels ...string) {
		desc := series[name]
		if desc == nil {
			desc = ringSeries[name]
		}
		to <- prometheus.MustNewConstMetric(desc, kind, v, labels...)
	}
	put("ringfence_buffer_bytes", prometheus.GaugeValue, float64(c.g.pool.InUse()))
	put("ringfence_buffer_budget_bytes", prometheus.GaugeValue, float64(c.g.config.MemoryBytes))
	for _, h := range c.g.store.Health().Sets {
		seats := c.g.sets[h.Index].seats
		for _, seat := range seats {
			collectDisk(put, seat.name, seat.Health())
			// A place without a disk has the numbers of one without rings.
			st, _ := c.g.engines.status(seat.name)
			collectRings(put, seat.name, st)
		}
		collectSet(put, seats, h)
	}
}

type putFunc func(name string, kind prometheus.ValueType, v float64, labels ...string)

func collectDisk(put putFunc, disk string, h storage.Health) {
	for _, state := range []storage.State{storage.StateOK, storage.StateFull, storage.StateFailed, storage.StateOffline} {
		put("ringfence_disk_state", prometheus.GaugeValue, oneIf(h.State == state), disk, state.String())
	}
	put("ringfence_disk_total_bytes", prometheus.GaugeValue, float64(h.TotalBytes), disk)
	put("ringfence_disk_free_bytes", prometheus.GaugeValue, float64(h.FreeBytes), disk)
	for tier, n := range map[string]int64{
		"inline": h.Reads.Inline, "pool": h.Reads.Pool, "direct": h.Reads.Direct, "ring": h.Reads.Ring, "ring_direct": h.Reads.RingDirect,
	} {
		put("ringfence_disk_reads_total", prometheus.CounterValue, float64(n), disk, tier)
	}
}

// metaStates are the words for where a disk stands in the metadata log.
var metaStates = []string{inSync, "lagging", "blank", "divergent", "corrupt", "offline"}

const inSync = "insync"

func collectSet(put putFunc, seats []*seat, h erasure.SetHealth) {
	index := strconv.Itoa(h.Index)
	put("ringfence_set_readable", prometheus.GaugeValue, oneIf(h.Readable), index)
	put("ringfence_set_writable", prometheus.GaugeValue, oneIf(h.Writable), index)
	put("ringfence_meta_epoch", prometheus.GaugeValue, float64(h.Epoch), index)
	put("ringfence_meta_head", prometheus.GaugeValue, float64(h.Head), index)
	count := map[string]int{}
	for i, d := range h.Disks {
		count[d.Metadata]++
		put("ringfence_disk_damaged_total", prometheus.CounterValue, float64(d.Damaged), seats[i].name)
		put("ringfence_meta_disk_applied", prometheus.GaugeValue, float64(d.Applied), index, seats[i].name)
	}
	for _, state := range metaStates {
		put("ringfence_meta_disks", prometheus.GaugeValue, float64(count[state]), index, state)
	}
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// ready says whether every set can read and write, and names the disks that
// are not well, also when all is ready without them.
func (g *gateway) ready() server.Readiness {
	var r server.Readiness
	h := g.store.Health()
	r.Ready = h.Ready
	for _, s := range h.Sets {
		switch {
		case !s.Readable:
			r.Reasons = append(r.Reasons, fmt.Sprintf("set %d can't read: %s", s.Index, s.Reason))
		case !s.Writable:
			r.Reasons = append(r.Reasons, fmt.Sprintf("set %d can't write: %s", s.Index, s.Reason))
		}
		for _, d := range s.Disks {
			where := "disk " + g.sets[s.Index].seats[d.Slot].name
			if place := fmt.Sprintf("set %d, slot %d", s.Index, d.Slot); !strings.HasSuffix(where, place) {
				where += " (" + place + ")"
			}
			switch {
			case d.State != storage.StateOK.String():
				r.Degraded = append(r.Degraded, fmt.Sprintf("%s is %s: %s", where, d.State, d.Reason))
			case d.Metadata != inSync:
				r.Degraded = append(r.Degraded, fmt.Sprintf("%s: its metadata is %s", where, d.Metadata))
			case d.Damaged > 0:
				r.Degraded = append(r.Degraded, fmt.Sprintf("%s: %d reads met a damaged shard on it", where, d.Damaged))
			}
		}
	}
	return r
}
