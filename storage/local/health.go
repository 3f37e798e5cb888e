package local

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"ringfence/storage"
)

// faults is what is wrong with the disk for good. The first of each kind stays.
type faults struct {
	log    zerolog.Logger
	closed atomic.Bool
	gone   atomic.Pointer[string] // removed, moved, emptied
	failed atomic.Pointer[string] // lost what was written to it
}

// readable fails when nothing of the disk may be used.
func (f *faults) readable() error {
	if f.closed.Load() {
		return fmt.Errorf("%w: closed", storage.ErrOffline)
	}
	if why := f.gone.Load(); why != nil {
		return fmt.Errorf("%w: %s", storage.ErrOffline, *why)
	}
	return nil
}

// writable fails when no write may be called durable. What was sealed before a
// disk failed can still be read: its checksums decide.
func (f *faults) writable() error {
	if err := f.readable(); err != nil {
		return err
	}
	if why := f.failed.Load(); why != nil {
		return fmt.Errorf("%w: %s", storage.ErrFailed, *why)
	}
	return nil
}

// setFailed notes a failure, and logs the first.
func (f *faults) setFailed(why string) {
	if f.failed.CompareAndSwap(nil, &why) {
		f.log.Error().Str("reason", why).Msg("disk failed")
	}
}

// setGone notes that the disk is not the one that was opened any more.
func (f *faults) setGone(why string) error {
	if f.gone.CompareAndSwap(nil, &why) {
		f.log.Error().Str("reason", why).Msg("disk is gone")
	}
	return f.readable()
}

// space decides whether shards are taken.
type space struct {
	stats   func() storage.BackendStats
	now     func() time.Time
	percent int

	// refusedAt is when the file system last said that it is full, in
	// nanoseconds of the wall clock; 0 since it took something again. Free
	// space alone doesn't tell: quotas and inodes run out as well.
	refusedAt atomic.Int64
}

// A disk that said it is full is tried again every probeEvery, and is shown as
// full for showFull, so that those who go by Health come back to it as well.
const (
	probeEvery = time.Second
	showFull   = 5 * time.Second
)

// admit fails with ErrFull when no shard may be started now.
func (s *space) admit() error {
	if full, why := s.full(s.stats()); full {
		return fmt.Errorf("%w: %s", storage.ErrFull, why)
	}
	at := s.refusedAt.Load()
	if at == 0 {
		return nil
	}
	// One gets through to find out; the others are refused meanwhile.
	now := s.now().UnixNano()
	if within(now, at, probeEvery) || !s.refusedAt.CompareAndSwap(at, max(now, 1)) {
		return fmt.Errorf("%w: %s", storage.ErrFull, refusedReason)
	}
	return nil
}

const refusedReason = "no space, quota or inodes left"

// within reports whether now is less than d after at. A clock that was set
// back ends the wait rather than prolonging it.
func within(now, at int64, d time.Duration) bool { return now >= at && now-at < int64(d) }

// refusedLately reports whether the file system said that it is full.
func (s *space) refusedLately() bool {
	at := s.refusedAt.Load()
	return at != 0 && within(s.now().UnixNano(), at, showFull)
}

func (s *space) refused() { s.refusedAt.Store(max(s.now().UnixNano(), 1)) }

func (s *space) accepted() {
	if s.refusedAt.Load() != 0 {
		s.refusedAt.Store(0)
	}
}

// full reports whether the watermark is reached.
func (s *space) full(st storage.BackendStats) (bool, string) {
	if st.TotalBytes <= 0 {
		return false, ""
	}
	if reserve := s.reserve(st.TotalBytes); float64(st.FreeBytes) <= reserve {
		return true, fmt.Sprintf("%d MiB are free, new data is taken while there are more than %.0f MiB", st.FreeBytes>>20, reserve/(1<<20))
	}
	return false, ""
}

// smallReserve is what the metadata store needs to go on deleting, flushing and
// compacting, however small the disk; a quarter of a very small one.
const smallReserve = 128 << 20

// reserve is the space in bytes that new data may not use.
func (s *space) reserve(total int64) float64 {
	share := float64(total) / 100 * float64(100-s.percent)
	return max(share, float64(min(smallReserve, total/4)))
}

// Health implements storage.Disk.
func (d *Disk) Health() storage.Health {
	st := d.opts.Backend.Stats()
	h := storage.Health{TotalBytes: st.TotalBytes, FreeBytes: st.FreeBytes, Reads: st.Reads}
	h.State, h.Reason = d.state(st)
	return h
}

func (d *Disk) state(st storage.BackendStats) (storage.State, string) {
	if d.fault.closed.Load() {
		return storage.StateOffline, "closed"
	}
	if why := d.fault.gone.Load(); why != nil {
		return storage.StateOffline, *why
	}
	if why := d.fault.failed.Load(); why != nil {
		return storage.StateFailed, *why
	}
	full, why := d.space.full(st)
	if !full && d.space.refusedLately() {
		full, why = true, refusedReason
	}
	if state, why := d.meta.Load().state(); state != storage.StateOK {
		return state, why
	}
	if full {
		return storage.StateFull, why
	}
	return storage.StateOK, ""
}
