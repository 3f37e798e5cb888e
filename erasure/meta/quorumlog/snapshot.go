package quorumlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"ringfence/storage"
)

// errSource marks failures of the disk that is copied from, not of the one that
// is copied to.
var errSource = errors.New("copy source failed")

// snapshot is one state of an in-sync disk, to be copied from. It belongs to one
// goroutine.
type snapshot struct {
	it   storage.Iter
	pace *pace
	at   point
	cell cell
}

// openSnapshot fails with errSource. p sees the reads.
func openSnapshot(ctx context.Context, p *pace, m *member, kv storage.KV) (*snapshot, error) {
	it, err := p.iter(ctx, m, kv, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errSource, err)
	}
	s := &snapshot{it: it, pace: p}
	raw, ok, err := s.get(appliedKey())
	if err == nil && !ok {
		err = fmt.Errorf("%w: no cell: %w", errSource, storage.ErrCorrupt)
	}
	if err == nil {
		s.cell, err = decodeCell(raw)
	}
	if err == nil && s.cell.phase != phaseClean {
		err = fmt.Errorf("%w: not clean: %w", errSource, storage.ErrCorrupt)
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.at = s.cell.at
	return s, nil
}

func (s *snapshot) close() error {
	if err := s.it.Close(); err != nil {
		return fmt.Errorf("%w: close: %w", errSource, err)
	}
	return nil
}

// get returns a copy of the raw value under a raw key.
func (s *snapshot) get(key []byte) (raw []byte, ok bool, err error) {
	if !s.it.SeekGE(key) || !bytes.Equal(s.it.Key(), key) {
		return nil, false, s.sourceErr(s.it.Err())
	}
	raw, err = s.it.Value()
	return bytes.Clone(raw), true, s.sourceErr(err)
}

func (s *snapshot) sourceErr(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", errSource, err)
}

// onLog reports whether p is a point of this disk's history, as far back as its
// log goes.
func (s *snapshot) onLog(p point) (bool, error) {
	if p == s.at {
		return true, nil
	}
	if p.seq == 0 || p.seq > s.at.seq {
		return false, nil
	}
	raw, ok, err := s.get(logKey(p.seq))
	if err != nil || !ok {
		return false, err
	}
	en, err := decodeEntry(raw)
	return err == nil && en.at == p, s.sourceErr(err)
}

// loggedEntry is an entry with its encoded form.
type loggedEntry struct {
	entry
	raw []byte
}

// entries calls f with the entries after seq in order until it returns false.
func (s *snapshot) entries(seq uint64, f func(loggedEntry) bool) error {
	for ok := s.it.SeekGE(logKey(seq + 1)); ok && s.it.Key()[0] == logSpace; ok = s.it.Next() {
		raw, err := s.it.Value()
		if err != nil {
			return s.sourceErr(err)
		}
		raw = bytes.Clone(raw)
		en, err := decodeEntry(raw)
		if err != nil {
			return s.sourceErr(err)
		}
		if !f(loggedEntry{en, raw}) {
			return nil
		}
	}
	return s.sourceErr(s.it.Err())
}
