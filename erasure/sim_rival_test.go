package erasure

import (
	"bytes"
	"context"

	"ringfence/erasure/meta"
)

// simEngine is the engine as the store of a simulation sees it. Between a
// write's look at a key and its commit, somebody else may commit to that key:
// then it is the commit's conditions that count, and no lock.
type simEngine struct {
	meta.Engine
	s     *simStore
	store *Store // the rival; nil while it is at work
}

func (e *simEngine) Commit(ctx context.Context, g meta.Group, conds []meta.Cond, ops []meta.Op) (meta.Rev, error) {
	if rival := e.store; rival != nil && len(conds) > 0 && bytes.HasPrefix(conds[0].Key, []byte(meta.SpaceObjects)) && e.s.rng.IntN(4) == 0 {
		e.store = nil
		e.s.rival(ctx, rival, g.Key)
		e.store = rival
	}
	if e.s.rules.noConds {
		conds = nil
	}
	return e.Engine.Commit(ctx, g, conds, ops)
}

// rival writes to a key, or removes what is there.
func (s *simStore) rival(ctx context.Context, store *Store, key string) {
	s.count.rivals++
	if s.rng.IntN(3) == 0 {
		_, err := store.Delete(ctx, "b", key, DeleteInput{})
		s.wrote("rival's delete", key, absent, err)
		return
	}
	id, b := s.body()
	_, err := store.Put(ctx, "b", key, input(b))
	s.wrote("rival's put", key, id, err)
}
