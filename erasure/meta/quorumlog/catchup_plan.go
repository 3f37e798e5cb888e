package quorumlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"ringfence/storage"
)

// One step of a catch-up is one batch for the target. It carries the cell that
// describes what the target holds after it, so that a catch-up can end at any
// batch and go on from there, and so that a half-copied disk never looks whole.
const (
	stepKeys  = 4096
	stepBytes = 2 << 20
)

// target is a disk that is brought to another's state. cell mirrors what is on
// it.
type target struct {
	m     *member
	kv    storage.KV
	cell  cell
	epoch uint64 // to be promised with every step
	keys  int    // bound of a step
}

// step is what to do next.
type step struct {
	batch *storage.Batch
	cell  cell // after the batch
	done  bool // the target then stands where the snapshot does
	// restart: the target is wiped, and its point is where the snapshot stands.
	restart bool
}

// plan makes the next step towards s.
func (t *target) plan(ctx context.Context, s *snapshot, r rules) (step, error) {
	st := step{batch: &storage.Batch{}}
	on, err := s.onLog(t.cell.at)
	if err == nil && on && t.cell.phase != phaseClean && t.cell.at.seq > 0 {
		// What was copied from a state that this log never had can't be told from
		// the rest: the end of a source's log may have been dropped by a recovery.
		on, err = s.onLog(t.cell.towards)
	}
	if err != nil {
		return st, err
	}
	t.m.astray.Store(!on && t.cell.phase == phaseClean && t.cell.at.seq > 0)
	switch {
	case r.noRepair && t.cell.phase == phaseClean && !on:
		// Mutant: append what the source has more, whatever went before.
		err = t.planDelta(s, t.cell.at, nil, &st)
	case t.cell.phase == phaseCopying && on && len(t.cell.cursor) > 0:
		err = t.planCopy(s, &st)
	case t.cell.phase != phaseCopying && on:
		err = t.planDelta(s, t.cell.at, nil, &st)
	case t.cell.phase == phaseClean && t.cell.at.seq > 0:
		err = t.planRepair(ctx, s, &st)
	default:
		t.planRestart(s, &st)
	}
	if err != nil {
		return st, err
	}
	st.cell.witness = s.cell.witness
	if st.cell.phase != phaseClean {
		st.cell.towards = s.at
	}
	st.batch.Set(appliedKey(), st.cell.encode())
	st.batch.Set(promisedKey(), promise{epoch: t.epoch, slot: t.m.slot, set: t.m.disk.Identity().Set}.encode())
	return st, nil
}

// planRestart wipes the target: its history and the source's have no point in
// common that both still know.
func (t *target) planRestart(s *snapshot, st *step) {
	st.batch.DeleteRange([]byte{logSpace}, []byte{userSpace + 1})
	st.cell = cell{phase: phaseCopying, at: s.at, cursor: []byte{logSpace}}
	st.restart = true
}

// planCopy copies keys in order. The base stays where the copy began: what was
// touched since is done again at the end, from the log.
func (t *target) planCopy(s *snapshot, st *step) error {
	n, size := 0, 0
	ok := s.it.SeekGE(t.cell.cursor)
	for ; ok && n < t.keys && size < stepBytes; ok = s.it.Next() {
		raw, err := s.it.Value()
		if err != nil {
			return s.sourceErr(err)
		}
		key, raw := bytes.Clone(s.it.Key()), bytes.Clone(raw)
		if err := verify(key, raw); err != nil {
			return s.sourceErr(err)
		}
		st.batch.Set(key, raw)
		n, size = n+1, size+len(key)+len(raw)
	}
	if err := s.it.Err(); err != nil {
		return s.sourceErr(err)
	}
	st.cell = cell{phase: phasePartial, at: t.cell.at}
	if ok {
		st.cell.phase, st.cell.cursor = phaseCopying, bytes.Clone(s.it.Key())
	}
	return nil
}

