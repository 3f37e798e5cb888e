package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/rs/zerolog"

	"ringfence/storage"
)

// Disk is one directory as a storage.Disk. Get one from Open.
type Disk struct {
	opts     Options // with defaults, never changed
	identity storage.Identity
	log      zerolog.Logger // names the disk
	lock     io.Closer
	bufs     *storage.Pool
	bufsDone func() // closes bufs if it is the disk's own
	fault    faults
	space    space
	dirs     dirSync
	fds      *fdCache
	trailers trailers
	cache    *MetaCache
	presence atomic.Pointer[presence]

	resetting sync.Mutex         // held while the metadata store is replaced
	meta      atomic.Pointer[kv] // never nil once opened
}

var _ storage.Disk = (*Disk)(nil)

// Open opens a formatted disk and takes it from other processes. A damaged
// superblock copy is repaired. A metadata store that can't be opened doesn't
// prevent the disk from opening: KV's methods then fail with ErrCorrupt (it is
// damaged: ResetKV and rebuild it), ErrFull or ErrFailed, and Health says so.
//
// Errors: ErrNotFound if the directory isn't formatted, ErrCorrupt if it can't
// be identified, ErrOffline if another process has it. On success the disk owns
// o.Backend.
func Open(ctx context.Context, o Options) (*Disk, error) {
	o = o.withDefaults()
	d, err := open(ctx, o)
	return d, o.wrap("open", err)
}

func open(ctx context.Context, o Options) (_ *Disk, err error) {
	bufs, bufsDone, err := o.pool()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			bufsDone()
		}
	}()
	// Look before the lock, which creates a file: a foreign directory stays
	// untouched.
	if _, err := readSuperblocks(ctx, o.Backend, bufs); err != nil {
		return nil, err
	}
	lock, err := takeLock(o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, lock.Close())
		}
	}()
	identity, err := prepare(ctx, o, bufs)
	if err != nil {
		return nil, err
	}
	p, err := newPresence(o)
	if err != nil {
		return nil, err
	}
	d := &Disk{opts: o, identity: identity, lock: lock, bufs: bufs, bufsDone: bufsDone}
	d.presence.Store(p)
	d.log = o.Log.With().Str("disk", o.Root).Logger()
	d.fault.log = d.log
	d.space = space{stats: o.Backend.Stats, now: o.Env.Now, percent: o.FullPercent}
	d.dirs.sync = o.Backend.SyncDir
	d.fds = d.newFDCache()
	d.cache = o.MetaCache
	if d.cache == nil {
		d.cache = NewMetaCache(o.MetaCacheBytes)
	}
	d.meta.Store(d.openKV())
	if err := d.check(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Disk) newFDCache() *fdCache {
	entries, fewer := d.opts.fdCache()
	if fewer {
		d.log.Warn().Uint64("limit", d.opts.openFilesMax()).Int("shards", entries).Int("asked", d.opts.FDCache).
			Msgf("the process may open few files: fewer shards stay open; allow %d (ulimit -n)", openFilesAmple)
	}
	return newFDCache(fdCacheOptions{
		limit: entries, on: d.opts.FDCacheOn.Load, age: d.opts.FDCacheAge, now: d.opts.Env.Now,
		drop: func(s *openShard, err error) {
			d.log.Warn().Err(err).Stringer("shard", s.id).Msg("close cached shard")
		},
	})
}

// prepare reads the superblocks and makes good what a crash or a bad sector
// left: a broken copy, a half-removed metadata store, missing folders.
func prepare(ctx context.Context, o Options, bufs *storage.Pool) (storage.Identity, error) {
	sb, err := readSuperblocks(ctx, o.Backend, bufs)
	if err != nil {
		return storage.Identity{}, err
	}
	for _, name := range sb.bad {
		if err := writeSuperblock(ctx, o.Backend, name, sb.current); err != nil {
			// One good copy is enough to run; a disk that takes no writes
			// shows it soon enough.
			o.Log.Error().Err(err).Str("disk", o.Root).Msg("repair " + name)
			continue
		}
		o.Log.Warn().Str("disk", o.Root).Msg("repaired " + name)
	}
	if err := makeFolders(ctx, o.Backend); err != nil {
		return storage.Identity{}, fmt.Errorf("make folders: %w", err)
	}
	if err := o.MetaFS.RemoveAll(o.path(nameOld)); err != nil {
		o.Log.Warn().Err(err).Str("disk", o.Root).Msg("remove " + nameOld)
	}
	return sb.current.Identity, nil
}

