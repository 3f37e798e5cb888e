package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"ringfence/erasure"
	"ringfence/erasure/meta/quorumlog"
	"ringfence/internal/env"
	"ringfence/server"
	"ringfence/server/sigv4"
	"ringfence/storage"
	"ringfence/storage/local"
)

// gateway is everything that runs, wired but for the listener.
type gateway struct {
	config Config
	log    zerolog.Logger
	plan   plan
	root   credentials
	source credentialSource

	pool    *storage.Pool
	cache   *local.MetaCache
	engines *engines
	sets    []*set
	store   *erasure.Store
	server  *server.Server

	started atomic.Bool // the disks had their first look
}

// seat is a place of a set with its name for people: the directory, or which
// place it is when no directory was found for it.
type seat struct {
	*storage.Slot
	name  string
	inUse atomic.Bool // another process was found to have the disk
}

// set is one erasure set: its places by slot, and its order of commits.
type set struct {
	seats  []*seat
	engine *quorumlog.Engine
}

// disks counts the places of all sets.
func (g *gateway) disks() int {
	n := 0
	for _, s := range g.sets {
		n += len(s.seats)
	}
	return n
}

// metaCacheBytes is the block cache of all metadata stores together.
func metaCacheBytes(disks int) int64 { return min(max(32<<20, int64(disks)*8<<20), 128<<20) }

// assemble looks at the directories, makes a store of them if they are new,
// and wires everything. It starts nothing.
func assemble(ctx context.Context, c Config, paths []string, faults *faults, log zerolog.Logger) (_ *gateway, err error) {
	g := &gateway{config: c, log: log}
	g.pool, err = storage.NewPool(storage.PoolOptions{BudgetBytes: c.MemoryBytes})
	if err != nil {
		return nil, fmt.Errorf("buffers: %w", err)
	}
	g.cache = local.NewMetaCache(metaCacheBytes(len(paths)))
	defer func() {
		if err != nil {
			g.cache.Close()
			err = errors.Join(err, g.pool.Close())
		}
	}()
	g.engines = newEngines(c.Knobs, faults, g.pool, log)
	disks := opener{engines: g.engines, options: local.Options{
		Log: log, MetaCache: g.cache, FullPercent: fullPercent, FDCacheOn: c.Knobs.fdCache,
	}}
	if err := g.prepare(ctx, disks, paths); err != nil {
		return nil, err
	}
	if err := g.wireStore(disks); err != nil {
		return nil, err
	}
	if err := g.wireServer(); err != nil {
		return nil, err
	}
	return g, nil
}

// prepare decides what the directories are, formats new ones and settles the
// credentials.
func (g *gateway) prepare(ctx context.Context, disks opener, paths []string) error {
	looks, err := disks.lookAt(ctx, paths)
	if err != nil {
		return err
	}
	g.plan, err = planDisks(looks, g.config.Parity, newUUID)
	if err != nil {
		return err
	}
	for _, note := range g.plan.notes {
		g.log.Warn().Msg(note)
	}
	if g.plan.fresh {
		// Empty directories may also be mount points whose disks are not there.
		g.log.Warn().Strs("disks", paths).Msg("no disk holds a store: a new, empty one is made")
	}
	if err := disks.format(ctx, g.plan); err != nil {
		return err
	}
	deployment := g.plan.sets[0][0].id.Deployment
	var notes []string
	g.root, g.source, notes, err = settleCredentials(ctx, g.config.Root, deployment, g.plan.roots())
	for _, note := range notes {
		g.log.Warn().Msg(note)
	}
	if err != nil {
		return err
	}
	return g.plan.settle()
}

func newUUID() storage.UUID {
	var u storage.UUID
	env.System().Rand(u[:])
	return u
}

func (g *gateway) wireStore(disks opener) error {
	var sets []erasure.SetOptions
	for index, places := range g.plan.sets {
		s := &set{}
		var members []storage.Disk
		for _, at := range places {
			seat, err := g.newSeat(disks, at)
			if err != nil {
				return err
			}
			s.seats = append(s.seats, seat)
			members = append(members, seat)
		}
		log := g.log.With().Int("set", index).Logger()
		engine, err := quorumlog.New(quorumlog.Options{Disks: members, Log: log})
		if err != nil {
			return fmt.Errorf("set %d: %w", index, err)
		}
		s.engine = engine
		g.sets = append(g.sets, s)
		sets = append(sets, erasure.SetOptions{Disks: members, Parity: int(places[0].id.Parity), Engine: engine})
	}
	store, err := erasure.New(erasure.Options{Sets: sets, Pool: g.pool, Log: g.log, Region: g.config.Region})
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	g.store = store
	return nil
}

