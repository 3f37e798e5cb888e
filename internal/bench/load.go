package bench

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"ringfence/storage"
	"ringfence/storage/uring"
)

// Limits of a leg. They keep a mistyped number from filling the disk or the
// memory of the machine.
const (
	ReadSizeMax    = 1 << 30 // bytes
	ConcurrencyMax = 4096
	DepthMax       = 1024
	OpsMax         = 1 << 32
	FileSizeMax    = 1 << 44   // bytes
	MemoryMax      = 256 << 30 // bytes of buffers
	pageBytes      = 4096
)

// ErrUsage: the arguments make no sense; nothing was touched.
var ErrUsage = errors.New("bad arguments")

func usagef(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrUsage, fmt.Sprintf(format, args...))
}

// Access is what the page cache holds of a read's range beforehand.
type Access string

// The kinds of access.
const (
	Warm  Access = "warm"  // all of the file is in the page cache
	Cold  Access = "cold"  // nothing is, and no range is read twice
	Mixed Access = "mixed" // nine of ten reads go to a part that is, one is cold
)

// Accesses lists them.
func Accesses() []Access { return []Access{Warm, Cold, Mixed} }

// Load is what is asked of an engine, the same for all of them.
type Load struct {
	Access      Access
	ReadSize    int // bytes
	Concurrency int // goroutines, each with one read at a time or Depth of them
	Depth       int // reads in flight per goroutine; 0 means 1
	// Ops is how many reads; 0 means as many as read 8 GiB, within 2,000 and
	// 1,000,000. Cold reads end when the file does.
	Ops  int64
	Seed uint64
}

// Leg is one measurement: one engine, one load, one process.
type Leg struct {
	Run    int // 1, 2, ...
	File   File
	Load   Load
	Engine Engine
	Procs  int // GOMAXPROCS, for the record; set by whoever starts the process
	Verify bool
	// Memory bounds the buffers, in bytes; 0 means 1 GiB.
	Memory int64
}

// File is what is read.
type File struct {
	Path string
	Size int64
}

// Engine is how it is read.
type Engine struct {
	Strategy   Strategy
	Shards     int    // of engines with rings; 0 means 1
	Entries    int    // per shard; 0 means the power of two that has room for all reads in flight, at least 128
	Mode       string // of registered buffers; "" means non-fixed
	Inline     bool   // hybrid: try the page cache on the caller first
	Direct     bool   // O_DIRECT
	Align      int    // of O_DIRECT; 0 asks the file system
	SmallPages bool   // no huge pages behind the buffers
}

// WithDefaults fills in what was left out.
func (l Leg) WithDefaults() Leg {
	if l.Load.Access == "" {
		l.Load.Access = Warm
	}
	l.Load.Depth = max(l.Load.Depth, 1)
	l.Memory = defaulted(l.Memory, 1<<30)
	if l.Load.ReadSize > 0 && l.Load.Ops == 0 {
		l.Load.Ops = min(max(8<<30/int64(l.Load.ReadSize), 2000), 1_000_000)
	}
	if !l.Engine.Strategy.rings() {
		l.Engine.Shards, l.Engine.Entries, l.Engine.Mode = 0, 0, ""
		return l
	}
	l.Engine.Shards = defaulted(l.Engine.Shards, 1)
	l.Engine.Mode = defaulted(l.Engine.Mode, uring.ModeNonFixed.String())
	if l.Engine.Entries == 0 {
		l.Engine.Entries = 128
		for l.Engine.Entries < l.Load.Concurrency*l.Load.Depth && l.Engine.Entries < uring.EntriesMax {
			l.Engine.Entries *= 2
		}
	}
	return l
}

func defaulted[T comparable](v, def T) T {
	if v == *new(T) {
		return def
	}
	return v
}

