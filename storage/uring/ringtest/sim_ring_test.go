//go:build linux

package ringtest_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"ringfence/storage/uring/ring"
	"ringfence/storage/uring/ringtest"
)

// TestSimAgainstRing submits random batches to the kernel and to a simulation:
// they give the same results and the same bytes.
func TestSimAgainstRing(t *testing.T) {
	var s ringtest.Script
	real := realRing(t, &s)
	sim := ringtest.NewSim(ringtest.SimOptions{Idle: func() { t.Error("nothing to complete") }})
	simulated := simRing(t, sim, 32)
	content := pattern(300_001)
	legs := []leg{newRealLeg(t, real, content), newSimLeg(t, simulated, sim, content)}
	if legs[0].direct < 0 {
		legs[1].direct = -1
	}
	batches := 400
	if testing.Short() {
		batches = 50
	}
	for seed := range uint64(batches) {
		var results [2]map[uint64]int32
		for i, l := range legs {
			for j := range l.mem {
				l.mem[j] = 0xa5
			}
			results[i] = l.run(t, rand.New(rand.NewPCG(seed, 9)))
		}
		for id, want := range results[0] {
			if got, ok := results[1][id]; !ok || got != want {
				t.Errorf("seed %d: entry %d: the kernel gives %d, the simulation %d", seed, id, want, got)
			}
		}
		if len(results[0]) != len(results[1]) || !bytes.Equal(legs[0].mem, legs[1].mem) {
			t.Errorf("seed %d: results %v and %v, or memory, differ", seed, results[0], results[1])
		}
		if t.Failed() {
			break
		}
	}
	rightly(t, sim)
}

// leg is a ring with a file, the same opened with O_DIRECT (or -1), two pipes
// and memory of 16 pieces, of which the first 8 are registered.
type leg struct {
	r                   ring.Ring
	file, direct, empty int
	full                int // refilled by fill
	fill                func()
	mem                 []byte
}

const piece = 32 << 10

func newRealLeg(t *testing.T, r ring.Ring, content []byte) leg {
	t.Helper()
	name := t.TempDir() + "/f"
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	l := leg{r: r, file: openFD(t, name, 0), direct: -1, mem: mapped(t, 16*piece)}
	if err := unix.Fsync(l.file); err != nil {
		t.Fatal(err)
	}
	if fd, err := unix.Open(name, unix.O_RDONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0); err == nil {
		l.direct = fd
		t.Cleanup(func() {
			if err := unix.Close(fd); err != nil {
				t.Error(err)
			}
		})
	}
	l.empty, _ = pipe(t)
	full, to := pipe(t)
	l.full, l.fill = full, func() {
		if _, err := unix.Write(to, []byte("0123456789")); err != nil {
			t.Error(err)
		}
	}
	l.register(t)
	return l
}

func newSimLeg(t *testing.T, r ring.Ring, sim *ringtest.Sim, content []byte) leg {
	t.Helper()
	full := sim.Pipe()
	l := leg{r: r, file: sim.File(content).FD(), direct: sim.Direct(content, 512).FD(), empty: sim.Pipe().FD(), mem: mapped(t, 16*piece)}
	l.full, l.fill = full.FD(), func() {
		if _, err := full.Write([]byte("0123456789")); err != nil {
			t.Error(err)
		}
	}
	l.register(t)
	return l
}

func (l leg) register(t *testing.T) {
	t.Helper()
	if err := errors.Join(l.r.Buffers(3), l.r.SetBuffer(1, l.mem[:8*piece])); err != nil {
		t.Fatal(err)
	}
}

// run makes a batch that the seed decides, one operation to a piece of memory.
func (l leg) run(t *testing.T, rng *rand.Rand) map[uint64]int32 {
	t.Helper()
	l.fill()
	entries := []ring.SQE{readAt(l.full, l.mem[:1+rng.IntN(20)], ring.CurrentPosition, 0)}
	for id := uint64(1); id < 16; id++ {
		entries = append(entries, l.entry(rng, l.mem[id*piece:(id+1)*piece], id)...)
	}
	push(t, l.r, entries...)
	got := map[uint64]int32{}
	for len(got) < len(entries) {
		enter(t, l.r, 1)
		for id, res := range drain(l.r) {
			got[id] = res
		}
	}
	// What a direct read leaves beyond its result is the file system's affair.
	for _, e := range entries {
		if int(e.FD) == l.direct && e.Opcode == ring.OpRead {
			rest := l.mem[e.UserData*piece:][max(got[e.UserData], 0):e.Len]
			for i := range rest {
				rest[i] = 0xa5
			}
		}
	}
	// What was left in the pipe, for the next batch.
	if rest := 10 - got[0]; rest > 0 {
		push(t, l.r, readAt(l.full, l.mem[:rest], ring.CurrentPosition, 99))
		enter(t, l.r, 1)
		got[99] = drain(l.r)[99]
	}
	return got
}

// entry makes one operation, or two that belong together.
func (l leg) entry(rng *rand.Rand, mem []byte, id uint64) []ring.SQE {
	off, n := uint64(rng.IntN(330_000)), rng.IntN(len(mem)-511)
	e := readAt(l.file, mem[:n], off, id)
	switch rng.IntN(11) {
	case 0:
		e = ring.SQE{UserData: id}
	case 1:
		e.FD = 1 << 20
	case 2:
		e.Opcode = 255
	case 3:
		e.Opcode, e.BufIndex = ring.OpReadFixed, uint16(rng.IntN(4))
	case 4:
		e.Off = 1<<63 + uint64(rng.IntN(1000))
	case 5:
		return []ring.SQE{{Opcode: ring.OpAsyncCancel, Addr: 1000, UserData: id}}
	case 6:
		return []ring.SQE{
			readAt(l.empty, mem[:100], ring.CurrentPosition, id),
			{Opcode: ring.OpAsyncCancel, Addr: id, UserData: id + 100},
		}
	case 7:
		if l.direct >= 0 { // the blocks are aligned, the end of the file is not
			e = readAt(l.direct, mem[:n&^511], off&^511, id)
		}
	case 8:
		if l.direct >= 0 {
			// Within the file: past its end the kernel looks at nothing. What
			// memory must be aligned to is the hardware's affair.
			e = readAt(l.direct, mem[:n&^511+512], off%200_000&^511, id)
			if rng.IntN(2) == 0 {
				e.Off++
			} else {
				e.Len--
			}
		}
	}
	return []ring.SQE{e}
}
