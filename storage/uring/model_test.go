package uring

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ringfence/internal/env"
	"ringfence/storage"
	"ringfence/storage/uring/ring"
	"ringfence/storage/uring/ringtest"
)

var (
	modelSeed = flag.Uint64("model.seed", 0, "run this one schedule of the model")
	modelRuns = flag.Int("model.runs", 5000, "schedules of the model")
)

// TestModel runs a shard and a simulated kernel in one goroutine, in an order
// that a seed decides: reads, cancellations, completions in any order, short
// ones, errors, hangs, closing and dying. Whatever happens, everybody gets an
// answer, what is delivered is what the file holds, and memory and files are
// given back once, when the kernel is done.
func TestModel(t *testing.T) {
	if *modelSeed != 0 {
		if err := schedule(*modelSeed, newPool(t, 8<<20)); err != nil {
			t.Fatal(err)
		}
		return
	}
	runs := *modelRuns
	switch {
	case required("million"):
		runs = 1_000_000
	case testing.Short():
		runs /= 5
	}
	base := rand.Uint64()
	t.Logf("seeds from %d on", base)
	var wg sync.WaitGroup
	var next atomic.Int64
	for range 2 {
		wg.Go(func() {
			pool := newPool(t, 8<<20)
			for n := next.Add(1); n <= int64(runs) && !t.Failed(); n = next.Add(1) {
				seed := base + uint64(n)
				if err := schedule(seed, pool); err != nil {
					t.Errorf("-model.seed=%d: %v", seed, err)
				}
			}
		})
	}
	wg.Wait()
}

// model is one schedule.
type model struct {
	rng   *rand.Rand
	sim   *ringtest.Sim
	pool  *storage.Pool
	d     *Driver
	s     *shard
	now   time.Time
	files []modelFile
	ops   []*modelOp
	ended bool // the shard was told to end
}

type modelFile struct {
	*ringtest.SimFile
	data  []byte
	align int
	pipe  bool
}

type modelOp struct {
	*Op
	file modelFile
	off  int
	bufs []*storage.Buf
	left bool // given up by its caller
}

var (
	modelData  = content(20_000)
	modelMarks = bytes.Repeat([]byte{marker}, 9000)
	// Legacy is dear: its regions are mapped anew.
	modelModes = []Mode{ModeNonFixed, ModeDynamic, ModeNonFixed, ModeDynamic, ModeNonFixed, ModeDynamic, ModeNonFixed, ModeLegacy}
)

func newModel(seed uint64, pool *storage.Pool) (*model, error) {
	m := &model{rng: rand.New(rand.NewPCG(seed, 1)), pool: pool, now: time.Unix(1, 0)}
	m.sim = ringtest.NewSim(ringtest.SimOptions{Seed: seed, Manual: true, Idle: func() {
		for range m.rng.IntN(3) {
			m.sim.Step()
		}
	}})
	chance := func(most float64) float64 {
		if m.rng.IntN(2) == 0 {
			return 0
		}
		return most * m.rng.Float64()
	}
	m.sim.SetFaults(ringtest.Faults{
		Short: chance(0.6), Ragged: chance(0.5), Transient: chance(0.4), Fail: chance(0.2), Hang: chance(0.1),
		Late: chance(0.5), Busy: chance(0.3), Enter: chance(0.3), Partial: chance(0.5), Scribble: m.rng.IntN(2) == 0,
	})
	o, err := Options{
		Dir: "simulated", Pool: pool, Entries: 1 << m.rng.IntN(4), Mode: modelModes[m.rng.IntN(len(modelModes))], Setup: m.sim.Setup,
		Env: env.Env{
			Now:   func() time.Time { return m.now },
			Rand:  func(p []byte) { clear(p) },
			Go:    func(f func()) { f() },
			After: func(time.Duration) (<-chan time.Time, func()) { return nil, func() {} },
		},
	}.withDefaults()
	if err != nil {
		return nil, err
	}
	m.d = newDriver(o)
	m.d.registry.open(m.d)
	m.d.sizeOf = func(fd int) (int64, error) {
		for _, f := range m.files {
			if f.FD() == fd {
				return int64(len(f.data)), nil
			}
		}
		return 0, unix.EBADF
	}
	l := m.d.lanes[0]
	m.s = newShard(l)
	m.s.table = newTable(o.Entries)
	if m.s.ring, err = m.sim.Setup(ring.Options{Entries: max(o.Entries, ringEntriesMin)}); err != nil {
		return nil, err
	}
	m.s.fixed.open(m.s)
	l.install(m.s)
	m.files = []modelFile{
		{SimFile: m.sim.File(modelData), data: modelData},
		{SimFile: m.sim.Direct(modelData, 512), data: modelData, align: 512},
		{SimFile: m.sim.Direct(modelData, 4096), data: modelData, align: 4096},
		{SimFile: m.sim.Pipe(), pipe: true},
	}
	return m, nil
}

