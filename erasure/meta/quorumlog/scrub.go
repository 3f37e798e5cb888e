package quorumlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/zeebo/xxh3"
	"ringfence/storage"
)

// ScrubResult says what Scrub found.
type ScrubResult struct {
	Values  int64 // verified
	Damaged []int // slots with a bad value, or with contents unlike the others'
}

// scrubbed is what one disk holds.
type scrubbed struct {
	m      *member
	kv     storage.KV
	at     point
	digest [16]byte
}

// Scrub reads every value of every disk in sync and compares disks that stand at
// one point of the log. A disk with damage leaves the set, if it can be spared,
// and is rebuilt. It reads at full speed one disk at a time; ctx ends it.
func (e *Engine) Scrub(ctx context.Context) (ScrubResult, error) {
	var res ScrubResult
	var all []scrubbed
	v := e.view.Load()
	for i, m := range v.members {
		s, n, err := e.scrubDisk(ctx, m, v.kvs[i])
		res.Values += n
		switch {
		case ctx.Err() != nil:
			return res, ctx.Err()
		case stuckOn(err, m):
			e.opts.Log.Warn().Int("slot", m.slot).Err(err).Msg("disk left out of the scrub of the metadata")
		case err == nil:
			all = append(all, s)
		default:
			res.Damaged = append(res.Damaged, m.slot)
			e.suspect(m, v.kvs[i], err)
		}
	}
	for _, s := range outvoted(all) {
		res.Damaged = append(res.Damaged, s.m.slot)
		e.suspect(s.m, s.kv, fmt.Errorf("contents at %d.%d are unlike those of the other disks: %w", s.at.epoch, s.at.seq, storage.ErrCorrupt))
	}
	return res, nil
}

// outvoted returns the disks whose contents differ from those of more other
// disks at the same point.
func outvoted(all []scrubbed) (bad []scrubbed) {
	votes := make(map[point]map[[16]byte]int)
	for _, s := range all {
		if votes[s.at] == nil {
			votes[s.at] = make(map[[16]byte]int)
		}
		votes[s.at][s.digest]++
	}
	for _, s := range all {
		for digest, n := range votes[s.at] {
			if digest != s.digest && n > votes[s.at][s.digest] {
				bad = append(bad, s)
				break
			}
		}
	}
	return bad
}

// scrubDisk gives up on a disk that hangs.
func (e *Engine) scrubDisk(ctx context.Context, m *member, kv storage.KV) (scrubbed, int64, error) {
	var res scrubbed
	var n int64
	var failure error
	p := &pace{}
	if err := e.attend(ctx, p, e.opts.LagTime, func() { res, n, failure = scrubDisk(ctx, p, m, kv) }, nil); err != nil {
		return scrubbed{}, 0, err
	}
	return res, n, failure
}

func scrubDisk(ctx context.Context, p *pace, m *member, kv storage.KV) (res scrubbed, n int64, err error) {
	s, err := openSnapshot(ctx, p, m, kv)
	if err != nil {
		return res, 0, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	h := xxh3.New()
	for ok := s.it.SeekGE([]byte{userSpace}); ok && s.it.Key()[0] == userSpace; ok = s.it.Next() {
		if err := ctx.Err(); err != nil {
			return res, n, err
		}
		raw, err := s.it.Value()
		if err != nil {
			return res, n, err
		}
		key := s.it.Key()
		if _, _, err := decodeValue(key[1:], raw); err != nil {
			return res, n, fmt.Errorf("key %q: %w", key[1:], err)
		}
		_, _ = h.Write(key) // a hash never fails
		_, _ = h.Write(raw)
		n++
	}
	return scrubbed{m: m, kv: kv, at: s.at, digest: h.Sum128().Bytes()}, n, s.it.Err()
}
