package erasure

import (
	"context"
	"errors"
)

// newShardStore makes the data path of one set.
func (s *Store) newShardStore(set *set, opts Options) (shardStore, error) {
	if opts.Pool == nil {
		return nil, errors.New("no memory pool")
	}
	if err := CheckParity(len(set.disks), set.parity); err != nil {
		return nil, err
	}
	return shards{newData(dataOptions{
		Disks:  set.disks,
		Parity: set.parity,
		Pool:   opts.Pool,
		Env:    opts.Env,
		Log:    opts.Log,
		Damaged: func(b blob, shard uint8, err error) {
			set.damage.report(b, shard, err)
		},
	})}, nil
}

// shards is the data path as the namespace sees it.
type shards struct{ *data }

func (s shards) write(ctx context.Context, in writeInput) (stagedShards, error) {
	w, err := s.data.write(ctx, in)
	if err != nil {
		return nil, err // not w: a nil pointer in an interface isn't nil
	}
	return stagedData{w}, nil
}

func (s shards) open(ctx context.Context, b blob) (shardReader, error) {
	r, err := s.data.open(ctx, b)
	if err != nil {
		return nil, err
	}
	return r, nil
}

type stagedData struct{ *stagedBlob }

func (s stagedData) size() int64 { return s.stagedBlob.size }
