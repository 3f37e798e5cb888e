package local_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"ringfence/storage"
	"ringfence/storage/local"
)

// eventually polls until f reports true.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(10 * time.Second); !f(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("never: " + what)
		}
	}
}

// TestHungStoreKeepsItsDisk: a disk whose metadata store hangs in the hardware
// stays locked, though Close gave up on it. Who opens it meanwhile is told so,
// and not that something is corrupt, for that would be answered by a wipe. When
// the hardware goes on nothing breaks, and nothing is lost.
func TestHungStoreKeepsItsDisk(t *testing.T) {
	var armed atomic.Bool
	hangs, free := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r := failingStore(t, func(op, name string) error {
		if armed.Load() && strings.HasSuffix(name, ".log") && (op == "create" || op == "reuse") {
			once.Do(func() { close(hangs) })
			<-free
		}
		return nil
	})
	sick := must[*local.Disk](t)(local.Open(t.Context(), r.opts))
	acked, err := fill(t.Context(), sick, 300)
	if err != nil {
		t.Fatal(err)
	}
	armed.Store(true)
	filled := make(chan error, 1)
	go func() {
		_, err := fill(t.Context(), sick, 3000)
		filled <- err
	}()
	<-hangs
	if err := sick.Close(); !errors.Is(err, storage.ErrFailed) {
		t.Fatalf("close: %v", err)
	}
	if err := <-filled; !errors.Is(err, storage.ErrOffline) {
		t.Errorf("apply: %v", err)
	}
	armed.Store(false) // for the next instance
	if _, err := local.Open(t.Context(), r.opts); !errors.Is(err, local.ErrInUse) || !errors.Is(err, storage.ErrOffline) {
		t.Fatalf("open while the old instance is there: %v", err)
	}
	close(free)
	eventually(t, "the disk is let go", func() bool {
		d, err := local.Open(t.Context(), r.opts)
		if err == nil {
			err = d.Close()
		} else if errors.Is(err, local.ErrInUse) {
			return false
		}
		if err != nil {
			t.Fatal(err)
		}
		return true
	})
	survives(t, r, nil, acked)
}

// TestOpenErrors: a store that can't be opened is called corrupt for damage
// only.
func TestOpenErrors(t *testing.T) {
	for _, tc := range []struct {
		op, name string
		err      error
		want     error
	}{
		{"lock", "LOCK", errors.New("lock held by current process"), storage.ErrFailed},
		{"lock", "LOCK", syscall.EAGAIN, storage.ErrFailed},
		{"list", "meta", syscall.EIO, storage.ErrFailed},
		{"open", "MANIFEST", syscall.EIO, storage.ErrFailed},
		{"read", "MANIFEST", syscall.EIO, storage.ErrFailed},
		{"read", "MANIFEST", syscall.ENOMEM, storage.ErrFailed},
		{"read", ".log", errors.New("nobody thought of this"), storage.ErrFailed},
		{"open", ".log", syscall.EMFILE, storage.ErrFailed},
		{"stat", ".sst", syscall.EIO, storage.ErrFailed},
		{"create", "MANIFEST", syscall.ENOSPC, storage.ErrFull},
		{"create", "marker.", syscall.ENOENT, storage.ErrFailed},
		{"sync", "meta", syscall.EIO, storage.ErrFailed},
		{"open", "MANIFEST", syscall.ENOENT, storage.ErrCorrupt},
		{"stat", ".sst", syscall.ENOENT, storage.ErrCorrupt},
	} {
		t.Run(fmt.Sprintf("%s %s: %v", tc.op, tc.name, tc.err), func(t *testing.T) {
			var armed atomic.Bool
			r := failingStore(t, func(op, name string) error {
				if armed.Load() && op == tc.op && strings.Contains(name, tc.name) {
					return tc.err
				}
				return nil
			})
			d := must[*local.Disk](t)(local.Open(t.Context(), r.opts))
			acked, err := fill(t.Context(), d, 120)
			if err = errors.Join(err, d.Close()); err != nil {
				t.Fatal(err)
			}
			armed.Store(true)
			d = must[*local.Disk](t)(local.Open(t.Context(), r.opts))
			if _, err := d.KV().Get(t.Context(), []byte("k")); !errors.Is(err, tc.want) {
				t.Errorf("get: %v, want %v", err, tc.want)
			} else if tc.want != storage.ErrCorrupt && errors.Is(err, storage.ErrCorrupt) {
				t.Errorf("called corrupt as well: %v", err)
			}
			armed.Store(false)
			survives(t, r, d, acked)
		})
	}
}