func schedule(seed uint64, pool *storage.Pool) error {
	m, err := newModel(seed, pool)
	if err != nil {
		return err
	}
	for range 5 + m.rng.IntN(60) {
		if err := m.act(); err != nil {
			return err
		}
		if s := m.d.lanes[0].counts.snapshot(); s.Submitted != s.Delivered+s.Orphans+s.InFlight {
			return fmt.Errorf("not conserved: %+v", s)
		}
	}
	if m.rng.IntN(3) > 0 {
		m.sim.SetFaults(ringtest.Faults{})
		m.sim.Unhang()
	}
	if err := m.end(); err != nil {
		return err
	}
	return m.audit()
}

func (m *model) act() error {
	switch k := m.rng.IntN(100); {
	case k < 35:
		return m.submit()
	case k < 60:
		if !m.s.over() {
			m.s.turn()
		}
	case k < 80:
		m.sim.Step()
	case k < 93:
		if len(m.ops) > 0 {
			o := m.ops[m.rng.IntN(len(m.ops))]
			if m.rng.IntN(4) == 0 { // leaves without a word
				o.left = o.state.CompareAndSwap(opWaiting, opAbandoned) || o.left
			} else if o.state.Load() == opWaiting {
				o.left = true
				o.Cancel()
			}
		}
	case k < 97:
		if _, err := m.files[3].Write([]byte("pppppppp")[:1+m.rng.IntN(8)]); err != nil {
			return err
		}
	case k < 98:
		m.ended = true
		m.s.mail.shutdown()
	case k < 99:
		if m.rng.IntN(4) == 0 && !m.s.ending.began {
			m.ended = true
			m.s.die(unix.EIO)
		}
	default:
		m.now = m.now.Add(time.Second)
	}
	return nil
}

func (m *model) submit() error {
	o := &modelOp{file: m.files[m.rng.IntN(len(m.files))], off: m.rng.IntN(len(modelData) + 600)}
	if m.rng.IntN(3) == 0 {
		o.off &^= 4095
	}
	n := 1
	if !o.file.pipe {
		n = 1 + m.rng.IntN(min(3, m.d.opts.Entries))
	}
	for range n {
		b, err := m.pool.Get(m.rng.IntN(9000 >> m.rng.IntN(6)))
		if err != nil {
			return err
		}
		copy(b.Bytes(), modelMarks)
		o.bufs = append(o.bufs, b)
	}
	op, err := m.d.trySubmit(Request{File: o.file, Bufs: o.bufs, Off: int64(o.off), Align: o.file.align}, o.file.pipe)
	if err == nil {
		o.Op = op
		m.ops = append(m.ops, o)
		return nil
	}
	for _, b := range o.bufs {
		b.Release()
	}
	if err == ErrSaturated || m.ended && errors.Is(err, ErrClosed) {
		return nil
	}
	return fmt.Errorf("submit: %w", err)
}

