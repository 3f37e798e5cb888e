package uring

import "sync"

// message asks a shard for something.
type message struct {
	op     *Op
	cancel bool // of an Op that was posted earlier
}

// mailbox is how callers reach a shard. It is bounded by permits: at most one
// Op per permit, and one cancellation per Op.
type mailbox struct {
	mu     sync.Mutex // protects the fields below
	queue  []message
	spare  []message // the queue before the last take, emptied
	closed bool      // nothing is accepted any more; the shard is to end
	asleep bool      // the shard waits, or is about to
	wake   *wake     // nil in tests without a thread
	counts *counters
}

// post hands a message over. It reports false when the shard takes none; an Op
// that was accepted will be settled, whatever happens to the shard.
func (m *mailbox) post(msg message) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	if !msg.cancel {
		m.counts.accept(msg.op)
	}
	m.queue = append(m.queue, msg)
	m.rouseLocked()
	return true
}

// rouseLocked wakes the shard if it sleeps. The lock is held across the write:
// the shard closes the descriptor under it, so that the number can't have
// become another file's.
func (m *mailbox) rouseLocked() {
	if m.asleep {
		m.asleep = false
		if m.wake != nil {
			m.wake.write()
			m.counts.add(func(c *ShardStats) { c.Wakes++ })
		}
	}
}

// take gives the messages that came since the last take, which are valid until
// the next one, and whether the shard is to end: then they are the last.
func (m *mailbox) take() (taken []message, closed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asleep = false
	if len(m.queue) == 0 {
		return nil, m.closed
	}
	taken = m.queue
	clear(m.spare)
	m.queue, m.spare = m.spare[:0], taken
	return taken, m.closed
}

// sleep says that the shard is going to wait: the next post wakes it. It
// reports false when something is there already.
func (m *mailbox) sleep() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asleep = len(m.queue) == 0 && !m.closed
	return m.asleep
}

// shutdown ends what is accepted, and wakes the shard so that it sees that.
func (m *mailbox) shutdown() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	m.rouseLocked()
}

// oldest is when the first message that wasn't taken was posted, or 0.
func (m *mailbox) oldest() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, msg := range m.queue {
		if !msg.cancel {
			return msg.op.since
		}
	}
	return 0
}

// unplug takes the wake-up away before it is closed.
func (m *mailbox) unplug() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed, m.wake = true, nil
}
