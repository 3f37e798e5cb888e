package std

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ringfence/storage"
)

// TestSyncDirIsShared: of the callers that come while one call runs, all share
// the next one, and none returns on the one that ran.
func TestSyncDirIsShared(t *testing.T) {
	r := newRig(t, t.TempDir(), Options{})
	begun, gate := make(chan int64, 10), make(chan struct{})
	var calls atomic.Int64
	r.syncDir = func(fd int) error {
		begun <- calls.Add(1)
		<-gate
		return unix.Fsync(fd)
	}
	var wg sync.WaitGroup
	var returned atomic.Int64
	syncDir := func() {
		wg.Go(func() {
			if err := r.SyncDir(t.Context(), "."); err != nil {
				t.Error(err)
			}
			returned.Add(1)
		})
	}
	syncDir()
	<-begun
	const late = 20
	for range late {
		syncDir()
	}
	waitFor(t, func() bool {
		r.dirs.mu.Lock()
		defer r.dirs.mu.Unlock()
		return r.dirs.folders["."].users == 1+late
	})
	gate <- struct{}{} // the first call ends
	if n := <-begun; n != 2 {
		t.Errorf("call %d, want the second", n)
	}
	if n := returned.Load(); n > 1 {
		t.Errorf("%d callers returned on a call that had started before they came", n-1)
	}
	// A caller that leaves does not take the call with it.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.SyncDir(ctx, "."); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(gate)
	wg.Wait()
	if n := calls.Load(); n != 2 || returned.Load() != 1+late {
		t.Errorf("%d calls for %d callers, want 2 for %d", n, returned.Load(), 1+late)
	}
	if n := len(r.dirs.folders); n != 0 {
		t.Errorf("%d folders are remembered", n)
	}
}

// waitFor polls a condition that another goroutine brings about.
func waitFor(t *testing.T, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	timeout := time.After(10 * time.Second)
	for !cond() {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatal("never happened")
		}
	}
}

func TestFailedSyncs(t *testing.T) {
	r := newRig(t, t.TempDir(), Options{})
	calls := 0
	fail := func(int) error { calls++; return unix.EIO }
	r.syncFile, r.syncDir = fail, fail
	for range 3 {
		if err := r.file.Sync(t.Context()); !errors.Is(err, storage.ErrFailed) || !errors.Is(err, unix.EIO) {
			t.Errorf("sync: %v", err)
		}
	}
	if calls != 1 {
		t.Errorf("a failed sync was tried %d times", calls)
	}
	if err := r.SyncDir(t.Context(), "."); !errors.Is(err, storage.ErrFailed) {
		t.Errorf("sync folder: %v", err)
	}
	r.syncFile = func(int) error { return unix.EINVAL } // whatever the reason
	f, err := r.Create(t.Context(), "other", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Sync(t.Context()); !errors.Is(err, storage.ErrFailed) {
		t.Errorf("sync: %v", err)
	}
}

// TestOneSyncSpeaksForAll: the kernel tells one caller of a lost page; nobody
// who syncs at the same time may hear that all is well.
func TestOneSyncSpeaksForAll(t *testing.T) {
	r := newRig(t, t.TempDir(), Options{})
	var told atomic.Bool
	r.syncFile = func(int) error {
		if told.Swap(true) {
			return nil
		}
		return unix.EIO
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := r.file.Sync(t.Context()); !errors.Is(err, storage.ErrFailed) {
				t.Errorf("sync: %v", err)
			}
		})
	}
	wg.Wait()
}

func TestNoSpaceAtCreate(t *testing.T) {
	root := t.TempDir()
	r := newRig(t, root, Options{})
	gone := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, storage.ErrFull) {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := os.Stat(filepath.Join(root, "huge")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the file is left: %v", what, err)
		}
	}
	allocated := int64(0)
	r.allocate = func(_ int, n int64) error { allocated = n; return unix.ENOSPC }
	const petabyte = 1 << 50
	_, err := r.Create(t.Context(), "huge", petabyte)
	gone("more than the disk has", err)
	if allocated != 0 {
		t.Errorf("%d bytes were asked for: for a moment nobody else has any", allocated)
	}
	_, err = r.Create(t.Context(), "huge", 1<<20)
	gone("none left", err)
	r.allocate = func(int, int64) error { return unix.EDQUOT }
	_, err = r.Create(t.Context(), "huge", 1<<20)
	gone("quota", err)
	for _, errno := range []error{unix.EOPNOTSUPP, unix.ENOSYS, unix.EFBIG} {
		r.allocate = func(int, int64) error { return errno }
		f, err := r.Create(t.Context(), "huge", 1<<20)
		if err != nil {
			t.Errorf("%v: %v", errno, err)
			continue
		}
		if err := errors.Join(f.WriteAt(t.Context(), []byte("x"), 0), f.Sync(t.Context()), f.Close(), r.Remove(t.Context(), "huge")); err != nil {
			t.Error(err)
		}
	}
}

