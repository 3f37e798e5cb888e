package hybrid

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"ringfence/storage"
)

const (
	// shadowQueue bounds the shadow reads that wait; more are dropped and counted.
	shadowQueue = 64
	// shadowPiece is how much the second reading holds in memory at a time.
	shadowPiece = 256 << 10
)

// ShadowStats are counters of the shadow compare.
type ShadowStats struct {
	Compared int64 // ring reads that were compared
	Mismatch int64 // of those: rings had delivered something else
	Changed  int64 // not comparable: the file was changed meanwhile
	Failed   int64 // not comparable: pread could not read, or the file was closed
	Dropped  int64 // not compared: too many waited, or there was no memory
}

// shadow compares what rings delivered with what pread(2) reads, as the
// reference does. The response path of a sampled read pays for a hash, since its
// buffers may be used again at once; reading and comparing is the worker's. It
// does not read with Base, which would count that among the reads that served
// somebody, and learn from it what the page cache holds.
type shadow struct {
	pread func(fd int, p []byte, off int64) (int, error) // set before Run

	turn  atomic.Uint64 // ring reads that could be sampled
	open  atomic.Int64  // samples that have not ended
	stats struct{ compared, mismatch, changed, failed, dropped atomic.Int64 }

	mu     sync.Mutex // protects the fields below
	jobs   chan *sample
	closed bool
}

func (s *shadow) init() { s.pread, s.jobs = unix.Pread, make(chan *sample, shadowQueue) }

// sample is a ring read that is to be compared. It keeps its file open.
type sample struct {
	file   *file
	off    int64
	before stamp
	want   int    // bytes asked for
	got    int    // bytes that were delivered
	sum    uint64 // of those
	drop   bool   // the range is not to stay in the page cache
}

// stamp changes with the content of a file.
type stamp struct {
	ino          uint64
	size         int64
	mtime, ctime unix.Timespec
}

// chosen spreads a share evenly over the reads: all of them at 1.
func (s *shadow) chosen(share float64) bool {
	if share <= 0 {
		return false
	}
	n := float64(s.turn.Add(1) - 1)
	return uint64((n+1)*share) != uint64(n*share)
}

// sample decides whether the read from off on that comes now will be compared.
// If not it is nil, and so is what its methods do.
func (f *file) sample(off int64) *sample {
	s := &f.backend.shadow
	if f.written || !s.chosen(f.backend.knobs.Shadow.Load()) {
		return nil
	}
	if !f.acquire() {
		return nil
	}
	s.open.Add(1)
	before, err := f.stamp()
	if err != nil {
		s.stats.failed.Add(1)
		f.unsample()
		return nil
	}
	return &sample{file: f, off: off, before: before}
}

func (f *file) stamp() (stamp, error) {
	if err := f.desc.Acquire(); err != nil {
		return stamp{}, err
	}
	var st unix.Stat_t
	err := unix.Fstat(f.desc.FD(), &st)
	if err := errors.Join(err, f.desc.Release()); err != nil {
		return stamp{}, fmt.Errorf("stat: %w", err)
	}
	return stamp{st.Ino, st.Size, st.Mtim, st.Ctim}, nil
}

// unsample gives the file back. It was only read from, so what closing it says
// is of no interest to anybody but the log.
func (f *file) unsample() {
	defer f.backend.shadow.open.Add(-1)
	if err := f.release(); err != nil {
		f.backend.opts.Log.Warn().Str("disk", f.backend.opts.Dir).Str("file", f.name).Err(err).Msg("close after a shadow read")
	}
}

// forget ends a sample whose read failed.
func (s *sample) forget() {
	if s != nil {
		s.file.unsample()
	}
}

// take hands over the n bytes that a ring delivered into bufs. drop says that
// they were to leave no trace in the page cache.
func (s *sample) take(bufs []*storage.Buf, n int, drop bool) {
	if s == nil {
		return
	}
	s.drop = drop
	h := xxh3.New()
	s.got = n
	for _, b := range bufs {
		p := b.Bytes()
		s.want += len(p)
		// A hash takes everything.
		_, _ = h.Write(p[:min(n, len(p))])
		n -= min(n, len(p))
	}
	s.sum = h.Sum64()
	s.file.backend.shadow.enqueue(s)
}

