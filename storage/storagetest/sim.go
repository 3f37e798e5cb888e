package storagetest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"ringfence/storage"
)

// SimOptions configures NewSim. The zero value is a disk without faults.
type SimOptions struct {
	// Name is the disk's name in errors and hooks.
	Name string
	// Steps counts writing steps; disks whose power fails together share one.
	// Nil: one of its own.
	Steps *Steps
	// Hook is called before every step, with no lock held; nil: no faults. It
	// can be changed by SetHook.
	Hook func(Op) Fault
	// Trace is called after every step with its result.
	Trace func(Op, error)
	// Capacity in bytes of shard data; 0 means no bound.
	Capacity int64
}

// Sim is the medium of a simulated disk: what stays when the power fails, and
// what was written but may not stay. At most one SimDisk is open on it; opening
// another ends the one before.
type Sim struct {
	opts SimOptions
	hook atomic.Pointer[func(Op) Fault]

	mu       sync.Mutex // protects the fields below
	identity storage.Identity
	open     *SimDisk
	away     bool
	rotten   bool // the metadata store cannot be read
	files    map[storage.ShardID]*simFile
	order    []storage.ShardID // keys of files in list order; nil when stale
	dirty    []*simFile        // files with something to lose, oldest first; also unlinked ones
	used     int64
	kv       tree
	safe     tree   // the metadata state that a crash cannot undo
	pending  []tree // states after each batch since safe, oldest first
	edit     uint32
}

// maxGhosts bounds the unlinked files that a crash may bring back; the oldest
// unlink becomes durable, as by the kernel's periodic write-back.
const maxGhosts = 1024

// simFile is a shard file. data and sums are never changed in place once a
// reader or a snapshot may hold them: appends go behind their length, damage is
// done to a copy.
type simFile struct {
	id        storage.ShardID
	info      storage.ShardInfo
	data      []byte
	sums      []storage.Sum
	sealed    bool // the trailer is there and intact
	entrySafe bool
	dataSafe  bool
	unlinked  bool
}

// NewSim makes a blank medium.
func NewSim(opts SimOptions) *Sim {
	if opts.Steps == nil {
		opts.Steps = &Steps{}
	}
	s := &Sim{opts: opts, files: map[storage.ShardID]*simFile{}}
	s.SetHook(opts.Hook)
	return s
}

// SetHook replaces the fault hook; nil removes it.
func (s *Sim) SetHook(hook func(Op) Fault) {
	if hook == nil {
		s.hook.Store(nil)
		return
	}
	s.hook.Store(&hook)
}

// Name is the name in the options.
func (s *Sim) Name() string { return s.opts.Name }

// Open opens an instance, as a process that starts does, and ends the one
// before it. A blank medium is formatted with identity; otherwise identity must
// be the medium's. What is visible after Open is durable, as after the replay
// of a log.
func (s *Sim) Open(identity storage.Identity) (*SimDisk, error) {
	d := &SimDisk{sim: s, identity: identity}
	s.mu.Lock()
	away := s.away
	s.mu.Unlock()
	st := step{Op: Op{Kind: OpOpen, Disk: s.opts.Name, N: s.opts.Steps.Count()}}
	if hook := s.hook.Load(); hook != nil {
		st.fault = (*hook)(st.Op)
	}
	switch {
	case away, s.opts.Steps.Dark():
		return nil, d.end(&st, storage.ErrOffline)
	case st.fault.Kind == FaultFail:
		return nil, d.end(&st, st.fault.err())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.identity == (storage.Identity{}) {
		s.identity = identity
	}
	if s.identity != identity {
		return nil, d.end(&st, fmt.Errorf("%w: another disk: %s", storage.ErrOffline, s.identity.Disk))
	}
	if s.open != nil {
		s.open.down.Store(true)
	}
	s.open = d
	if !st.lies() {
		s.syncKVLocked()
	}
	d.kv.Store(s.newKVLocked(d))
	if err := d.end(&st, nil); err != nil {
		return nil, err
	}
	return d, nil
}

func (s *Sim) syncKVLocked() { s.safe, s.pending = s.kv, nil }

// Identity is what the medium was formatted with; zero while it is blank.
func (s *Sim) Identity() storage.Identity {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.identity
}

// Crash is a power failure: the open instance is gone, and of everything that
// was written but not synced a part chosen by rng is lost. Of the metadata
// batches a prefix survives; of an unsynced file each block may be there, be
// zeros or be torn, the trailer may be missing, and the file itself too; an
// unsynced unlink may be undone.
func (s *Sim) Crash(rng *rand.Rand) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked()
	if n := len(s.pending); n > 0 {
		if i := rng.IntN(n + 1); i > 0 {
			s.safe = s.pending[i-1]
		}
	}
	s.kv, s.pending = s.safe, nil
	for _, f := range s.dirty {
		lost := !f.entrySafe && rng.IntN(2) == 0
		if f.unlinked {
			// Another file may have the name by now; the unlink was durable then.
			if _, taken := s.files[f.id]; lost || taken || rng.IntN(2) == 0 {
				continue
			}
			s.put(f.clone())
			s.files[f.id].unlinked = false
			s.used += int64(len(f.data))
		}
		if lost {
			s.drop(f)
			continue
		}
		s.put(s.files[f.id].decay(rng))
	}
	s.dirty = nil
}