// ErrInUse is part of the error of Open and Format when another process has the
// disk.
var ErrInUse = errors.New("the disk is in use")

// takeLock keeps other processes off the disk.
func takeLock(o Options) (io.Closer, error) {
	lock, err := o.MetaFS.Lock(o.path(nameLock))
	if err != nil {
		return nil, fmt.Errorf("%w: %w: %s is locked by another process, or twice by this one: %w",
			storage.ErrOffline, ErrInUse, o.path(nameLock), err)
	}
	return lock, nil
}

// wrap says which operation on this disk failed. nil stays nil.
func (d *Disk) wrap(op string, err error) error { return d.opts.wrap(op, err) }

// Identity implements storage.Disk.
func (d *Disk) Identity() storage.Identity { return d.identity }

// Check implements storage.Disk. Beyond what every write looks at, it reads the
// superblocks: a disk that was overwritten in place still has all its names. If
// the metadata store ended because the disk was full, and there is room again,
// Check opens it anew.
func (d *Disk) Check(ctx context.Context) error {
	err := d.check()
	if err == nil {
		err = d.checkSuperblocks(ctx)
	}
	if err != nil {
		return d.wrap("check", err)
	}
	if d.meta.Load().endedFull() && d.space.admit() == nil {
		if err := d.ReopenKV(ctx); err != nil {
			d.log.Warn().Err(err).Msg("reopen metadata store")
		}
	}
	return nil
}

// checkSuperblocks fails when neither copy says that this is the disk that was
// opened. One copy is enough, as it is to open.
func (d *Disk) checkSuperblocks(ctx context.Context) error {
	sb, err := readSuperblocks(ctx, d.opts.Backend, d.bufs)
	switch {
	case errors.Is(err, storage.ErrNotFound), errors.Is(err, storage.ErrCorrupt):
		return d.fault.setGone(err.Error())
	case err != nil:
		return fmt.Errorf("read superblocks: %w", err)
	case sb.current.Identity != d.identity:
		return d.fault.setGone("the superblocks are those of disk " + sb.current.Identity.Disk.String())
	}
	return nil
}

// check looks whether the disk is there and was never seen to lose a write.
func (d *Disk) check() error {
	if err := d.fault.writable(); err != nil {
		return err
	}
	err := d.opts.Backend.Check()
	if err == nil {
		err = d.present()
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, storage.ErrOffline):
		return d.fault.setGone(err.Error())
	case transient(err):
		return err
	}
	d.fault.setFailed("check: " + err.Error())
	return err
}

// present looks for the names. A name that is gone while what to look for
// changed says nothing: ResetKV took it away.
func (d *Disk) present() error {
	for {
		p := d.presence.Load()
		if err := p.check(); err == nil || d.presence.Load() == p {
			return err
		}
	}
}

// Close implements storage.Disk. Readers that are still open stay usable. It
// waits a bounded time for the metadata store. If that is stuck the error says
// so, and the disk stays locked, so that nobody opens it, until the hardware
// has answered what the store asked of it.
func (d *Disk) Close() error {
	if d.fault.closed.Swap(true) {
		return nil
	}
	d.resetting.Lock()
	defer d.resetting.Unlock()
	d.fds.shut()
	k := d.meta.Load()
	k.end(fmt.Errorf("%w: closed", storage.ErrOffline))
	err := k.awaitEnd(d.opts.CloseTimeout)
	if d.opts.MetaCache == nil {
		d.cache.Close()
	}
	if err == nil {
		err = d.lock.Close()
	} else {
		d.opts.Env.Go(func() { d.unlockLate(k) })
	}
	err = errors.Join(err, d.opts.Backend.Close())
	d.bufsDone()
	return d.wrap("close", err)
}

// unlockLate gives the disk to whoever wants it once k came to its end, if
// ever. Nobody waits for it: it would be for the hardware.
func (d *Disk) unlockLate(k *kv) {
	<-k.buried
	if err := d.lock.Close(); err != nil {
		d.log.Warn().Err(err).Msg("release lock")
		return
	}
	d.log.Info().Msg("metadata store came to its end after all")
}
