//go:build linux

package ringtest_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ringfence/storage/uring/ring"
	"ringfence/storage/uring/ringtest"
)

func simRing(t *testing.T, sim *ringtest.Sim, entries int) ring.Ring {
	t.Helper()
	r, err := sim.Setup(ring.Options{Entries: entries})
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

// rightly fails a test whose ring was used wrongly.
func rightly(t *testing.T, sim *ringtest.Sim) {
	t.Helper()
	if err := sim.Err(); err != nil {
		t.Error(err)
	}
}

// TestSimOrders completes the same reads in orders that seeds decide, the same
// again for the same seed.
func TestSimOrders(t *testing.T) {
	content := pattern(1 << 16)
	orders := map[string]bool{}
	for seed := range uint64(20) {
		var first string
		for range 2 {
			sim := ringtest.NewSim(ringtest.SimOptions{Seed: seed, Idle: func() { t.Error("idle") }})
			f := sim.File(content)
			r := simRing(t, sim, 16)
			mem := mapped(t, 1<<16)
			for i := range 16 {
				at := i * 4096
				push(t, r, readAt(f.FD(), mem[at:at+4096], uint64(at), uint64(i)))
			}
			var order []string
			for len(order) < 16 {
				enter(t, r, 1)
				for c, ok := r.Next(); ok; c, ok = r.Next() {
					order = append(order, fmt.Sprint(c.UserData))
					if c.Res != 4096 {
						t.Errorf("read %d: %d", c.UserData, c.Res)
					}
				}
			}
			if !bytes.Equal(mem, content) {
				t.Error("other bytes")
			}
			got := strings.Join(order, " ")
			if first != "" && got != first {
				t.Errorf("seed %d: %s, then %s", seed, first, got)
			}
			first, orders[got] = got, true
			rightly(t, sim)
		}
	}
	if len(orders) < 15 {
		t.Errorf("%d orders of 20 seeds", len(orders))
	}
}

// TestSimWritesAtCompletion: memory changes when the read completes, not
// before, wherever it came from.
func TestSimWritesAtCompletion(t *testing.T) {
	sim := ringtest.NewSim(ringtest.SimOptions{Manual: true, Idle: func() {}})
	r := simRing(t, sim, 4)
	content := []byte("the bytes of the file")
	mem := make([]byte, len(content)) // pushed by address, kept by this test
	push(t, r, readAt(sim.File(content).FD(), mem, 0, 1))
	enter(t, r, 0)
	enter(t, r, 1)
	if sim.InFlight() != 1 || !bytes.Equal(mem, make([]byte, len(mem))) {
		t.Errorf("%d in flight, memory %q", sim.InFlight(), mem)
	}
	if !sim.Step() || sim.Step() {
		t.Error("one operation takes one step")
	}
	if sim.InFlight() != 0 || !bytes.Equal(mem, content) {
		t.Errorf("%d in flight, memory %q", sim.InFlight(), mem)
	}
	if got := drain(r); got[1] != int32(len(content)) {
		t.Errorf("got %v", got)
	}
	rightly(t, sim)
}

// TestSimFaults makes many operations with every fault: all that the kernel may
// say is said, and what is said to have been read is right.
func TestSimFaults(t *testing.T) {
	content := pattern(1 << 16)
	sim := ringtest.NewSim(ringtest.SimOptions{Seed: 5, Idle: func() {}})
	sim.SetFaults(ringtest.Faults{
		Short: 0.3, Ragged: 0.3, Transient: 0.2, Fail: 0.1, Hang: 0.1, Late: 0.3, Busy: 0.3, Enter: 0.2, Partial: 0.2, Scribble: true,
	})
	files := []*ringtest.SimFile{sim.File(content), sim.Direct(content, 512)}
	r := simRing(t, sim, 16)
	seen := map[string]int{}
	id := uint64(0)
	mem := mapped(t, 8*4096)
	for range 500 {
		first := id
		for i := range 8 {
			off := uint64(i) * 512
			push(t, r, readAt(files[i%2].FD(), mem[i*4096:(i+1)*4096], off, id))
			id++
			if i%4 == 3 {
				push(t, r, ring.SQE{Opcode: ring.OpAsyncCancel, Addr: id - 1, UserData: id})
				id++
			}
		}
		for rounds := 0; r.Queued()+sim.InFlight() > 0; rounds++ {
			if err := r.Enter(1, time.Second); err != nil {
				seen[fmt.Sprint("enter: ", err)]++
			}
			if r.Queued() == 0 && rounds > 5 {
				sim.Unhang()
			}
		}
		for got, res := range drain(r) {
			slot := int(got - first)
			if slot%5 == 4 {
				seen[fmt.Sprint("cancel: ", unix.Errno(-res))]++
				continue
			}
			i := slot - slot/5
			check(t, seen, res, mem[i*4096:(i+1)*4096], content[i*512:])
		}
	}
	for _, want := range []string{
		"enter: " + unix.EINTR.Error(), "enter: " + unix.EBUSY.Error(), "enter: " + unix.EAGAIN.Error(),
		"cancel: errno 0", "cancel: " + unix.ENOENT.Error(), "cancel: " + unix.EALREADY.Error(),
		unix.EINTR.Error(), unix.EAGAIN.Error(), unix.EIO.Error(), unix.ECANCELED.Error(), "short", "full",
	} {
		if seen[want] == 0 {
			t.Errorf("never: %s; seen %v", want, seen)
		}
	}
	if c := sim.Counts(); c.Hung == 0 || c.Short != seen["short"] || c.Failed != seen[unix.EIO.Error()] || c.Completed != c.Submitted {
		t.Errorf("%+v; seen %v", c, seen)
	}
	rightly(t, sim)
}

func check(t *testing.T, seen map[string]int, res int32, mem, content []byte) {
	t.Helper()
	switch {
	case res < 0:
		seen[unix.Errno(-res).Error()]++
	case res < int32(len(mem)):
		seen["short"]++
	default:
		seen["full"]++
	}
	n := max(int(res), 0)
	if !bytes.Equal(mem[:n], content[:n]) {
		t.Errorf("result %d: other bytes", res)
	}
	if n < len(mem) && slices.ContainsFunc(mem[n:], func(b byte) bool { return b != ringtest.ScribbleByte }) {
		t.Errorf("result %d: the rest is not scribbled over", res)
	}
}

// TestSimWakes: a thread that waits in its ring is woken by an eventfd, a pipe
// of the simulation, and the end of a hang.
func TestSimWakes(t *testing.T) {
	sim := ringtest.NewSim(ringtest.SimOptions{})
	r := simRing(t, sim, 8)
	wake, mem := eventFD(t), mapped(t, 4096)
	p, f := sim.Pipe(), sim.File([]byte("content"))
	release := sim.Hang(f.FD())
	sim.SetFaults(ringtest.Faults{Transient: 1}) // not for wakes
	push(t, r, readAt(wake, mem[:8], ring.CurrentPosition, 1))
	if err := r.Enter(1, 10*time.Millisecond); err != nil && err != unix.EINTR {
		t.Fatal(err)
	}
	time.AfterFunc(5*time.Millisecond, func() {
		if _, err := unix.Write(wake, []byte{5, 0, 0, 0, 0, 0, 0, 0}); err != nil {
			t.Error(err)
		}
	})
	enter(t, r, 1)
	if got := drain(r); len(got) != 1 || got[1] != 8 || mem[0] != 5 {
		t.Errorf("wake: %v, counter %d", got, mem[0])
	}
	sim.SetFaults(ringtest.Faults{})
	push(t, r, readAt(p.FD(), mem[100:200], ring.CurrentPosition, 2), readAt(f.FD(), mem[200:300], 0, 3),
		ring.SQE{Opcode: ring.OpAsyncCancel, Addr: 3, UserData: 4})
	enter(t, r, 1)
	if got := drain(r); len(got) != 1 || got[4] != -int32(unix.EALREADY) {
		t.Errorf("cancel of what hangs: %v", got)
	}
	time.AfterFunc(5*time.Millisecond, func() {
		if _, err := p.Write([]byte("piped")); err != nil {
			t.Error(err)
		}
	})
	enter(t, r, 1)
	if got := drain(r); len(got) != 1 || got[2] != 5 || string(mem[100:105]) != "piped" {
		t.Errorf("pipe: %v", got)
	}
	time.AfterFunc(5*time.Millisecond, release)
	enter(t, r, 1)
	if got := drain(r); len(got) != 1 || got[3] != 7 || string(mem[200:207]) != "content" {
		t.Errorf("release: %v", got)
	}
	p.CloseWrite()
	push(t, r, readAt(p.FD(), mem[100:200], ring.CurrentPosition, 5))
	enter(t, r, 1)
	if got := drain(r); got[5] != 0 || len(got) != 1 {
		t.Errorf("end of the pipe: %v", got)
	}
	rightly(t, sim)
}

// TestSimOverflow: completions that find no room wait for it.
func TestSimOverflow(t *testing.T) {
	sim := ringtest.NewSim(ringtest.SimOptions{Idle: func() {}})
	r := simRing(t, sim, 2)
	got := map[uint64]int32{}
	for id := range uint64(20) {
		push(t, r, ring.SQE{UserData: id})
		enter(t, r, 100)
	}
	if n := r.Overflow(); n != 16 {
		t.Errorf("%d found no room", n)
	}
	for len(got) < 20 {
		before := len(got)
		for id, res := range drain(r) {
			got[id] = res
		}
		if len(got)-before > 4 || len(got) == before {
			t.Fatalf("%d at once", len(got)-before)
		}
		enter(t, r, 0)
	}
	rightly(t, sim)
}

// TestSimWatches: every misuse is noticed.
func TestSimWatches(t *testing.T) {
	for want, misuse := range misuses {
		t.Run(want, func(t *testing.T) {
			sim := ringtest.NewSim(ringtest.SimOptions{Idle: func() {}})
			misuse(t, sim, simRing(t, sim, 8), mapped(t, 4096))
			if err := sim.Err(); err == nil || strings.Count(err.Error(), "\n") > 0 || !strings.Contains(err.Error(), want) {
				t.Errorf("noticed: %v", err)
			}
		})
	}
}

// misuses are what a Sim has to notice, by what it says.
var misuses = map[string]func(t *testing.T, sim *ringtest.Sim, r ring.Ring, mem []byte){
	"share memory": func(t *testing.T, sim *ringtest.Sim, r ring.Ring, mem []byte) {
		f := sim.File(mem)
		push(t, r, readAt(f.FD(), mem[:100], 0, 1), readAt(f.FD(), mem[99:200], 0, 2))
		enter(t, r, 2)
	},
	"are called": func(t *testing.T, _ *ringtest.Sim, r ring.Ring, _ []byte) {
		push(t, r, ring.SQE{UserData: 1}, ring.SQE{UserData: 1})
		enter(t, r, 2)
	},
	"cancelled twice": func(t *testing.T, sim *ringtest.Sim, r ring.Ring, mem []byte) {
		f := sim.File(mem)
		sim.Hang(f.FD())
		push(t, r, readAt(f.FD(), mem[:100], 0, 1))
		for id := range uint64(2) {
			push(t, r, ring.SQE{Opcode: ring.OpAsyncCancel, Addr: 1, UserData: 10 + id})
		}
		enter(t, r, 2)
		sim.Unhang()
	},
	"closed under a read": func(t *testing.T, sim *ringtest.Sim, r ring.Ring, mem []byte) {
		f := sim.File(mem)
		release := sim.Hang(f.FD())
		push(t, r, readAt(f.FD(), mem[:100], 0, 1))
		enter(t, r, 0)
		if err := f.Release(); err != nil {
			t.Error(err)
		}
		release()
		enter(t, r, 1)
	},
	"which is closed, was submitted": func(t *testing.T, sim *ringtest.Sim, r ring.Ring, mem []byte) {
		f := sim.File(mem)
		if err := f.Release(); err != nil {
			t.Error(err)
		}
		push(t, r, readAt(f.FD(), mem[:100], 0, 1))
		enter(t, r, 1)
		if got := drain(r); got[1] != -int32(unix.EBADF) {
			t.Errorf("got %v", got)
		}
	},
	"released too often": func(t *testing.T, sim *ringtest.Sim, _ ring.Ring, mem []byte) {
		f := sim.File(mem)
		if err := errors.Join(f.Acquire(), f.Release(), f.Release()); err != nil || f.Refs() != 0 {
			t.Errorf("%v, %d references", err, f.Refs())
		}
		if f.Release() != os.ErrClosed || f.Acquire() != os.ErrClosed {
			t.Error("a closed file is released or acquired")
		}
	},
	"closed with 2 operations in flight": func(t *testing.T, sim *ringtest.Sim, r ring.Ring, mem []byte) {
		push(t, r, readAt(sim.Pipe().FD(), mem[:100], ring.CurrentPosition, 1))
		enter(t, r, 0)
		push(t, r, ring.SQE{UserData: 2})
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if r.Push(ring.SQE{}) || r.Enter(0, 0) != unix.EBADF || r.Buffers(1) != unix.EBADF || r.SetBuffer(0, nil) != unix.EBADF {
			t.Error("a closed ring goes on")
		}
	},
}
