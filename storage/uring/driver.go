package uring

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"ringfence/internal/env"
	"ringfence/storage"
	"ringfence/storage/uring/ring"
)

// Driver reads files through rings. Its methods may be called concurrently.
type Driver struct {
	opts     Options
	permits  permits
	lanes    []*lane
	registry registry
	ops      sync.Pool
	sizeOf   func(fd int) (int64, error) // tests put others in its place

	epoch  time.Time
	setup  atomic.Uint32 // flags of the rings
	stop   chan struct{} // closed when the driver begins to close
	once   sync.Once
	closed atomic.Bool
	files  closing // descriptors that are being closed
}

func (o Options) withDefaults() (Options, error) {
	if o.Entries == 0 {
		o.Entries = 128
	}
	if o.Bytes == 0 {
		o.Bytes = 64 << 20
	}
	o.Shards = max(o.Shards, 1)
	if o.Setup == nil {
		o.Setup = ring.New
	}
	if o.ProbeTimeout == 0 {
		o.ProbeTimeout = 2 * time.Second
	}
	if o.DrainTimeout == 0 {
		o.DrainTimeout = 5 * time.Second
	}
	if o.Restarts == 0 {
		o.Restarts = 3
	}
	if o.Env.IsZero() {
		o.Env = env.System()
	}
	switch {
	case o.Dir == "":
		return o, fmt.Errorf("%w: no directory", ErrInvalid)
	case o.Shards > ShardsMax:
		return o, fmt.Errorf("%w: %d shards, at most %d", ErrInvalid, o.Shards, ShardsMax)
	case o.Entries < EntriesMin || o.Entries > EntriesMax || o.Entries&(o.Entries-1) != 0:
		return o, fmt.Errorf("%w: %d entries, not a power of two from %d to %d", ErrInvalid, o.Entries, EntriesMin, EntriesMax)
	case int(o.Mode) >= len(modeNames):
		return o, fmt.Errorf("%w: buffer mode %d", ErrInvalid, o.Mode)
	case o.Pool == nil && (o.Mode == ModeDynamic || o.Mode == ModeStatic):
		return o, fmt.Errorf("%w: mode %s without a pool", ErrInvalid, o.Mode)
	case o.Bytes < 0 || o.ProbeTimeout < 0 || o.DrainTimeout < 0 || o.Restarts < 0:
		return o, fmt.Errorf("%w: negative limit", ErrInvalid)
	}
	return o, nil
}

// Start sets the rings up, of which the first must read back a file in
// Options.Dir. ErrInvalid for options that can't be right; otherwise a
// *ProbeError, and nothing is left behind but what a hanging kernel holds. ctx
// bounds the start only. The caller must Close the driver.
func Start(ctx context.Context, o Options) (*Driver, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	d := newDriver(o)
	d.registry.open(d)
	for i := range d.lanes {
		s, err := d.startShard(ctx, d.lanes[i], i == 0)
		if err != nil {
			d.abort()
			return nil, err
		}
		d.lanes[i].begin(s)
	}
	return d, nil
}

// newDriver makes a driver without shards.
func newDriver(o Options) *Driver {
	d := &Driver{opts: o, stop: make(chan struct{}), sizeOf: statSize, epoch: o.Env.Now()}
	d.ops.New = func() any { return &Op{pooled: true, done: make(chan struct{}, 1)} }
	var seed [8]byte
	o.Env.Rand(seed[:])
	d.permits.init(o, binary.LittleEndian.Uint64(seed[:]))
	for i := range o.Shards {
		d.lanes = append(d.lanes, &lane{driver: d, index: i, done: make(chan struct{})})
	}
	return d
}

// abort takes down what Start began. The drains of shards that have nothing to
// drain are short.
func (d *Driver) abort() {
	d.shutdown()
	for _, l := range d.lanes {
		if l.running() {
			<-l.done
		}
	}
	d.registry.close()
}

// shutdown begins the end of everything.
func (d *Driver) shutdown() {
	d.once.Do(func() {
		d.permits.close()
		close(d.stop)
		for _, l := range d.lanes {
			l.shutdown()
		}
	})
}

// Close ends the driver: reads that wait are refused, those in flight are
// cancelled and waited for, Options.DrainTimeout at most, for all shards at
// once. What does not end by then is given up: its callers get ErrClosed, and
// memory, descriptors, ring and thread stay as they are for good, which the
// error reports. If ctx ends first Close returns its error while the end goes
// on. Further calls wait for the same end.
func (d *Driver) Close(ctx context.Context) (Stats, error) {
	d.shutdown()
	for _, l := range d.lanes {
		select {
		case <-l.done:
		case <-ctx.Done():
			return d.Stats(), fmt.Errorf("close ring driver: %w", ctx.Err())
		}
	}
	if !d.closed.Swap(true) {
		d.registry.close() // not after the files: these may never close
	}
	if err := d.filesClosed(ctx); err != nil {
		return d.Stats(), err
	}
	s := d.Stats()
	if n := s.Total().InFlight; n > 0 {
		return s, fmt.Errorf("close ring driver: %d reads don't end", n)
	}
	return s, nil
}

// filesClosed waits for the descriptors that reads without callers left.
func (d *Driver) filesClosed(ctx context.Context) error {
	late, stop := d.opts.Env.After(d.opts.DrainTimeout)
	defer stop()
	select {
	case <-d.files.none():
		return nil
	case <-late:
		return errors.New("close ring driver: closing files hangs")
	case <-ctx.Done():
		return fmt.Errorf("close ring driver: %w", ctx.Err())
	}
}

// Retire admits no more reads, lets those in flight come to their end until ctx
// ends, and then closes the driver, within Options.DrainTimeout whatever ctx
// says. Bound ctx: the reads of a disk that hangs never end.
func (d *Driver) Retire(ctx context.Context) (Stats, error) {
	d.permits.close()
	select {
	case <-d.permits.drained():
	case <-ctx.Done():
	case <-d.stop:
	}
	return d.Close(context.WithoutCancel(ctx))
}

// closeFile gives a descriptor back without having a shard wait for the disk.
func (d *Driver) closeFile(f storage.Descriptor) {
	d.files.begin()
	d.opts.Env.Go(func() {
		defer d.files.end()
		if err := f.Release(); err != nil {
			d.opts.Log.Warn().Err(err).Str("dir", d.opts.Dir).Msg("closing a file after an abandoned read")
		}
	})
}

// closing counts descriptors that are being closed. It is no WaitGroup, which
// panics when the next begins just as the last has ended: a thread that hung too
// long for Close comes back when it likes.
type closing struct {
	mu   sync.Mutex    // protects the fields below
	n    int           // under way
	idle chan struct{} // closed when n gets 0; nil if nobody waits
}

func (c *closing) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
}

func (c *closing) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n--; c.n == 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

// none gives a channel that is closed as soon as none is under way.
func (c *closing) none() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	idle := c.idle
	if idle == nil {
		idle = make(chan struct{})
	}
	if c.n == 0 {
		close(idle)
	} else {
		c.idle = idle
	}
	return idle
}

// now is the age of the driver in nanoseconds, and never 0.
func (d *Driver) now() int64 { return int64(d.opts.Env.Now().Sub(d.epoch)) + 1 }

// pause lets a shard wait without its ring.
func (d *Driver) pause(t time.Duration) {
	c, stop := d.opts.Env.After(t)
	defer stop()
	if c != nil { // there is no time in simulation
		<-c
	}
}

func (d *Driver) setupName() string { return ring.SetupName(d.setup.Load()) }
