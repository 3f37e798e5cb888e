package uring

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ringfence/internal/env"
	"ringfence/storage/uring/ring"
	"ringfence/storage/uring/ringtest"
)

// probeWith starts a driver under hooks and expects it to fail.
func probeWith(t *testing.T, o Options, h ringtest.Hooks) *ProbeError {
	t.Helper()
	needRing(t)
	script := &ringtest.Script{}
	script.Hook(h)
	o.Setup = ringtest.Wrap(ring.New, script)
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	d, err := Start(t.Context(), o)
	var p *ProbeError
	if d != nil || !errors.As(err, &p) {
		t.Fatalf("%v, not a failed probe", err)
	}
	return p
}

// TestRestrictionsAreToldFromFailures, whether the ring or the first read is
// refused.
func TestRestrictionsAreToldFromFailures(t *testing.T) {
	restrictions := map[unix.Errno]bool{unix.EACCES: true, unix.EPERM: true, unix.ENOSYS: true, unix.EINVAL: true, unix.EOPNOTSUPP: true}
	for errno := unix.Errno(1); errno < 134; errno++ {
		if errno == unix.EINTR || errno == unix.EAGAIN || errno == unix.EBUSY {
			continue
		}
		if got := Restriction(fmt.Errorf("somewhere: %w", errno)); got != restrictions[errno] {
			t.Errorf("%v: %v", errno, got)
		}
	}
	for _, errno := range []unix.Errno{
		unix.EACCES, unix.EPERM, unix.ENOSYS, unix.EINVAL, unix.EOPNOTSUPP,
		unix.EAGAIN, unix.ENOMEM, unix.EMFILE, unix.ENFILE, unix.EIO, unix.ENXIO,
	} {
		p := probeWith(t, Options{}, ringtest.Hooks{Setup: func(int, ring.Options) error { return errno }})
		if p.Restricted != restrictions[errno] || !errors.Is(p, errno) {
			t.Errorf("setup: %v: restricted %v", p, p.Restricted)
		}
		p = probeWith(t, Options{}, ringtest.Hooks{Complete: func(_ int, _ ring.SQE, c *ring.CQE) bool {
			c.Res = -int32(errno)
			return false
		}})
		if p.Restricted != restrictions[errno] || !errors.Is(p, errno) {
			t.Errorf("read: %v: restricted %v", p, p.Restricted)
		}
		if errno == unix.EAGAIN {
			continue
		}
		p = probeWith(t, Options{}, ringtest.Hooks{Enter: func(int, int, int) error { return errno }})
		if p.Restricted != restrictions[errno] || !errors.Is(p, errno) {
			t.Errorf("enter: %v: restricted %v", p, p.Restricted)
		}
	}
	p := probeWith(t, Options{}, ringtest.Hooks{Info: func(_ int, i ring.Info) ring.Info {
		i.Features &^= ring.FeatNoDrop
		return i
	}})
	if !p.Restricted || !errors.Is(p, unix.ENOSYS) {
		t.Errorf("ring that drops completions: %v", p)
	}
	// The same errors of the disk mean the disk.
	p = probeWith(t, Options{Dir: filepath.Join(t.TempDir(), "gone")}, ringtest.Hooks{})
	if p.Restricted || !errors.Is(p, unix.ENOENT) {
		t.Errorf("no such folder: %v", p)
	}
}

