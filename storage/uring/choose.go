package uring

// anyLocked reports whether a shard is up.
func (p *permits) anyLocked() bool {
	for _, s := range p.shards {
		if s != nil {
			return true
		}
	}
	return false
}

// fitsLocked reports whether s is up and has room for o. What is larger than
// all the room is let through alone.
func (p *permits) fitsLocked(s *shard, o *Op) bool {
	return s != nil && s.room.ops+o.count <= p.entries &&
		(s.room.bytes == 0 || s.room.bytes+o.bytes <= p.bytes)
}

// chooseLocked picks the shard for o, or nil when all are full. The cursor goes
// round, so that equally loaded shards share evenly; a second one is drawn at
// random and wins if it has less to do. Two choices level out what the size of
// reads and slow completions unbalance, without everybody running to the same.
func (p *permits) chooseLocked(o *Op) *shard {
	first := p.nextLocked(p.cursor, o)
	if first < 0 {
		return nil
	}
	p.cursor = (first + 1) % len(p.shards)
	if len(p.shards) == 1 {
		return p.shards[first]
	}
	second := p.nextLocked(p.rng.IntN(len(p.shards)), o)
	if p.shards[second].room.bytes < p.shards[first].room.bytes {
		return p.shards[second]
	}
	return p.shards[first]
}

// nextLocked is the first lane from i on whose shard has room, or -1.
func (p *permits) nextLocked(i int, o *Op) int {
	for range p.shards {
		if p.fitsLocked(p.shards[i], o) {
			return i
		}
		i = (i + 1) % len(p.shards)
	}
	return -1
}
