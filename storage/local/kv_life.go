package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/rs/zerolog"

	"ringfence/storage"
)

// kv is the metadata store as it was opened once. It ends for good by the first
// failed write, by damage, by Close or by ResetKV; everything after that fails
// with the cause.
type kv struct {
	disk    *Disk
	log     zerolog.Logger
	fence   *fence
	witness witness
	db      *pebble.DB // nil if it couldn't be opened; fixed when opening is over
	users   gate       // calls and iterators that are inside Pebble

	cause            atomic.Pointer[error] // why it ended; nil while it lives
	over             chan struct{}         // closed after cause is set
	buried           chan struct{}         // closed when Pebble and its files are closed, or never
	backgroundErrors atomic.Int32

	burial struct {
		sync.Mutex      // protects the fields below
		may        bool // opening is over: there is something to close, or nothing
		begun      bool
	}
}

var _ storage.KV = (*kv)(nil)

// openKV opens what is under meta/. The store it returns has ended already if
// that fails.
func (d *Disk) openKV() *kv {
	k := &kv{
		disk:   d,
		log:    d.log,
		over:   make(chan struct{}),
		buried: make(chan struct{}),
	}
	k.fence = newFence(d.opts.MetaFS, fenceHooks{manifestSynced: k.manifestSynced, writeFailed: k.writeFailed})
	k.witness = witness{fs: k.fence, dir: d.opts.path(nameMeta)}
	k.users.init()
	var db *pebble.DB
	err := errors.New("pebble gave up opening")
	wait(d.opts.Env, 0, func() {
		db, err = k.openPebble(d.opts.path(nameMeta), d.pebbleOptions(k))
	}, func(r any) { err = fmt.Errorf("pebble panicked: %v", r) })
	if err == nil {
		k.db = db
	} else {
		if gone := d.check(); gone != nil {
			err = gone
		}
		k.end(openError(err))
	}
	k.burial.Lock()
	k.burial.may = true
	k.burial.Unlock()
	if k.ended() != nil {
		k.startBurial()
	}
	return k
}

// openPebble opens the store in dir, or makes one. The first log of a new one
// is written before Pebble ratchets to our format, so without what tells damage
// from an end: then it is closed at once, for the next log to be the first
// that is used.
func (k *kv) openPebble(dir string, o *pebble.Options) (*pebble.DB, error) {
	exists, err := checkMeta(k.fence, dir)
	if err = cmp.Or(k.ended(), err); err != nil {
		return nil, err // in the void there seems to be none
	}
	if !exists {
		fresh, err := pebble.Open(dir, o.Clone())
		if err != nil {
			return nil, err
		}
		if err := cmp.Or(fresh.Close(), k.ended()); err != nil {
			return nil, err
		}
	}
	return pebble.Open(dir, o)
}

// writeFailed hears of a failed write from the fence. It is never damage: what
// is missing or in the way shows when the store is opened the next time.
func (k *kv) writeFailed(err error) {
	if errors.Is(err, fs.ErrNotExist) {
		if gone := k.disk.check(); gone != nil {
			err = gone
		}
	}
	k.end(blame(fmt.Errorf("write: %w", err)))
}

// manifestSynced keeps the witness up to date. Without it damage may go
// unnoticed, but nothing is lost: Pebble goes on.
func (k *kv) manifestSynced(number, length uint64) {
	if err := k.witness.note(number, length); err != nil && k.ended() == nil {
		k.log.Warn().Err(err).Msg("metadata store: write " + nameWitness)
	}
}

// startBurial has the store closed, once, as soon as it has both opened and
// ended. It may be called from deep inside Pebble.
func (k *kv) startBurial() {
	k.burial.Lock()
	start := k.burial.may && !k.burial.begun
	if start {
		k.burial.begun = true
	}
	k.burial.Unlock()
	if start {
		k.disk.opts.Env.Go(k.bury)
	}
}

// wrap names the disk in an error.
func (k *kv) wrap(op string, err error) error { return k.disk.wrap(op, err) }

// ended is why the store ended, or nil.
func (k *kv) ended() error {
	if p := k.cause.Load(); p != nil {
		return *p
	}
	return nil
}

// endedFull reports whether the store ended for want of space only.
func (k *kv) endedFull() bool { return errors.Is(k.ended(), storage.ErrFull) }

// end ends the store. The first cause stays, and shows in the disk's health.
// Shards go on: each of them proves by its own sync that it is durable.
func (k *kv) end(cause error) {
	if !k.cause.CompareAndSwap(nil, &cause) {
		return
	}
	close(k.over)
	if !errors.Is(cause, errReset) && !k.disk.fault.closed.Load() {
		// Nothing more gets to the disk, and what waits in Pebble for a flush
		// that fails again and again gets through.
		k.fence.begin()
	}
	switch {
	case errors.Is(cause, storage.ErrOffline), errors.Is(cause, errReset):
	case errors.Is(cause, storage.ErrFull):
		k.disk.space.refused()
		k.log.Error().Err(cause).Msg("metadata store stopped: disk full")
	case errors.Is(cause, storage.ErrCorrupt):
		k.log.Error().Err(cause).Msg("metadata store is corrupt")
	default:
		k.log.Error().Err(cause).Msg("metadata store failed")
	}
	k.startBurial()
}

// enter takes part in the store until users.leave.
func (k *kv) enter() error {
	if err := k.ended(); err != nil {
		return err
	}
	if err := k.disk.fault.readable(); err != nil {
		k.end(err) // what Pebble has open may outlive the disk by far
		return k.ended()
	}
	if !k.users.enter() {
		return k.ended()
	}
	return nil
}

