package local

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/rs/zerolog"

	"ringfence/storage"
)

// pebbleFormat is the on-disk format of the metadata store. It is pinned, not
// "newest", so that a newer Pebble doesn't ratchet disks by itself. It must
// never be below FormatWALSyncChunks: earlier ones take a damaged end of the
// log for its end, and silently forget what was durable.
const pebbleFormat = pebble.FormatValueSeparation

// maxBackgroundErrors is after how many failed flushes and compactions the
// database is given up. Pebble itself would retry for ever.
const maxBackgroundErrors = 3

// MetaCache is a block cache that several disks share, so that the memory of
// all metadata stores together is bounded, and goes to the one that is read.
type MetaCache struct{ cache *pebble.Cache }

// NewMetaCache makes a cache of the given size in bytes. Memtables of the
// disks that use it are counted against it.
func NewMetaCache(bytes int64) *MetaCache { return &MetaCache{cache: pebble.NewCache(bytes)} }

// Close gives the cache back; the memory goes when the last disk is closed.
func (c *MetaCache) Close() { c.cache.Unref() }

// pebbleOptions tunes for records of some hundred bytes, many small stores in
// one process, and two cores or more: one compaction at a time, small
// memtables, filters against reads of what isn't there (every conditional
// create is one).
func (d *Disk) pebbleOptions(k *kv) *pebble.Options {
	o := &pebble.Options{
		Cache:                       d.cache.cache,
		FS:                          k.fence,
		FormatMajorVersion:          pebbleFormat,
		Logger:                      pebbleLogger{k},
		MemTableSize:                uint64(d.opts.MemTableBytes),
		MemTableStopWritesThreshold: 4,
		L0CompactionThreshold:       4,
		L0StopWritesThreshold:       24,
		LBaseMaxBytes:               64 << 20,
		MaxManifestFileSize:         d.opts.manifestBytes,
		MaxOpenFiles:                512,
		CompactionConcurrencyRange:  func() (lower, upper int) { return 1, 1 },
		EventListener: &pebble.EventListener{
			BackgroundError: k.backgroundError,
			DataCorruption: func(info pebble.DataCorruptionInfo) {
				k.end(metaError(fmt.Errorf("%s: %w", info.Path, info.Details)))
			},
		},
	}
	o.Experimental.FileCacheShards = 2
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		o.Levels[i].BlockSize = 8 << 10
		o.Levels[i].IndexBlockSize = 64 << 10
	}
	return o
}

// pebbleLogger keeps Pebble from ending the process, and from the log what
// only its authors can read.
type pebbleLogger struct{ k *kv }

// Infof implements pebble.Logger.
func (l pebbleLogger) Infof(format string, args ...any) { l.k.logf(zerolog.DebugLevel, format, args) }

// Errorf implements pebble.Logger.
func (l pebbleLogger) Errorf(format string, args ...any) { l.k.logf(zerolog.WarnLevel, format, args) }

// Fatalf implements pebble.Logger. Pebble relies on it not to return; ending
// the goroutine is the most that may end.
func (l pebbleLogger) Fatalf(format string, args ...any) {
	l.k.end(fatalCause(format, args))
	runtime.Goexit()
}

func (k *kv) logf(level zerolog.Level, format string, args []any) {
	if k.ended() != nil {
		level = zerolog.DebugLevel // its end was logged; the rest is noise
	}
	k.log.WithLevel(level).Msg("pebble: " + fmt.Sprintf(format, args...))
}

// fatalCause finds the error among a format's arguments, so that a full disk
// can be told from a broken one.
func fatalCause(format string, args []any) error {
	text := fmt.Sprintf(format, args...)
	for _, a := range args {
		if err, ok := a.(error); ok {
			return metaError(fmt.Errorf("%s: %w", text, err))
		}
	}
	return fmt.Errorf("%w: %s", storage.ErrFailed, text)
}

// pauseEnded is how long background work that failed waits once the store has
// ended. Pebble would try it again at once, until it is closed, if ever.
const pauseEnded = 100 * time.Millisecond

// backgroundError hears of failed flushes and compactions. Pebble may hold its
// mutex meanwhile: only in a store that ended may this take time.
func (k *kv) backgroundError(err error) {
	if k.ended() != nil {
		pause, stop := k.disk.opts.Env.After(pauseEnded)
		defer stop()
		if pause != nil { // as in simulation
			<-pause
		}
		return
	}
	n := k.backgroundErrors.Add(1)
	k.log.Error().Err(err).Int32("count", n).Msg("metadata store: background work failed")
	if n >= maxBackgroundErrors {
		k.end(metaError(fmt.Errorf("background work failed %d times: %w", n, err)))
	}
}

// metaError classifies what Pebble says while it runs. A file that is missing
// is not called damage: the whole folder may be away for a moment, and whoever
// opens the store the next time sees what is there.
func metaError(err error) error {
	if pebble.IsCorruptionError(err) && !errors.Is(err, fs.ErrNotExist) && !sysError(err) {
		return mark(storage.ErrCorrupt, err)
	}
	return blame(err)
}

// openError classifies why a store couldn't be opened, on a disk that is there.
// Damage is answered by wiping, so it takes proof: everything else is a failure
// of the device or the process, or something nobody thought of.
func openError(err error) error {
	damaged := pebble.IsCorruptionError(err) || errors.Is(err, fs.ErrNotExist)
	for _, proof := range damageProofs {
		damaged = damaged || strings.Contains(err.Error(), proof)
	}
	switch {
	case errors.Is(err, storage.ErrCorrupt): // our own checks
		return err
	case damaged && !sysError(err):
		return mark(storage.ErrCorrupt, err)
	}
	return blame(err)
}

// damageProofs are in the text of errors that prove damage, but that Pebble
// doesn't mark.
var damageProofs = []string{"object size mismatch"}

// sysError reports whether a system call failed, except for a missing file,
// anywhere in what err wraps. Pebble marks some of these as corruption.
func sysError(err error) bool {
	switch e := err.(type) {
	case nil:
		return false
	case syscall.Errno:
		return e != syscall.ENOENT
	case interface{ Unwrap() error }:
		return sysError(e.Unwrap())
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), sysError)
	}
	return false
}

// blame makes what is not damage say whether the disk is full, gone or failed.
func blame(err error) error {
	switch {
	case errors.Is(err, storage.ErrOffline):
		return err
	case errors.Is(classify(err), storage.ErrFull):
		return mark(storage.ErrFull, err)
	}
	return mark(storage.ErrFailed, err)
}
