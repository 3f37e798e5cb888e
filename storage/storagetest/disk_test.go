package storagetest

import (
	"context"
	"testing"

	"ringfence/storage"
)

func TestSimDisk(t *testing.T) {
	TestDisk(t, DiskHarness{
		Open: func(t *testing.T) storage.Disk { return openSim(t, NewSim(SimOptions{Name: "sim"})) },
		Reopen: func(t *testing.T, closed storage.Disk) storage.Disk {
			s := sim(t, closed)
			s.SetHook(nil)
			return openSim(t, s)
		},
		Damage: func(t *testing.T, d storage.Disk, id storage.ShardID, _ Damage) {
			if !sim(t, d).Spoil(id) {
				t.Error("no such shard")
			}
		},
		FailApply: func(t *testing.T, d storage.Disk) {
			sim(t, d).SetHook(func(op Op) Fault {
				if op.Kind == OpApply {
					return Fault{Kind: FaultUnknown}
				}
				return Fault{}
			})
		},
	})
}

func sim(t *testing.T, d storage.Disk) *Sim {
	t.Helper()
	s, ok := d.(*SimDisk)
	if !ok {
		t.Fatalf("a %T", d)
	}
	return s.Sim()
}

// TestSlotIsADisk: whatever sits in it, a Slot keeps the contract.
func TestSlotIsADisk(t *testing.T) {
	TestDisk(t, DiskHarness{Open: func(t *testing.T) storage.Disk {
		s := NewSim(SimOptions{Name: "sim"})
		slot, err := storage.NewSlot(storage.SlotOptions{
			Expect: identity(1),
			Open:   func(ctx context.Context) (storage.Disk, error) { return s.Open(identity(1)) },
		})
		if err != nil {
			t.Fatal(err)
		}
		slot.Tend(t.Context())
		return slot
	}})
}
