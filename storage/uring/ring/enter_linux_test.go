package ring

import (
	"slices"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func openFake(t *testing.T, f *fakeKernel) Ring {
	t.Helper()
	r, err := open(f.kernel(), Options{Entries: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// TestEnterArguments: every call asks for events, because nothing completes on
// a DEFER_TASKRUN ring otherwise; only a bounded wait carries a timeout.
func TestEnterArguments(t *testing.T) {
	f := newFake(t)
	r := openFake(t, f)
	for range 3 {
		r.Push(SQE{})
	}
	for _, c := range []struct {
		wait    int
		timeout time.Duration
		want    fakeEnter
	}{
		{0, 0, fakeEnter{submit: 3, flags: enterGetEvents}},
		{0, time.Second, fakeEnter{flags: enterGetEvents}},
		{-1, time.Second, fakeEnter{flags: enterGetEvents}},
		{2, -1, fakeEnter{wait: 2, flags: enterGetEvents}},
		{1, 0, fakeEnter{wait: 1, flags: enterGetEvents | enterExtArg}},
		{1, 2*time.Second + 3, fakeEnter{wait: 1, flags: enterGetEvents | enterExtArg, sec: 2, nsec: 3}},
		{9, 50 * time.Millisecond, fakeEnter{wait: 9, flags: enterGetEvents | enterExtArg, nsec: 50_000_000}},
	} {
		if err := r.Enter(c.wait, c.timeout); err != nil {
			t.Fatal(err)
		}
		if got := f.enters[len(f.enters)-1]; got != c.want {
			t.Errorf("wait %d for %v: %+v, want %+v", c.wait, c.timeout, got, c.want)
		}
	}
}

// TestEnterErrors: errors come bare, and the entries stay queued and whole.
func TestEnterErrors(t *testing.T) {
	f := newFake(t)
	r := openFake(t, f)
	r.Push(SQE{UserData: 5, Len: 50})
	for _, errno := range []unix.Errno{unix.EINTR, unix.EBUSY, unix.EAGAIN, unix.EPERM, unix.EIO, unix.ENXIO, unix.EEXIST, unix.EBADR} {
		f.enterErr = errno
		if err := r.Enter(1, time.Second); err != errno || r.Queued() != 1 {
			t.Errorf("%v, want %v; %d queued", err, errno, r.Queued())
		}
	}
	f.enterErr = unix.ETIME
	if err := r.Enter(1, time.Second); err != nil || r.Queued() != 1 {
		t.Errorf("timeout: %v; %d queued", err, r.Queued())
	}
	f.enterErr = 0
	if err := r.Enter(1, time.Second); err != nil || r.Queued() != 0 {
		t.Errorf("%v; %d queued", err, r.Queued())
	}
	if c, ok := r.Next(); !ok || c != (CQE{UserData: 5, Res: 50}) {
		t.Errorf("%+v, %t", c, ok)
	}
}

func TestOverflowCounts(t *testing.T) {
	f := newFake(t)
	r := openFake(t, f)
	if n := r.Overflow(); n != 0 {
		t.Errorf("%d at the start", n)
	}
	*f.word(f.areas[offSQRing], f.p.cq.overflow) = 5 // lost
	if n := r.Overflow(); n != 5 {
		t.Errorf("%d, want what the kernel lost", n)
	}
	*f.word(f.areas[offSQRing], f.p.sq.flags) = sqCQOverflow // waiting
	for range 2 {
		if err := r.Enter(0, 0); err != nil {
			t.Fatal(err)
		}
	}
	*f.word(f.areas[offSQRing], f.p.sq.flags) = 0
	if err := r.Enter(0, 0); err != nil || r.Overflow() != 7 {
		t.Errorf("%v; %d, want 7", err, r.Overflow())
	}
}

// TestTableArguments follows tables and places through kernels with and without
// sparse tables.
func TestTableArguments(t *testing.T) {
	for name, sparse := range map[string]bool{"5.19 and later": true, "before 5.19": false} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			r := openFake(t, f)
			f.regs = nil
			var tables []rsrcRegister
			var updates []rsrcUpdate
			var placed []unix.Iovec
			f.regErr = func(op uint32, arg unsafe.Pointer) unix.Errno {
				switch op {
				case registerBuffers2:
					tab := *(*rsrcRegister)(arg)
					tables = append(tables, tab)
					if tab.flags&rsrcSparse != 0 && !sparse {
						return unix.EINVAL
					}
				case registerBuffersUpdate:
					u := *(*rsrcUpdate)(arg)
					at := uintptr(u.data)
					updates, placed = append(updates, u), append(placed, **(**unix.Iovec)(unsafe.Pointer(&at)))
				}
				return 0
			}
			mem := make([]byte, 4096)
			for _, err := range []error{r.Buffers(7), r.SetBuffer(3, mem), r.SetBuffer(3, nil), r.Buffers(0), r.Buffers(0)} {
				if err != nil {
					t.Fatal(err)
				}
			}
			want := []fakeRegister{{registerBuffers2, 32}, {registerBuffersUpdate, 32}, {registerBuffersUpdate, 32}, {unregisterBuffers, 0}}
			if !sparse {
				want = slices.Insert(want, 0, want[0])
			}
			if !slices.Equal(f.regs, want) {
				t.Errorf("calls %v, want %v", f.regs, want)
			}
			if tab := tables[len(tables)-1]; tab.nr != 7 || (tab.flags == rsrcSparse) != sparse || (tab.data == 0) != sparse {
				t.Errorf("table %+v", tab)
			}
			if u := updates[0]; u.offset != 3 || u.nr != 1 || placed[0].Base != &mem[0] || placed[0].Len != 4096 {
				t.Errorf("place %+v of %+v", u, placed[0])
			}
			if placed[1] != (unix.Iovec{}) {
				t.Errorf("emptied with %+v", placed[1])
			}
		})
	}
}

func TestTableErrors(t *testing.T) {
	f := newFake(t)
	r := openFake(t, f)
	f.regErr = func(uint32, unsafe.Pointer) unix.Errno { return unix.ENOMEM }
	if err := r.Buffers(4); err != unix.ENOMEM {
		t.Errorf("table: %v", err)
	}
	if err := r.SetBuffer(0, make([]byte, 1)); err != unix.ENOMEM {
		t.Errorf("place: %v", err)
	}
	calls := len(f.regs)
	if r.Buffers(-1) != unix.EINVAL || r.SetBuffer(-1, nil) != unix.EINVAL || len(f.regs) != calls {
		t.Error("what makes no sense reached the kernel")
	}
	f.regErr = func(op uint32, _ unsafe.Pointer) unix.Errno {
		if op == unregisterBuffers {
			return unix.EBUSY
		}
		return 0
	}
	if err := r.Buffers(4); err != nil {
		t.Error(err)
	}
	if err := r.Buffers(5); err != unix.EBUSY {
		t.Errorf("the former table stays: %v", err)
	}
}
