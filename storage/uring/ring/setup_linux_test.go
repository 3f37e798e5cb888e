package ring

import (
	"errors"
	"math"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

const rung0, rung1, rung2, rung3 = SetupCQSize | SetupSingleIssuer | SetupDeferTaskrun | SetupSubmitAll,
	SetupCQSize | SetupSingleIssuer | SetupCoopTaskrun | SetupSubmitAll,
	SetupCQSize | SetupCoopTaskrun | SetupSubmitAll,
	SetupCQSize

func TestSetupLadder(t *testing.T) {
	for _, c := range []struct {
		name   string
		known  uint32
		errnos map[int]unix.Errno
		asked  []uint32
		err    error
		mode   string
	}{
		{"6.1 and later", allKnown, nil, []uint32{rung0}, nil, "defer-taskrun"},
		{"6.0", allKnown &^ SetupDeferTaskrun, nil, []uint32{rung0, rung1}, nil, "coop-taskrun"},
		{"5.19", SetupCQSize | SetupCoopTaskrun | SetupSubmitAll, nil, []uint32{rung0, rung1, rung2}, nil, "coop-taskrun"},
		{"5.18", SetupCQSize | SetupSubmitAll, nil, []uint32{rung0, rung1, rung2, rung3}, nil, "plain"},
		{"nothing is known", 0, nil, []uint32{rung0, rung1, rung2, rung3}, unix.EINVAL, ""},
		{"seccomp", allKnown, map[int]unix.Errno{1: unix.EPERM}, []uint32{rung0}, unix.EPERM, ""},
		{"no system call", allKnown, map[int]unix.Errno{1: unix.ENOSYS}, []uint32{rung0}, unix.ENOSYS, ""},
		{"access", allKnown, map[int]unix.Errno{1: unix.EACCES}, []uint32{rung0}, unix.EACCES, ""},
		{"memory", allKnown, map[int]unix.Errno{1: unix.ENOMEM}, []uint32{rung0}, unix.ENOMEM, ""},
		{"descriptors", allKnown, map[int]unix.Errno{1: unix.EMFILE}, []uint32{rung0}, unix.EMFILE, ""},
		{"busy", allKnown, map[int]unix.Errno{1: unix.EAGAIN}, []uint32{rung0}, unix.EAGAIN, ""},
		{"unsupported", allKnown, map[int]unix.Errno{1: unix.EOPNOTSUPP}, []uint32{rung0}, unix.EOPNOTSUPP, ""},
		{"refused on the way", allKnown, map[int]unix.Errno{1: unix.EINVAL, 2: unix.EINVAL, 3: unix.EPERM}, []uint32{rung0, rung1, rung2}, unix.EPERM, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(t)
			f.known, f.errnos = c.known, c.errnos
			r, err := open(f.kernel(), Options{Entries: 8})
			if err != c.err { // bare
				t.Fatalf("%v, want %v", err, c.err)
			}
			if !slices.Equal(f.setups, c.asked) {
				t.Errorf("asked for %x, want %x", f.setups, c.asked)
			}
			if err != nil {
				if f.closed != 0 || len(f.areas) != 0 {
					t.Errorf("%d closed, %d mapped", f.closed, len(f.areas))
				}
				return
			}
			if i := r.Info(); i != (Info{FD: fakeFD, SQEntries: 8, CQEntries: 16, Features: f.features, Setup: c.asked[len(c.asked)-1]}) {
				t.Errorf("%+v", i)
			} else if SetupName(i.Setup) != c.mode {
				t.Errorf("set up as %s, want %s", SetupName(i.Setup), c.mode)
			}
			if err := errors.Join(r.Close(), r.Close()); err != nil || f.closed != 1 || f.unmapped != len(f.areas) {
				t.Errorf("close: %v; closed %d times, %d of %d unmapped", err, f.closed, f.unmapped, len(f.areas))
			}
		})
	}
}

func TestSetupNeedsFeatures(t *testing.T) {
	for missing, name := range map[uint32]string{FeatNoDrop: "nodrop", FeatExtArg: "ext-arg"} {
		f := newFake(t)
		f.features &^= missing
		if r, err := open(f.kernel(), Options{Entries: 8}); err != unix.ENOSYS || r != nil {
			t.Errorf("%s: %v, %v", name, r, err)
		}
		if f.closed != 1 || len(f.areas) != 0 || len(f.setups) != 1 {
			t.Errorf("%s: %d closed, %d mapped, %d set up", name, f.closed, len(f.areas), len(f.setups))
		}
		f = newFake(t)
		f.features &^= missing
		f.closeErr = unix.EIO
		if _, err := open(f.kernel(), Options{Entries: 8}); !errors.Is(err, unix.ENOSYS) || !errors.Is(err, unix.EIO) {
			t.Errorf("%s, close fails: %v", name, err)
		}
	}
}

