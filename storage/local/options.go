package local

import (
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/rs/zerolog"

	"ringfence/internal/env"
	"ringfence/internal/knob"
	"ringfence/storage"
)

// Options configures a disk. Root and Backend are required; everything else
// has a useful zero value.
type Options struct {
	// Root is the directory's path: for people, and for Pebble.
	Root string
	// Backend is the file system under Root. A Disk that was opened owns it
	// and closes it; until then it stays the caller's.
	Backend storage.Backend
	// MetaFS is the file system that Pebble sees. It must show the same files
	// as Backend, under Root. vfs.Default if nil.
	MetaFS vfs.FS
	// Log gets what has no caller to be returned to.
	Log zerolog.Logger
	// FDCache is how many sealed shards stay open for reading. 512 if 0; fewer
	// where the process may open few files.
	FDCache int
	// FDCacheOn switches that cache; it takes effect at the next open. On if
	// nil.
	FDCacheOn *knob.Bool
	// FDCacheAge is how long a shard stays open before it is opened anew,
	// whether or not it is in use: a file that someone deleted or replaced
	// behind the disk's back is served and holds its space no longer than that.
	// A minute if 0, for ever if negative.
	FDCacheAge time.Duration
	// MetaCache is a block cache shared by several disks. If nil, the disk has
	// its own of MetaCacheBytes.
	MetaCache *MetaCache
	// MetaCacheBytes is the size of the disk's own block cache; memtables are
	// counted against it. 16 MiB if 0.
	MetaCacheBytes int64
	// MemTableBytes is the size of one memtable; up to four exist under load.
	// 2 MiB if 0: 16 busy disks stay below 200 MiB then.
	MemTableBytes int64
	// FullPercent is the share of used space from which the disk is full and
	// no shards are taken. Small disks are full earlier: at least 128 MiB, or a
	// quarter of the disk, are kept for the metadata store.
	// 95 if 0.
	FullPercent int
	// CloseTimeout bounds how long Close and ResetKV wait for the metadata
	// store's users and its own work. 5 s if 0.
	CloseTimeout time.Duration
	// Env is the source of time and goroutines. env.System if zero.
	Env env.Env
	// Pool is where trailers are read to. The disk makes a small one of its own
	// if nil.
	Pool *storage.Pool

	manifestBytes int64         // from which size on a MANIFEST is replaced; 8 MiB if 0
	openFilesMax  func() uint64 // RLIMIT_NOFILE, 0 if unknown
}

const ownPoolBytes = 4 << 20

func (o Options) withDefaults() Options {
	if o.MetaFS == nil {
		o.MetaFS = vfs.Default
	}
	if o.FDCache == 0 {
		o.FDCache = 512
	}
	if o.FDCacheOn == nil {
		o.FDCacheOn = knob.NewBool("", true, "")
	}
	if o.FDCacheAge == 0 {
		o.FDCacheAge = time.Minute
	}
	if o.openFilesMax == nil {
		o.openFilesMax = openFilesMax
	}
	if o.MetaCacheBytes == 0 {
		o.MetaCacheBytes = 16 << 20
	}
	if o.MemTableBytes == 0 {
		o.MemTableBytes = 2 << 20
	}
	if o.manifestBytes == 0 {
		o.manifestBytes = 8 << 20
	}
	if o.FullPercent == 0 {
		o.FullPercent = 95
	}
	if o.CloseTimeout == 0 {
		o.CloseTimeout = 5 * time.Second
	}
	if o.Env.IsZero() {
		o.Env = env.System()
	}
	return o
}

// openFilesAmple is the number of files a process may open from which on a
// cache has its full size. Below, a disk takes a small share: there may be
// dozens of them, each entry may have a second descriptor for direct reads, and
// connections need theirs.
const (
	openFilesAmple = 16384
	openFilesShare = 64
	fdCacheLeast   = 8
)

// fdCache is the size of the cache of open shards, and whether that is less
// than was asked for.
func (o Options) fdCache() (entries int, fewer bool) {
	limit := o.openFilesMax()
	if limit == 0 || limit >= openFilesAmple {
		return o.FDCache, false
	}
	entries = max(int(limit/openFilesShare), fdCacheLeast)
	return min(entries, o.FDCache), entries < o.FDCache
}

// path is a name below the root as Pebble's file system wants it.
func (o Options) path(name string) string { return o.MetaFS.PathJoin(o.Root, name) }

// wait calls f in a goroutine of the Env and waits for it at most d. It
// reports whether f ended, by returning or by runtime.Goexit; a panic of f is
// handed to recovered. f must not need anything the caller holds.
func wait(e env.Env, d time.Duration, f func(), recovered func(any)) bool {
	done := make(chan struct{})
	e.Go(func() {
		defer close(done)
		defer func() {
			if r := recover(); r != nil {
				recovered(r)
			}
		}()
		f()
	})
	select { // in simulation f has ended already
	case <-done:
		return true
	default:
	}
	if d <= 0 {
		<-done
		return true
	}
	timer, stop := e.After(d)
	defer stop()
	select {
	case <-done:
		return true
	case <-timer:
		return false
	}
}
