package hybrid

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"ringfence/storage"
	"ringfence/storage/storagetest"
	"ringfence/storage/uring"
	"ringfence/storage/uring/ring"
	"ringfence/storage/uring/ringtest"
)

// variant is a way to run a Backend. All of them must read the same.
type variant struct {
	name  string
	rings bool // needs real ones
	start starter
	setup func() ring.Setup // nil for the kernel's
	set   func(k Knobs)
	idle  bool // rings don't serve
}

func mode(m uring.Mode) func(k Knobs) {
	return func(k Knobs) {
		ringOnly(k)
		k.Mode.Store(m.String())
		k.Shards.Store(2)
		k.Entries.Store(8)
	}
}

// variants are the ways to serve that there are.
func variants() []variant {
	refused := &uring.ProbeError{Restricted: true, Err: unix.EPERM}
	return []variant{
		{name: "off", idle: true, set: func(k Knobs) { k.Enable.Store(false) }},
		{name: "hybrid", rings: true, set: func(Knobs) {}},
		{name: "ring only", rings: true, set: ringOnly},
		{name: "direct", rings: true, set: directAll},
		{name: "direct, legacy buffers", rings: true, set: func(k Knobs) {
			directAll(k)
			mode(uring.ModeLegacy)(k)
		}},
		{name: "legacy buffers", rings: true, set: mode(uring.ModeLegacy)},
		{name: "dynamic buffers", rings: true, set: mode(uring.ModeDynamic)},
		{name: "static buffers", rings: true, set: mode(uring.ModeStatic)},
		{name: "shadow", rings: true, set: func(k Knobs) {
			ringOnly(k)
			k.Shadow.Store(1)
		}},
		{name: "reclaim", rings: true, set: func(k Knobs) {
			k.Reclaim.Store(true)
			k.ReclaimFrom.Store(1)
		}},
		{name: "short reads", rings: true, set: ringOnly, setup: func() ring.Setup {
			s := &ringtest.Script{}
			n := int32(0) // of one ring, on its thread
			s.Truncate(func(res int32) int32 {
				n++
				if n < 3 { // a probe wants its file at once
					return res
				}
				return res - n%7*res/8
			})
			return ringtest.Wrap(ring.New, s)
		}},
		{name: "all ring reads fail", set: ringOnly, start: fakes(func(_ context.Context, r uring.Request, _ int) (int, error) {
			for _, b := range r.Bufs { // what it left behind is no data
				clear(b.Bytes())
			}
			return 0, unix.EIO
		})},
		{name: "refused", idle: true, set: ringOnly, start: func(context.Context, uring.Options) (driver, error) {
			return nil, refused
		}},
		{name: "latched", idle: true, set: ringOnly, start: fakes(func(context.Context, uring.Request, int) (int, error) {
			return 0, unix.ENOSYS
		})},
	}
}

func (v variant) options(t testing.TB) rigOptions {
	t.Helper()
	if v.rings {
		needRings(t)
	}
	o := rigOptions{start: v.start, set: v.set, idle: v.idle}
	if v.setup != nil {
		o.rings.Setup = v.setup()
	}
	return o
}

// TestBackendSuite runs the contract's suite over everything that may serve.
// Where rings aren't required it leaves out what differs little.
func TestBackendSuite(t *testing.T) {
	for _, v := range variants() {
		switch v.name {
		case "off", "hybrid", "ring only", "direct", "static buffers", "shadow", "short reads":
		default:
			if !required("uring") {
				continue
			}
		}
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			v.options(t) // skips
			storagetest.TestBackend(t, func(t *testing.T) (storage.Backend, string) {
				o := v.options(t)
				o.dir = filepath.Join(t.TempDir(), "disk")
				if err := os.Mkdir(o.dir, 0o700); err != nil {
					t.Fatal(err)
				}
				return newRig(t, o).Backend, o.dir
			})
		})
	}
}

// notRaw is a file that offers nothing but storage.File.
type notRaw struct{ storage.File }

type notRawBackend struct{ storage.Backend }

func (b notRawBackend) Open(ctx context.Context, name string) (storage.File, error) {
	f, err := b.Backend.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	return notRaw{f}, nil
}

// TestFilesOfOthersPassThrough: what is no RawFile is left alone, so that a
// faulty backend below makes every read fail, and none goes around it.
func TestFilesOfOthersPassThrough(t *testing.T) {
	dir := t.TempDir()
	pool, err := storage.NewPool(storage.PoolOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := &starts{}
	knobs := NewKnobs()
	knobs.Enable.Store(true)
	b, err := New(Options{Base: notRawBackend{newStd(t, dir, knobs)}, Dir: dir, Pool: pool, Knobs: knobs, start: s.start})
	if err != nil {
		t.Fatal(err)
	}
	run(t, b)
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := b.Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := f.(notRaw); !ok {
		t.Errorf("%T", f)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if f, err := b.Open(t.Context(), "b"); err == nil || f != nil {
		t.Errorf("open what is not there: %v, %v", f, err)
	}
}

func TestNewNeedsItsOptions(t *testing.T) {
	pool, err := storage.NewPool(storage.PoolOptions{})
	if err != nil {
		t.Fatal(err)
	}
	base := newStd(t, t.TempDir(), NewKnobs())
	for i, o := range []Options{{Dir: "x", Pool: pool}, {Base: base, Pool: pool}, {Base: base, Dir: "x"}} {
		if _, err := New(o); err == nil {
			t.Error(fmt.Sprint(i), "no error")
		}
	}
	b, err := New(Options{Base: base, Dir: "x", Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	if s := b.Status(); s.String() != "std: switched off" {
		t.Errorf("%s", s)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	b.Run(t.Context()) // returns: it is closed
}
