package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"ringfence/storage"
)

// errUsage marks calls against the contract: the caller's bug, not the disk's.
var errUsage = errors.New("misuse")

// trailers recycles the memory that trailers are encoded in.
type trailers struct{ pool sync.Pool }

func (t *trailers) get() *[]byte {
	if b, ok := t.pool.Get().(*[]byte); ok {
		return b
	}
	return new([]byte)
}

func (t *trailers) put(b *[]byte) {
	const keep = 1 << 20
	if cap(*b) <= keep {
		*b = (*b)[:0]
		t.pool.Put(b)
	}
}

// CreateShard implements storage.Disk.
func (d *Disk) CreateShard(ctx context.Context, id storage.ShardID, info storage.ShardInfo) (storage.ShardWriter, error) {
	w, err := d.createShard(ctx, id, info)
	if err != nil {
		return nil, d.wrap("create shard", fmt.Errorf("%s: %w", id, err))
	}
	return w, nil
}

func (d *Disk) createShard(ctx context.Context, id storage.ShardID, info storage.ShardInfo) (*shardWriter, error) {
	if err := checkInfo(info); err != nil {
		return nil, fmt.Errorf("%w: %w", errUsage, err)
	}
	if err := d.fault.writable(); err != nil {
		return nil, err
	}
	if err := d.space.admit(); err != nil {
		return nil, err
	}
	hint := int64(0)
	if info.Size > 0 {
		hint = dataEnd(info) + alignUp(trailerLen(len(info.Owner), info.Blocks())+footerSize)
	}
	f, err := d.opts.Backend.Create(ctx, shardName(id), hint)
	if err != nil {
		return nil, d.createFailed(err)
	}
	w := &shardWriter{disk: d, file: f, t: trailer{id: id, info: info}, abortCtx: context.WithoutCancel(ctx)}
	w.t.info.Size = 0
	w.t.info.Owner = bytes.Clone(info.Owner)
	w.t.sums = make([]byte, 0, info.Blocks()*sumSize)
	return w, nil
}

// createFailed finds out what the failure to create a file says of the disk.
func (d *Disk) createFailed(err error) error {
	err = classify(err)
	switch {
	case errors.Is(err, storage.ErrFull):
		d.space.refused()
	case errors.Is(err, storage.ErrNotFound):
		// The folder is gone: it was there when the disk was opened.
		return d.fault.setGone(fmt.Sprintf("a folder of %s/ is gone", nameShards))
	case errors.Is(err, storage.ErrFailed) && !transient(err):
		d.fault.setFailed("create shard: " + err.Error())
	}
	return err
}

// shardWriter writes one shard file.
type shardWriter struct {
	disk  *Disk
	file  storage.File // nil once spent
	t     trailer
	short bool // a block shorter than BlockSize was appended: it was the last

	// abortCtx carries the values of CreateShard's context to Abort, which has
	// none of its own and must work when the request has been cancelled.
	abortCtx context.Context
}

// Append implements storage.ShardWriter. The rest of a short block up to
// BlockAlign is never written: it is a hole or preallocated, and reads as
// zeros.
func (w *shardWriter) Append(ctx context.Context, block []byte, sum storage.Sum) error {
	return w.disk.wrap("append block", w.append(ctx, block, sum))
}

func (w *shardWriter) append(ctx context.Context, block []byte, sum storage.Sum) error {
	info := &w.t.info
	switch {
	case w.file == nil:
		return fmt.Errorf("%w: writer is spent", errUsage)
	case w.short:
		return fmt.Errorf("%w: block after a short one", errUsage)
	case len(block) == 0 || len(block) > info.BlockSize:
		return fmt.Errorf("%w: block of %d bytes, at most %d", errUsage, len(block), info.BlockSize)
	case len(w.t.sums)/sumSize >= maxBlocks:
		return fmt.Errorf("%w: more than %d blocks", errUsage, maxBlocks)
	}
	if err := w.disk.fault.writable(); err != nil {
		return err
	}
	if err := w.file.WriteAt(ctx, block, info.Size); err != nil {
		return w.disk.writeFailed("append block", err)
	}
	info.Size += int64(len(block))
	w.t.sums = append(w.t.sums, sum[:]...)
	w.short = len(block) < info.BlockSize
	return nil
}

// writeFailed notes what a failed write or sync says about the disk.
func (d *Disk) writeFailed(op string, err error) error {
	err = classify(err)
	switch {
	case isContext(err), transient(err):
	case errors.Is(err, storage.ErrFull):
		d.space.refused() // what was written is given up, the disk isn't
	default:
		d.fault.setFailed(op + ": " + err.Error())
	}
	return err
}