// TestSetupUndone: what was mapped before an area could not be is unmapped.
func TestSetupUndone(t *testing.T) {
	for off, mapped := range map[int64]int{offSQRing: 0, offCQRing: 1, offSQEs: 2} {
		f := newFake(t)
		f.features, f.failMap = allNeeded, off
		if r, err := open(f.kernel(), Options{Entries: 8}); err != unix.ENOMEM || r != nil {
			t.Errorf("%x: %v, %v", off, r, err)
		}
		if f.closed != 1 || len(f.areas) != mapped || f.unmapped != mapped {
			t.Errorf("%x: %d closed, %d mapped, %d unmapped", off, f.closed, len(f.areas), f.unmapped)
		}
	}
}

func TestEntries(t *testing.T) {
	for _, n := range []int{math.MinInt, -1, 0, 3, 5, 6, 100, 32767, 32769, 65536, math.MaxInt} {
		f := newFake(t)
		_, err := open(f.kernel(), Options{Entries: n})
		if !errors.Is(err, ErrEntries) {
			t.Errorf("%d entries: %v", n, err)
		}
		if _, isErrno := errors.AsType[unix.Errno](err); isErrno || len(f.setups) != 0 {
			t.Errorf("%d entries reached the kernel: %v", n, err)
		}
		if _, err := New(Options{Entries: n}); !errors.Is(err, ErrEntries) {
			t.Errorf("%d entries, in the kernel: %v", n, err)
		}
	}
	for n := 1; n <= 32768; n *= 2 {
		f := newFake(t)
		r, err := open(f.kernel(), Options{Entries: n})
		if err != nil {
			t.Fatalf("%d entries: %v", n, err)
		}
		if i := r.Info(); i.SQEntries != n || i.CQEntries != 2*n {
			t.Errorf("%+v", i)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestLayouts pushes more entries than the queues have places through both
// layouts of the queues.
func TestLayouts(t *testing.T) {
	for name, single := range map[string]uint32{"one area": FeatSingleMmap, "two areas": 0} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.features = allNeeded | single
			r, err := open(f.kernel(), Options{Entries: 4})
			if err != nil {
				t.Fatal(err)
			}
			if want := 3 - int(single); len(f.areas) != want {
				t.Errorf("%d areas, want %d", len(f.areas), want)
			}
			id := uint64(0)
			for range 13 {
				first := id
				for r.Push(SQE{UserData: id, Len: uint32(7 * id)}) {
					id++
				}
				if id-first != 4 || r.Queued() != 4 {
					t.Fatalf("%d pushed, %d queued", id-first, r.Queued())
				}
				if err := r.Enter(0, 0); err != nil || r.Queued() != 0 {
					t.Fatalf("%v; %d queued", err, r.Queued())
				}
				for want := first; want < id; want++ {
					if c, ok := r.Next(); !ok || c != (CQE{UserData: want, Res: int32(7 * want)}) {
						t.Errorf("%d: %+v, %t", want, c, ok)
					}
				}
				if c, ok := r.Next(); ok {
					t.Errorf("one too many: %+v", c)
				}
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			if r.Push(SQE{}) || r.Queued() != 0 || r.Overflow() != 0 {
				t.Error("a closed ring takes entries")
			}
			if _, ok := r.Next(); ok || r.Enter(0, 0) != unix.EBADF || r.Buffers(1) != unix.EBADF || r.SetBuffer(0, nil) != unix.EBADF {
				t.Error("a closed ring goes on")
			}
		})
	}
}

func TestWorkersAreCapped(t *testing.T) {
	for workers, want := range map[int]uint32{0: 16, -3: 16, 1: 1, 5: 5} {
		f := newFake(t)
		var got [2]uint32
		f.regErr = func(op uint32, arg unsafe.Pointer) unix.Errno {
			if op == registerIOWQMaxWorkers {
				got = *(*[2]uint32)(arg)
			}
			return unix.EINVAL // Linux 5.14
		}
		r, err := open(f.kernel(), Options{Entries: 1, Workers: workers})
		if err != nil {
			t.Fatalf("a kernel without the cap: %v", err)
		}
		if got != [2]uint32{want, 0} || !slices.Equal(f.regs, []fakeRegister{{registerIOWQMaxWorkers, 2}}) {
			t.Errorf("%d workers: capped to %v by %v", workers, got, f.regs)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestNames(t *testing.T) {
	for op, want := range map[uint8]string{OpNop: "nop", OpReadv: "readv", OpRead: "read", OpReadFixed: "read-fixed", OpAsyncCancel: "async-cancel", OpPollAdd: "poll-add", OpTimeout: "timeout", 9: "op 9", 107: "op 107"} {
		if got := OpName(op); got != want {
			t.Errorf("%d is %q, want %q", op, got, want)
		}
	}
}