// newSeat makes the place of a disk, which may be missing now and come later.
func (g *gateway) newSeat(disks opener, at place) (*seat, error) {
	s := &seat{name: at.path}
	open := func(ctx context.Context) (storage.Disk, error) { return disks.open(ctx, s.name, at.path) }
	if at.path == "" {
		s.name = fmt.Sprintf("of set %d, slot %d", at.id.SetIndex, at.id.Slot)
		open = func(ctx context.Context) (storage.Disk, error) { return disks.find(ctx, s.name, at.id, g.plan.vacant) }
	}
	slot, err := storage.NewSlot(storage.SlotOptions{
		Name: s.name, Expect: at.id, BackoffMax: backoffMax,
		Open: func(ctx context.Context) (storage.Disk, error) {
			d, err := open(ctx)
			if errors.Is(err, local.ErrInUse) {
				s.inUse.Store(true)
			}
			return d, err
		},
		OnChange: func(_, now storage.Health) { g.logChange(s.name, now) },
	})
	if err != nil {
		return nil, fmt.Errorf("disk %s: %w", s.name, err)
	}
	s.Slot = slot
	return s, nil
}

// backoffMax bounds the time until a disk that is back is looked at again: a
// look costs two system calls on a disk that is not there.
const backoffMax = 5 * time.Second

// logChange is called for every change of a disk. That all of them open at the
// start is no news.
func (g *gateway) logChange(disk string, now storage.Health) {
	event := g.log.Error()
	switch {
	case now.State == storage.StateOK && g.started.Load():
		event = g.log.Info()
	case now.State == storage.StateOK:
		event = g.log.Debug()
	}
	event.Str("disk", disk).Stringer("state", now.State).Str("reason", now.Reason).Msg("disk changed state")
}

func (g *gateway) wireServer() error {
	auth, err := sigv4.New(sigv4.Options{Region: g.config.Region, Lookup: g.lookup})
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	if err := g.register(registry); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	srv, err := server.New(server.Options{
		Buckets: g.store, Objects: server.Adapt(g.store), Uploads: g.store, Auth: auth,
		Region: g.config.Region, Domains: g.config.Domains, Log: g.log, Metrics: registry, Ready: g.ready,
		Knobs: &g.config.Knobs.set, Engines: g.engineInfos,
		Limits: server.Limits{Requests: g.config.MaxRequests, Drain: g.config.DrainTimeout},
	})
	if err != nil {
		return err
	}
	g.server = srv
	return nil
}

// lookup finds the secret of an access key. There is one user so far.
func (g *gateway) lookup(_ context.Context, accessKey string) (sigv4.Credential, bool) {
	if accessKey != g.root.User {
		return sigv4.Credential{}, false
	}
	return sigv4.Credential{SecretKey: g.root.Password}, true
}

// run opens the disks, then starts the log of every set, then the store, serves
// until ctx ends, and stops all of it in the opposite order. serving is called
// when connections are taken.
func (g *gateway) run(ctx context.Context, ln net.Listener, serving func()) error {
	if err := g.openDisks(ctx); err != nil {
		return errors.Join(err, ln.Close(), g.close())
	}
	below, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	running, below := errgroup.WithContext(below)
	for index, s := range g.sets {
		for _, seat := range s.seats {
			running.Go(func() error { return ended(seat.Run(below), "disk "+seat.name) })
		}
		running.Go(func() error { return ended(s.engine.Run(below), fmt.Sprintf("metadata of set %d", index)) })
	}
	running.Go(func() error { return ended(g.store.Run(below), "store") })
	g.started.Store(true)
	serving()
	// A part that dies takes the server with it: half a gateway must not
	// answer as if it were whole.
	front, stop := context.WithCancel(ctx)
	defer stop()
	context.AfterFunc(below, stop)
	err := g.server.Serve(front, ln)
	cancel()
	return errors.Join(err, running.Wait(), g.close())
}

// openWait bounds how long a start waits for a disk that doesn't answer. It
// comes in later if it ever does.
const openWait = 10 * time.Second

// openDisks takes a first look at all disks, so that the logs begin with all
// that are well: more voters, more evidence. It fails if another process has
// one: two gateways over one store are a mistake, never a degraded start.
func (g *gateway) openDisks(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, openWait)
	defer cancel()
	var looks sync.WaitGroup
	for _, s := range g.sets {
		for _, seat := range s.seats {
			looks.Go(func() { seat.Tend(ctx) })
		}
	}
	looks.Wait()
	bad := &configError{}
	for _, s := range g.sets {
		for _, seat := range s.seats {
			if seat.inUse.Load() {
				bad.problems = append(bad.problems, fmt.Sprintf("disk %s is in use by another process", seat.name))
			}
		}
	}
	if len(bad.problems) > 0 {
		return bad
	}
	return nil
}

// ended is the error of a part that should have run until its context ended.
func ended(err error, part string) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return nil
	}
	return fmt.Errorf("%s: %w", part, err)
}

// close gives everything back. Each disk bounds how long that takes.
func (g *gateway) close() error {
	var errs []error
	for _, s := range g.sets {
		errs = append(errs, s.engine.Close())
	}
	var closing errgroup.Group
	for _, s := range g.sets {
		for _, seat := range s.seats {
			closing.Go(seat.Close)
		}
	}
	errs = append(errs, closing.Wait())
	g.engines.close()
	g.cache.Close()
	return errors.Join(append(errs, g.engines.closePool())...)
}
