package bench

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"ringfence/storage"
	"ringfence/storage/uring"
)

// Limits of a scan.
const (
	ThreadsMax      = 1024
	RequestBytesMax = storage.MaxBuf
	DevicesMax      = 1024
	ScanFilesMax    = 1 << 20
)

// Scheduling is which thread reads which file.
type Scheduling string

// The kinds of scheduling.
const (
	Shared    Scheduling = "shared"     // one queue, files of all devices in turn; whoever is free takes the next
	PerDevice Scheduling = "per-device" // each thread has devices of its own, or shares one
)

// Schedulings lists them.
func Schedulings() []Scheduling { return []Scheduling{Shared, PerDevice} }

// Scanner is an engine that can scan.
type Scanner string

// The scanners.
const (
	ScanStd   Scanner = "std"   // pread, a goroutine per request in flight
	ScanUring Scanner = "uring" // storage/uring, one driver per device
)

// Scanners lists them.
func Scanners() []Scanner { return []Scanner{ScanStd, ScanUring} }

// ScanFile is a file to scan.
type ScanFile struct {
	Path   string
	Device int // numbered from 0 by place on the command line
	Size   int64
}

// ScanLoad is what is asked of a scanner, the same for all of them.
type ScanLoad struct {
	Access       Access // of the page cache before each run: Warm or Cold
	Threads      int
	Depth        int   // requests in flight per thread; 0 means 32
	RequestBytes int   // 0 means 1 MiB
	Memory       int64 // most bytes of buffers; 0 means 1 GiB
	SmallPages   bool
	TempDir      string // where drivers probe io_uring: a scan writes nowhere else
}

// ScanEngine is how a scan reads.
type ScanEngine struct {
	Scanner    Scanner
	Scheduling Scheduling
	Mode       string // of registered buffers; "" means non-fixed
	Shards     int    // per device; 0 means 1
	Direct     bool
}

// ScanLeg is one pass over all files.
type ScanLeg struct {
	Run    int // 0 is the warm-up, which also compares content
	Files  []ScanFile
	Load   ScanLoad
	Engine ScanEngine
	// Devices and Procs are for the record.
	Devices int
	Procs   int
}

func (l ScanLeg) String() string { return fmt.Sprintf("scan by %s, run %d", l.Engine.Label(), l.Run) }

// Label names an engine with its settings.
func (e ScanEngine) Label() string {
	s := string(e.Scanner)
	if e.Scanner == ScanUring {
		s = fmt.Sprintf("%s/%d %s", s, e.Shards, e.Mode)
	}
	s += " " + string(e.Scheduling)
	if e.Direct {
		s += " direct"
	}
	return s
}

// WithDefaults fills in what was left out.
func (l ScanLeg) WithDefaults() ScanLeg {
	l.Load.Access = defaulted(l.Load.Access, Cold)
	l.Load.Depth = defaulted(l.Load.Depth, 32)
	l.Load.RequestBytes = defaulted(l.Load.RequestBytes, 1<<20)
	l.Load.Memory = defaulted(l.Load.Memory, 1<<30)
	l.Engine.Scheduling = defaulted(l.Engine.Scheduling, Shared)
	if l.Engine.Scanner == ScanUring {
		l.Engine.Mode = defaulted(l.Engine.Mode, uring.ModeNonFixed.String())
		l.Engine.Shards = defaulted(l.Engine.Shards, 1)
	} else {
		l.Engine.Mode, l.Engine.Shards = "", 0
	}
	return l
}

