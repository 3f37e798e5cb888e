package erasure

import (
	"bytes"
	"context"
	"fmt"
	"io"
)

// Copy copies an object within the store. A copy onto itself that only replaces
// the metadata rewrites the record and leaves the bytes where they are.
func (s *Store) Copy(ctx context.Context, in CopyInput) (ObjectInfo, error) {
	t, err := s.target(ctx, in.Bucket, in.Key)
	if err != nil {
		return ObjectInfo{}, err
	}
	m := in.Meta
	if m == nil {
		m = &Meta{} // the source's passed this check before
	}
	if err := checkWrite(in.Key, m); err != nil {
		return ObjectInfo{}, err
	}
	if in.SourceBucket == in.Bucket && in.SourceKey == in.Key && in.Rehash == nil && isCurrent(in.Source.VersionID) {
		return t.rewrite(ctx, in)
	}
	// A copy holds block memory for its source while it waits for that of its
	// target. If all did, none would get on.
	select {
	case s.copies <- struct{}{}:
		defer func() { <-s.copies }()
	case <-ctx.Done():
		return ObjectInfo{}, fmt.Errorf("wait to copy: %w", ctx.Err())
	}
	source, err := s.Open(ctx, in.SourceBucket, in.SourceKey, in.Source)
	if err != nil {
		return ObjectInfo{}, err
	}
	info, err := t.copyFrom(ctx, source, in)
	if cerr := source.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return ObjectInfo{}, err
	}
	return info, nil
}

// rewrite replaces the metadata of an object.
func (t *target) rewrite(ctx context.Context, in CopyInput) (ObjectInfo, error) {
	rec, err := t.apply(ctx, func(old *record, _ int64) (change, error) {
		if old == nil || old.DeleteMarker {
			return change{}, ErrNoObject
		}
		if err := t.load(ctx, old); err != nil {
			return change{}, err
		}
		if in.SourceCheck != nil {
			info := old.info(t.bucket.name, t.set)
			if err := in.SourceCheck(&info); err != nil {
				return change{}, err
			}
		}
		if err := t.judge(ctx, in.Precond, old); err != nil {
			return change{}, err
		}
		rec := *old
		if in.Meta != nil {
			rec.Meta = *in.Meta
		}
		return change{rec: &rec, keep: true}, nil
	})
	if err != nil {
		return ObjectInfo{}, err
	}
	return rec.info(t.bucket.name, t.set), nil
}

// copyFrom streams an open source into the target.
func (t *target) copyFrom(ctx context.Context, source *Object, in CopyInput) (ObjectInfo, error) {
	info := source.Info()
	if in.SourceCheck != nil {
		if err := in.SourceCheck(&info); err != nil {
			return ObjectInfo{}, err
		}
	}
	put := PutInput{
		Body:    source.Reader(ctx, 0, info.Size),
		Size:    info.Size,
		Meta:    info.Meta,
		Precond: in.Precond,
		Finish:  func(int64) (Digest, error) { return info.Digest, nil },
	}
	if in.Meta != nil {
		put.Meta = *in.Meta
	}
	if in.Rehash != nil {
		put.Body, put.Finish = in.Rehash(put.Body, &info)
	}
	return t.s.Put(ctx, in.Bucket, in.Key, put)
}

// maxCopies bounds the copies that stream at one time.
const maxCopies = 8

// copyChunk is how much of a source is in memory while it is copied, in bytes.
const copyChunk = 1 << 20

// Reader gives n bytes from off on as a stream, for a write that copies them.
// Only the last of Reader, Prefetch and WriteTo may be in use.
func (o *Object) Reader(ctx context.Context, off, n int64) io.Reader {
	return &objectBody{ctx: ctx, o: o, off: off, left: n}
}

// objectBody reads an object as a stream, chunk by chunk. It runs on the
// goroutine of whoever reads, which a pipe would not.
type objectBody struct {
	ctx   context.Context //nolint:containedctx // io.Reader has no other place for it
	o     *Object
	off   int64
	left  int64
	chunk bytes.Buffer
}

func (b *objectBody) Read(p []byte) (int, error) {
	if b.chunk.Len() == 0 {
		n := min(b.left, copyChunk)
		if n == 0 {
			return 0, io.EOF
		}
		b.chunk.Grow(int(n))
		if _, err := b.o.WriteTo(b.ctx, &b.chunk, b.off, n); err != nil {
			return 0, fmt.Errorf("read source: %w", err)
		}
		b.off, b.left = b.off+n, b.left-n
	}
	return b.chunk.Read(p)
}