// TestOpenOnFullDisk: there is no room to flush what a crash left in the logs.
// Opening ends all the same, and succeeds when there is room.
func TestOpenOnFullDisk(t *testing.T) {
	for _, cause := range []error{syscall.ENOSPC, syscall.EIO} {
		var full, tables atomic.Bool
		r := failingStore(t, func(op, name string) error {
			if op == "create" && strings.HasSuffix(name, ".sst") && full.Load() {
				tables.Store(true)
				return cause
			}
			return nil
		})
		d := must[*local.Disk](t)(local.Open(t.Context(), r.opts))
		full.Store(true) // no flush succeeds: the logs stay
		acked, _ := fill(t.Context(), d, 60)
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		tables.Store(false)
		d = must[*local.Disk](t)(local.Open(t.Context(), r.opts))
		want := blameOf(cause)
		if _, err := d.KV().Get(t.Context(), []byte("k")); !errors.Is(err, want) {
			t.Errorf("get: %v, want %v", err, want)
		}
		if !tables.Load() || len(acked) == 0 {
			t.Errorf("opening flushed nothing: the test tests nothing (%d keys)", len(acked))
		}
		full.Store(false)
		survives(t, r, d, acked)
	}
}

func blameOf(cause error) error {
	if errors.Is(cause, syscall.ENOSPC) {
		return storage.ErrFull
	}
	return storage.ErrFailed
}

// TestMissingTable: a table that is missing for a moment, as under a mount that
// comes and goes, is no damage. If it is still missing when the store is opened
// the next time, it is.
func TestMissingTable(t *testing.T) {
	var missing atomic.Bool
	r := failingStore(t, func(op, name string) error {
		if missing.Load() && op == "open" && strings.HasSuffix(name, ".sst") {
			return syscall.ENOENT
		}
		return nil
	})
	r.opts.MemTableBytes = 64 << 10
	d := must[*local.Disk](t)(local.Open(t.Context(), r.opts))
	acked, err := fill(t.Context(), d, 300)
	if err = errors.Join(err, d.Close()); err != nil {
		t.Fatal(err)
	}
	missing.Store(true)
	d = must[*local.Disk](t)(local.Open(t.Context(), r.opts))
	for _, key := range acked {
		if _, err = d.KV().Get(t.Context(), []byte(key)); err != nil {
			break
		}
	}
	if !errors.Is(err, storage.ErrFailed) || errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("get: %v", err)
	}
	missing.Store(false)
	survives(t, r, d, acked)

	tables := 0
	for name := range snapshot(t, r.fs.(*hookFS).FS, "/disk/meta") {
		if strings.HasSuffix(name, ".sst") {
			tables++
			if err := r.fs.Remove("/disk/meta/" + name); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	r.open(t)
	if _, err := r.disk.KV().Get(t.Context(), []byte("k")); !errors.Is(err, storage.ErrCorrupt) || tables == 0 {
		t.Errorf("%d tables removed: %v", tables, err)
	}
}

// TestShortTable: Pebble finds by its size that a table was cut short.
func TestShortTable(t *testing.T) {
	mem := memWith(t, "/disk")
	r := newRig(t, mem, "/disk")
	r.opts.MemTableBytes = 64 << 10
	r.reopen(t)
	if _, err := fill(t.Context(), r.disk, 300); err != nil {
		t.Fatal(err)
	}
	if err := r.disk.Close(); err != nil {
		t.Fatal(err)
	}
	for name, data := range snapshot(t, mem, "/disk/meta") {
		if strings.HasSuffix(name, ".sst") {
			overwrite(t, mem, "/disk/meta/"+name, data[:len(data)-1])
		}
	}
	r.open(t)
	if _, err := r.disk.KV().Get(t.Context(), []byte("k")); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("get: %v", err)
	}
}

