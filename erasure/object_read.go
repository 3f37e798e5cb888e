package erasure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"ringfence/erasure/meta"
	"ringfence/storage"
)

// Stat describes an object.
func (s *Store) Stat(ctx context.Context, bucket, key string, in GetInput) (ObjectInfo, error) {
	t, err := s.target(ctx, bucket, key)
	if err != nil {
		return ObjectInfo{}, err
	}
	for range maxTries {
		rec, err := t.find(ctx, in)
		if err != nil {
			return ObjectInfo{}, err
		}
		err = t.load(ctx, rec)
		if errors.Is(err, errStale) {
			continue
		}
		if err != nil {
			return ObjectInfo{}, err
		}
		return rec.info(t.bucket.name, t.set), nil
	}
	return ObjectInfo{}, t.busy()
}

// find reads the record of the version that in asks for.
func (t *target) find(ctx context.Context, in GetInput) (*record, error) {
	rec, _, err := t.current(ctx)
	switch {
	case err != nil:
		return nil, err
	case rec == nil || rec.DeleteMarker:
		return nil, ErrNoObject
	case !isCurrent(in.VersionID):
		return nil, ErrNoVersion
	}
	return rec, nil
}

// load completes a record whose manifest is kept apart. errStale: the record
// was replaced since it was read.
func (t *target) load(ctx context.Context, rec *record) error {
	m := rec.Manifest
	if m == nil || !m.Detached || m.Numbers != nil {
		return nil
	}
	mkey := meta.ManifestKey(m.Upload, 0)
	item, found, err := t.set.get(ctx, mkey)
	if err != nil {
		return err
	}
	if !found {
		return errStale
	}
	if err := m.decodeDetached(item.Val); err != nil {
		return corrupt(mkey, err)
	}
	if m.size() != rec.Size {
		return corrupt(mkey, fmt.Errorf("%w: sizes of parts", errRecord))
	}
	return nil
}

// Open opens an object for reading. Its bytes stay until Close, whatever is
// written to the key.
func (s *Store) Open(ctx context.Context, bucket, key string, in GetInput) (*Object, error) {
	t, err := s.target(ctx, bucket, key)
	if err != nil {
		return nil, err
	}
	for range maxTries {
		o, err := t.open(ctx, in)
		if !errors.Is(err, errStale) {
			return o, err
		}
	}
	return nil, t.busy()
}

func (t *target) open(ctx context.Context, in GetInput) (*Object, error) {
	pin := t.set.pins.enter()
	o := &Object{target: *t}
	err := o.lookUp(ctx, in)
	if err != nil {
		t.set.pins.leave(pin)
		return nil, err
	}
	t.set.pins.pin(&pin, o.rec.pinID())
	o.pin = pin
	return o, nil
}

// pinID names the bytes of a record for the collector.
func (r *record) pinID() storage.UUID {
	switch {
	case r.Manifest != nil:
		return r.Manifest.Upload
	case r.Run.Blob != nil:
		return r.Run.Blob.UUID
	}
	return storage.UUID{}
}

// Object is an open version of an object. It belongs to one goroutine.
type Object struct {
	target target
	rec    *record
	pin    pinned
	// payload is what an inline object holds.
	payload []byte
	// part is the index of the part that is open, of a multipart object; its
	// bytes are in cur. A plain object is one part.
	part int
	cur  runReader
}

// lookUp reads the record and what else is gone once the record is replaced.
func (o *Object) lookUp(ctx context.Context, in GetInput) error {
	rec, err := o.target.find(ctx, in)
	if err != nil {
		return err
	}
	o.rec = rec
	if !rec.Run.Inline.IsZero() {
		o.payload, err = o.target.set.inline(ctx, rec.Run.Inline, rec.Size)
		return err
	}
	return o.target.load(ctx, rec)
}

// inline reads a payload from the metadata. errStale: it is gone.
func (s *set) inline(ctx context.Context, id storage.UUID, size int64) ([]byte, error) {
	ikey := meta.InlineKey(id)
	item, found, err := s.get(ctx, ikey)
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, errStale
	case int64(len(item.Val)) != size:
		return nil, corrupt(ikey, fmt.Errorf("%w: %d bytes, want %d", errRecord, len(item.Val), size))
	}
	return item.Val, nil
}

// Info describes the object.
func (o *Object) Info() ObjectInfo { return o.rec.info(o.target.bucket.name, o.target.set) }

// Prefetch reads and verifies the first bytes of a range, so that WriteTo of
// the same range is likely to succeed and what is lost or damaged beyond
// repair is known before an answer begins.
func (o *Object) Prefetch(ctx context.Context, off, n int64) error {
	if err := o.checkRange(off, n); err != nil || n == 0 {
		return err
	}
	start, size, err := o.seek(ctx, off)
	if err != nil {
		return err
	}
	return o.cur.prefetch(ctx, off-start, min(n, size-(off-start)))
}

