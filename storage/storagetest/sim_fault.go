package storagetest

import (
	"context"
	"sync/atomic"

	"ringfence/storage"
)

// OpKind names a step that a simulated disk takes. One call of a Disk may take
// several: Seal syncs the data, then the directory.
type OpKind uint8

// The steps. Those up to OpResetKV change the medium and are counted.
const (
	OpCreate   OpKind = iota + 1 // a new shard file
	OpAppend                     // one block
	OpSealData                   // trailer written and data synced
	OpSealDir                    // directory synced
	OpRemove                     // unlink, by RemoveShard or Abort
	OpApply                      // one batch written and synced
	OpResetKV                    // metadata store wiped
	OpOpen                       // an instance opened on the medium
	OpOpenShard
	OpRead // blocks
	OpList
	OpGet
	OpIter
	OpNext // any move of an iterator
	OpCheck
)

func (k OpKind) writes() bool { return k <= OpResetKV }

// String gives a short lower-case name.
func (k OpKind) String() string {
	names := [...]string{
		"", "create shard", "append block", "seal data", "seal directory", "remove shard", "kv apply",
		"kv reset", "open", "open shard", "read blocks", "list shards", "kv get", "kv iter", "kv next", "check",
	}
	if int(k) < len(names) {
		return names[k]
	}
	return "unknown"
}

// Op is one step, about to be taken.
type Op struct {
	Kind  OpKind
	Disk  string // the Sim's name
	N     uint64 // steps that write, this one included, over all disks with the same Steps
	Shard storage.ShardID
	Block int // OpAppend, OpRead: the first block
}

// FaultKind says how a step goes wrong.
type FaultKind uint8

// The faults.
const (
	// FaultNone: the step succeeds.
	FaultNone FaultKind = iota
	// FaultFail: the step does nothing and returns Fault.Err.
	FaultFail
	// FaultUnknown: the step happens, not durably, and returns Fault.Err.
	FaultUnknown
	// FaultCrash: as FaultUnknown with ErrOffline, and the disk is down until
	// it is opened again: after Crash if the power failed, at once if only the
	// gateway died.
	FaultCrash
	// FaultLie: a sync reports success and makes nothing durable.
	FaultLie
	// FaultFlip: a read returns data with bit Fault.Bit of its first block
	// inverted; the medium is fine.
	FaultFlip
	// FaultMisdirect: a read returns another place of the medium: the following
	// block of the shard, or zeros after the last.
	FaultMisdirect
)

// Fault is what a hook does to a step.
type Fault struct {
	Kind FaultKind
	// Err of FaultFail and FaultUnknown; nil means storage.ErrFailed.
	Err error
	Bit int
	// Wait, when not nil, holds the step back until it is closed or the
	// caller's context ends.
	Wait <-chan struct{}
}

func (f Fault) err() error {
	if f.Err == nil {
		return storage.ErrFailed
	}
	return f.Err
}

// Steps counts the writing steps of all disks that share it, and cuts their
// power at a chosen one. The zero value counts and never cuts.
type Steps struct {
	n, cut atomic.Uint64
	dark   atomic.Bool
}

// Count is the number of writing steps taken.
func (s *Steps) Count() uint64 { return s.n.Load() }

// CutAt makes step n the last one: it happens without being durable, and its
// caller, like every later one, gets ErrOffline. 0 takes the order back.
func (s *Steps) CutAt(n uint64) { s.cut.Store(n) }

// Cut turns the power off now.
func (s *Steps) Cut() { s.dark.Store(true) }

// Dark reports whether the power is off.
func (s *Steps) Dark() bool { return s.dark.Load() }

// PowerOn turns the power on again and forgets CutAt. The caller has called
// Crash on every disk.
func (s *Steps) PowerOn() {
	s.cut.Store(0)
	s.dark.Store(false)
}

// take counts a step and reports whether it is the last one.
func (s *Steps) take(kind OpKind) (n uint64, last bool) {
	if !kind.writes() {
		return s.n.Load(), false
	}
	n = s.n.Add(1)
	return n, n == s.cut.Load()
}

// step is an Op that was admitted: the caller does it unless skip, then calls
// end.
type step struct {
	Op
	fault Fault
	last  bool // the power fails with this step
}

// lies reports whether a sync in this step has no effect.
func (s *step) lies() bool {
	return s.last || s.fault.Kind == FaultLie || s.fault.Kind == FaultCrash || s.fault.Kind == FaultUnknown
}

// begin admits a step or says why not.
func (d *SimDisk) begin(ctx context.Context, kind OpKind, id storage.ShardID, block int) (step, error) {
	s := step{Op: Op{Kind: kind, Disk: d.sim.opts.Name, Shard: id, Block: block}}
	if err := ctx.Err(); err != nil {
		return s, d.wrap(kind, err)
	}
	if err := d.gone(); err != nil {
		return s, d.wrap(kind, err)
	}
	s.N, s.last = d.sim.opts.Steps.take(kind)
	if hook := d.sim.hook.Load(); hook != nil {
		s.fault = (*hook)(s.Op)
	}
	if s.fault.Wait != nil {
		select {
		case <-s.fault.Wait:
		case <-ctx.Done():
			return s, d.wrap(kind, ctx.Err())
		}
	}
	if s.fault.Kind == FaultFail {
		return s, d.end(&s, s.fault.err())
	}
	return s, nil
}

// end gives the result of a step: err if it failed by itself, or what its fault
// makes of success.
func (d *SimDisk) end(s *step, err error) error {
	switch {
	case s.last:
		d.sim.opts.Steps.Cut()
		err = storage.ErrOffline
	case s.fault.Kind == FaultCrash:
		d.down.Store(true)
		err = storage.ErrOffline
	case err == nil && s.fault.Kind == FaultUnknown:
		err = s.fault.err()
	}
	if d.sim.opts.Trace != nil {
		d.sim.opts.Trace(s.Op, err)
	}
	return d.wrap(s.Kind, err)
}

func (d *SimDisk) wrap(kind OpKind, err error) error {
	if err == nil {
		return nil
	}
	return &storage.DiskError{Op: kind.String(), Disk: d.sim.opts.Name, Err: err}
}
