package erasure

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"ringfence/erasure/meta"
)

// List returns a page of the current objects of a bucket. It costs the page:
// an ordered walk over one state of each set's index, which jumps over what is
// rolled up under a common prefix.
func (s *Store) List(ctx context.Context, bucketName string, in ListInput) (ListPage, error) {
	b, err := s.buckets.get(ctx, s, bucketName)
	if err != nil {
		return ListPage{}, err
	}
	return walkAgain(ctx, func() (ListPage, error) { return s.listOnce(ctx, b, in) })
}

func (s *Store) listOnce(ctx context.Context, b *bucket, in ListInput) (ListPage, error) {
	base := meta.ObjectPrefix(b.id)
	m, err := s.merge(ctx, meta.ObjectKey(b.id, in.Prefix))
	if err != nil {
		return ListPage{}, err
	}
	w := walk{
		in:    in,
		limit: min(in.Max, MaxListPage),
		encode: func(key string) []byte {
			return append(bytes.Clone(base), key...)
		},
	}
	page := ListPage{}
	w.take = func(key string, item meta.Item, from *set) error {
		info, err := decodeListed(key, item.Val, b.name, from)
		if err != nil {
			return corrupt(item.Key, err)
		}
		page.Objects = append(page.Objects, info)
		return nil
	}
	w.fold = func(prefix string) { page.Prefixes = append(page.Prefixes, prefix) }
	for ok := w.start(m); ok; ok = w.step(ctx, m) {
		item, from := m.item()
		w.visit(string(item.Key[len(base):]), item, from)
	}
	err = m.end(w.err)
	if err != nil {
		return ListPage{}, fmt.Errorf("list: %w", err)
	}
	page.Truncated, page.Next = w.truncated, w.last
	return page, nil
}

// walk is the part of a listing that decides: which keys are shown, which are
// rolled up, where to go on and when to stop. It sees keys in byte order.
type walk struct {
	in        ListInput
	limit     int
	encode    func(key string) []byte // the engine's key at or below everything that starts with key
	take      func(key string, item meta.Item, from *set) error
	fold      func(prefix string)
	count     int
	last      string // the last key or prefix of the page
	truncated bool
	err       error
	jump      []byte // go there next; nil: to the next key
	done      bool
}

// start moves to the first key that can matter. A common prefix that After is
// in, or is, was seen before: all of it is passed over. That cannot happen with
// any other common prefix of a key greater than After.
func (w *walk) start(m *merge) bool {
	if w.limit <= 0 {
		return false
	}
	after := w.in.After
	switch {
	case after == "" || after < w.in.Prefix:
		return m.next()
	case !strings.HasPrefix(after, w.in.Prefix): // beyond everything that starts with Prefix
		return false
	}
	if p, ok := w.common(after); ok {
		return w.seek(m, meta.After(w.encode(p)))
	}
	return m.seekGE(append(w.encode(after), 0))
}

func (w *walk) seek(m *merge, key []byte) bool { return key != nil && m.seekGE(key) }

func (w *walk) step(ctx context.Context, m *merge) bool {
	if w.err == nil {
		w.err = ctx.Err()
	}
	if w.done || w.err != nil {
		return false
	}
	if w.jump != nil {
		jump := w.jump
		w.jump = nil
		return w.seek(m, jump)
	}
	return m.next()
}

// common returns the common prefix that key is rolled up under, if it is.
func (w *walk) common(key string) (string, bool) {
	if w.in.Delimiter == "" {
		return "", false
	}
	i := strings.Index(key[len(w.in.Prefix):], w.in.Delimiter)
	if i < 0 {
		return "", false
	}
	return key[:len(w.in.Prefix)+i+len(w.in.Delimiter)], true
}

func (w *walk) visit(key string, item meta.Item, from *set) {
	if w.count == w.limit {
		w.truncated, w.done = true, true
		return
	}
	prefix, rolled := w.common(key)
	switch {
	case rolled:
		w.fold(prefix)
		w.last = prefix
		if w.jump = meta.After(w.encode(prefix)); w.jump == nil {
			w.done = true
		}
	default:
		w.err = w.take(key, item, from)
		w.last = key
	}
	w.count++
}

// decodeListed is decodeRecord for what a listing shows, without the rest.
func decodeListed(key string, b []byte, bucket string, from *set) (ObjectInfo, error) {
	info := ObjectInfo{Bucket: bucket, Key: key}
	d := decoder{rest: b}
	for d.next() {
		switch d.num {
		case fieldFormat:
			d.format()
		case fieldVersionID:
			info.VersionID = d.str(maxText)
		case fieldDeleteMarker:
			info.DeleteMarker = d.bool()
		case fieldSize:
			info.Size = d.int64()
		case fieldTime:
			info.ModTime = time.UnixMilli(d.time()).UTC()
		case fieldETag:
			info.Digest.ETag = d.str(maxText)
		case fieldChecksum:
			d.checksum(&info.Digest.Checksums)
		case fieldHeader:
			d.pair(&info.Meta.Headers)
		}
	}
	return info, d.err
}
