package storage_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"ringfence/storage"
	"ringfence/storage/storagetest"
)

// TestSlotSurvivesAnything hurts a disk at random for an hour. A store that was
// handed out before the disk went away never answers again, the place never
// hangs, and once the faults stop the disk is back within the longest backoff.
func TestSlotSurvivesAnything(t *testing.T) {
	seeds := uint64(30)
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			p := newPlace(t, slotIdentity())
			p.run(t)
			var old []storage.KV
			for range 400 {
				kv := p.KV()
				switch rng.IntN(8) {
				case 0:
					p.sim.Vanish()
					old = append(old, kv)
				case 1:
					p.sim.Return()
				case 2:
					p.sim.Crash(rng)
					old = append(old, kv)
				case 3:
					p.sim.RotKV()
					old = append(old, kv)
				case 4:
					p.sim.SetHook(func(op storagetest.Op) storagetest.Fault {
						if op.N%3 == 0 {
							return storagetest.Fault{Kind: storagetest.FaultFail}
						}
						return storagetest.Fault{}
					})
				case 5:
					p.sim.SetHook(nil)
				default:
					// Both succeed only where the disk is well.
					_ = p.ResetKV(t.Context())
					_ = set(t.Context(), p.KV(), "a")
				}
				for _, kv := range old {
					if err := set(t.Context(), kv, "b"); err == nil {
						t.Fatalf("seed %d: a store from before the disk was gone answers", seed)
					}
				}
				pass(time.Duration(rng.IntN(18_000)) * time.Millisecond)
			}
			p.sim.SetHook(nil)
			p.sim.Return()
			for range 80 {
				if p.Health().State != storage.StateOK {
					_ = p.ResetKV(t.Context())
				}
				pass(time.Second)
			}
			p.wantState(t, storage.StateOK, "")
			if err := set(t.Context(), p.KV(), "a"); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		})
	}
}