// decay is what a crash leaves of an unsynced file.
func (f *simFile) decay(rng *rand.Rand) *simFile {
	c := f.clone()
	if !c.dataSafe {
		c.data = slices.Clone(c.data)
		for at := 0; at < len(c.data); at += c.info.BlockSize {
			block := c.data[at:min(at+c.info.BlockSize, len(c.data))]
			switch rng.IntN(3) {
			case 0:
				clear(block)
			case 1:
				const sector = 512
				clear(block[min(len(block), sector*rng.IntN(1+len(block)/sector)):])
			}
		}
		c.sealed = c.sealed && rng.IntN(2) == 0
	}
	c.entrySafe, c.dataSafe = true, true
	return c
}

func (f *simFile) clone() *simFile {
	c := *f
	return &c
}

func (s *Sim) put(f *simFile) {
	if _, there := s.files[f.id]; !there {
		s.order = nil
	}
	s.files[f.id] = f
}

func (s *Sim) drop(f *simFile) {
	if s.files[f.id] == nil {
		return
	}
	delete(s.files, f.id)
	s.order = nil
	s.used -= int64(len(f.data))
}

// endLocked ends the open instance.
func (s *Sim) endLocked() {
	if s.open != nil {
		s.open.down.Store(true)
		s.open = nil
	}
}

// Vanish takes the disk away: the open instance is dead for ever, and Open fails
// until Return. Nothing is lost.
func (s *Sim) Vanish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked()
	s.away = true
}

// Return brings the disk back after Vanish.
func (s *Sim) Return() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = false
}

// Wipe makes the medium blank, as a replaced disk is, and ends the open
// instance.
func (s *Sim) Wipe() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked()
	s.identity = storage.Identity{}
	s.files, s.order, s.dirty, s.used = map[storage.ShardID]*simFile{}, nil, nil, 0
	s.kv, s.rotten = tree{}, false
	s.syncKVLocked()
}

// Snapshot is the state of a medium at a moment.
type Snapshot struct {
	identity storage.Identity
	files    map[storage.ShardID]*simFile
	kv       tree
	used     int64
}

// Snapshot copies the state as it is visible now.
func (s *Sim) Snapshot() *Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	snap := &Snapshot{identity: s.identity, files: maps.Clone(s.files), kv: s.kv, used: s.used}
	for id, f := range snap.files {
		snap.files[id] = f.clone()
	}
	return snap
}

// Restore puts the medium back to a snapshot, all of it durable, and ends the
// open instance: a disk that comes back from an old image.
func (s *Sim) Restore(snap *Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked()
	s.identity, s.used = snap.identity, snap.used
	s.files, s.order, s.dirty = maps.Clone(snap.files), nil, nil
	for id, f := range s.files {
		c := f.clone()
		c.entrySafe, c.dataSafe = true, true
		s.files[id] = c
	}
	s.kv, s.rotten = snap.kv, false
	s.syncKVLocked()
}
