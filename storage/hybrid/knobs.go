package hybrid

import (
	"math/bits"
	"runtime"
	"sync"
	"time"

	"ringfence/internal/knob"
	"ringfence/storage/uring"
)

// Defaults that more than one place needs.
const (
	entriesDefault = 128
	largeDefault   = 4 << 20 // bytes, from which on a read is large
	sizeMax        = 1 << 40 // bytes
)

// Knobs are the live switches of all Backends that were made with them. A read
// loads each of them once. Nil ones mean their defaults.
type Knobs struct {
	Enable          *knob.Bool     // io-uring-read-enable
	Shards          *knob.Int      // io-uring-shards
	Entries         *knob.Int      // io-uring-entries
	Mode            *knob.Choice   // io-uring-buffer-mode
	Inline          *knob.Bool     // io-uring-inline
	ColdDirect      *knob.Bool     // io-uring-cold-direct
	Shadow          *knob.Share    // io-uring-shadow-share
	HungAfter       *knob.Duration // io-uring-hung-after
	Reprobe         *knob.Duration // io-uring-reprobe
	Direct          *knob.Bool     // o-direct-read-enable
	DirectThreshold *knob.Size     // o-direct-read-threshold
	Reclaim         *knob.Bool     // page-cache-reclaim-enable
	ReclaimFrom     *knob.Size     // page-cache-reclaim-threshold

	changes *broadcast
}

// NewKnobs makes all knobs with their defaults.
func NewKnobs() Knobs {
	modes := []string{
		uring.ModeNonFixed.String(), uring.ModeLegacy.String(), uring.ModeDynamic.String(), uring.ModeStatic.String(),
	}
	return Knobs{
		Enable: knob.NewBool("io-uring-read-enable", false,
			"read what the page cache does not hold through io_uring"),
		Shards: knob.NewAutoInt("io-uring-shards", shardsFor(runtime.GOMAXPROCS(0)), 1, uring.ShardsMax,
			"rings per disk, each with a thread"),
		Entries: knob.NewInt("io-uring-entries", entriesDefault, uring.EntriesMin, uring.EntriesMax,
			"reads in flight per ring; rounded up to a power of two"),
		Mode: knob.NewChoice("io-uring-buffer-mode", uring.ModeNonFixed.String(), modes,
			"what is registered with the kernel of the memory that rings read into"),
		Inline: knob.NewBool("io-uring-inline", true,
			"read what the page cache holds without a ring; off sends every read through the rings"),
		ColdDirect: knob.NewBool("io-uring-cold-direct", true,
			"read random ranges that the page cache does not hold past it, the first time through a file"),
		Shadow: knob.NewShare("io-uring-shadow-share", 0,
			"share of ring reads that are read again without a ring and compared"),
		HungAfter: knob.NewDuration("io-uring-hung-after", 2*time.Second, 100*time.Millisecond, 10*time.Minute,
			"age of a ring read from which on a disk without other answers fails reads at once; half of it if a cancel finds the device at it"),
		Reprobe: knob.NewDuration("io-uring-reprobe", time.Second, 10*time.Millisecond, reprobeMax,
			"wait before rings are tried again after they failed, doubling up to 5 minutes"),
		Direct: knob.NewBool("o-direct-read-enable", false,
			"read large ranges past the page cache"),
		DirectThreshold: knob.NewSize("o-direct-read-threshold", largeDefault, 0, sizeMax,
			"bytes from which on a range is large for O_DIRECT"),
		Reclaim: knob.NewBool("page-cache-reclaim-enable", false,
			"drop large ranges from the page cache after they were read"),
		ReclaimFrom: knob.NewSize("page-cache-reclaim-threshold", largeDefault, 0, sizeMax,
			"bytes from which on a range is large for the page cache"),
		changes: newBroadcast(),
	}
}

// All lists the knobs, for a knob.Set.
func (k Knobs) All() []knob.Knob {
	return []knob.Knob{
		k.Enable, k.Shards, k.Entries, k.Mode, k.Inline, k.ColdDirect, k.Shadow, k.HungAfter, k.Reprobe,
		k.Direct, k.DirectThreshold, k.Reclaim, k.ReclaimFrom,
	}
}

// Changed tells all Backends with these knobs to look at them now rather than
// at their next turn. It is meant for knob.Set's Watch, and waits for nothing.
func (k Knobs) Changed() { k.changes.send() }

func (k Knobs) withDefaults() Knobs {
	d := NewKnobs()
	orElse(&k.Enable, d.Enable)
	orElse(&k.Shards, d.Shards)
	orElse(&k.Entries, d.Entries)
	orElse(&k.Mode, d.Mode)
	orElse(&k.Inline, d.Inline)
	orElse(&k.ColdDirect, d.ColdDirect)
	orElse(&k.Shadow, d.Shadow)
	orElse(&k.HungAfter, d.HungAfter)
	orElse(&k.Reprobe, d.Reprobe)
	orElse(&k.Direct, d.Direct)
	orElse(&k.DirectThreshold, d.DirectThreshold)
	orElse(&k.Reclaim, d.Reclaim)
	orElse(&k.ReclaimFrom, d.ReclaimFrom)
	orElse(&k.changes, d.changes)
	return k
}

func orElse[T any](p **T, def *T) {
	if *p == nil {
		*p = def
	}
}

// shardsFor is how many rings a disk has by itself: one thread may copy for
// four processors, and more than four rings of one disk gain nothing.
func shardsFor(procs int) int64 { return int64(min(max(procs/4, 1), 4)) }

// config is what a driver is started with. Another one needs another driver.
type config struct {
	shards, entries int
	mode            uring.Mode
}

// config loads what a driver depends on. The kernel takes powers of two only:
// other numbers of entries are rounded up here, so that no setting can look
// like an environment that refuses rings.
func (k Knobs) config() config {
	mode, err := uring.ParseMode(k.Mode.Load())
	if err != nil { // not a choice of the knob
		mode = uring.ModeNonFixed
	}
	return config{shards: int(k.Shards.Load()), entries: powerOfTwo(int(k.Entries.Load())), mode: mode}
}

func powerOfTwo(n int) int { return 1 << bits.Len(uint(max(n, 1)-1)) }

// broadcast wakes everybody who waits for a change.
type broadcast struct {
	mu sync.Mutex
	c  chan struct{} // closed by the next change; protected by mu
}

func newBroadcast() *broadcast { return &broadcast{c: make(chan struct{})} }

// wait returns a channel that the next send closes.
func (b *broadcast) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.c
}

func (b *broadcast) send() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.c)
	b.c = make(chan struct{})
}