// TestFailedCompactionPauses: an iterator that is open keeps Pebble from being
// closed, and its compactions fail. They must not be tried at full speed.
func TestFailedCompactionPauses(t *testing.T) {
	var broken atomic.Bool
	var tries atomic.Int64
	r := failingStore(t, func(op, name string) error {
		if broken.Load() && strings.HasSuffix(name, ".sst") && (op == "open" || op == "read") {
			tries.Add(1)
			return syscall.EIO
		}
		return nil
	})
	r.opts.CloseTimeout = 10 * time.Second
	d := must[*local.Disk](t)(local.Open(t.Context(), r.opts))
	it := must[storage.Iter](t)(d.KV().Iter(t.Context(), nil, nil))
	broken.Store(true)
	if _, err := fill(t.Context(), d, 6000); !errors.Is(err, storage.ErrFailed) {
		t.Fatalf("apply: %v", err)
	}
	before := tries.Load()
	<-time.After(300 * time.Millisecond)
	if n := tries.Load() - before; n > 50 {
		t.Errorf("%d reads in 300 ms by a store that ended", n)
	}
	if err := errors.Join(it.Close(), d.Close()); err != nil {
		t.Error(err)
	}
}

// TestFoldersAreDurable: the process was killed when it had made the folders
// but not synced them; the next one finds them all. What it puts there must
// outlive a power failure.
func TestFoldersAreDurable(t *testing.T) {
	mem := vfs.NewCrashableMem()
	if err := mem.MkdirAll("/disk", 0o755); err != nil {
		t.Fatal(err)
	}
	syncDir(t, mem, "/")
	r := rigOn(t, mem, "/disk")
	r.backend.fail = func(op, name string) error {
		if op == "syncdir" && name == "shards" {
			return errors.New("killed")
		}
		return nil
	}
	if err := local.Format(t.Context(), r.opts, testIdentity); err == nil {
		t.Fatal("format succeeds")
	}
	r.backend.fail = nil
	if err := local.Format(t.Context(), r.opts, testIdentity); err != nil {
		t.Fatal(err)
	}
	r.open(t)
	if err := writeShard(t, r.disk, shardID(1, 0), 5000); err != nil {
		t.Fatal(err)
	}
	r = rigOn(t, mem.CrashClone(vfs.CrashCloneCfg{}), "/disk")
	r.open(t)
	checkShard(t, r.disk, shardID(1, 0), 5000)
}

// TestCheckDuringReset: a shard that is sealed while the metadata store is
// replaced must not find the disk gone because meta/ is away for a moment.
func TestCheckDuringReset(t *testing.T) {
	for _, early := range []bool{false, true} {
		t.Run(fmt.Sprintf("looks before the reset: %v", early), func(t *testing.T) {
			var armed atomic.Bool
			looks, free := make(chan struct{}), make(chan struct{})
			var once sync.Once
			h := &hookFS{FS: memWith(t, "/disk"), hook: func(op, name string) error {
				if armed.Load() && op == "stat" && name == "meta" {
					first := false
					once.Do(func() { first = true })
					if first {
						close(looks)
						<-free
					}
				}
				return nil
			}}
			r := newRig(t, h, "/disk")
			checked := make(chan error, 1)
			if early {
				armed.Store(true)
				go func() { checked <- r.disk.Check(t.Context()) }()
				<-looks
			}
			r.backend.fail = func(op, name string) error {
				if op == "mkdir" && name == "meta" { // it was renamed
					if early {
						close(free)
					} else {
						checked <- r.disk.Check(t.Context())
					}
					if err := <-checked; err != nil {
						t.Errorf("check: %v", err)
					}
				}
				return nil
			}
			if err := r.disk.ResetKV(t.Context()); err != nil {
				t.Fatal(err)
			}
			r.backend.fail = nil
			if h := r.disk.Health(); h.State != storage.StateOK {
				t.Errorf("health %+v", h)
			}
			set(t, r.disk.KV(), "a", "1")
		})
	}
}

// TestResetAfterFailedReset: a reset that failed half way can be repeated.
func TestResetAfterFailedReset(t *testing.T) {
	r := newRig(t, nil, "")
	set(t, r.disk.KV(), "a", "1")
	r.backend.fail = func(op, name string) error {
		if op == "mkdir" && name == "meta" {
			return syscall.ENOSPC
		}
		return nil
	}
	if err := r.disk.ResetKV(t.Context()); !errors.Is(err, storage.ErrFull) {
		t.Fatalf("reset: %v", err)
	}
	r.backend.fail = nil
	if err := r.disk.ResetKV(t.Context()); err != nil {
		t.Fatalf("second reset: %v", err)
	}
	if got := get(t, r.disk.KV(), "a"); got != "<none>" {
		t.Errorf("a: %s", got)
	}
	set(t, r.disk.KV(), "b", "1")
}