// bury closes Pebble once nobody uses it, and takes its files away. It runs
// once, in a goroutine of its own, and may never end: Close of a database that
// lost a goroutine waits for ever. After CloseTimeout it goes on without.
func (k *kv) bury() {
	timeout := k.disk.opts.CloseTimeout
	left := k.users.close(k.disk, timeout)
	if !left {
		k.log.Warn().Msg("metadata store: still in use, closing its files under its users")
	} else if !k.closePebble(timeout) {
		k.log.Warn().Msg("metadata store: pebble doesn't close, leaving its memory behind")
	}
	if err := k.witness.close(); err != nil {
		k.log.Debug().Err(err).Msg("metadata store: close " + nameWitness)
	}
	if err := k.fence.close(); err != nil {
		k.log.Debug().Err(err).Msg("metadata store: close files")
	}
	close(k.buried)
	if !left {
		// It can't do harm any more, but it takes memory.
		<-k.users.empty
		k.closePebble(0)
	}
}

// closePebble reports whether Pebble closed within the time, if that is not 0.
func (k *kv) closePebble(timeout time.Duration) bool {
	if k.db == nil {
		return true
	}
	return wait(k.disk.opts.Env, timeout, func() {
		if err := k.db.Close(); err != nil {
			k.log.Debug().Err(err).Msg("metadata store: close")
		}
	}, func(r any) {
		k.log.Debug().Interface("panic", r).Msg("metadata store: close")
	})
}

// awaitEnd waits until nothing of the store can touch the disk any more.
func (k *kv) awaitEnd(timeout time.Duration) error {
	timer, stop := k.disk.opts.Env.After(3 * timeout) // users, Pebble, files
	defer stop()
	select {
	case <-k.buried:
		return nil
	case <-timer:
		return fmt.Errorf("%w: metadata store doesn't come to an end", storage.ErrFailed)
	}
}

// state says what the store adds to the disk's health.
func (k *kv) state() (storage.State, string) {
	err := k.ended()
	switch {
	case err == nil:
		return storage.StateOK, ""
	case errors.Is(err, storage.ErrCorrupt):
		return storage.StateFailed, "metadata store corrupt: " + err.Error()
	case errors.Is(err, storage.ErrFull):
		return storage.StateFull, "metadata store stopped: " + err.Error()
	}
	return storage.StateFailed, "metadata store: " + err.Error()
}

// errReset is why a store ended that ResetKV or ReopenKV replaced.
var errReset = errors.New("metadata store was replaced")

// KV implements storage.Disk.
func (d *Disk) KV() storage.KV { return d.meta.Load() }

// ResetKV implements storage.Disk. The old store is renamed away first, so that
// a crash leaves the old one whole or none, never a part of it.
func (d *Disk) ResetKV(ctx context.Context) error {
	return d.wrap("reset metadata store", d.replaceKV(func() error { return d.wipeMeta(ctx) }))
}

// ReopenKV ends the store, if it still lives, and opens what is on the disk
// anew: after a full disk has room again. What KV returns then must be
// examined like the store of a disk that came back.
func (d *Disk) ReopenKV(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return d.wrap("reopen metadata store", err)
	}
	return d.wrap("reopen metadata store", d.replaceKV(func() error { return nil }))
}

// replaceKV ends the store, calls between, and opens the next one.
func (d *Disk) replaceKV(between func() error) error {
	d.resetting.Lock()
	defer d.resetting.Unlock()
	if err := d.check(); err != nil {
		return err
	}
	old := d.meta.Load()
	old.end(fmt.Errorf("%w: %w", storage.ErrFailed, errReset))
	if err := old.awaitEnd(d.opts.CloseTimeout); err != nil {
		return err
	}
	if err := between(); err != nil {
		return d.writeFailed("wipe metadata store", err)
	}
	p, err := d.presence.Load().withoutMeta().with(d.opts.path(nameMeta))
	if err != nil {
		return err
	}
	d.presence.Store(p)
	next := d.openKV()
	d.meta.Store(next)
	return next.ended()
}

// wipeMeta puts an empty meta/ in place of what is there, if it is: an earlier
// attempt may have failed half way.
func (d *Disk) wipeMeta(ctx context.Context) error {
	if err := d.opts.MetaFS.RemoveAll(d.opts.path(nameOld)); err != nil {
		return err
	}
	d.presence.Store(d.presence.Load().withoutMeta()) // others seal shards meanwhile, and look for meta/
	if err := d.opts.MetaFS.Rename(d.opts.path(nameMeta), d.opts.path(nameOld)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := d.opts.Backend.Mkdir(ctx, nameMeta); err != nil {
		return err
	}
	if err := d.opts.Backend.SyncDir(ctx, "."); err != nil {
		return err
	}
	if err := d.opts.MetaFS.RemoveAll(d.opts.path(nameOld)); err != nil {
		d.log.Warn().Err(err).Msg("remove " + nameOld) // Open tries again
	}
	return nil
}

// gate counts who is inside, and closes.
type gate struct {
	mu     sync.Mutex // protects the fields below
	n      int
	closed bool
	empty  chan struct{} // closed when closed and n is 0
}

func (g *gate) init() { g.empty = make(chan struct{}) }

func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.n++
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n--
	if g.closed && g.n == 0 {
		close(g.empty)
	}
}

// close lets nobody in any more and reports whether all left within the time.
func (g *gate) close(d *Disk, timeout time.Duration) bool {
	g.mu.Lock()
	g.closed = true
	if g.n == 0 {
		close(g.empty)
	}
	g.mu.Unlock()
	timer, stop := d.opts.Env.After(timeout)
	defer stop()
	select {
	case <-g.empty:
		return true
	case <-timer:
		return false
	}
}
