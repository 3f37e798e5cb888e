package erasure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"ringfence/erasure/meta"
	"ringfence/storage"
)

// shardStore is what the namespace needs of the data path.
type shardStore interface {
	// write streams a body to shards; nothing is durable before seal.
	write(ctx context.Context, in writeInput) (stagedShards, error)
	open(ctx context.Context, b blob) (shardReader, error)
	// remove deletes the shards on all disks of the layout. An error means that
	// some are left.
	remove(ctx context.Context, b blob) error
	// attempt runs f, which belongs to one disk, and waits a bounded time for it.
	// What f writes is the caller's only when its error comes back.
	attempt(ctx context.Context, f func(ctx context.Context) error) error
	// wait returns when no work is left that outlived its call.
	wait(ctx context.Context) error
}

// stagedShards are shards whose whole body was read. One of seal and abort is
// called, once.
type stagedShards interface {
	size() int64
	seal(ctx context.Context) (blob, error)
	abort()
}

// shardReader reads ranges of one blob. It belongs to one goroutine.
type shardReader interface {
	prefetch(ctx context.Context, off, n int64) error
	writeTo(ctx context.Context, w io.Writer, off, n int64) (int64, error)
	close()
}

// staged is a body that was read to its end and that nothing names yet. Either
// its run goes into a commit, or discard is called.
type staged struct {
	s       *Store
	set     *set
	home    home
	size    int64
	payload []byte       // of an inline run
	shards  stagedShards // until sealed
	run     run          // after seal
}

// stage reads a body to its end and puts it where it belongs: small ones in
// memory, for the commit, the rest on shards. Inline payloads are not taken
// from the pool: the engine keeps a commit's values for as long as it likes.
func (s *Store) stage(ctx context.Context, set *set, h home, body io.Reader, size int64) (*staged, error) {
	st := &staged{s: s, set: set, home: h, size: size}
	if err := set.room(); err != nil {
		return st, err
	}
	if size > MaxInlineSize {
		return st, st.stream(ctx, body, size)
	}
	limit := size
	if size < 0 {
		limit = MaxInlineSize
	}
	buf := make([]byte, limit+1) // one more than may come, to see the end
	n, err := readUpTo(body, buf)
	switch {
	case err != nil:
		return st, err
	case n > int(limit) && size >= 0:
		return st, ErrBodyTooLong
	case n > int(limit):
		return st, st.stream(ctx, io.MultiReader(bytes.NewReader(buf), body), -1)
	case size >= 0 && int64(n) < size:
		return st, io.ErrUnexpectedEOF
	}
	st.size, st.payload = int64(n), buf[:n]
	return st, nil
}

// readUpTo fills p unless r ends first, and tells the end of r, which is no
// error here, from r's own errors. io.ReadFull would not.
func readUpTo(r io.Reader, p []byte) (n int, err error) {
	for n < len(p) {
		m, err := r.Read(p[n:])
		n += m
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// stream sends a body to shards.
func (st *staged) stream(ctx context.Context, body io.Reader, size int64) error {
	c, err := st.s.claim(ctx, st.set)
	if err != nil {
		return err
	}
	st.home.Metadata = c.metadata
	shards, err := st.set.data.write(ctx, writeInput{
		UUID:  st.s.newShardUUID(c),
		Part:  st.home.Part,
		Owner: st.home.encode(),
		Body:  body,
		Size:  size,
	})
	if err != nil {
		return err
	}
	st.shards, st.size = shards, shards.size()
	return nil
}

// seal makes the bytes durable; an inline payload becomes so with its commit.
func (st *staged) seal(ctx context.Context) error {
	switch {
	case st.shards != nil:
		shards := st.shards
		st.shards = nil
		b, err := shards.seal(ctx)
		if err != nil {
			return err
		}
		st.run.Blob = &b
	case len(st.payload) > 0:
		st.run.Inline = st.s.newUUID()
	}
	return nil
}

// ops are the operations that belong in the commit that names the run.
func (st *staged) ops() []meta.Op {
	var ops []meta.Op
	if !st.run.Inline.IsZero() {
		ops = append(ops, meta.Op{Key: meta.InlineKey(st.run.Inline), Val: st.payload})
	}
	if b := st.run.Blob; b != nil && len(b.Missing) > 0 {
		h := st.home
		h.Blob, h.Metadata = b, storage.UUID{}
		ops = append(ops, meta.Op{Key: meta.UnhealedKey(b.id()), Val: h.encode()})
	}
	return ops
}

// discard gives up what no commit names. After a commit of unknown outcome it
// must not be called: the commit may still show up, and needs the shards.
func (st *staged) discard(ctx context.Context) {
	if st.shards != nil {
		st.shards.abort()
		st.shards = nil
	}
	b := st.run.Blob
	if b == nil {
		return
	}
	ctx = context.WithoutCancel(ctx)
	err := st.set.data.remove(ctx, *b)
	if err == nil {
		return
	}
	g := garbageRecord{Kind: garbageBlobs, Blobs: []blob{*b}}
	_, later := st.set.commit(ctx, meta.Group{}, nil, []meta.Op{g.op(st.s.now())})
	if later != nil {
		st.s.log.Warn().Err(errors.Join(err, later)).Stringer("shard", b.id()).
			Msg("shards of a refused write are left behind")
	}
}

// release ends a write that failed with err: everything is discarded, unless
// the write may have happened after all.
func (st *staged) release(ctx context.Context, err error) {
	if !errors.Is(err, ErrUnknown) {
		st.discard(ctx)
	}
}

// checkWrite refuses what no store of ours keeps.
func checkWrite(key string, m *Meta) error {
	if key == "" || len(key) > MaxKeyBytes {
		return fmt.Errorf("%w: %d bytes", ErrKeyTooLong, len(key))
	}
	size, pairs := 0, 0
	for _, part := range []map[string]string{m.Headers, m.User, m.Tags} {
		pairs += len(part)
		for name, value := range part {
			size += len(name) + len(value)
		}
	}
	if size > MaxMetaBytes || pairs > maxPairs {
		return fmt.Errorf("%w: %d bytes in %d pairs", ErrMetaTooLarge, size, pairs)
	}
	return nil
}
