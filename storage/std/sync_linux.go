package std

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"ringfence/storage"
)

// dirSyncs lets concurrent syncs of one folder share a call. A caller may only
// join a call that has not started: one that runs may have missed its entry.
type dirSyncs struct {
	mu      sync.Mutex // protects the fields below
	folders map[string]*dirSync
}

// dirSync is a folder with callers in SyncDir. next, users are protected by
// dirSyncs.mu.
type dirSync struct {
	running sync.Mutex // held by the leader whose call runs
	next    *dirBatch  // takes callers in until its leader starts the call
	users   int
}

type dirBatch struct {
	done chan struct{}
	err  error // set before done is closed
}

// SyncDir implements storage.Backend.
func (b *Backend) SyncDir(ctx context.Context, name string) error {
	const op = "sync folder"
	if err := b.enter(ctx, op, name); err != nil {
		return err
	}
	defer b.leave()
	folder, batch, leads := b.dirs.join(name)
	defer b.dirs.part(name, folder)
	if !leads {
		select {
		case <-batch.done:
			return b.wrap(op, name, batch.err)
		case <-ctx.Done():
			return b.wrap(op, name, ctx.Err())
		}
	}
	// Others depend on the leader: it goes on whatever becomes of its ctx.
	folder.running.Lock()
	b.dirs.start(folder)
	batch.err = b.fsyncDir(name)
	folder.running.Unlock()
	close(batch.done)
	return b.wrap(op, name, batch.err)
}

// join adds the caller to the folder's next call. The first one leads it.
func (d *dirSyncs) join(name string) (folder *dirSync, batch *dirBatch, leads bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.folders == nil {
		d.folders = map[string]*dirSync{}
	}
	folder = d.folders[name]
	if folder == nil {
		folder = &dirSync{}
		d.folders[name] = folder
	}
	folder.users++
	if folder.next == nil {
		folder.next = &dirBatch{done: make(chan struct{})}
		leads = true
	}
	return folder, folder.next, leads
}

// start closes the next call to further callers.
func (d *dirSyncs) start(folder *dirSync) {
	d.mu.Lock()
	defer d.mu.Unlock()
	folder.next = nil
}

func (d *dirSyncs) part(name string, folder *dirSync) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if folder.users--; folder.users == 0 {
		delete(d.folders, name)
	}
}

func (b *Backend) fsyncDir(name string) error {
	fd, err := b.open(name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	err = syncFailed(retry(func() error { return b.syncDir(fd) }))
	return errors.Join(err, unix.Close(fd))
}

// syncFailed makes any failure to sync that of a failed disk, unless space is
// what lacks.
func syncFailed(err error) error {
	if err == nil || errors.Is(classify(err), storage.ErrFull) {
		return err
	}
	return fmt.Errorf("%w: sync: %w", storage.ErrFailed, err)
}
