package hybrid

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"ringfence/storage"
	"ringfence/storage/uring"
)

// TestHungLatchGoesOff, also when a read came back between the two steps in
// which the supervisor noted that the disk hangs.
func TestHungLatchGoesOff(t *testing.T) {
	r := newRig(t, rigOptions{start: fakes(nil), set: ringOnly})
	r.hung.begin(time.Now(), time.Second)
	r.hung.answered(r.Backend)
	r.trip(LatchHung, "a read has waited for 1s")
	r.await(t, "answer", func(s Status) bool { return !s.latch(LatchHung).On })
}

// TestDeadShardSaysNothingOfDirect: what its ring refused is not what the file
// system refuses.
func TestDeadShardSaysNothingOfDirect(t *testing.T) {
	died := fmt.Errorf("%w: shard 0 died: %w", uring.ErrClosed, unix.EINVAL)
	r := newRig(t, rigOptions{set: func(k Knobs) {
		ringOnly(k)
		k.Direct.Store(true)
		k.DirectThreshold.Store(0)
	}, start: fakes(func(context.Context, uring.Request, int) (int, error) { return 0, died })})
	content := pattern(64 << 10)
	r.put(t, "a", content)
	f := r.open(t, "a")
	if _, _, err := f.Direct(); err != nil {
		t.Skipf("SKIP %s: no O_DIRECT here: %v", t.Name(), err)
	}
	r.want(t, f, content, 0, 64<<10)
	if s := r.Status(); s.latch(LatchDirect).Trips != 0 || s.Fallbacks["closed"] != 1 {
		t.Errorf("%+v", s)
	}
}

// TestCloseIsBounded, when the comparison hangs in a read that nothing ends.
func TestCloseIsBounded(t *testing.T) {
	dir, pool := t.TempDir(), newTestPool(t)
	knobs := NewKnobs()
	shadowAll(knobs)
	knobs.Enable.Store(true)
	held, in := make(chan struct{}), make(chan struct{}, 8)
	log := &logs{}
	b, err := New(Options{
		Base: newStd(t, dir, knobs), Dir: dir, Pool: pool, Knobs: knobs, start: fakes(nil), Log: zerolog.New(log),
	})
	if err != nil {
		t.Fatal(err)
	}
	b.shadow.pread = func(fd int, p []byte, off int64) (int, error) {
		in <- struct{}{}
		<-held
		return unix.Pread(fd, p, off)
	}
	run(t, b)
	r := &rig{Backend: b, dir: dir, pool: pool, log: log, knobs: knobs}
	r.await(t, "rings", func(s Status) bool { return s.Tier == "ring" })
	content := pattern(4096)
	r.put(t, "a", content)
	f, err := b.Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		r.want(t, f, content, 0, 4096)
	}
	<-in
	closed := make(chan error, 1)
	go func() { closed <- b.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(closeFor + 5*time.Second):
		t.Error("Close waits for a disk that hangs")
	}
	if n := log.count("comparing a read hangs"); n != 1 {
		t.Errorf("it was said %d times:\n%s", n, log)
	}
	close(held) // what was left behind ends when the disk answers
	r.settle(t)
	if err := f.Close(); err != nil && !errors.Is(err, storage.ErrOffline) {
		t.Error(err)
	}
}

func newTestPool(t *testing.T) *storage.Pool {
	t.Helper()
	p, err := newPool()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// busyBase is a reference whose inline reads never get their turn while it is
// busy.
type busyBase struct {
	storage.Backend
	busy *atomic.Bool
}

func (b busyBase) Open(ctx context.Context, name string) (storage.File, error) {
	f, err := b.Backend.Open(ctx, name)
	if raw, ok := f.(storage.RawFile); ok {
		return busyFile{raw, b.busy}, err
	}
	return f, err
}

type busyFile struct {
	storage.RawFile
	busy *atomic.Bool
}

func (f busyFile) ReadInline(ctx context.Context, bufs []*storage.Buf, off int64) (int, bool, error) {
	if f.busy.Load() {
		<-ctx.Done()
		return 0, false, nil
	}
	return f.RawFile.ReadInline(ctx, bufs, off)
}

// TestLostTurnsTeachNothing: that somebody left before his turn says nothing of
// the page cache.
func TestLostTurnsTeachNothing(t *testing.T) {
	dir, pool := t.TempDir(), newTestPool(t)
	knobs := NewKnobs()
	knobs.Enable.Store(true)
	var busy atomic.Bool
	b, err := New(Options{Base: busyBase{newStd(t, dir, knobs), &busy}, Dir: dir, Pool: pool, Knobs: knobs, start: fakes(nil)})
	if err != nil {
		t.Fatal(err)
	}
	run(t, b)
	r := &rig{Backend: b, std: newStd(t, dir, knobs), dir: dir, pool: pool, log: &logs{}, knobs: knobs}
	t.Cleanup(func() {
		if err := r.std.Close(); err != nil {
			t.Error(err)
		}
	})
	r.needNowait(t)
	r.await(t, "rings", func(s Status) bool { return s.Tier == "ring" })
	content := pattern(4096)
	r.put(t, "a", content)
	f := r.open(t, "a")
	busy.Store(true)
	for range 40 {
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		if _, _, err := r.read(ctx, f, 0, 4096, 4096); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	busy.Store(false)
	for range 20 {
		r.want(t, f, content, 0, 4096)
	}
	if s := r.Status(); s.Inline.Hits != 20 || s.Inline.Skipped != 0 {
		t.Errorf("%+v", s.Inline)
	}
}
