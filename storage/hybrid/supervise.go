package hybrid

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"ringfence/storage/uring"
)

const (
	reprobeMax = 5 * time.Minute // at most between two attempts
	wellAfter  = time.Minute     // of serving, from when on former failures don't count

	retiringMax = 4 // drivers that end in the background; one more has to wait
	// retireFor bounds how long a driver may take to finish what it accepted,
	// and closeFor how long at the end of everything. Then it drains, which is
	// bounded as well.
	retireFor = 10 * time.Second
	closeFor  = 2 * time.Second

	turnServing = 200 * time.Millisecond // between two looks at a driver
	turnIdle    = time.Second            // for knobs that nobody told of
)

// supervisor starts, replaces and ends drivers. It is one goroutine's. Those it
// starts wait for hardware and for each other, so they are none of the Env's: a
// simulation has no rings to run.
type supervisor struct {
	b       *Backend
	current *serving // the driver that serves, or that a latch took out
	watch   watch
	told    config // the last one that a failure to start was logged for

	restricted bool // the environment refuses; ends when rings are switched off
	failures   int
	retry      time.Time // no attempt before

	patience time.Duration // with a driver that is retired
	retiring int
	retired  chan struct{} // one token per driver that ended; room for all
	tasks    sync.WaitGroup
}

// Run starts and ends drivers as knobs and latches want, compares shadow reads
// and watches over the disk, until ctx ends or the Backend is closed. Then it
// ends all drivers, in bounded time. Only the first Run of a Backend does so;
// others return at once.
func (b *Backend) Run(ctx context.Context) {
	ctx, done, ok := b.life.begin(ctx)
	if !ok {
		return
	}
	defer done()
	s := &supervisor{b: b, patience: retireFor, retired: make(chan struct{}, retiringMax+2)}
	compared := make(chan struct{})
	go func() { // ends with the queue that is closed below, which Run waits for
		defer close(compared)
		b.work(ctx)
	}()
	for ctx.Err() == nil {
		changed := b.knobs.changes.wait()
		next := s.turn(ctx)
		timer, stop := b.opts.Env.After(next)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-b.kick:
		case <-timer:
		case <-s.retired:
			s.retiring--
		}
		stop()
	}
	s.patience = closeFor
	s.out(ctx, "closed")
	for s.retiring > 0 {
		<-s.retired
		s.retiring--
	}
	b.shadow.close()
	s.tasks.Wait()
	s.leave(compared)
}

// leave waits for the comparisons, which ctx has told to stop. One that hangs in
// the kernel is left behind: it has its own references to file and memory, and
// ends when the disk answers.
func (s *supervisor) leave(compared <-chan struct{}) {
	late, stop := s.b.opts.Env.After(closeFor)
	defer stop()
	select {
	case <-compared:
	case <-late:
		s.b.opts.Log.Warn().Str("disk", s.b.opts.Dir).Msg("comparing a read hangs")
	}
}

// turn does what is to be done now, and says when to look again.
func (s *supervisor) turn(ctx context.Context) time.Duration {
	b := s.b
	if !b.knobs.Enable.Load() {
		s.switchOff(ctx)
		return turnIdle
	}
	now := b.opts.Env.Now()
	s.inspect(ctx, now)
	if _, on := b.latches.on(LatchShadow); on || s.restricted {
		return turnIdle
	}
	want := b.knobs.config()
	if s.current == nil || s.current.config != want {
		if wait := s.retry.Sub(now); wait > 0 && (s.current == nil || s.told == want) {
			return min(wait, turnServing)
		}
		if s.retiring < retiringMax {
			s.start(ctx, want)
		}
	}
	return min(turnServing, max(b.knobs.HungAfter.Load()/8, time.Millisecond))
}

// switchOff ends the driver and forgets what was held against rings: whoever
// switches them on again wants to know anew.
func (s *supervisor) switchOff(ctx context.Context) {
	b := s.b
	s.out(ctx, "switched off")
	s.restricted, s.failures, s.retry, s.told = false, 0, time.Time{}, config{}
	b.latches.reset(latchKinds...)
	b.direct.Store(uint32(directWorks))
	b.hung.since.Store(0)
	s.watch = watch{}
}

// out takes the driver out and ends it in the background.
func (s *supervisor) out(ctx context.Context, why string) {
	b := s.b
	b.swap.Lock()
	b.serving.Store(nil)
	b.swap.Unlock()
	if b.rings.say(why); s.current != nil {
		s.retire(ctx, s.current)
		s.current = nil
	}
}