// planDelta brings the keys that were touched after base, a point of both logs,
// to the source's state, a window of the log at a time; own are keys to be
// brought along. A window that is not the last leaves the target partial: its
// keys may be newer than its point.
func (t *target) planDelta(s *snapshot, base point, own map[string]struct{}, st *step) error {
	touched := make(map[string]struct{}, len(own))
	maps.Copy(touched, own)
	var logged []loggedEntry
	at, more, size := base, false, 0
	err := s.entries(base.seq, func(en loggedEntry) bool {
		if len(logged) > 0 && (len(touched)+len(en.keys) > t.keys || size > stepBytes) {
			more = true
			return false
		}
		for _, k := range en.keys {
			touched[string(k)] = struct{}{}
		}
		size += len(en.raw)
		logged = append(logged, en)
		return true
	})
	if err != nil {
		return err
	}
	if len(logged) > 0 {
		at = logged[len(logged)-1].at
	}
	if !more && at != s.at {
		return fmt.Errorf("%w: its log ends at %d, its cell at %d: %w", errSource, at.seq, s.at.seq, storage.ErrCorrupt)
	}
	st.batch.DeleteRange(logKey(base.seq+1), []byte{logSpace + 1})
	for _, en := range logged {
		st.batch.Set(logKey(en.at.seq), en.raw)
	}
	st.cell = cell{phase: phasePartial, at: at}
	if !more {
		st.cell.phase, st.done = phaseClean, true
	}
	return copyKeys(s, touched, st.batch)
}

// planRepair takes back what only the target's log has: the keys that its
// suffix touched get the source's state, and the suffix goes, in one batch with
// the first window of what it missed. The suffix is one group and barriers,
// hence small, and the only record of its keys.
func (t *target) planRepair(ctx context.Context, s *snapshot, st *step) error {
	common, own, err := t.suffix(ctx, s)
	if err != nil {
		return err
	}
	if common.seq == 0 {
		t.planRestart(s, st)
		return nil
	}
	return t.planDelta(s, common, own, st)
}

// suffix finds the last point that the target's own log and the source's share,
// and the keys that the target touched after it.
func (t *target) suffix(ctx context.Context, s *snapshot) (common point, touched map[string]struct{}, err error) {
	it, err := s.pace.iter(ctx, t.m, t.kv, []byte{logSpace}, []byte{logSpace + 1})
	if err != nil {
		return common, nil, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	touched = make(map[string]struct{})
	for ok := it.SeekGE([]byte{logSpace}); ok; ok = it.Next() {
		raw, err := it.Value()
		if err != nil {
			return common, nil, err
		}
		en, err := decodeEntry(raw)
		if err != nil {
			return common, nil, err
		}
		on, err := s.onLog(en.at)
		if err != nil {
			return common, nil, err
		}
		if on {
			common = en.at
			clear(touched)
			continue
		}
		for _, k := range en.keys {
			touched[string(k)] = struct{}{}
		}
	}
	return common, touched, it.Err()
}

// copyKeys sets the touched user keys to the source's state, absence included.
func copyKeys(s *snapshot, touched map[string]struct{}, b *storage.Batch) error {
	for _, k := range slices.Sorted(maps.Keys(touched)) {
		key := userKey([]byte(k))
		raw, ok, err := s.get(key)
		if err != nil {
			return err
		}
		if !ok {
			b.Delete(key)
			continue
		}
		if err := verify(key, raw); err != nil {
			return s.sourceErr(err)
		}
		b.Set(key, raw)
	}
	return nil
}

// verify checks a raw key's value before it is copied: rot must not spread.
func verify(key, raw []byte) error {
	switch key[0] {
	case userSpace:
		_, _, err := decodeValue(key[1:], raw)
		return err
	case logSpace:
		_, err := decodeEntry(raw)
		return err
	}
	return fmt.Errorf("key %q belongs to no space: %w", key, storage.ErrCorrupt)
}
