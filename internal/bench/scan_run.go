package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"ringfence/storage"
)

// scanEngine reads requests of a scan.
type scanEngine interface {
	// run makes all requests of a thread, with as many in flight as it has
	// buffers, and gives each to got with what it read. got is safe for
	// concurrent use.
	run(ctx context.Context, t *thread, bufs []*storage.Buf, got func(request, *storage.Buf)) error
	// counts are totals so far, after so many requests.
	counts(requests int64) Counts
	close(ctx context.Context) error
}

// Scan makes one pass over the files. It only reads.
func Scan(ctx context.Context, leg ScanLeg) (row ScanRow, err error) {
	leg = leg.WithDefaults()
	leg.Procs, leg.Devices = runtime.GOMAXPROCS(0), devices(leg.Files)
	if err := leg.Check(); err != nil {
		return ScanRow{}, err
	}
	bufs, err := newBuffers(leg.Load.Threads*leg.Load.Depth, leg.Load.RequestBytes, leg.Load.SmallPages)
	if err != nil {
		return ScanRow{}, err
	}
	defer func() { err = errors.Join(err, bufs.close()) }()
	s := &scan{leg: leg, bufs: bufs}
	begun := time.Now()
	if s.engine, err = startScan(ctx, leg, bufs.pool); err != nil {
		return ScanRow{}, err
	}
	defer func() { err = errors.Join(err, s.engine.close(context.WithoutCancel(ctx))) }()
	row = ScanRow{Leg: leg, Bytes: totalBytes(leg.Files), Setup: Setup{Init: time.Since(begun)}}
	if row.Setup.FirstRead, row.Grow, err = s.firstReads(ctx); err != nil {
		return ScanRow{}, fmt.Errorf("first read: %w", err)
	}
	if err := s.prepare(ctx); err != nil {
		return ScanRow{}, err
	}
	if err := s.measure(ctx, &row); err != nil {
		return ScanRow{}, err
	}
	row.Leg.Files = nil // whoever gave them has them
	return row, row.Coverage.verify(expected(leg.Files, leg.Load.RequestBytes))
}

// scan is a leg that runs.
type scan struct {
	leg    ScanLeg
	bufs   *buffers
	engine scanEngine
}

// firstReads reads the beginning of the first file that has one, from the page
// cache, into a buffer of every slab, twice: the first read has to set up what
// the slab's memory needs, the second is the same without. It gives the time of
// the very first read, and the time that all setting up took.
func (s *scan) firstReads(ctx context.Context) (first, grow time.Duration, err error) {
	probe := s.leg
	for i, f := range s.leg.Files {
		if f.Size > 0 {
			probe.Files = s.leg.Files[i : i+1]
			break
		}
		if i == len(s.leg.Files)-1 {
			return 0, 0, nil
		}
	}
	fd, err := File{Path: probe.Files[0].Path, Size: probe.Files[0].Size}.open(0)
	if err != nil {
		return 0, 0, err
	}
	err = load(ctx, fd, min(probe.Files[0].Size, int64(s.leg.Load.RequestBytes)))
	if err = errors.Join(err, unix.Close(fd)); err != nil {
		return 0, 0, err
	}
	var more []float64
	for i := 0; i < len(s.bufs.sets); i += max(1, slabBytes/int(bufferBytes(s.leg.Load.RequestBytes))) {
		var took [2]time.Duration
		for n := range took {
			if took[n], err = s.oneRead(ctx, &probe, s.bufs.sets[i]); err != nil {
				return 0, 0, err
			}
		}
		if i == 0 {
			first = took[0]
		}
		more = append(more, float64(took[0]-took[1]))
	}
	// The median keeps one read that lost its processor from counting for all.
	return first, time.Duration(max(0, median(more)) * float64(len(more))), nil
}