func (s *shadow) enqueue(job *sample) {
	s.mu.Lock()
	queued := false
	if !s.closed {
		select {
		case s.jobs <- job:
			queued = true
		default:
		}
	}
	s.mu.Unlock()
	if !queued {
		s.stats.dropped.Add(1)
		job.forget()
	}
}

// close lets no more samples in; the worker ends with the last that is there.
func (s *shadow) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		close(s.jobs)
	}
}

// verdict is what a comparison found.
type verdict uint8

const (
	verdictSame verdict = iota
	verdictOther
	verdictChanged
	verdictFailed
	verdictDropped
)

// work compares until the queue is closed; when ctx has ended, it only empties
// the queue.
func (b *Backend) work(ctx context.Context) {
	for job := range b.shadow.jobs {
		v, n := verdictDropped, 0
		if ctx.Err() == nil {
			v, n = b.compare(ctx, job)
		}
		if job.drop {
			job.file.drop(job.off, int64(job.got))
		}
		switch stats := &b.shadow.stats; v {
		case verdictSame:
			stats.compared.Add(1)
		case verdictOther:
			stats.compared.Add(1)
			stats.mismatch.Add(1)
			b.mismatch(job, n)
		case verdictChanged:
			stats.changed.Add(1)
		case verdictFailed:
			stats.failed.Add(1)
		case verdictDropped:
			stats.dropped.Add(1)
		}
		job.file.unsample()
	}
}

// compare reads again, and judges. n is how many bytes there were. A file that
// was written to between the two readings is nobody's fault, and neither is one
// that does not read twice the same.
func (b *Backend) compare(ctx context.Context, job *sample) (v verdict, n int) {
	sum, n, err := job.again(ctx, b.opts.Pool)
	if err == nil && sum == job.sum && n == job.got {
		return verdictSame, n
	}
	var sum2 uint64
	var n2 int
	if err == nil {
		sum2, n2, err = job.again(ctx, b.opts.Pool)
	}
	var after stamp
	if err == nil {
		after, err = job.file.stamp()
	}
	switch {
	case errors.Is(err, storage.ErrNoBuffer), ctx.Err() != nil:
		return verdictDropped, n
	case err != nil:
		return verdictFailed, n
	case sum2 != sum || n2 != n || after != job.before:
		return verdictChanged, n
	}
	return verdictOther, n
}

// again reads the range once more, without a ring. It blocks; ctx is asked
// between pieces.
func (s *sample) again(ctx context.Context, pool *storage.Pool) (sum uint64, n int, err error) {
	buf, err := pool.Get(min(s.want, shadowPiece))
	if err != nil {
		return 0, 0, err
	}
	defer buf.Release()
	if err := s.file.desc.Acquire(); err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, s.file.desc.Release()) }()
	h := xxh3.New()
	for n < s.want && ctx.Err() == nil {
		buf.SetLen(min(s.want-n, shadowPiece))
		m, err := s.file.backend.shadow.pread(s.file.desc.FD(), buf.Bytes(), s.off+int64(n))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return 0, n, fmt.Errorf("pread: %w", err)
		case m == 0:
			return h.Sum64(), n, nil
		}
		_, _ = h.Write(buf.Bytes()[:m])
		n += m
	}
	return h.Sum64(), n, ctx.Err()
}

// mismatch keeps this disk off rings until they are switched off and on again:
// whatever delivers one wrong byte may deliver another.
func (b *Backend) mismatch(job *sample, n int) {
	b.opts.Log.Error().Str("disk", b.opts.Dir).Str("file", job.file.name).Int64("off", job.off).Int("length", job.want).
		Int("ring", job.got).Int("reference", n).Msg("a ring delivered other bytes than the reference reads")
	b.swap.Lock()
	b.serving.Store(nil)
	b.trip(LatchShadow, fmt.Sprintf("%s: %d bytes from %d differ", job.file.name, job.want, job.off))
	b.swap.Unlock()
}