// end brings the shard to its end.
func (m *model) end() error {
	m.s.mail.shutdown()
	m.ended = true
	for turns := 0; !m.s.over(); turns++ {
		if turns > 10_000 {
			return errors.New("the shard does not end")
		}
		m.now = m.now.Add(m.d.opts.DrainTimeout / 200)
		m.s.turn()
		m.sim.Step()
	}
	if err := m.sim.Err(); err != nil {
		return err
	}
	queued := m.s.ring.Queued()
	if m.s.finish() {
		if err := m.sim.Err(); err != nil && queued == 0 {
			return err
		}
		return nil
	}
	// Given up. The kernel comes back and writes, which must still be right.
	m.sim.SetFaults(ringtest.Faults{})
	m.sim.Unhang()
	m.files[3].CloseWrite()
	for m.sim.Step() {
	}
	if err := m.sim.Err(); err != nil {
		return fmt.Errorf("after giving up: %w", err)
	}
	leaked := 0
	for slot := range m.s.table.entries {
		if e := &m.s.table.entries[slot]; e.op != nil {
			leaked++
			if e.inKernel {
				e.inKernel = false
				m.s.inKernel--
			}
			if e.op.state.Load() == opWaiting {
				return errors.New("somebody waits for what was given up")
			}
			p := &e.op.pieces[e.piece]
			p.release()
			if e.op.left--; e.op.left == 0 {
				m.d.closeFile(e.op.file)
			}
		}
	}
	if n := m.d.lanes[0].counts.snapshot(); int(n.Leaked) != leaked {
		return fmt.Errorf("%d leaked, counted %+v", leaked, n)
	}
	m.s.close()
	return nil
}

// audit looks at what everybody got, and what is left.
func (m *model) audit() error {
	delivered, orphans := 0, 0
	for i, o := range m.ops {
		select {
		case <-o.done:
		default:
			if o.state.Load() != opAbandoned {
				return fmt.Errorf("op %d: nobody is told", i)
			}
		}
		n, err := o.result()
		switch o.state.Load() {
		case opDelivered:
			delivered += o.count
			if err := m.check(o, n, err); err != nil {
				return fmt.Errorf("op %d, %d bytes at %d, align %d: %w", i, o.bytes, o.off, o.file.align, err)
			}
		case opAbandoned:
			if !o.left {
				return fmt.Errorf("op %d was abandoned by nobody", i)
			}
			orphans += o.count
		case opWaiting:
			return fmt.Errorf("op %d waits", i)
		}
		for _, b := range o.bufs {
			b.Release()
		}
	}
	m.d.registry.close()
	s := m.d.lanes[0].counts.snapshot()
	if int(s.Delivered) != delivered || s.Leaked == 0 && (int(s.Orphans) != orphans || s.InFlight != 0) || s.Overflow != 0 {
		return fmt.Errorf("%d delivered, %d orphans, counted %+v", delivered, orphans, s)
	}
	if c := s.Cancels; c.Succeeded+c.NotFound+c.Already > s.Submitted {
		return fmt.Errorf("more cancellations than reads: %+v", s)
	}
	if n := m.pool.InUse(); n != 0 {
		return fmt.Errorf("%d bytes of buffers are in use", n)
	}
	for i, f := range m.files {
		if f.Refs() != 1 {
			return fmt.Errorf("file %d has %d references", i, f.Refs())
		}
	}
	if s.Leaked == 0 && m.d.permits.out != 0 {
		return fmt.Errorf("%d permits are out", m.d.permits.out)
	}
	return nil
}

// check compares what was delivered with the file.
func (m *model) check(o *modelOp, n int, err error) error {
	if err != nil {
		for _, fine := range []error{unix.EIO, unix.EINTR, unix.EAGAIN, ErrShort} {
			if errors.Is(err, fine) {
				return nil
			}
		}
		if m.ended && (errors.Is(err, unix.ECANCELED) || errors.Is(err, ErrClosed)) {
			return nil
		}
		return err
	}
	var got []byte
	for _, b := range o.bufs {
		got = append(got, b.Bytes()...)
	}
	if o.file.pipe {
		if n > 0 && len(bytes.Trim(got[:n], "p")) > 0 {
			return errors.New("other bytes than were written to the pipe")
		}
		return nil
	}
	want := modelData[min(o.off, len(modelData)):min(o.off+int(o.bytes), len(modelData))]
	if !bytes.Equal(got[:n], want) {
		return fmt.Errorf("%d bytes instead of %d, or others", n, len(want))
	}
	return nil
}
