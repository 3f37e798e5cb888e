package erasure

import (
	"context"
	"errors"
	"fmt"

	"ringfence/erasure/meta"
	"ringfence/storage"
)

// claim is what a process must know before it writes shards: whose they are,
// and which epoch their names begin with. It takes a commit to know it. The
// recovery before that commit decided what earlier processes left in doubt, so
// that nothing of theirs can turn up any more; and a set that cannot commit
// need not read a body.
type claim struct {
	// metadata is the id of the set's metadata, drawn when there was none yet. It
	// is part of every shard: metadata that was lost and begun anew is told from
	// the one that the shards on the disks belong to.
	metadata storage.UUID
	// epoch is that of the log after the commit. All shards of this process carry
	// it, whatever becomes of the log meanwhile: shards of a lower one are from
	// earlier processes.
	epoch uint64
}

// metadataKey is where the id of a set's metadata is.
func metadataKey() []byte { return meta.ConfigKey("metadata") }

// claim returns what the shards of this process carry in a set.
func (s *Store) claim(ctx context.Context, set *set) (*claim, error) {
	if c := set.claimed.Load(); c != nil {
		return c, nil
	}
	unlock, err := s.locks.lock(ctx, lockName{Key: string(metadataKey()), Part: set.index})
	if err != nil {
		return nil, err
	}
	defer unlock()
	if c := set.claimed.Load(); c != nil {
		return c, nil
	}
	for range maxTries {
		c, err := s.claimOnce(ctx, set)
		if errors.Is(err, errStale) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("claim set %d: %w", set.index, err)
		}
		set.claimed.Store(c)
		return c, nil
	}
	return nil, fmt.Errorf("%w: id of the metadata changed %d times", ErrOverload, maxTries)
}

func (s *Store) claimOnce(ctx context.Context, set *set) (*claim, error) {
	key := metadataKey()
	item, found, err := set.get(ctx, key)
	if err != nil {
		return nil, err
	}
	rec := metadataRecord{ID: s.newUUID()}
	if found {
		if rec, err = decodeMetadata(item.Val); err != nil {
			return nil, corrupt(key, err)
		}
	}
	_, err = set.commit(ctx, meta.Group{}, []meta.Cond{{Key: key, Rev: item.Rev}}, []meta.Op{{Key: key, Val: rec.encode()}})
	var cond *meta.CondError
	switch {
	case errors.As(err, &cond): // a commit of unknown outcome showed up
		return nil, fmt.Errorf("%w: %w", errStale, err)
	case errors.Is(err, ErrUnknown):
		return nil, fmt.Errorf("%w: %v", ErrUnavailable, err) //nolint:errorlint // for the caller nothing is unknown
	case err != nil:
		return nil, err
	}
	epoch := set.engine.Health().Epoch
	if epoch == 0 {
		return nil, fmt.Errorf("%w: metadata of set %d has no epoch", ErrUnavailable, set.index)
	}
	return &claim{metadata: rec.ID, epoch: epoch}, nil
}

// metadataRecord is the id of a set's metadata, under c/metadata.
type metadataRecord struct {
	ID      storage.UUID
	unknown []byte
}

func (r *metadataRecord) encode() []byte {
	e := newEncoder()
	e.uuid(fieldMetadata, r.ID)
	return append(e.b, r.unknown...)
}

func decodeMetadata(b []byte) (r metadataRecord, err error) {
	d := decoder{rest: b}
	for d.next() {
		switch d.num {
		case fieldFormat:
			d.format()
		case fieldMetadata:
			r.ID = d.uuid()
		default:
			r.unknown = append(r.unknown, d.whole...)
		}
	}
	if d.err == nil && r.ID.IsZero() {
		d.fail("id")
	}
	return r, d.err
}