// WriteTo writes n bytes from off on to w and returns how many w took. All of
// them are verified before they are written. An error in the middle means that
// w got fewer than n.
func (o *Object) WriteTo(ctx context.Context, w io.Writer, off, n int64) (int64, error) {
	if err := o.checkRange(off, n); err != nil {
		return 0, err
	}
	total := int64(0)
	for n > 0 {
		start, size, err := o.seek(ctx, off)
		if err != nil {
			return total, err
		}
		want := min(n, size-(off-start))
		done, err := o.cur.writeTo(ctx, w, off-start, want)
		total += done
		if err != nil {
			return total, err
		}
		if done != want {
			return total, io.ErrShortWrite
		}
		off, n = off+want, n-want
	}
	return total, nil
}

func (o *Object) checkRange(off, n int64) error {
	if off < 0 || n < 0 || off > o.rec.Size || n > o.rec.Size-off {
		return fmt.Errorf("range of %d bytes from %d is outside the object's %d", n, off, o.rec.Size)
	}
	return nil
}

// Close lets the bytes go. Calling it again does nothing.
func (o *Object) Close() error {
	o.cur.close()
	o.target.set.pins.unpin(&o.pin)
	return nil
}

// seek opens the part that holds offset off, of an object that has such a
// part, and returns where the part starts and its size.
func (o *Object) seek(ctx context.Context, off int64) (start, size int64, err error) {
	m := o.rec.Manifest
	if m == nil {
		if !o.cur.isOpen() {
			err = o.cur.open(ctx, o.target.set, o.rec.Run, o.rec.Size, o.payload)
		}
		return 0, o.rec.Size, err
	}
	i := 0
	for i < len(m.Sizes)-1 && off-start >= m.Sizes[i] {
		start += m.Sizes[i]
		i++
	}
	if o.cur.isOpen() && o.part == i {
		return start, m.Sizes[i], nil
	}
	o.cur.close()
	part, err := o.target.set.part(ctx, m.Upload, m.Numbers[i])
	switch {
	case err != nil:
		return 0, 0, err
	case part == nil || part.Size != m.Sizes[i]:
		// The object is pinned, so nobody removed it.
		pkey := meta.PartKey(m.Upload, m.Numbers[i])
		return 0, 0, corrupt(pkey, fmt.Errorf("%w: part %d is not what the manifest says", errRecord, m.Numbers[i]))
	}
	o.part = i
	return start, part.Size, o.cur.open(ctx, o.target.set, part.Run, part.Size, nil)
}

// part reads the record of a part; nil if there is none.
func (s *set) part(ctx context.Context, upload storage.UUID, number uint16) (*partRecord, error) {
	pkey := meta.PartKey(upload, number)
	item, found, err := s.get(ctx, pkey)
	if err != nil || !found {
		return nil, err
	}
	rec, err := decodePart(item.Val)
	if err != nil {
		return nil, corrupt(pkey, err)
	}
	return rec, nil
}

// runReader reads one run of bytes, wherever it is. The zero value is closed.
type runReader struct {
	shards  shardReader
	payload []byte
	opened  bool
}

func (r *runReader) isOpen() bool { return r.opened }

// open opens a run of size bytes. payload is what is under i/ if the caller has
// it already.
func (r *runReader) open(ctx context.Context, set *set, run run, size int64, payload []byte) error {
	var err error
	switch {
	case run.Blob != nil:
		r.shards, err = set.data.open(ctx, *run.Blob)
	case payload == nil && !run.Inline.IsZero():
		payload, err = set.inline(ctx, run.Inline, size)
		if errors.Is(err, errStale) {
			err = corrupt(meta.InlineKey(run.Inline), fmt.Errorf("%w: payload is gone", errRecord))
		}
	}
	if err != nil {
		return err
	}
	r.payload, r.opened = payload, true
	return nil
}

func (r *runReader) prefetch(ctx context.Context, off, n int64) error {
	if r.shards == nil {
		return nil
	}
	return r.shards.prefetch(ctx, off, n)
}

func (r *runReader) writeTo(ctx context.Context, w io.Writer, off, n int64) (int64, error) {
	if r.shards != nil {
		return r.shards.writeTo(ctx, w, off, n)
	}
	done, err := w.Write(slices.Clip(r.payload[off : off+n]))
	return int64(done), err
}

func (r *runReader) close() {
	if r.shards != nil {
		r.shards.close()
	}
	*r = runReader{}
}
