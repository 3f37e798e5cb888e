package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"ringfence/storage"
)

// counter gives UUIDs 1, 2, 3.
func counter() func() storage.UUID {
	n := byte(0)
	return func() storage.UUID {
		n++
		return storage.UUID{15: n}
	}
}

func blanks(n int) []found {
	disks := make([]found, n)
	for i := range disks {
		disks[i] = found{path: fmt.Sprintf("/d%d", i+1), look: lookBlank}
	}
	return disks
}

// formattedStore is what a fresh plan for n disks looks like at the next start.
func formattedStore(t *testing.T, n int) []found {
	t.Helper()
	p, err := planDisks(blanks(n), parityAuto, counter())
	if err != nil {
		t.Fatal(err)
	}
	var disks []found
	for _, set := range p.sets {
		for _, at := range set {
			disks = append(disks, found{path: at.path, look: lookFormatted, id: at.id})
		}
	}
	return disks
}

func TestPlanFresh(t *testing.T) {
	for _, tc := range []struct{ disks, parity, sets, wantParity int }{
		{1, parityAuto, 1, 0}, {2, parityAuto, 1, 1}, {4, parityAuto, 1, 2}, {6, parityAuto, 1, 2},
		{8, parityAuto, 1, 4}, {16, parityAuto, 1, 4}, {32, parityAuto, 2, 4}, {6, 3, 1, 3}, {6, 0, 1, 0},
	} {
		p, err := planDisks(blanks(tc.disks), tc.parity, counter())
		if err != nil {
			t.Errorf("%d disks, parity %d: %v", tc.disks, tc.parity, err)
			continue
		}
		seen := map[storage.UUID]bool{}
		n := 0
		for index, set := range p.sets {
			for slot, at := range set {
				n++
				id := at.id
				if !at.format || int(id.SetIndex) != index || int(id.Slot) != slot || int(id.SetCount) != tc.sets ||
					int(id.SetSize) != len(set) || int(id.Parity) != tc.wantParity || seen[id.Disk] || id.Deployment != p.sets[0][0].id.Deployment {
					t.Errorf("%d disks: place %d/%d is %+v", tc.disks, index, slot, at)
				}
				seen[id.Disk] = true
			}
		}
		if !p.fresh || n != tc.disks || len(p.sets) != tc.sets {
			t.Errorf("%d disks: fresh %v, %d places in %d sets", tc.disks, p.fresh, n, len(p.sets))
		}
	}
}

func TestPlanRefuses(t *testing.T) {
	store := func(n int, change func(d []found) []found) []found {
		return change(formattedStore(t, n))
	}
	for _, tc := range []struct {
		name   string
		disks  []found
		parity int
		says   []string
	}{
		{"foreign directories, all of them", append(blanks(2), found{"/x", lookForeign, storage.Identity{}, nil, "holds holiday.jpg"}, found{"/y", lookForeign, storage.Identity{}, nil, "holds etc"}),
			parityAuto, []string{"/x: holds holiday.jpg", "/y: holds etc"}},
		{"parity beyond half", blanks(6), 4, []string{"parity"}},
		{"damaged among blanks", append(blanks(3), found{"/x", lookDamaged, storage.Identity{}, nil, "superblock unreadable"}), parityAuto, []string{"/x: superblock unreadable"}},
		{"unreadable at first start", append(blanks(3), found{"/x", lookBroken, storage.Identity{}, nil, "permission denied"}), parityAuto, []string{"/x: permission denied"}},
		{"two stores", store(4, func(d []found) []found {
			d[3].id.Deployment = storage.UUID{1}
			return d
		}), parityAuto, []string{"different stores", "/d4"}},
		{"a cloned disk", store(4, func(d []found) []found {
			d[3].id = d[0].id
			return d
		}), parityAuto, []string{"/d1 and /d4 hold copies"}},
		{"one place twice", store(4, func(d []found) []found {
			d[3].id.Slot = 0
			return d
		}), parityAuto, []string{"both claim set 0, slot 0"}},
		{"too many disks", store(4, func(d []found) []found {
			return append(d, found{path: "/new", look: lookBlank})
		}), parityAuto, []string{"5 disks given, but the store has 4", "/new"}},
		{"other parity", formattedStore(t, 6), 1, []string{"1 asked for, but the store was made with 2"}},
		{"a set without disks", formattedStore(t, 32)[:16], parityAuto, []string{"none of the disks of set 1 (of 2)"}},
		{"other set count", store(4, func(d []found) []found {
			d[3].id.SetCount = 2
			return d
		}), parityAuto, []string{"/d4 was made for a store of 2 sets"}},
		{"a slot beyond the set", store(4, func(d []found) []found {
			d[3].id.Slot = 9
			return d
		}), parityAuto, []string{"makes no sense"}},
		{"other set size", store(4, func(d []found) []found {
			d[3].id.SetSize = 5
			return d
		}), parityAuto, []string{"/d4 does not agree"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := planDisks(tc.disks, tc.parity, counter())
			if err == nil {
				t.Fatal("no error")
			}
			for _, s := range tc.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%q lacks %q", err, s)
				}
			}
		})
	}
}