// Check reports everything that is wrong with a leg, as ErrUsage.
func (l Leg) Check() error {
	var errs []error
	in := func(what string, v, low, high int64) {
		if v < low || v > high {
			errs = append(errs, usagef("%s is %d, must be %d to %d", what, v, low, high))
		}
	}
	if l.File.Path == "" {
		errs = append(errs, usagef("no file"))
	}
	in("read size", int64(l.Load.ReadSize), 1, ReadSizeMax)
	in("file size", l.File.Size, int64(l.Load.ReadSize)+pageBytes, FileSizeMax)
	in("concurrency", int64(l.Load.Concurrency), 1, ConcurrencyMax)
	in("depth", int64(l.Load.Depth), 1, DepthMax)
	in("ops", l.Load.Ops, 1, OpsMax)
	in("memory", l.Memory, 1, MemoryMax)
	if l.Load.ReadSize > 0 && l.Load.ReadSize <= ReadSizeMax && l.Load.Concurrency <= ConcurrencyMax && l.Load.Depth <= DepthMax {
		if need := l.bufferBytes(); need > l.Memory {
			errs = append(errs, usagef("%d reads of %d bytes in flight need %d bytes of buffers, more than the %d allowed",
				l.Load.Concurrency*l.Load.Depth, l.Load.ReadSize, need, l.Memory))
		}
	}
	if !slices.Contains(Accesses(), l.Load.Access) {
		errs = append(errs, usagef("access %q is none of %q", l.Load.Access, Accesses()))
	}
	return errors.Join(append(errs, l.Engine.check(l.Load)...)...)
}

func (e Engine) check(load Load) (errs []error) {
	if !slices.Contains(Strategies(), e.Strategy) {
		errs = append(errs, usagef("strategy %q is none of %q", e.Strategy, Strategies()))
	}
	if e.Strategy.rings() {
		if e.Shards < 1 || e.Shards > uring.ShardsMax {
			errs = append(errs, usagef("shards is %d, must be 1 to %d", e.Shards, uring.ShardsMax))
		}
		if e.Entries < uring.EntriesMin || e.Entries > uring.EntriesMax || e.Entries&(e.Entries-1) != 0 {
			errs = append(errs, usagef("entries is %d, must be a power of two from %d to %d", e.Entries, uring.EntriesMin, uring.EntriesMax))
		}
		if _, err := uring.ParseMode(e.Mode); err != nil {
			errs = append(errs, usagef("mode: %v", err))
		}
	}
	if e.Align != 0 && (e.Align < 512 || e.Align > 1<<20 || e.Align&(e.Align-1) != 0) {
		errs = append(errs, usagef("align is %d, must be a power of two from 512 to %d", e.Align, 1<<20))
	}
	if e.Direct && e.Align > pageBytes {
		errs = append(errs, usagef("align %d is more than the offsets' %d", e.Align, pageBytes))
	}
	if e.Direct && load.ReadSize%defaulted(e.Align, 512) != 0 {
		errs = append(errs, usagef("a direct read of %d bytes is no multiple of %d", load.ReadSize, defaulted(e.Align, 512)))
	}
	return errs
}

func (l Leg) bufferBytes() int64 {
	return mulSat(bufferBytes(l.Load.ReadSize), int64(l.Load.Concurrency)*int64(l.Load.Depth))
}

// bufferBytes is what the buffers of one read cost.
func bufferBytes(read int) int64 {
	n := int64(read / storage.MaxBuf * storage.MaxBuf)
	if rest := read % storage.MaxBuf; rest > 0 {
		n += storage.BufBytes(rest)
	}
	return n
}

func mulSat(a, b int64) int64 {
	if b > 0 && a > math.MaxInt64/b {
		return math.MaxInt64
	}
	return a * b
}

// Strategy names a way of reading.
type Strategy string

// The strategies. Those of the first group know no engine of ours: they are
// what a plain program would do.
const (
	StdOpen   Strategy = "std_open"   // open, pread, close for every read
	StdCached Strategy = "std_cached" // pread from one descriptor
	Nowait    Strategy = "nowait"     // preadv2(RWF_NOWAIT), then pread for what is missing

	Pool        Strategy = "pool"         // storage/std: inline, then a bounded pool
	UringOpen   Strategy = "uring_open"   // storage/uring, open and close for every read
	UringCached Strategy = "uring_cached" // storage/uring from one descriptor
	Hybrid      Strategy = "hybrid"       // storage/hybrid: inline, then rings
)

// Strategies lists them.
func Strategies() []Strategy {
	return []Strategy{StdOpen, StdCached, Nowait, Pool, UringOpen, UringCached, Hybrid}
}

func (s Strategy) rings() bool { return s == UringOpen || s == UringCached || s == Hybrid }

// Names is a list for people.
func Names[T ~string](list []T) string {
	var b strings.Builder
	for i, v := range list {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(string(v))
	}
	return b.String()
}
