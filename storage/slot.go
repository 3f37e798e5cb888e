package storage

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"ringfence/internal/env"
)

// SlotOptions configures NewSlot. Open and Expect are required.
type SlotOptions struct {
	// Name is the disk's name for people, for as long as no instance is open.
	Name string
	// Expect is the only identity that may sit in this place. With a zero Disk,
	// when nobody knows which disk was there, any disk of that set and slot may.
	Expect Identity
	// Open opens an instance. It is called by one goroutine at a time.
	Open func(ctx context.Context) (Disk, error)
	// Interval is the time between looks at the disk; 0 means 1 s.
	Interval time.Duration
	// BackoffMax bounds the time between attempts to open, which doubles from
	// Interval on; 0 means 30 s.
	BackoffMax time.Duration
	// Patience bounds how long a check or a close may take: a disk that does
	// not answer a check for as long is taken out, and one that does not close
	// is left behind; 0 means 10 s.
	Patience time.Duration
	// Env gives goroutines and timers; zero means env.System.
	Env env.Env
	// OnChange is called by Run when the state or its reason changed.
	OnChange func(old, new Health)
}

func (o SlotOptions) withDefaults() SlotOptions {
	if o.Interval == 0 {
		o.Interval = time.Second
	}
	if o.BackoffMax == 0 {
		o.BackoffMax = 30 * time.Second
	}
	if o.Patience == 0 {
		o.Patience = 10 * time.Second
	}
	if o.Env.IsZero() {
		o.Env = env.System()
	}
	if o.OnChange == nil {
		o.OnChange = func(_, _ Health) {}
	}
	return o
}

// maxLeftBehind bounds the instances of one place that never closed. Each holds
// memory and a goroutine; with so many of them, only a restart helps.
const maxLeftBehind = 3

// Slot is the place of a disk that may go away and come back. It is a Disk that
// stays while instances of the real one come and go: with none open every call
// fails with ErrOffline. Run watches the instance, takes it out when it is
// gone or failed, and tries to open another one; an instance with another
// identity never gets in. A Slot starts without an instance.
type Slot struct {
	opts   SlotOptions
	cur    atomic.Pointer[instance]
	reason atomic.Pointer[string] // why there is no instance
	kick   chan struct{}          // asks Run for an early look; room for one

	opened chan opened // result of the attempt that runs; room for one

	tending sync.Mutex // held during a look; protects the fields below
	opening bool
	closing []chan error // of instances taken out, room for one report each
	backoff int          // ticks between attempts, doubling
	waits   int          // ticks left until the next one
	well    int          // ticks that the instance has been well for
	last    Health

	mu     sync.Mutex // protects closed, and setting cur
	closed bool
}

// instance is a disk that was opened. Once retired nothing reaches it from
// here, even if it does not close.
type instance struct {
	disk    Disk
	retired atomic.Bool
	kv      atomic.Pointer[slotKV]
}

type opened struct {
	disk Disk
	err  error
}

var _ Disk = (*Slot)(nil)

// NewSlot makes a place without an instance. Tend or Run opens one.
func NewSlot(opts SlotOptions) (*Slot, error) {
	if opts.Open == nil || opts.Expect.Set.IsZero() {
		return nil, errors.New("slot: Open and Expect are required")
	}
	if opts.Interval < 0 || opts.BackoffMax < 0 || opts.Patience < 0 {
		return nil, errors.New("slot: negative duration")
	}
	s := &Slot{opts: opts.withDefaults(), kick: make(chan struct{}, 1), opened: make(chan opened, 1)}
	s.setReason("not opened yet")
	s.last = s.Health()
	return s, nil
}

func (s *Slot) setReason(reason string) { s.reason.Store(&reason) }

// Run looks after the disk until ctx ends. It leaves the instance open: Close
// closes it.
func (s *Slot) Run(ctx context.Context) error {
	s.Tend(ctx)
	tick, stop := s.opts.Env.After(s.opts.Interval)
	defer func() { stop() }()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.kick:
			s.look(ctx, false)
		case <-tick:
			s.look(ctx, true)
			tick, stop = s.opts.Env.After(s.opts.Interval)
		}
	}
}

// Tend takes one look at the disk, as Run does in every Interval: it opens,
// checks or takes out an instance as needed, and waits for what it does, at
// most until ctx ends. For a start that wants its disks open before it goes on,
// and for simulations, which have no time.
func (s *Slot) Tend(ctx context.Context) { s.look(ctx, true) }

// look is Tend; only a tick brings a waiting attempt nearer.
func (s *Slot) look(ctx context.Context, tick bool) {
	if !s.tending.TryLock() {
		return // someone else looks right now
	}
	defer s.tending.Unlock()
	if tick && s.waits > 0 {
		s.waits--
	}
	if inst := s.cur.Load(); inst != nil {
		s.examine(ctx, inst, tick)
	}
	if s.cur.Load() == nil && s.mayOpen() {
		s.open(ctx)
	}
	now, err := s.health(ctx)
	if err == nil && (now.State != s.last.State || now.Reason != s.last.Reason) {
		old := s.last
		s.last = now
		s.opts.OnChange(old, now)
	}
}

// health is Health, within Patience: the instance may be one that hangs.
func (s *Slot) health(ctx context.Context) (h Health, err error) {
	result := make(chan Health, 1)
	err = s.patiently(ctx, func() error { result <- s.Health(); return nil })
	if err == nil {
		h = <-result
	}
	return h, err
}

