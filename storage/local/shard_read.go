package local

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"ringfence/storage"
)

// tailRead is how much of a file's end is read at once: footer, trailer and
// 700 or more block sums.
const tailRead = 16 << 10

// OpenShard implements storage.Disk. A shard that is open already costs a look
// into a map.
func (d *Disk) OpenShard(ctx context.Context, id storage.ShardID) (storage.ShardReader, error) {
	if err := d.fault.readable(); err != nil {
		return nil, d.wrap("open shard", err)
	}
	s := d.fds.acquire(id)
	if s == nil {
		var err error
		s, err = d.openFile(ctx, id)
		d.fds.finish(id, s)
		if err != nil {
			return nil, d.wrap("open shard", fmt.Errorf("%s: %w", id, err))
		}
	}
	return &shardReader{disk: d, shard: s}, nil
}

// openFile opens a shard and reads its trailer.
func (d *Disk) openFile(ctx context.Context, id storage.ShardID) (*openShard, error) {
	f, err := d.opts.Backend.Open(ctx, shardName(id))
	if err != nil {
		return nil, classify(err)
	}
	t, err := d.readTrailer(ctx, f, id)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &openShard{trailer: t, file: f, refs: 1}, nil
}

func (d *Disk) readTrailer(ctx context.Context, f storage.File, id storage.ShardID) (*trailer, error) {
	size, err := f.Size()
	if err != nil {
		return nil, classify(err)
	}
	if size < storage.BlockAlign || size%storage.BlockAlign != 0 {
		return nil, mark(storage.ErrCorrupt, fmt.Errorf("%d bytes long: not sealed, or cut short", size))
	}
	buf, err := d.bufs.Get(int(min(size, tailRead)))
	if err != nil {
		return nil, err
	}
	defer buf.Release()
	tailOff := size - int64(len(buf.Bytes()))
	if err := readExact(ctx, f, buf, tailOff); err != nil {
		return nil, err
	}
	tail := buf.Bytes()
	ft, err := decodeFooter(tail[len(tail)-footerSize:], size)
	if err != nil {
		return nil, mark(storage.ErrCorrupt, err)
	}
	var body []byte
	if ft.off >= tailOff {
		body = tail[ft.off-tailOff:][:ft.len]
	} else if body, err = readLong(ctx, f, buf, ft); err != nil {
		return nil, err
	}
	t, err := decodeTrailer(body, ft, id)
	if err != nil {
		return nil, mark(storage.ErrCorrupt, err)
	}
	return t, nil
}

// readLong reads a trailer that didn't fit the tail, buf by buf. Its length was
// checked against the file's.
func readLong(ctx context.Context, f storage.File, buf *storage.Buf, ft footer) ([]byte, error) {
	body := make([]byte, 0, ft.len)
	for int64(len(body)) < ft.len {
		// Whole aligned blocks, for engines that need them: the file goes on
		// beyond the trailer to the next multiple.
		n := min(alignUp(ft.len-int64(len(body))), int64(buf.Cap())&^(storage.BlockAlign-1))
		buf.SetLen(int(n))
		if err := readExact(ctx, f, buf, ft.off+int64(len(body))); err != nil {
			return nil, err
		}
		body = append(body, buf.Bytes()[:min(n, ft.len-int64(len(body)))]...)
	}
	return body, nil
}

// readExact fills buf; a file that ends early has been cut.
func readExact(ctx context.Context, f storage.File, buf *storage.Buf, off int64) error {
	n, err := f.ReadAt(ctx, buf, off)
	if err != nil {
		return classify(err)
	}
	if n < len(buf.Bytes()) {
		return mark(storage.ErrCorrupt, fmt.Errorf("file ends at %d", off+int64(n)))
	}
	return nil
}

// shardReader is one user of an openShard.
type shardReader struct {
	disk   *Disk
	shard  *openShard
	closed atomic.Bool
}

// Info implements storage.ShardReader. Owner is shared: leave it alone.
func (r *shardReader) Info() storage.ShardInfo { return r.shard.info }

// Sum implements storage.ShardReader.
func (r *shardReader) Sum(n int) storage.Sum { return r.shard.sum(n) }

// ReadBlocks implements storage.ShardReader. Blocks are contiguous in the
// file, so any run of them is one read.
func (r *shardReader) ReadBlocks(ctx context.Context, first int, bufs []*storage.Buf) error {
	if len(bufs) == 0 {
		return nil
	}
	info := r.shard.info
	blocks := info.Blocks()
	if first < 0 || first >= blocks || len(bufs) > blocks-first {
		return r.wrap(fmt.Errorf("blocks %d to %d of %d", first, first+len(bufs)-1, blocks))
	}
	if r.closed.Load() {
		return r.wrap(fmt.Errorf("%w: reader is closed", storage.ErrOffline))
	}
	want := 0
	for i, b := range bufs {
		n := info.BlockLen(first + i)
		if n > b.Cap() {
			return r.wrap(fmt.Errorf("block of %d bytes into a buffer of %d", n, b.Cap()))
		}
		b.SetLen(n)
		want += n
	}
	n, err := storage.ReadFull(ctx, r.shard.file, bufs, int64(first)*int64(info.BlockSize))
	if err != nil {
		return r.wrap(classify(err))
	}
	if n < want {
		return r.wrap(mark(storage.ErrCorrupt, fmt.Errorf("%d of %d bytes from block %d", n, want, first)))
	}
	return nil
}

// Close implements storage.ShardReader.
func (r *shardReader) Close() error {
	if r.closed.Swap(true) {
		return nil
	}
	return r.disk.wrap("close shard", r.disk.fds.release(r.shard))
}

func (r *shardReader) wrap(err error) error {
	return r.disk.wrap("read blocks", fmt.Errorf("%s: %w", r.shard.id, err))
}