// Check reports everything that is wrong with a leg, as ErrUsage.
func (l ScanLeg) Check() error {
	var errs []error
	in := func(what string, v, low, high int64) {
		if v < low || v > high {
			errs = append(errs, usagef("%s is %d, must be %d to %d", what, v, low, high))
		}
	}
	in("number of files", int64(len(l.Files)), 1, ScanFilesMax)
	in("threads", int64(l.Load.Threads), 1, ThreadsMax)
	in("queue depth", int64(l.Load.Depth), 1, DepthMax)
	in("request bytes", int64(l.Load.RequestBytes), pageBytes, RequestBytesMax)
	in("memory", l.Load.Memory, 1, MemoryMax)
	if l.Load.RequestBytes%pageBytes != 0 {
		errs = append(errs, usagef("request bytes %d are no multiple of %d", l.Load.RequestBytes, pageBytes))
	}
	if need := mulSat(bufferBytes(l.Load.RequestBytes), int64(l.Load.Threads)*int64(l.Load.Depth)); need > l.Load.Memory {
		errs = append(errs, usagef("%d threads with %d requests each need %d bytes of buffers, more than the %d allowed", l.Load.Threads, l.Load.Depth, need, l.Load.Memory))
	}
	if l.Load.Access != Warm && l.Load.Access != Cold {
		errs = append(errs, usagef("access %q is neither %s nor %s", l.Load.Access, Warm, Cold))
	}
	if !slices.Contains(Scanners(), l.Engine.Scanner) {
		errs = append(errs, usagef("engine %q is none of %q", l.Engine.Scanner, Scanners()))
	}
	if !slices.Contains(Schedulings(), l.Engine.Scheduling) {
		errs = append(errs, usagef("scheduling %q is none of %q", l.Engine.Scheduling, Schedulings()))
	}
	if l.Engine.Scanner == ScanUring {
		in("shards", int64(l.Engine.Shards), 1, uring.ShardsMax)
		if _, err := uring.ParseMode(l.Engine.Mode); err != nil {
			errs = append(errs, usagef("mode: %v", err))
		}
	}
	if d, t := devices(l.Files), l.Load.Threads; l.Engine.Scheduling == PerDevice && t > 0 && d > 0 && d%t != 0 && t%d != 0 {
		errs = append(errs, usagef("%d threads can't be dealt to %d devices: one number must divide the other", t, d))
	}
	return errors.Join(errs...)
}

func devices(files []ScanFile) (n int) {
	for _, f := range files {
		n = max(n, f.Device+1)
	}
	return n
}

// Coverage is what a scan read, whoever read it in whatever order.
type Coverage struct {
	Files, Requests, Bytes int64
	Digest                 uint64 // of the set of requests: file, offset, length
	Content                uint64 // of what they read, 0 if that was not looked at
}

// add puts one request into the sum.
func (c *Coverage) add(file int, off int64, n int, content uint64) {
	request := mix(mix(uint64(file))^uint64(off)) ^ uint64(n)
	c.Requests++
	c.Bytes += int64(n)
	c.Digest += mix(request)
	if content != 0 {
		c.Content += mix(request ^ content)
	}
}

// merge adds what another thread read.
func (c *Coverage) merge(o Coverage) {
	c.Files += o.Files
	c.Requests += o.Requests
	c.Bytes += o.Bytes
	c.Digest += o.Digest
	c.Content += o.Content
}

// expected is the coverage that files and request size demand.
func expected(files []ScanFile, request int) (c Coverage) {
	for i, f := range files {
		c.Files++
		for off := int64(0); off < f.Size; off += int64(request) {
			c.add(i, off, int(min(f.Size-off, int64(request))), 0)
		}
	}
	return c
}

// verify checks that a scan read all of the files, each byte once, in the
// requests that it was told to make.
func (c Coverage) verify(want Coverage) error {
	c.Content, want.Content = 0, 0
	if c != want {
		return fmt.Errorf("covered %d files, %d requests, %d bytes (%016x), not %d, %d, %d (%016x)",
			c.Files, c.Requests, c.Bytes, c.Digest, want.Files, want.Requests, want.Bytes, want.Digest)
	}
	return nil
}

// totalBytes of the files.
func totalBytes(files []ScanFile) (n int64) {
	for _, f := range files {
		if n > math.MaxInt64-f.Size {
			return math.MaxInt64
		}
		n += f.Size
	}
	return n
}
