package storage_test

import (
	"context"
	"testing"

	"ringfence/storage"
	"ringfence/storage/storagetest"
)

// A place whose disk nobody knows takes any disk that was made for it, and no
// other.
func TestSlotWithoutKnownDisk(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(id *storage.Identity)
		want   storage.State
	}{
		{"any disk of the place", func(id *storage.Identity) { id.Disk = storage.UUID{77} }, storage.StateOK},
		{"another place", func(id *storage.Identity) { id.Slot++ }, storage.StateOffline},
		{"another set", func(id *storage.Identity) { id.Set = storage.UUID{78} }, storage.StateOffline},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sim := storagetest.NewSim(storagetest.SimOptions{Name: "sim"})
			there, expect := slotIdentity(), slotIdentity()
			tc.change(&there)
			expect.Disk = storage.UUID{}
			slot, err := storage.NewSlot(storage.SlotOptions{Name: "place", Expect: expect,
				Open: func(context.Context) (storage.Disk, error) { return sim.Open(there) }})
			if err != nil {
				t.Fatal(err)
			}
			slot.Tend(t.Context())
			if got := slot.Health(); got.State != tc.want {
				t.Errorf("the place is %v: %s", got.State, got.Reason)
			}
			if err := slot.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