func TestPlanExisting(t *testing.T) {
	disks := formattedStore(t, 6)
	slices.Reverse(disks)
	p, err := planDisks(disks, 2, counter())
	if err != nil {
		t.Fatal(err)
	}
	for slot, at := range p.sets[0] {
		if want := fmt.Sprintf("/d%d", slot+1); at.path != want || at.format {
			t.Errorf("slot %d: %s, want %s: identity decides, not order", slot, at.path, want)
		}
	}
	if p.fresh || len(p.vacant) > 0 || len(p.notes) > 0 {
		t.Errorf("a whole store gives %+v", p)
	}
}

func TestPlanDegraded(t *testing.T) {
	disks := formattedStore(t, 6)
	disks[1] = found{path: "/d2", look: lookBlank}
	disks[3] = found{path: "/d4", look: lookAbsent}
	disks[4] = found{path: "/d5", look: lookDamaged, reason: "superblock: bad checksum"}
	p, err := planDisks(disks, parityAuto, counter())
	if err != nil {
		t.Fatal(err)
	}
	for slot, at := range p.sets[0] {
		missing := slot == 1 || slot == 3 || slot == 4
		if (at.path == "") != missing || at.id.Disk.IsZero() != missing || int(at.id.Slot) != slot || at.format {
			t.Errorf("slot %d: %+v", slot, at)
		}
	}
	if !slices.Equal(p.vacant, []string{"/d2", "/d4", "/d5"}) {
		t.Errorf("vacant %q", p.vacant)
	}
	notes := strings.Join(p.notes, "\n")
	for _, s := range []string{"/d2 is left out: it is empty", "/d4 is left out: there is no such directory", "bad checksum", "slot 3 has no disk"} {
		if !strings.Contains(notes, s) {
			t.Errorf("notes lack %q:\n%s", s, notes)
		}
	}
}

// A first start that was cut short between formatting disks goes on with the
// identities that it had chosen.
func TestPlanResumesUnfinishedFirstStart(t *testing.T) {
	disks := formattedStore(t, 6)
	for i := 2; i < 6; i++ {
		id := disks[i].id
		disks[i] = found{path: disks[i].path, look: lookBlank, pending: &id}
	}
	p, err := planDisks(disks, parityAuto, counter())
	if err != nil {
		t.Fatal(err)
	}
	for slot, at := range p.sets[0] {
		if at.path == "" || at.format != (slot >= 2) {
			t.Errorf("slot %d: %+v", slot, at)
		}
	}
	// A mark of another store's first start means nothing here.
	disks[5].pending.Deployment = storage.UUID{9}
	p, err = planDisks(disks, parityAuto, counter())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(p.vacant, []string{"/d6"}) {
		t.Errorf("vacant %q", p.vacant)
	}
}
