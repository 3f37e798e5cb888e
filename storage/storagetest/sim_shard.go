package storagetest

import (
	"context"
	"fmt"
	"slices"

	"ringfence/storage"
)

type simWriter struct {
	disk  *SimDisk
	file  *simFile
	spent bool
}

// Append implements storage.ShardWriter.
func (w *simWriter) Append(ctx context.Context, block []byte, sum storage.Sum) error {
	f := w.file
	if w.spent || len(block) == 0 || len(block) > f.info.BlockSize || f.info.Size%int64(f.info.BlockSize) != 0 {
		return w.disk.wrap(OpAppend, fmt.Errorf("block of %d bytes does not fit after %d (spent: %t)", len(block), f.info.Size, w.spent))
	}
	st, err := w.disk.begin(ctx, OpAppend, f.id, len(f.sums))
	if err != nil {
		return err
	}
	return w.disk.end(&st, w.disk.appendBlock(f, block, sum))
}

func (d *SimDisk) appendBlock(f *simFile, block []byte, sum storage.Sum) error {
	s := d.sim
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case d.down.Load():
		return storage.ErrOffline
	case s.fullLocked(int64(len(block))):
		return storage.ErrFull
	}
	f.data = append(f.data, block...)
	f.sums = append(f.sums, sum)
	f.info.Size += int64(len(block))
	if !f.unlinked {
		s.used += int64(len(block))
	}
	return nil
}

// Seal implements storage.ShardWriter.
func (w *simWriter) Seal(ctx context.Context) error {
	if w.spent {
		return w.disk.wrap(OpSealData, fmt.Errorf("writer is spent"))
	}
	w.spent = true
	if err := w.sync(ctx, OpSealData); err != nil {
		return err
	}
	if err := w.sync(ctx, OpSealDir); err != nil {
		return err
	}
	return w.disk.Check(ctx)
}

func (w *simWriter) sync(ctx context.Context, kind OpKind) error {
	d, f := w.disk, w.file
	st, err := d.begin(ctx, kind, f.id, 0)
	if err != nil {
		d.breaks(err)
		return err
	}
	d.sim.mu.Lock()
	switch {
	case d.down.Load():
		err = storage.ErrOffline
	case kind == OpSealData:
		f.sealed = true
		f.dataSafe = !st.lies()
	case !st.lies():
		d.sim.syncFolderLocked(f.id)
	}
	d.sim.mu.Unlock()
	err = d.end(&st, err)
	d.breaks(err)
	return err
}

// syncFolderLocked makes the entries of the folder that holds id durable, and
// forgets files that have nothing to lose any more.
func (s *Sim) syncFolderLocked(id storage.ShardID) {
	folder := id.UUID[len(id.UUID)-1]
	s.dirty = slices.DeleteFunc(s.dirty, func(f *simFile) bool {
		if f.id.UUID[len(f.id.UUID)-1] != folder {
			return false
		}
		f.entrySafe = true
		return f.unlinked || f.dataSafe
	})
}

// Abort implements storage.ShardWriter.
func (w *simWriter) Abort() error {
	if w.spent {
		return nil
	}
	w.spent = true
	d := w.disk
	if err := d.gone(); err != nil {
		return d.wrap(OpRemove, err)
	}
	// An abort has no context to end a wait and nobody to tell, so that hooks
	// do not see it; the power may fail with it.
	st := step{Op: Op{Kind: OpRemove, Disk: d.sim.opts.Name, Shard: w.file.id}}
	st.N, st.last = d.sim.opts.Steps.take(OpRemove)
	return d.end(&st, d.unlink(w.file.id, w.file))
}

type simReader struct {
	disk *SimDisk
	file *simFile
}

// current is the file with any damage done to it since it was opened.
func (r *simReader) current() *simFile {
	r.disk.sim.mu.Lock()
	defer r.disk.sim.mu.Unlock()
	if f := r.disk.sim.files[r.file.id]; f != nil && f.sealed {
		return f
	}
	return r.file
}

// Info implements storage.ShardReader.
func (r *simReader) Info() storage.ShardInfo { return r.file.info }

// Sum implements storage.ShardReader.
func (r *simReader) Sum(n int) storage.Sum { return r.file.sums[n] }

// ReadBlocks implements storage.ShardReader.
func (r *simReader) ReadBlocks(ctx context.Context, first int, bufs []*storage.Buf) error {
	info := r.file.info
	if first < 0 || first+len(bufs) > info.Blocks() {
		return r.disk.wrap(OpRead, fmt.Errorf("%w: blocks %d to %d of %d", storage.ErrCorrupt, first, first+len(bufs), info.Blocks()))
	}
	st, err := r.disk.begin(ctx, OpRead, r.file.id, first)
	if err != nil {
		return err
	}
	r.disk.reads.Add(1)
	f := r.current()
	for i, b := range bufs {
		n := first + i
		if b.Cap() < info.BlockLen(n) {
			return r.disk.end(&st, fmt.Errorf("buffer of %d bytes for a block of %d", b.Cap(), info.BlockLen(n)))
		}
		b.SetLen(info.BlockLen(n))
		if st.fault.Kind == FaultMisdirect {
			n++
		}
		if at := n * info.BlockSize; at < len(f.data) {
			clear(b.Bytes()[copy(b.Bytes(), f.data[at:]):])
		} else {
			clear(b.Bytes())
		}
	}
	if st.fault.Kind == FaultFlip && len(bufs) > 0 {
		flip(bufs[0].Bytes(), st.fault.Bit)
	}
	return r.disk.end(&st, nil)
}

// Close implements storage.ShardReader.
func (r *simReader) Close() error { return nil }
