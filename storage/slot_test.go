package storage_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ringfence/storage"
	"ringfence/storage/storagetest"
)

func slotIdentity() storage.Identity {
	return storage.Identity{Disk: storage.UUID{1}, Set: storage.UUID{2}, SetCount: 1, SetSize: 4, Slot: 3, Parity: 1}
}

// place is a Slot on a simulated medium, with Run going.
type place struct {
	*storage.Slot
	sim     *storagetest.Sim
	opens   atomic.Int64
	wrap    func(storage.Disk) storage.Disk // around every instance, if not nil
	mu      sync.Mutex
	changes []string
}

// newPlace must be called in a synctest bubble.
func newPlace(t *testing.T, identity storage.Identity) *place {
	p := &place{sim: storagetest.NewSim(storagetest.SimOptions{Name: "sim"})}
	slot, err := storage.NewSlot(storage.SlotOptions{
		Name:   "place",
		Expect: slotIdentity(),
		Open: func(context.Context) (storage.Disk, error) {
			p.opens.Add(1)
			d, err := p.sim.Open(identity)
			if err != nil {
				return nil, err
			}
			if p.wrap != nil {
				return p.wrap(d), nil
			}
			return d, nil
		},
		OnChange: func(old, new storage.Health) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.changes = append(p.changes, fmt.Sprintf("%v>%v", old.State, new.State))
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	p.Slot = slot
	return p
}

// run starts Run, and ends it with the test.
func (p *place) run(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("run: %v", err)
		}
	})
	synctest.Wait()
}

// pass lets time go by.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (p *place) wantState(t *testing.T, state storage.State, reason string) {
	t.Helper()
	if h := p.Health(); h.State != state || !strings.Contains(h.Reason, reason) {
		t.Errorf("health is %v (%s), want %v (%s)", h.State, h.Reason, state, reason)
	}
}

func set(ctx context.Context, kv storage.KV, key string) error {
	var b storage.Batch
	b.Set([]byte(key), []byte("v"))
	return kv.Apply(ctx, &b)
}

func TestSlotComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(t, slotIdentity())
		p.wantState(t, storage.StateOffline, "not opened")
		early := p.KV()
		if err := p.Check(t.Context()); !errors.Is(err, storage.ErrOffline) {
			t.Errorf("check of an empty place: %v", err)
		}
		if p.Identity() != slotIdentity() {
			t.Error("an empty place has another identity")
		}
		p.run(t)
		p.wantState(t, storage.StateOK, "")
		kv := p.KV()
		if kv != p.KV() {
			t.Error("the same store, two values")
		}
		if err := set(t.Context(), kv, "a"); err != nil {
			t.Fatal(err)
		}
		if err := set(t.Context(), early, "a"); !errors.Is(err, storage.ErrOffline) {
			t.Errorf("store of the empty place: %v", err)
		}
		pass(5 * time.Second)
		p.sim.Vanish()
		pass(time.Second)
		p.wantState(t, storage.StateOffline, "offline")
		if _, err := kv.Get(t.Context(), []byte("a")); !errors.Is(err, storage.ErrOffline) {
			t.Errorf("old store while away: %v", err)
		}
		p.sim.Return()
		pass(30 * time.Second)
		p.wantState(t, storage.StateOK, "")
		if _, err := kv.Get(t.Context(), []byte("a")); !errors.Is(err, storage.ErrOffline) {
			t.Errorf("old store after the return: %v", err)
		}
		if _, err := p.KV().Get(t.Context(), []byte("a")); err != nil {
			t.Errorf("new store: %v", err)
		}
		if want := []string{"offline>ok", "ok>offline", "offline>ok"}; fmt.Sprint(p.changes) != fmt.Sprint(want) {
			t.Errorf("changes %v, want %v", p.changes, want)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		p.wantState(t, storage.StateOffline, "closed")
		pass(time.Minute)
		p.wantState(t, storage.StateOffline, "closed")
	})
}

func TestSlotStartsDegradedAndBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(t, slotIdentity())
		p.sim.Vanish()
		p.run(t)
		pass(10 * time.Minute)
		// 1+2+4+8+16 s, then every 30 s.
		if n := p.opens.Load(); n < 20 || n > 26 {
			t.Errorf("%d attempts in 10 minutes", n)
		}
		p.sim.Return()
		pass(31 * time.Second)
		p.wantState(t, storage.StateOK, "")
	})
}

func TestSlotRefusesAnotherDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := slotIdentity()
		other.Disk[0]++
		p := newPlace(t, other)
		p.run(t)
		pass(10 * time.Second)
		p.wantState(t, storage.StateOffline, "another disk")
		if _, err := p.ListShards(t.Context(), storage.ShardID{}, 1); !errors.Is(err, storage.ErrOffline) || !strings.Contains(err.Error(), other.Disk.String()) {
			t.Errorf("list: %v", err)
		}
	})
}

// TestSlotNoticesFailedCalls expects a failed write to bring the next instance
// at once, not at the next tick.
func TestSlotNoticesFailedCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(t, slotIdentity())
		p.run(t)
		pass(3500 * time.Millisecond)
		p.sim.SetHook(func(op storagetest.Op) storagetest.Fault {
			if op.Kind == storagetest.OpApply {
				return storagetest.Fault{Kind: storagetest.FaultFail}
			}
			return storagetest.Fault{}
		})
		kv := p.KV()
		if err := set(t.Context(), kv, "a"); !errors.Is(err, storage.ErrFailed) {
			t.Fatal(err)
		}
		synctest.Wait()
		if p.opens.Load() != 2 {
			t.Errorf("%d instances, want a second one at once", p.opens.Load())
		}
		p.wantState(t, storage.StateOK, "")
		// A disk that fails as soon as it is back is not reopened in a loop.
		for range 600 {
			if err := set(t.Context(), p.KV(), "a"); err == nil {
				t.Fatal("apply succeeds")
			}
			pass(time.Second)
		}
		if n := p.opens.Load(); n > 50 {
			t.Errorf("%d instances in 10 minutes", n)
		}
		p.sim.SetHook(nil)
		pass(time.Minute)
		if err := set(t.Context(), p.KV(), "a"); err != nil {
			t.Errorf("after the fault: %v", err)
		}
	})
}

// TestSlotLetsAStoreBeReset: a disk whose metadata store is corrupt is open and
// failed; it must stay long enough for someone to reset it.
func TestSlotLetsAStoreBeReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(t, slotIdentity())
		p.sim.RotKV()
		p.run(t)
		pass(10 * time.Minute)
		if n := p.opens.Load(); n > 30 {
			t.Errorf("%d instances in 10 minutes", n)
		}
		for range 60 { // between two instances there may be none
			if err := p.ResetKV(t.Context()); err == nil {
				break
			}
			pass(time.Second)
		}
		pass(2 * time.Minute)
		before := p.opens.Load()
		p.wantState(t, storage.StateOK, "")
		if err := set(t.Context(), p.KV(), "a"); err != nil {
			t.Error(err)
		}
		pass(time.Minute)
		if p.opens.Load() != before {
			t.Error("a disk that is well was opened again")
		}
	})
}

func TestSlotShardsPassThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(t, slotIdentity())
		p.Tend(t.Context())
		id := storage.ShardID{UUID: storage.UUID{7}}
		w, err := p.CreateShard(t.Context(), id, storage.ShardInfo{BlockSize: 4096})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(w.Append(t.Context(), []byte("block"), storage.Sum{}), w.Seal(t.Context())); err != nil {
			t.Fatal(err)
		}
		r, err := p.OpenShard(t.Context(), id)
		if err != nil || r.Info().Size != 5 {
			t.Fatalf("open: %v", err)
		}
		if ids, err := p.ListShards(t.Context(), storage.ShardID{}, 10); err != nil || len(ids) != 1 {
			t.Errorf("list: %v, %v", ids, err)
		}
		if err := errors.Join(r.Close(), p.RemoveShard(t.Context(), id), p.Check(t.Context())); err != nil {
			t.Error(err)
		}
		if _, err := p.OpenShard(t.Context(), id); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("open after remove: %v", err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
}