// inspect looks how the driver and the disk are.
func (s *supervisor) inspect(ctx context.Context, now time.Time) {
	b := s.b
	if s.current != nil && b.serving.Load() != s.current {
		why := "latched"
		if l, on := b.latches.on(LatchShadow, LatchActive); on {
			why = l.Kind + ": " + l.Reason
		}
		s.out(ctx, why)
		s.later(now)
	}
	if s.current == nil {
		return
	}
	if st := s.current.driver.Stats(); st.Total().Dead {
		s.out(ctx, "all rings died")
		s.later(now)
		b.trip(LatchProbe, "all rings died")
		return
	}
	if now.Sub(s.current.since) > wellAfter {
		s.failures = 0
	}
	// A reader of the driver before may have come late to say so.
	b.latches.reset(LatchProbe, LatchActive)
	total := b.rings.total()
	switch after := b.knobs.HungAfter.Load(); {
	case !s.watch.look(total, now, after):
		b.hung.answered(b)
		// A reader may have been told so between the mark and the latch.
		b.latches.reset(LatchHung)
	case b.hung.begin(now, total.Oldest):
		b.trip(LatchHung, fmt.Sprintf("a read has waited for %s", total.Oldest.Round(time.Millisecond)))
	}
}

// start starts a driver as the knobs want it. The one before serves until the
// new one does, and goes on if that fails.
func (s *supervisor) start(ctx context.Context, want config) {
	b := s.b
	d, err := b.opts.start(ctx, b.opts.ringOptions(want))
	now := b.opts.Env.Now()
	if err != nil {
		if ctx.Err() == nil {
			s.failed(want, err, now)
		}
		return
	}
	next := &serving{driver: d, config: want, since: now}
	b.rings.add(next)
	b.swap.Lock()
	_, bad := b.latches.on(LatchShadow)
	if !bad {
		b.serving.Store(next)
	}
	b.swap.Unlock()
	if s.current != nil {
		s.retire(ctx, s.current)
	}
	s.current = next
	if bad {
		return // the next look takes it out
	}
	b.rings.say("")
	s.told = config{}
	b.latches.reset(LatchProbe, LatchActive)
	b.opts.Log.Info().Str("disk", b.opts.Dir).Stringer("rings", next).Msg("reads go through rings")
}

// A disk that hangs keeps the memory of reads whose callers have left. It may
// have this part of the pool, all its rings together, within limits for one.
const (
	poolShare    = 8
	ringBytesMin = 4 << 20
	ringBytesMax = 64 << 20
)

func (o Options) ringOptions(c config) uring.Options {
	r := o.Rings
	r.Dir, r.Pool, r.Log, r.Env = o.Dir, o.Pool, o.Log, o.Env
	r.Shards, r.Entries, r.Mode = c.shards, c.entries, c.mode
	if r.Bytes == 0 {
		share := o.Pool.Stats().BudgetBytes / poolShare / int64(c.shards)
		r.Bytes = min(max(share, ringBytesMin), ringBytesMax)
	}
	return r
}

// failed decides what follows from a driver that did not start.
func (s *supervisor) failed(want config, err error, now time.Time) {
	b := s.b
	b.rings.fail()
	s.later(now)
	var probe *uring.ProbeError
	refused := errors.As(err, &probe) && probe.Restricted
	b.rings.say(reasonText(err))
	if s.current != nil {
		if s.told != want {
			b.opts.Log.Warn().Str("disk", b.opts.Dir).Err(err).Msg("rings go on as they were")
		}
		s.told = want
		return
	}
	s.told = want
	s.restricted = refused
	b.trip(LatchProbe, reasonText(err))
}

// reasonText says why rings did not start, in words that tell what to do.
func reasonText(err error) string {
	var probe *uring.ProbeError
	if errors.As(err, &probe) && probe.Restricted {
		return err.Error() + " (seccomp, kernel.io_uring_disabled or an old kernel)"
	}
	return err.Error()
}

// later puts the next attempt off, longer every time, and never to the same
// moment on all disks.
func (s *supervisor) later(now time.Time) {
	first := s.b.knobs.Reprobe.Load()
	d := reprobeMax
	if s.failures < 32 {
		d = min(first<<s.failures, reprobeMax)
	}
	if d <= 0 {
		d = reprobeMax
	}
	s.failures++
	var r [8]byte
	s.b.opts.Env.Rand(r[:])
	jitter := time.Duration(binary.LittleEndian.Uint64(r[:]) % uint64(d/4+1))
	s.retry = now.Add(d - d/8 + jitter)
}

// retire ends a driver in the background, also after ctx has ended. Run waits
// for it.
func (s *supervisor) retire(ctx context.Context, old *serving) {
	b := s.b
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.patience)
	s.retiring++
	s.tasks.Go(func() {
		defer cancel()
		if _, err := old.driver.Retire(ctx); err != nil {
			b.opts.Log.Warn().Str("disk", b.opts.Dir).Err(err).Msg("end rings")
		}
		b.rings.end(old)
		s.retired <- struct{}{}
	})
}
