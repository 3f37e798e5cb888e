package std

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"ringfence/internal/knob"
	"ringfence/storage"
)

// Options configures New.
type Options struct {
	// Root is the disk's folder. It must exist; it may be a symbolic link.
	Root string
	// Slots bounds the reads that block at the same time; 0 means 32.
	Slots int
	// Pool is where reads by O_DIRECT get a buffer whose own the geometry does
	// not suit. Without, or when it is used up, they go by way of the page
	// cache.
	Pool *storage.Pool
	// Direct lets reads of at least DirectThreshold bytes pass the page cache
	// by. Nil: off.
	Direct *knob.Bool
	// DirectThreshold is in bytes. Nil: 4 MiB.
	DirectThreshold *knob.Size
	// Reclaim drops what a read of at least ReclaimThreshold bytes brought into
	// the page cache. Nil: off.
	Reclaim *knob.Bool
	// ReclaimThreshold is in bytes. Nil: 4 MiB.
	ReclaimThreshold *knob.Size
}

func (o Options) withDefaults() Options {
	if o.Slots == 0 {
		o.Slots = 32
	}
	const threshold = 4 << 20
	if o.Direct == nil {
		o.Direct = knob.NewBool("", false, "")
	}
	if o.DirectThreshold == nil {
		o.DirectThreshold = knob.NewSize("", threshold, 0, threshold, "")
	}
	if o.Reclaim == nil {
		o.Reclaim = knob.NewBool("", false, "")
	}
	if o.ReclaimThreshold == nil {
		o.ReclaimThreshold = knob.NewSize("", threshold, 0, threshold, "")
	}
	return o
}

// Backend is a storage.Backend on a folder.
type Backend struct {
	opts Options
	root handle
	dev  uint64 // of the root when it was opened
	ino  uint64

	walks  bool // the kernel refuses openat2: names are resolved step by step
	nowait atomic.Bool
	direct directSupport
	slots  chan struct{} // one element per blocking read
	copies turns         // of inline reads of yieldFrom bytes or more
	calls

	reads counters
	hits  storage.Predictor // of all files

	dirs  dirSyncs
	space spaceCache
}

// counters count reads by tier. Inline reads take less time than it takes to
// share a counter between processors: they have lanes, whose sum counts.
type counters struct {
	pool, direct atomic.Int64
	inline       [laneCount]lane
}

const laneCount = 16

type lane struct {
	atomic.Int64
	_ [56]byte // to the end of the cache line
}

func (c *counters) load() storage.ReadCounts {
	counts := storage.ReadCounts{Pool: c.pool.Load(), Direct: c.direct.Load()}
	for i := range c.inline {
		counts.Inline += c.inline[i].Load()
	}
	return counts
}

// calls are those that reach the disk; tests put sick ones in their place.
type calls struct {
	readNow      func(fd int, iovs []unix.Iovec, off int64) (int, error) // preadv2 with RWF_NOWAIT
	readBlocking func(fd int, iovs []unix.Iovec, off int64) (int, error) // preadv
	readDirect   func(fd int, iovs []unix.Iovec, off int64) (int, error) // preadv with O_DIRECT
	reopen       func(fd, flags int) (int, error)                        // open of /proc/self/fd
	syncDir      func(fd int) error                                      // fsync
	syncFile     func(fd int) error                                      // fdatasync
	allocate     func(fd int, n int64) error                             // fallocate
}

var _ storage.Backend = (*Backend)(nil)

// New opens the folder. It creates nothing.
func New(opts Options) (*Backend, error) {
	opts = opts.withDefaults()
	if opts.Slots < 0 {
		return nil, fmt.Errorf("std: %d slots", opts.Slots)
	}
	root, err := filepath.Abs(opts.Root)
	if err != nil {
		return nil, fmt.Errorf("std: %w", err)
	}
	opts.Root = root
	b := &Backend{
		opts: opts, slots: make(chan struct{}, opts.Slots),
		calls: calls{
			readNow: preadvNow, readBlocking: preadv, readDirect: preadv, reopen: reopen,
			syncDir: unix.Fsync, syncFile: unix.Fdatasync, allocate: allocate,
		},
	}
	b.nowait.Store(true)
	b.copies = make(turns, runtime.GOMAXPROCS(0))
	b.space.ask = unix.Fstatfs
	var fd int
	err = retry(func() (err error) {
		fd, err = unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, b.wrap("open", ".", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, errors.Join(b.wrap("open", ".", err), unix.Close(fd))
	}
	b.dev, b.ino = st.Dev, st.Ino
	b.root.gone = make(chan struct{})
	b.root.init(fd)
	b.walks = !b.beneathWorks()
	return b, nil
}

// beneathWorks reports whether openat2 is there and allowed: kernels before 5.6
// lack it and old container runtimes forbid it.
func (b *Backend) beneathWorks() bool {
	fd, err := b.openBeneath(".", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return false
	}
	return unix.Close(fd) == nil
}

// Check implements storage.Backend.
func (b *Backend) Check() error {
	var st unix.Stat_t
	if b.root.closed.Load() {
		return b.offline("check", os.ErrClosed)
	}
	if err := retry(func() error { return unix.Stat(b.opts.Root, &st) }); err != nil {
		return b.offline("check", err)
	}
	// The open descriptor keeps the inode from being reused, so the same number
	// under the path means the same folder, still linked.
	if st.Dev != b.dev || st.Ino != b.ino {
		return b.offline("check", errors.New("another folder has taken its place"))
	}
	return nil
}

func (b *Backend) offline(op string, err error) error {
	return &storage.DiskError{Op: op, Disk: b.opts.Root, Err: fmt.Errorf("%w: %w", storage.ErrOffline, err)}
}

// enter admits a call that uses the root descriptor.
func (b *Backend) enter(ctx context.Context, op string, names ...string) error {
	for _, name := range names {
		if err := checkName(name); err != nil {
			return b.wrap(op, name, err)
		}
	}
	if err := ctx.Err(); err != nil {
		return b.wrap(op, names[0], err)
	}
	if err := b.root.Acquire(); err != nil {
		return b.offline(op, err)
	}
	return nil
}

// leave ends what enter began.
func (b *Backend) leave() {
	// The result of closing a folder that was only read says nothing.
	_ = b.root.Release()
}

// Close implements storage.Backend.
func (b *Backend) Close() error {
	if err := b.root.close(); errors.Is(err, os.ErrClosed) {
		return nil
	} else if err != nil {
		return b.wrap("close", ".", err)
	}
	<-b.root.gone
	// Reads that run hold a slot; those that start later on files still open
	// get theirs back.
	for range cap(b.slots) {
		b.slots <- struct{}{}
	}
	for range cap(b.slots) {
		<-b.slots
	}
	return nil
}