// examine takes the instance out if it is gone or failed. One that never was
// well gets time first: its metadata store may be reset.
func (s *Slot) examine(ctx context.Context, inst *instance, tick bool) {
	h, err := s.check(ctx, inst)
	reason := h.Reason
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		reason = err.Error()
	case h.State == StateFailed || h.State == StateOffline:
	default:
		if tick {
			s.well++
		}
		return
	}
	if s.well > 0 || s.waits == 0 {
		s.retire(inst, reason)
	}
}

// check asks the instance whether it is still there, and how it is, within
// Patience.
func (s *Slot) check(ctx context.Context, inst *instance) (h Health, err error) {
	result := make(chan Health, 1)
	err = s.patiently(ctx, func() error {
		err := inst.disk.Check(ctx)
		if err == nil {
			result <- inst.disk.Health()
		}
		return err
	})
	if err == nil {
		h = <-result
	}
	return h, err
}

// patiently waits for f at most for Patience, or until ctx ends. f goes on
// then, as long as the disk hangs.
func (s *Slot) patiently(ctx context.Context, f func() error) error {
	result := make(chan error, 1)
	s.opts.Env.Go(func() { result <- f() })
	timeout, stop := s.opts.Env.After(s.opts.Patience)
	defer stop()
	select {
	case err := <-result:
		return err
	case <-timeout:
		return fmt.Errorf("no answer for %s", s.opts.Patience)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// retire takes the instance out and closes it in the background.
func (s *Slot) retire(inst *instance, reason string) {
	s.setReason(reason)
	s.mu.Lock()
	taken := s.cur.CompareAndSwap(inst, nil)
	s.mu.Unlock()
	if !taken {
		return // closed meanwhile
	}
	if s.well > s.backoff {
		s.backoff, s.waits = 0, 0
	} else {
		s.waits = s.backoff // it comes and goes
	}
	s.well = 0
	s.shut(inst)
}

// shut closes an instance that is out. Its report is awaited by mayOpen.
func (s *Slot) shut(inst *instance) {
	inst.retired.Store(true)
	done := make(chan error, 1)
	s.closing = append(s.closing, done)
	s.opts.Env.Go(func() { done <- inst.disk.Close() })
}

// mayOpen reports whether it is time for an attempt, and no instance that was
// taken out is in its way. What closing one said is of no use: it was sick.
func (s *Slot) mayOpen() bool {
	if s.waits > 0 {
		return false
	}
	for i := 0; i < len(s.closing); {
		select {
		case <-s.closing[i]:
			s.closing = append(s.closing[:i], s.closing[i+1:]...)
		default:
			i++
		}
	}
	if len(s.closing) > maxLeftBehind {
		s.setReason(fmt.Sprintf("%d instances did not close; restart the gateway", len(s.closing)))
		return false
	}
	return true
}

// open tries to open an instance, and waits for it until ctx ends; the attempt
// goes on then, and the next look finds its result.
func (s *Slot) open(ctx context.Context) {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed || ctx.Err() != nil {
		return
	}
	if !s.opening {
		s.opening = true
		s.opts.Env.Go(func() {
			disk, err := s.opts.Open(ctx)
			s.deliver(opened{disk, err})
		})
	}
	select {
	case r := <-s.opened:
		s.opening = false
		s.enter(r)
	case <-ctx.Done():
	}
}

// deliver hands over the result of an attempt, or undoes it after Close.
func (s *Slot) deliver(r opened) {
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.opened <- r // has room: there is one attempt at a time
	}
	s.mu.Unlock()
	if closed && r.err == nil {
		// Nobody is left to tell.
		_ = r.disk.Close()
	}
}

// enter makes a disk that was opened the instance, if it is the right one.
func (s *Slot) enter(r opened) {
	s.backoff = min(max(1, 2*s.backoff), max(1, int(s.opts.BackoffMax/s.opts.Interval)))
	s.waits = s.backoff
	if r.err != nil {
		s.setReason(r.err.Error())
		return
	}
	inst := &instance{disk: r.disk}
	if got := r.disk.Identity(); !s.expects(got) {
		s.setReason(fmt.Sprintf("another disk is in this place: %s (set %s, slot %d), expected %s (set %s, slot %d)",
			got.Disk, got.Set, got.Slot, s.opts.Expect.Disk, s.opts.Expect.Set, s.opts.Expect.Slot))
		s.shut(inst)
		return
	}
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.cur.Store(inst)
	}
	s.mu.Unlock()
	if closed {
		s.shut(inst)
	}
}

// expects reports whether a disk with that identity may sit here.
func (s *Slot) expects(got Identity) bool {
	want := s.opts.Expect
	if want.Disk.IsZero() {
		want.Disk = got.Disk
	}
	return got == want
}

// Kick asks Run for an early look. It never blocks.
func (s *Slot) Kick() {
	select {
	case s.kick <- struct{}{}:
	default: // one is due already
	}
}

// Close ends the place. It closes the instance and waits for that, at most for
// Patience; it does not wait for one that was taken out before. Run is over, or
// ends with its context.
func (s *Slot) Close() error {
	s.mu.Lock()
	s.closed = true
	inst := s.cur.Swap(nil)
	select {
	case r := <-s.opened:
		if r.err == nil { // then there was no instance
			inst = &instance{disk: r.disk}
		}
	default:
	}
	s.mu.Unlock()
	s.setReason("closed")
	if inst == nil {
		return nil
	}
	inst.retired.Store(true)
	done := make(chan error, 1)
	s.opts.Env.Go(func() { done <- inst.disk.Close() })
	timeout, stop := s.opts.Env.After(s.opts.Patience)
	defer stop()
	select {
	case err := <-done:
		return err
	case <-timeout:
		return s.wrap("close", fmt.Errorf("%w: not closed after %s", ErrOffline, s.opts.Patience))
	}
}