// oneRead times the first request of a scan of one file.
func (s *scan) oneRead(ctx context.Context, leg *ScanLeg, set []*storage.Buf) (time.Duration, error) {
	one := *leg
	one.Files = []ScanFile{leg.Files[0]}
	one.Files[0].Device = 0
	t := &thread{leg: &one, queue: &queue{files: []int{0}}, flags: one.flags(), most: 1}
	begun := time.Now()
	err := s.engine.run(ctx, t, set, func(request, *storage.Buf) {})
	return time.Since(begun), errors.Join(err, t.end())
}

// flags of opening files.
func (l *ScanLeg) flags() int {
	if l.Engine.Direct {
		return unix.O_DIRECT
	}
	return 0
}

// prepare brings the page cache into the state that the leg starts from.
func (s *scan) prepare(ctx context.Context) error {
	return s.eachFile(ctx, func(fd int, f ScanFile) error {
		if s.leg.Load.Access == Cold {
			return evict(fd)
		}
		return load(ctx, fd, f.Size)
	})
}

// resident is the share of all files in the page cache.
func (s *scan) resident(ctx context.Context) (float64, error) {
	var have float64
	err := s.eachFile(ctx, func(fd int, f ScanFile) error {
		share, err := resident(fd, f.Size)
		have += share * float64(f.Size)
		return err
	})
	return have / float64(max(totalBytes(s.leg.Files), 1)), err
}

func (s *scan) eachFile(ctx context.Context, do func(fd int, f ScanFile) error) error {
	for _, f := range s.leg.Files {
		if f.Size == 0 {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		fd, err := File{Path: f.Path, Size: f.Size}.open(0)
		if err != nil {
			return err
		}
		if err := errors.Join(do(fd, f), unix.Close(fd)); err != nil {
			return fmt.Errorf("%s: %w", f.Path, err)
		}
	}
	return nil
}

// measure reads all files and fills in the row.
func (s *scan) measure(ctx context.Context, row *ScanRow) (err error) {
	if row.Cost.ResidentBefore, err = s.resident(ctx); err != nil {
		return err
	}
	runtime.GC()
	watch := watchThreads(ctx)
	counted := s.engine.counts(0)
	before, err := usageNow()
	if err != nil {
		return err
	}
	begun := time.Now()
	row.Coverage, err = s.all(ctx)
	row.Elapsed = time.Since(begun)
	after, usageErr := usageNow()
	row.Counts = s.engine.counts(row.Coverage.Requests).since(counted)
	var threadErr, memoryErr, residentErr error
	row.Cost.Threads, threadErr = watch.end()
	row.Cost.Memory, memoryErr = residentMemory()
	row.Cost.ResidentAfter, residentErr = s.resident(context.WithoutCancel(ctx))
	row.Cost.CPU, row.Cost.DeviceBytes = after.cpu-before.cpu, after.device-before.device
	return errors.Join(err, usageErr, threadErr, memoryErr, residentErr)
}

// all runs the threads.
func (s *scan) all(ctx context.Context) (Coverage, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	var sum Coverage
	var done sync.WaitGroup
	for i, q := range schedule(s.leg.Files, s.leg.Load.Threads, s.leg.Engine.Scheduling) {
		t := &thread{leg: &s.leg, queue: q, flags: s.leg.flags()}
		var bufs []*storage.Buf
		for _, set := range s.bufs.sets[i*s.leg.Load.Depth : (i+1)*s.leg.Load.Depth] {
			bufs = append(bufs, set[0])
		}
		done.Go(func() {
			c := &tally{content: s.leg.Run == 0}
			err := s.engine.run(ctx, t, bufs, c.add)
			if err = errors.Join(err, t.end()); err != nil {
				cancel(err)
			}
			mu.Lock()
			defer mu.Unlock()
			c.sum.Files = t.done
			sum.merge(c.sum)
		})
	}
	done.Wait()
	return sum, context.Cause(ctx)
}

// tally is the coverage of one thread.
type tally struct {
	content bool // look at what was read
	mu      sync.Mutex
	sum     Coverage // protected by mu
}

func (c *tally) add(r request, b *storage.Buf) {
	var content uint64
	if c.content {
		content = max(xxh3.Hash(b.Bytes()[:r.n]), 1)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sum.add(r.file, r.off, r.n, content)
}
