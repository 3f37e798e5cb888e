package uring

import (
	"context"
	"sync"
	"time"
)

// lane is a place for a shard, with what outlives its shards.
type lane struct {
	driver *Driver
	index  int
	counts counters
	done   chan struct{} // closed when no shard runs and none will

	mu      sync.Mutex // protects the fields below
	shard   *shard     // the last one that was started
	dead    bool       // and not started again
	stopped bool
}

// begin puts the first shard into service, and has somebody wait for its end.
func (l *lane) begin(s *shard) {
	l.install(s)
	go l.supervise(s) // Close waits for done
}

// install puts a shard into service, unless the driver is closing.
func (l *lane) install(s *shard) {
	l.mu.Lock()
	l.shard = s
	stopped := l.stopped
	l.mu.Unlock()
	if stopped {
		s.mail.shutdown()
		return
	}
	l.driver.permits.up(l.index, s)
}

func (l *lane) shutdown() {
	l.mu.Lock()
	l.stopped = true
	s := l.shard
	l.mu.Unlock()
	if s != nil {
		s.mail.shutdown()
	}
}

func (l *lane) running() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.shard != nil
}

func (l *lane) isStopped() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stopped
}

// stuckGrace is what a shard's goroutine may take beyond its drain.
const stuckGrace = 500 * time.Millisecond

// await waits for the end of a shard. When the driver closes that is bounded,
// even if the thread hangs in a system call, as on a disk that hangs: then its
// callers are told, and the rest happens when the call returns.
func (l *lane) await(s *shard) {
	select {
	case <-s.exited:
		return
	case <-l.driver.stop:
	}
	late, stop := l.driver.opts.Env.After(l.driver.opts.DrainTimeout + stuckGrace)
	defer stop()
	select {
	case <-s.exited:
	case <-late:
		close(s.stuck)
		l.driver.permits.writeOff(s)
		l.driver.opts.Log.Error().Str("dir", l.driver.opts.Dir).Int("shard", l.index).Msg("the thread of a ring hangs in the kernel")
	}
}

// restartPause is what a lane waits before it starts a shard again; it doubles.
const restartPause = 100 * time.Millisecond

// supervise replaces shards that die, a few times.
func (l *lane) supervise(s *shard) {
	defer close(l.done)
	ctx := stopContext{l.driver.stop}
	for tries := 0; ; tries++ {
		if s != nil {
			l.await(s)
		}
		if l.isStopped() {
			return
		}
		if tries >= l.driver.opts.Restarts {
			l.mu.Lock()
			l.dead = true
			l.mu.Unlock()
			l.driver.opts.Log.Error().Str("dir", l.driver.opts.Dir).Int("shard", l.index).Int("restarts", tries).Msg("ring died too often; it stays down")
			<-l.driver.stop
			return
		}
		if !l.rest(restartPause << min(tries, 6)) {
			return
		}
		l.counts.add(func(c *ShardStats) { c.Restarts++ })
		s = l.restart(ctx)
	}
}

// restart gives nil when there is no new shard.
func (l *lane) restart(ctx context.Context) *shard {
	s, err := l.driver.startShard(ctx, l, true)
	if err != nil {
		l.driver.opts.Log.Warn().Err(err).Str("dir", l.driver.opts.Dir).Int("shard", l.index).Msg("starting a ring again")
		return nil
	}
	l.install(s)
	return s
}

// rest reports false when the driver is closing.
func (l *lane) rest(t time.Duration) bool {
	c, stop := l.driver.opts.Env.After(t)
	defer stop()
	select {
	case <-c:
		return true
	case <-l.driver.stop:
		return false
	}
}

// stopContext is a context that ends with a driver.
type stopContext struct{ stop <-chan struct{} }

func (stopContext) Deadline() (time.Time, bool) { return time.Time{}, false }
func (c stopContext) Done() <-chan struct{}     { return c.stop }
func (stopContext) Value(any) any               { return nil }
func (c stopContext) Err() error {
	select {
	case <-c.stop:
		return context.Canceled
	default:
		return nil
	}
}
