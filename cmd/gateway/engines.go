package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"ringfence/server"
	"ringfence/storage"
	"ringfence/storage/hybrid"
	"ringfence/storage/std"
)

// engines makes the read engines of disks and runs them for as long as their
// disks are open. A disk owns its engine and closes it, which ends its run;
// engines only watches that everything has ended at the end.
type engines struct {
	knobs  *knobs
	faults *faults
	pool   *storage.Pool
	log    zerolog.Logger

	running sync.WaitGroup
	mu      sync.Mutex // protects the fields below
	closed  bool
	open    map[*engine]struct{}
	at      map[string]*engine // by the name of the place; the latest one
	leaked  int64              // reads that never came to an end, of engines that have ended
}

// engine is that of one disk that was opened.
type engine struct {
	*hybrid.Backend
	cancel context.CancelFunc
}

func newEngines(k *knobs, f *faults, pool *storage.Pool, log zerolog.Logger) *engines {
	return &engines{knobs: k, faults: f, pool: pool, log: log, open: map[*engine]struct{}{}, at: map[string]*engine{}}
}

// reference is the engine that every disk can be read with, for the disk at
// path.
func (e *engines) reference(path string) (storage.Backend, error) {
	k := e.knobs.engines
	b, err := std.New(std.Options{
		Root: path, Pool: e.pool,
		Direct: k.Direct, DirectThreshold: k.DirectThreshold, Reclaim: k.Reclaim, ReclaimThreshold: k.ReclaimFrom,
	})
	if err != nil {
		return nil, err
	}
	return e.faults.backend(path, b), nil
}

// make gives a disk its engine, which is the caller's until run.
func (e *engines) make(path string) (*hybrid.Backend, error) {
	base, err := e.reference(path)
	if err != nil {
		return nil, err
	}
	b, err := hybrid.New(hybrid.Options{
		Base: base, Dir: path, Pool: e.pool, Knobs: e.knobs.engines, Rings: e.faults.rings(path),
		Log: e.log,
	})
	if err != nil {
		return nil, fmt.Errorf("disk %s: read engine: %w", path, err)
	}
	return b, nil
}

// run runs the engine of a disk that was opened in a place, until the disk
// closes it or everything ends. It outlives ctx, which only opened the disk.
func (e *engines) run(ctx context.Context, place string, b *hybrid.Backend) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	each := &engine{Backend: b, cancel: cancel}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed { // a disk that comes while everything ends reads by its reference
		cancel()
		return
	}
	e.open[each], e.at[place] = struct{}{}, each
	e.running.Go(func() {
		defer cancel()
		b.Run(ctx)
		st := b.Status()
		e.mu.Lock()
		defer e.mu.Unlock()
		e.leaked += max(st.Rings.Total().Leaked, st.Drivers.Leaked)
		delete(e.open, each)
		if e.at[place] == each {
			delete(e.at, place)
		}
	})
}

// status is that of the engine in a place, false if no disk is open there.
func (e *engines) status(place string) (hybrid.Status, bool) {
	e.mu.Lock()
	each := e.at[place]
	e.mu.Unlock()
	if each == nil {
		return hybrid.Status{}, false
	}
	return each.Status(), true
}

// close ends the runs of disks that did not close, and waits for all of them.
// Each bounds how long that takes.
func (e *engines) close() {
	e.mu.Lock()
	e.closed = true
	for each := range e.open {
		each.cancel()
	}
	e.mu.Unlock()
	e.running.Wait()
}

// closePool closes the pool after all engines have ended. The memory of reads
// that hang in the kernel stays with them, which was logged when their rings
// were given up: it is no failure of a stop that went as far as it could.
func (e *engines) closePool() error {
	err := e.pool.Close()
	e.mu.Lock()
	leaked := e.leaked
	e.mu.Unlock()
	if err != nil && leaked > 0 {
		e.log.Warn().Err(err).Int64("reads", leaked).Msg("memory stays with reads that never came to an end")
		return nil
	}
	return err
}

// engineInfos says how every disk is read now.
func (g *gateway) engineInfos() []server.EngineInfo {
	var all []server.EngineInfo
	for _, s := range g.sets {
		for _, seat := range s.seats {
			st, ok := g.engines.status(seat.name)
			if !ok {
				all = append(all, server.EngineInfo{
					Disk: seat.name, Tier: "none", Why: seat.Health().Reason, Latched: map[string]string{}, Fallbacks: map[string]int64{},
				})
				continue
			}
			all = append(all, engineInfo(seat.name, st))
		}
	}
	return all
}

// ringsServing counts the rings that serve now. The counters keep an index for
// every ring that there ever was; what serves describes itself in the reason.
func ringsServing(st hybrid.Status) int {
	n := len(st.Rings.Shards)
	if set, ok := strings.CutPrefix(st.Reason, st.Rings.Setup+", "); ok {
		word, _, _ := strings.Cut(set, " shard")
		if serving, err := strconv.Atoi(word); err == nil {
			return serving
		}
	}
	return n
}

func engineInfo(disk string, st hybrid.Status) server.EngineInfo {
	info := server.EngineInfo{
		Disk: disk, Tier: st.Tier, Why: st.Reason, Retiring: st.Drivers.Retiring,
		Latched: map[string]string{}, Fallbacks: map[string]int64{},
		Compared: st.Shadow.Compared, Mismatched: st.Shadow.Mismatch,
	}
	if st.Tier == "ring" {
		info.Setup, info.Mode, info.Shards = st.Rings.Setup, st.Rings.Mode.String(), ringsServing(st)
	}
	for _, l := range st.Latches {
		if l.On {
			info.Latched[l.Kind] = fmt.Sprintf("since %s: %s", l.Since.UTC().Format(time.RFC3339), l.Reason)
		}
	}
	for reason, n := range st.Fallbacks {
		if n > 0 {
			info.Fallbacks[reason] = n
		}
	}
	return info
}