// stuck is a disk that does not answer some calls until it is freed.
type stuck struct {
	storage.Disk
	check, close bool
	health       atomic.Bool
	free         chan struct{}
}

func (d *stuck) Health() storage.Health {
	if d.health.Load() {
		<-d.free
	}
	return d.Disk.Health()
}

func (d *stuck) Check(ctx context.Context) error {
	if d.check {
		<-d.free
	}
	return d.Disk.Check(ctx)
}

func (d *stuck) Close() error {
	if d.close {
		<-d.free
	}
	return d.Disk.Close()
}

func TestSlotOutlivesADiskThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(t, slotIdentity())
		free := make(chan struct{})
		p.wrap = func(d storage.Disk) storage.Disk { return &stuck{Disk: d, check: true, close: true, free: free} }
		p.run(t)
		kv := p.KV()
		pass(11500 * time.Millisecond)
		p.sim.Vanish()
		p.wantState(t, storage.StateOffline, "no answer for 10s")
		if _, err := kv.Get(t.Context(), []byte("a")); !errors.Is(err, storage.ErrOffline) {
			t.Errorf("store of the instance that hangs: %v", err)
		}
		p.sim.Return()
		pass(time.Hour)
		if n := p.opens.Load(); n != 4 {
			t.Errorf("%d instances were left behind, want 4", n)
		}
		p.wantState(t, storage.StateOffline, "restart")
		p.wrap = nil
		close(free)
		pass(time.Minute)
		p.wantState(t, storage.StateOK, "")
	})
}

// TestSlotOutlivesAHealthThatHangs: a disk that breaks the contract of Health is
// taken out like one whose check hangs, whether it does so from the start or
// later.
func TestSlotOutlivesAHealthThatHangs(t *testing.T) {
	for _, later := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := newPlace(t, slotIdentity())
			free := make(chan struct{})
			disk := &stuck{free: free}
			disk.health.Store(!later)
			p.wrap = func(d storage.Disk) storage.Disk {
				if p.opens.Load() > 1 {
					return d
				}
				disk.Disk = d
				return disk
			}
			p.run(t)
			pass(5 * time.Second)
			disk.health.Store(true)
			pass(time.Minute)
			if n := p.opens.Load(); n != 2 {
				t.Errorf("%d instances, want another one", n)
			} else {
				p.wantState(t, storage.StateOK, "")
			}
			close(free)
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestSlotCloseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(t, slotIdentity())
		free := make(chan struct{})
		p.wrap = func(d storage.Disk) storage.Disk { return &stuck{Disk: d, close: true, free: free} }
		p.Tend(t.Context())
		p.wantState(t, storage.StateOK, "")
		start := time.Now()
		if err := p.Close(); !errors.Is(err, storage.ErrOffline) || time.Since(start) != 10*time.Second {
			t.Errorf("close: %v after %s", err, time.Since(start))
		}
		close(free)
	})
}

// TestSlotClosesWhatOpensTooLate: an attempt that outlives Close must not leave
// a disk open.
func TestSlotClosesWhatOpensTooLate(t *testing.T) {
	for _, late := range []string{"before close", "after close"} {
		synctest.Test(t, func(t *testing.T) {
			sim := storagetest.NewSim(storagetest.SimOptions{})
			free := make(chan struct{})
			var disk storage.Disk
			slot, err := storage.NewSlot(storage.SlotOptions{Expect: slotIdentity(), Open: func(context.Context) (storage.Disk, error) {
				<-free
				d, err := sim.Open(slotIdentity())
				disk = d
				return d, err
			}})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- slot.Run(ctx) }()
			synctest.Wait()
			cancel()
			<-done
			if late == "before close" {
				close(free)
				synctest.Wait()
			}
			if err := slot.Close(); err != nil {
				t.Error(err)
			}
			if late == "after close" {
				close(free)
			}
			synctest.Wait()
			if err := disk.Check(t.Context()); !errors.Is(err, storage.ErrOffline) {
				t.Errorf("opened %s: still open (%v)", late, err)
			}
		})
	}
}
