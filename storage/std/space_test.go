package std

import (
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestStatsOfAHungFileSystem: a statfs that hangs holds up nobody, what was
// known last is served, and it is asked once at a time. When it answers, the
// numbers are its own again.
func TestStatsOfAHungFileSystem(t *testing.T) {
	b, err := New(Options{Root: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	known := b.Stats()
	if known.TotalBytes <= 0 {
		t.Fatalf("space: %+v", known)
	}
	var calls atomic.Int64
	answer := make(chan struct{})
	b.space.ask = func(_ int, st *unix.Statfs_t) error {
		calls.Add(1)
		<-answer
		*st = unix.Statfs_t{Bsize: 4096, Frsize: 4096, Blocks: 10, Bavail: 5}
		return nil
	}
	b.space.state.Store(&space{total: known.TotalBytes, free: known.FreeBytes, at: time.Now().Add(-time.Hour)})
	start := time.Now()
	for range 100 {
		if got := b.Stats(); got.TotalBytes != known.TotalBytes || got.FreeBytes != known.FreeBytes {
			t.Fatalf("space %+v, known %+v", got, known)
		}
		if f, err := b.Create(t.Context(), "f", 1); err != nil {
			t.Fatal(err)
		} else if err := f.Close(); err != nil {
			t.Fatal(err)
		} else if err := b.Remove(t.Context(), "f"); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %s", took)
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("%d calls at the same time", n)
	}
	close(answer)
	waitFor(t, func() bool { return b.Stats().TotalBytes == 10*4096 })
	if got := b.Stats().FreeBytes; got != 5*4096 {
		t.Errorf("%d bytes free", got)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if got := b.Stats().TotalBytes; got != 10*4096 {
		t.Errorf("closed, it has %d bytes", got)
	}
}