func TestPreallocationIsTrimmed(t *testing.T) {
	root := t.TempDir()
	r := newRig(t, root, Options{})
	f, err := r.Create(t.Context(), "short", 32<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.WriteAt(t.Context(), []byte("x"), 0), f.Sync(t.Context()), f.Close()); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(root, "short"), &st); err != nil {
		t.Fatal(err)
	}
	if st.Size != 1 || st.Blocks*512 > 1<<20 {
		t.Errorf("a file of %d bytes takes %d", st.Size, st.Blocks*512)
	}
}

func TestClassify(t *testing.T) {
	for errno, want := range map[unix.Errno]error{
		unix.ENOENT: storage.ErrNotFound, unix.ENOTDIR: storage.ErrNotFound, unix.ELOOP: storage.ErrNotFound, unix.EXDEV: storage.ErrNotFound,
		unix.EEXIST: storage.ErrExists,
		unix.ENOSPC: storage.ErrFull, unix.EDQUOT: storage.ErrFull,
		unix.EIO: storage.ErrFailed, unix.EROFS: storage.ErrFailed, unix.EUCLEAN: storage.ErrFailed, unix.EACCES: storage.ErrFailed,
		unix.ENODEV: storage.ErrOffline, unix.ESTALE: storage.ErrOffline, unix.ENOTCONN: storage.ErrOffline,
		unix.EMFILE: nil, unix.ENFILE: nil, unix.ENOMEM: nil, unix.EINVAL: nil,
	} {
		if got := classify(fmt.Errorf("wrapped: %w", errno)); got != want {
			t.Errorf("%v: %v, want %v", errno, got, want)
		}
	}
	if got := classify(errors.New("other")); got != nil {
		t.Errorf("no errno: %v", got)
	}
}

func TestNew(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"missing", "file"} {
		if _, err := New(Options{Root: filepath.Join(root, name)}); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The root itself may be a link, and may be given relative to anywhere.
	t.Chdir(root)
	if err := errors.Join(os.Mkdir("disk", 0o700), os.Symlink("disk", "link")); err != nil {
		t.Fatal(err)
	}
	b, err := New(Options{Root: "link"})
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir("/")
	if err := errors.Join(b.Check(), b.Close()); err != nil {
		t.Error(err)
	}
}

// TestNothingLeaks counts the descriptors of the process around everything that
// can go wrong.
func TestNothingLeaks(t *testing.T) {
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip(err)
		}
		return len(entries)
	}
	root := t.TempDir()
	before := count()
	for _, walks := range []bool{false, true} {
		b, err := New(Options{Root: root})
		if err != nil {
			t.Fatal(err)
		}
		b.walks = walks
		ctx := t.Context()
		for _, name := range []string{"d", "d/e"} {
			if err := b.Mkdir(ctx, name); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{"d/e/f", "d/e/f", "d/e/f/g", "x/y", "d"} {
			if f, err := b.Create(ctx, name, 100); err == nil {
				if err := f.Close(); err != nil {
					t.Error(err)
				}
			}
			if f, err := b.Open(ctx, name); err == nil {
				if err := f.Close(); err != nil {
					t.Error(err)
				}
			}
			_ = b.Rename(ctx, name, "d/e/h")
			_ = b.Rename(ctx, "d/e/h", name)
			_ = b.SyncDir(ctx, name)
			_, _ = b.ReadDir(ctx, name)
			_ = b.Mkdir(ctx, name)
			b.Stats()
			_ = b.Check()
			_ = b.Remove(ctx, name)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	if after := count(); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}
