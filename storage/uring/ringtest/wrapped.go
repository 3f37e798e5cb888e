package ringtest

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"ringfence/storage/uring/ring"
)

// wrapped is a ring under a script.
type wrapped struct {
	n     int
	s     *Script
	inner ring.Ring

	pending map[uint64][]entry // by user data, in the order of pushing
	ready   []ring.CQE         // taken from inner, to be given
	held    []held             // taken from inner, not to be given yet
	closed  bool
}

// held is a completion held back, by a stall or by the hook.
type held struct {
	e      entry
	c      ring.CQE
	hooked bool
	since  int // generation of ReleaseAll
}

func (w *wrapped) Info() ring.Info {
	i := w.inner.Info()
	if hook := w.s.current().Info; hook != nil {
		i = hook(w.n, i)
	}
	return i
}

func (w *wrapped) Push(e ring.SQE) bool {
	if hook := w.s.current().Push; hook != nil && !hook(w.n, &e) {
		return false
	}
	if !w.inner.Push(e) {
		return false
	}
	pushed := newEntry(e)
	w.pending[e.UserData] = append(w.pending[e.UserData], pushed)
	w.s.count(func(c *Counts) {
		c.Pushed++
		switch {
		case pushed.wake:
			c.Wakes++
		case e.Opcode == ring.OpAsyncCancel:
			c.Cancels++
		case e.Opcode == ring.OpReadFixed:
			c.Fixed++
			c.Reads++
		case pushed.read():
			c.Reads++
		}
	})
	return true
}

func (w *wrapped) Queued() int { return w.inner.Queued() }

func (w *wrapped) Enter(wait int, timeout time.Duration) error {
	queued := w.inner.Queued()
	if err := w.s.enterError(queued); err != nil {
		return err
	}
	if hook := w.s.current().Enter; hook != nil {
		if err := hook(w.n, queued, wait); err != nil {
			return err
		}
	}
	w.release()
	wait -= len(w.ready)
	if wait <= 0 {
		return w.inner.Enter(0, 0)
	}
	if len(w.held) == 0 {
		return w.inner.Enter(wait, timeout)
	}
	return w.enterHolding(wait+len(w.ready), timeout)
}

// enterHolding waits for the kernel and for the script at once.
func (w *wrapped) enterHolding(wait int, timeout time.Duration) error {
	start := time.Now()
	for {
		slice := heldPoll
		if timeout >= 0 {
			slice = max(min(slice, timeout-time.Since(start)), 0)
		}
		err := w.inner.Enter(1, slice)
		for w.pull() {
		}
		w.release()
		if err != nil || len(w.ready) >= wait || timeout >= 0 && time.Since(start) >= timeout {
			return err
		}
	}
}

func (w *wrapped) Next() (ring.CQE, bool) {
	w.release()
	for len(w.ready) == 0 {
		if !w.pull() {
			return ring.CQE{}, false
		}
	}
	c := w.ready[0]
	w.ready = w.ready[1:]
	w.s.count(func(n *Counts) { n.Completed++ })
	return c, true
}

// pull takes one completion of the ring below, and false if there is none.
func (w *wrapped) pull() bool {
	c, ok := w.inner.Next()
	if !ok {
		return false
	}
	var e entry
	if of := w.pending[c.UserData]; len(of) > 1 {
		e, w.pending[c.UserData] = of[0], of[1:]
	} else if len(of) == 1 {
		e = of[0]
		delete(w.pending, c.UserData)
	}
	c.Res = w.s.result(e, c.Res)
	if e.Opcode == ring.OpAsyncCancel && c.Res == -int32(unix.ENOENT) && w.holds(e.Addr) {
		c.Res = -int32(unix.EALREADY)
	}
	hooked := false
	if hook := w.s.current().Complete; hook != nil {
		hooked = hook(w.n, e.SQE, &c)
	}
	if !hooked && !w.s.stalled(e) {
		w.ready = append(w.ready, c)
		return true
	}
	w.held = append(w.held, held{e: e, c: c, hooked: hooked, since: w.s.generation()})
	w.s.count(func(n *Counts) { n.Held++ })
	return true
}

// holds reports whether the completion of an operation is held back.
func (w *wrapped) holds(userData uint64) bool {
	return slices.ContainsFunc(w.held, func(h held) bool { return h.c.UserData == userData })
}

// release moves what is to be held no longer to what is ready.
func (w *wrapped) release() {
	if len(w.held) == 0 {
		return
	}
	generation := w.s.generation()
	w.held = slices.DeleteFunc(w.held, func(h held) bool {
		if h.hooked && h.since == generation || w.s.stalled(h.e) {
			return false
		}
		w.ready = append(w.ready, h.c)
		w.s.count(func(n *Counts) { n.Held-- })
		return true
	})
}

func (w *wrapped) Overflow() uint32 {
	n := w.inner.Overflow()
	if hook := w.s.current().Overflow; hook != nil {
		n = hook(w.n, n)
	}
	return n
}

func (w *wrapped) Buffers(n int) error {
	if hook := w.s.current().Buffers; hook != nil {
		if err := hook(w.n, n); err != nil {
			return err
		}
	}
	w.s.count(func(c *Counts) { c.Buffers++ })
	return w.inner.Buffers(n)
}

func (w *wrapped) SetBuffer(place int, mem []byte) error {
	if hook := w.s.current().SetBuffer; hook != nil {
		if err := hook(w.n, place, mem); err != nil {
			return err
		}
	}
	w.s.count(func(c *Counts) { c.Updates++ })
	return w.inner.SetBuffer(place, mem)
}

func (w *wrapped) Close() error {
	if !w.closed {
		w.closed = true
		w.s.count(func(c *Counts) {
			c.Open--
			c.Held -= len(w.held)
		})
		w.held, w.ready = nil, nil
	}
	return w.inner.Close()
}
