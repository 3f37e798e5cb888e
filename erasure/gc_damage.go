package erasure

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"ringfence/erasure/meta"
	"ringfence/storage"
)

// damage remembers the blobs of which readers found a shard wrong or gone, so
// that the background writes them into the index of what is to be healed. A
// reader never waits for it: beyond damageMost blobs a report is dropped,
// and made again by the next reader.
type damage struct {
	met   [MaxSetSize]atomic.Int64 // reads that met a damaged shard, by the slot of its disk
	mu    sync.Mutex               // protects found
	found map[storage.ShardID]damaged
}

type damaged struct {
	blob  blob
	cause error
}

const damageMost = 1024

// report takes note of a damaged shard.
func (d *damage) report(b blob, shard uint8, cause error) {
	d.met[b.Layout.Slots[shard]].Add(1)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.found == nil {
		d.found = make(map[storage.ShardID]damaged)
	}
	if _, known := d.found[b.id()]; !known && len(d.found) < damageMost {
		d.found[b.id()] = damaged{blob: b, cause: fmt.Errorf("shard %d: %w", shard, cause)}
	}
}

// take empties the memory.
func (d *damage) take() map[storage.ShardID]damaged {
	d.mu.Lock()
	defer d.mu.Unlock()
	found := d.found
	d.found = nil
	return found
}

// indexDamage writes what readers found into the index. Entries say where the
// shards are; the shards themselves say whose they are.
func (s *Store) indexDamage(ctx context.Context, set *set) error {
	for id, found := range set.damage.take() {
		hkey := meta.UnhealedKey(id)
		_, known, err := set.get(ctx, hkey)
		if err != nil {
			return err
		}
		if known {
			continue
		}
		h := home{Part: id.Part, Blob: &found.blob}
		s.log.Warn().Err(found.cause).Stringer("blob", id).Msg("damaged shard; the blob is marked for repair")
		_, err = set.commit(ctx, meta.Group{}, nil, []meta.Op{{Key: hkey, Val: h.encode()}})
		if err != nil {
			return err
		}
	}
	return nil
}