// TestProbeReadsForReal: wrong bytes or too few are no ring.
func TestProbeReadsForReal(t *testing.T) {
	needRing(t)
	script := &ringtest.Script{}
	o := Options{Dir: t.TempDir(), Setup: ringtest.Wrap(ring.New, script)}
	for name, misbehave := range map[string]func() func(){
		"flipped bit": script.Corrupt,
		"short":       func() func() { return script.Truncate(func(res int32) int32 { return res - 1 }) },
		"nothing":     func() func() { return script.Results(func(ring.SQE, int32) int32 { return 0 }) },
	} {
		stop := misbehave()
		d, err := Start(t.Context(), o)
		stop()
		var p *ProbeError
		if d != nil || !errors.As(err, &p) || p.Restricted {
			t.Errorf("%s: %v", name, err)
		}
		if n := script.Counts().Open; n != 0 {
			t.Errorf("%s: %d rings stay open", name, n)
		}
	}
	d, err := Start(t.Context(), o) // nothing sticks
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Close(t.Context()); err != nil {
		t.Error(err)
	}
	left, err := os.ReadDir(o.Dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestProbeIsBounded: a read that never ends is given up, with all it has.
func TestProbeIsBounded(t *testing.T) {
	needRing(t)
	script := &ringtest.Script{}
	release := script.Stall(ringtest.AnyFD)
	o := Options{Dir: t.TempDir(), Setup: ringtest.Wrap(ring.New, script), ProbeTimeout: 200 * time.Millisecond}
	leaks := leakedShards()
	begin := time.Now()
	d, err := Start(t.Context(), o)
	var p *ProbeError
	if d != nil || !errors.As(err, &p) || p.Restricted {
		t.Fatalf("%v", err)
	}
	if took := time.Since(begin); took < o.ProbeTimeout || took > 5*o.ProbeTimeout {
		t.Errorf("it took %v", took)
	}
	eventually(t, "what may still be written to is kept", func() bool { return leakedShards() == leaks+1 })
	if n := script.Counts().Open; n != 1 {
		t.Errorf("%d rings are open", n)
	}
	release()
	d, err = Start(t.Context(), o)
	if err != nil {
		t.Fatalf("the next probe: %v", err)
	}
	if _, err := d.Close(t.Context()); err != nil {
		t.Error(err)
	}
	// Who starts it may leave sooner.
	defer script.Stall(ringtest.AnyFD)()
	o.ProbeTimeout = time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := Start(ctx, o); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("ended context: %v", err)
	}
}

func leakedShards() int {
	leaked.mu.Lock()
	defer leaked.mu.Unlock()
	return len(leaked.shards)
}

// TestProbeFileIsNobodysTrap: where files without names are not to be had, the
// name can't be one that somebody prepared.
func TestProbeFileIsNobodysTrap(t *testing.T) {
	dir, victim := t.TempDir(), writeFile(t, []byte("precious"))
	fixed := env.System()
	fixed.Rand = func(p []byte) { clear(p) } // so that the name can be guessed
	s := &shard{d: &Driver{opts: Options{Dir: dir, Env: fixed}}}
	fd, err := s.namedFile(dir)
	if err != nil {
		t.Fatal(err)
	}
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		t.Fatal(err)
	}
	name = strings.TrimSuffix(name, " (deleted)")
	if err := unix.Close(fd); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Fatalf("left behind: %v, %v", left, err)
	}
	if err := os.Symlink(victim, name); err != nil {
		t.Fatal(err)
	}
	if _, err := s.namedFile(dir); !errors.Is(err, unix.EEXIST) {
		t.Errorf("planted link: %v", err)
	}
	if got, err := os.ReadFile(victim); err != nil || string(got) != "precious" {
		t.Errorf("%q, %v", got, err)
	}
}

// usage counts what a driver could leave behind.
type usage struct{ fds, threads, maps, goroutines int }

func measure(t testing.TB) usage {
	t.Helper()
	count := func(path string) int {
		all, err := os.ReadDir(path)
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	rings := strings.Count(string(maps), "io_uring")
	return usage{fds: count("/proc/self/fd"), threads: count("/proc/self/task"), maps: rings, goroutines: runtime.NumGoroutine()}
}

// TestLaterShardThatFailsTakesTheOthersDown: never half a driver.
func TestLaterShardThatFailsTakesTheOthersDown(t *testing.T) {
	before := measure(t)
	var setups atomic.Int64
	p := probeWith(t, Options{Shards: 4}, ringtest.Hooks{Setup: func(n int, _ ring.Options) error {
		setups.Store(int64(n))
		if n == 3 {
			return unix.EMFILE
		}
		return nil
	}})
	if p.Restricted || !errors.Is(p, unix.EMFILE) || setups.Load() != 3 {
		t.Errorf("%v after %d setups", p, setups.Load())
	}
	eventually(t, "all is given back", func() bool {
		now := measure(t)
		return now.fds <= before.fds && now.maps <= before.maps && now.goroutines <= before.goroutines
	})
	// Nothing sticks: the next one starts.
	start(t, Options{Shards: 4})
}

func TestOptionsAreCheckedBeforeTheKernelIsAsked(t *testing.T) {
	asked := false
	setup := func(ring.Options) (ring.Ring, error) { asked = true; return nil, unix.EINVAL }
	for _, o := range []Options{
		{}, {Dir: "x", Entries: 3}, {Dir: "x", Entries: -1}, {Dir: "x", Entries: 32769}, {Dir: "x", Entries: 65536},
		{Dir: "x", Shards: 17}, {Dir: "x", Mode: 4}, {Dir: "x", Mode: ModeStatic}, {Dir: "x", Mode: ModeDynamic}, {Dir: "x", Bytes: -1},
		{Dir: "x", Restarts: -1}, {Dir: "x", DrainTimeout: -1},
	} {
		o.Setup = setup
		d, err := Start(t.Context(), o)
		var p *ProbeError
		if d != nil || !errors.Is(err, ErrInvalid) || errors.As(err, &p) || asked {
			t.Errorf("%+v: %v", o, err)
		}
	}
	for _, entries := range []int{0, 1, 32768} {
		if _, err := (Options{Dir: "x", Entries: entries}).withDefaults(); err != nil {
			t.Errorf("%d entries: %v", entries, err)
		}
	}
	o, err := Options{Dir: "x", Shards: -3}.withDefaults()
	if err != nil || o.Shards != 1 || o.Entries != 128 || o.DrainTimeout != 5*time.Second || o.ProbeTimeout != 2*time.Second {
		t.Errorf("defaults: %+v, %v", o, err)
	}
}
