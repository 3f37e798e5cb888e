package erasure

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"ringfence/erasure/meta"
)

// merge walks the keys with one prefix over all sets in byte order. No key is
// in two sets. It belongs to one goroutine, and ends with end.
type merge struct {
	cursors []setCursor
	cur     int // index in cursors; -1 before the start and at the end
	err     error
}

type setCursor struct {
	set   *set
	c     meta.Cursor
	valid bool
	fresh bool // not moved yet
}

// merge opens a walk, one cursor per set.
func (s *Store) merge(ctx context.Context, prefix []byte) (*merge, error) {
	m := &merge{cur: -1, cursors: make([]setCursor, 0, len(s.sets))}
	hi := meta.After(prefix)
	for _, set := range s.sets {
		c, err := set.engine.Scan(ctx, prefix, hi)
		if err != nil {
			return nil, m.end(fmt.Errorf("scan: %w", translate(err)))
		}
		m.cursors = append(m.cursors, setCursor{set: set, c: c, fresh: true})
	}
	return m, nil
}

// next moves to the next key; the first call to the first.
func (m *merge) next() bool {
	if m.cur >= 0 {
		c := &m.cursors[m.cur]
		c.valid = c.c.Next()
		return m.pick()
	}
	for i := range m.cursors {
		c := &m.cursors[i]
		c.valid, c.fresh = c.c.Next(), false
	}
	return m.pick()
}

// seekGE moves forward to the first key that is at least key.
func (m *merge) seekGE(key []byte) bool {
	for i := range m.cursors {
		c := &m.cursors[i]
		if c.fresh || len(m.cursors) == 1 || (c.valid && bytes.Compare(c.c.Item().Key, key) < 0) {
			c.valid, c.fresh = c.c.SeekGE(key), false
		}
	}
	return m.pick()
}

// pick makes the cursor with the least key the current one.
func (m *merge) pick() bool {
	m.cur = -1
	var least []byte
	for i := range m.cursors {
		c := &m.cursors[i]
		if !c.valid {
			if m.err = c.c.Err(); m.err != nil {
				m.cur = -1
				return false
			}
			continue
		}
		if len(m.cursors) == 1 {
			m.cur = i
			return true
		}
		if key := c.c.Item().Key; m.cur < 0 || bytes.Compare(key, least) < 0 {
			m.cur, least = i, key
		}
	}
	return m.cur >= 0
}

// errWalk is part of the error of a walk that broke off on its way. The disk
// that it was on is out by then, so that a new walk goes elsewhere.
var errWalk = errors.New("walk broke off")

// walkAgain calls list anew when the walk under it broke off. Nothing of a page
// has left yet, and a disk that is damaged should cost nobody a listing; each
// attempt takes one disk out, so that there is an end.
func walkAgain[Page any](ctx context.Context, list func() (Page, error)) (Page, error) {
	for range MaxSetSize - 1 {
		page, err := list()
		if !errors.Is(err, errWalk) || ctx.Err() != nil {
			return page, err
		}
	}
	return list()
}

// item is the current item, and the set that it is in.
func (m *merge) item() (meta.Item, *set) {
	c := &m.cursors[m.cur]
	return c.c.Item(), c.set
}

// end closes the walk and returns why it ended early, if it did: err, if that is
// not nil, or the walk's own error.
func (m *merge) end(err error) error {
	errs := []error{err}
	if m.err != nil {
		errs = append(errs, fmt.Errorf("%w: %w", errWalk, translate(m.err)))
	}
	for _, c := range m.cursors {
		if err := c.c.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close cursor: %w", translate(err)))
		}
	}
	return errors.Join(errs...)
}