// Seal implements storage.ShardWriter.
func (w *shardWriter) Seal(ctx context.Context) error {
	if w.file == nil {
		return w.disk.wrap("seal shard", fmt.Errorf("%w: writer is spent", errUsage))
	}
	if err := w.seal(ctx); err != nil {
		// Never to be found sealed later: nobody was told that it is. The
		// removal is best effort on a disk that just failed.
		return w.disk.wrap("seal shard", errors.Join(err, w.discard(w.abortCtx)))
	}
	return nil
}

func (w *shardWriter) seal(ctx context.Context) error {
	d := w.disk
	if err := d.fault.writable(); err != nil {
		return err
	}
	b := d.trailers.get()
	defer d.trailers.put(b)
	*b = encodeTrailer((*b)[:0], &w.t)
	off := dataEnd(w.t.info)
	if err := w.file.WriteAt(ctx, *b, off); err != nil {
		return d.writeFailed("write trailer", err)
	}
	if err := w.file.Sync(ctx); err != nil {
		return d.writeFailed("sync shard", err)
	}
	size, err := w.file.Size()
	if err != nil {
		return d.writeFailed("size of shard", err)
	}
	if want := off + int64(len(*b)); size != want {
		return mark(storage.ErrCorrupt, fmt.Errorf("file has %d bytes after writing %d", size, want))
	}
	if err := d.dirs.Sync(ctx, shardFolder(w.t.id)); err != nil {
		if errors.Is(classify(err), storage.ErrNotFound) {
			return d.fault.setGone(fmt.Sprintf("a folder of %s/ is gone", nameShards))
		}
		return d.writeFailed("sync folder", err)
	}
	if err := d.check(); err != nil {
		return err
	}
	f := w.file
	w.file = nil
	if err := f.Close(); err != nil {
		// The data was synced before: a failed close can't undo that.
		d.log.Warn().Err(err).Stringer("shard", w.t.id).Msg("close sealed shard")
	}
	d.space.accepted()
	return nil
}

// Abort implements storage.ShardWriter.
func (w *shardWriter) Abort() error {
	if w.file == nil {
		return nil
	}
	return w.disk.wrap("abort shard", w.discard(w.abortCtx))
}

// discard closes and removes the file.
func (w *shardWriter) discard(ctx context.Context) error {
	f := w.file
	w.file = nil
	err := f.Close()
	rerr := w.disk.opts.Backend.Remove(ctx, shardName(w.t.id))
	if errors.Is(classify(rerr), storage.ErrNotFound) {
		rerr = nil
	}
	return errors.Join(err, rerr)
}

// RemoveShard implements storage.Disk. The name is unlinked before the cache
// forgets it, so that whoever opens it afterwards finds nothing.
func (d *Disk) RemoveShard(ctx context.Context, id storage.ShardID) error {
	if err := d.fault.readable(); err != nil {
		return d.wrap("remove shard", err)
	}
	err := d.opts.Backend.Remove(ctx, shardName(id))
	d.fds.remove(id)
	if errors.Is(classify(err), storage.ErrNotFound) {
		return nil
	}
	return d.wrap("remove shard", err)
}

// ListShards implements storage.Disk: folder by folder, by id in each.
func (d *Disk) ListShards(ctx context.Context, after storage.ShardID, n int) ([]storage.ShardID, error) {
	var ids []storage.ShardID
	for folder := int(after.UUID[len(after.UUID)-1]); folder < folders && len(ids) < n; folder++ {
		if err := d.fault.readable(); err != nil {
			return nil, d.wrap("list shards", err)
		}
		name := folderName(folder)
		entries, err := d.opts.Backend.ReadDir(ctx, name)
		if err != nil {
			return nil, d.wrap("list shards", err)
		}
		var here []storage.ShardID
		for _, e := range entries {
			id, ok := parseShardName(e.Name())
			if ok && shardFolder(id) == name && (compareIDs(id, after) > 0 || after == storage.ShardID{}) {
				here = append(here, id)
			}
		}
		slices.SortFunc(here, compareIDs)
		ids = append(ids, here[:min(len(here), n-len(ids))]...)
	}
	return ids, nil
}

// compareIDs is the order of ListShards: by folder first.
func compareIDs(a, b storage.ShardID) int {
	last := len(a.UUID) - 1
	if c := int(a.UUID[last]) - int(b.UUID[last]); c != 0 {
		return c
	}
	if c := bytes.Compare(a.UUID[:], b.UUID[:]); c != 0 {
		return c
	}
	return int(a.Part) - int(b.Part)
}
