package main

import (
	"fmt"
	"slices"
	"strings"

	"ringfence/erasure"
	"ringfence/storage"
)

// look is what a DISK argument turned out to be.
type look uint8

const (
	lookBlank     look = iota // an empty directory, or none where one can be made
	lookFormatted             // a disk of some store
	lookDamaged               // a disk of ours whose identity can't be read
	lookForeign               // somebody else's directory
	lookAbsent                // no such directory
	lookBroken                // can't be read at all
)

// found is one DISK argument and what is there.
type found struct {
	path    string
	look    look
	id      storage.Identity  // lookFormatted
	pending *storage.Identity // left by a first start that didn't finish
	reason  string            // damaged, foreign, broken: what is wrong
}

// place is a position in a set. Without a path no disk was found for it; the
// Disk of its identity is zero then, since nobody knows which one was there.
type place struct {
	path   string
	id     storage.Identity
	format bool // has to be formatted before use
}

// plan says which directory is which disk of which set.
type plan struct {
	fresh  bool // a new store: every place is to be formatted
	sets   [][]place
	vacant []string // arguments that hold no disk of the store, candidates for places without path
	notes  []string // what is missing, for people
}

// planDisks decides what the directories are: a new store, or one that exists,
// perhaps with disks missing. parity is parityAuto or what was asked for. It
// touches nothing; newUUID is chance. All refusals come at once as a
// *configError.
func planDisks(disks []found, parity int, newUUID func() storage.UUID) (plan, error) {
	bad := &configError{}
	formatted := 0
	for _, d := range disks {
		switch d.look {
		case lookForeign:
			bad.problems = append(bad.problems, fmt.Sprintf("disk %s: %s: a disk must be an empty directory or one of Ringfence's own", d.path, d.reason))
		case lookFormatted:
			formatted++
		}
	}
	if len(bad.problems) > 0 {
		return plan{}, bad
	}
	if formatted == 0 {
		return planFresh(disks, parity, newUUID)
	}
	return planExisting(disks, parity)
}

// planFresh lays out a new store over disks in the order given.
func planFresh(disks []found, parity int, newUUID func() storage.UUID) (plan, error) {
	bad := &configError{}
	for _, d := range disks {
		switch d.look {
		case lookDamaged:
			bad.problems = append(bad.problems, fmt.Sprintf("disk %s: %s; no other disk of its store was given, so nothing can be made good", d.path, d.reason))
		case lookBroken:
			bad.problems = append(bad.problems, fmt.Sprintf("disk %s: %s", d.path, d.reason))
		}
	}
	sizes, err := erasure.SplitSets(len(disks))
	if err != nil {
		bad.problems = append(bad.problems, err.Error())
	}
	if parity != parityAuto {
		for _, size := range slices.Compact(slices.Sorted(slices.Values(sizes))) {
			if err := erasure.CheckParity(size, parity); err != nil {
				bad.problems = append(bad.problems, fmt.Sprintf("parity: %v", err))
			}
		}
	}
	if len(bad.problems) > 0 {
		return plan{}, bad
	}
	p := plan{fresh: true}
	deployment := newUUID()
	next := 0
	for index, size := range sizes {
		set := newUUID()
		m := parity
		if m == parityAuto {
			m = erasure.DefaultParity(size)
		}
		places := make([]place, size)
		for slot := range places {
			places[slot] = place{path: disks[next].path, format: true, id: storage.Identity{
				Deployment: deployment, Set: set, Disk: newUUID(),
				SetIndex: uint16(index), SetCount: uint16(len(sizes)),
				Slot: uint8(slot), SetSize: uint8(size), Parity: uint8(m),
			}}
			next++
		}
		p.sets = append(p.sets, places)
	}
	return p, nil
}

// planExisting finds the place of every disk by its identity; the order of the
// arguments means nothing.
func planExisting(disks []found, parity int) (plan, error) {
	disks = resumePending(disks)
	bad := &configError{}
	refuseStrangers(disks, bad)
	if len(bad.problems) > 0 {
		return plan{}, bad // places of a mixture mean nothing
	}
	var p plan
	p.sets = make([][]place, sampleIdentity(disks).SetCount)
	for _, d := range disks {
		if d.look == lookFormatted {
			p.seat(d, bad)
			continue
		}
		p.vacant = append(p.vacant, d.path)
		p.notes = append(p.notes, fmt.Sprintf("disk %s is left out: %s", d.path, whyVacant(d)))
	}
	places := p.complete(len(disks), bad)
	if len(disks) > places && len(bad.problems) == 0 {
		bad.problems = append(bad.problems, fmt.Sprintf("%d disks given, but the store has %d, and growing it is not possible yet: leave out %s",
			len(disks), places, strings.Join(p.vacant, ", ")))
	}
	if parity != parityAuto {
		for _, set := range p.sets {
			if len(set) > 0 && int(set[0].id.Parity) != parity {
				bad.problems = append(bad.problems, fmt.Sprintf("parity: %d asked for, but the store was made with %d, and that can't change", parity, set[0].id.Parity))
				break
			}
		}
	}
	if len(bad.problems) > 0 {
		return plan{}, bad
	}
	return p, nil
}

// resumePending turns blank disks for which an unfinished first start of the
// same store had chosen an identity into formatted ones, to be formatted.
func resumePending(disks []found) []found {
	deployment := sampleIdentity(disks).Deployment
	disks = slices.Clone(disks)
	for i, d := range disks {
		if d.look == lookBlank && d.pending != nil && d.pending.Deployment == deployment {
			disks[i].look, disks[i].id = lookFormatted, *d.pending
		} else if d.look == lookFormatted {
			disks[i].pending = nil
		}
	}
	return disks
}

// sampleIdentity is the identity of the first formatted disk.
func sampleIdentity(disks []found) storage.Identity {
	for _, d := range disks {
		if d.look == lookFormatted {
			return d.id
		}
	}
	return storage.Identity{}
}

// refuseStrangers complains of disks of several stores, and of one disk given
// twice.
func refuseStrangers(disks []found, bad *configError) {
	byDeployment := map[storage.UUID][]string{}
	byDisk := map[storage.UUID][]string{}
	var order []storage.UUID
	for _, d := range disks {
		if d.look != lookFormatted {
			continue
		}
		if byDeployment[d.id.Deployment] == nil {
			order = append(order, d.id.Deployment)
		}
		byDeployment[d.id.Deployment] = append(byDeployment[d.id.Deployment], d.path)
		byDisk[d.id.Disk] = append(byDisk[d.id.Disk], d.path)
	}
	if len(order) > 1 {
		var parts []string
		for _, u := range order {
			parts = append(parts, fmt.Sprintf("store %.8s: %s", u, strings.Join(byDeployment[u], ", ")))
		}
		bad.problems = append(bad.problems, "the disks belong to different stores: "+strings.Join(parts, "; "))
	}
	for _, d := range disks {
		if same := byDisk[d.id.Disk]; d.look == lookFormatted && len(same) > 1 && same[0] == d.path {
			bad.problems = append(bad.problems, fmt.Sprintf("%s hold copies of one disk (%.8s): give the one that was in use last, and only it", strings.Join(same, " and "), d.id.Disk))
		}
	}
	first := sampleIdentity(disks)
	for _, d := range disks {
		if d.look == lookFormatted && d.id.SetCount != first.SetCount {
			bad.problems = append(bad.problems, fmt.Sprintf("disk %s was made for a store of %d sets, others for %d", d.path, d.id.SetCount, first.SetCount))
		}
	}
}

// seat puts d at its place.
func (p *plan) seat(d found, bad *configError) {
	if d.id.SetIndex >= uint16(len(p.sets)) || d.id.SetSize == 0 || d.id.Slot >= d.id.SetSize {
		bad.problems = append(bad.problems, fmt.Sprintf("disk %s claims set %d of %d, slot %d of %d, which makes no sense",
			d.path, d.id.SetIndex, len(p.sets), d.id.Slot, d.id.SetSize))
		return
	}
	set := &p.sets[d.id.SetIndex]
	if *set == nil {
		*set = make([]place, d.id.SetSize)
		for slot := range *set {
			id := d.id
			id.Disk, id.Slot = storage.UUID{}, uint8(slot)
			(*set)[slot].id = id
		}
	}
	if len(*set) != int(d.id.SetSize) || (*set)[0].id.Set != d.id.Set || (*set)[0].id.Parity != d.id.Parity {
		bad.problems = append(bad.problems, fmt.Sprintf("disk %s does not agree with the others about set %d", d.path, d.id.SetIndex))
		return
	}
	at := &(*set)[d.id.Slot]
	if at.path != "" {
		bad.problems = append(bad.problems, fmt.Sprintf("disks %s and %s both claim set %d, slot %d", at.path, d.path, d.id.SetIndex, d.id.Slot))
		return
	}
	at.path, at.id, at.format = d.path, d.id, d.pending != nil
}

// complete notes the places without disk, refuses sets without any, and
// returns how many places the store has.
func (p *plan) complete(given int, bad *configError) int {
	places, missing := 0, 0
	for index, set := range p.sets {
		if len(set) == 0 {
			bad.problems = append(bad.problems, fmt.Sprintf("none of the disks of set %d (of %d) was found", index, len(p.sets)))
		}
		places += len(set)
		for slot, at := range set {
			if at.path == "" {
				missing++
				p.notes = append(p.notes, fmt.Sprintf("set %d, slot %d has no disk", index, slot))
			}
		}
	}
	if forgotten := places - given; forgotten > 0 && missing > 0 {
		p.notes = append(p.notes, fmt.Sprintf("%d disks given, but the store has %d", given, places))
	}
	return places
}

// what says in a few words what a directory is.
func (d found) what() string {
	switch d.look {
	case lookBlank:
		return "empty"
	case lookFormatted:
		return "another disk"
	case lookAbsent:
		return "there is no such directory"
	default:
		return d.reason
	}
}

// whyVacant says why a directory has no part in an existing store.
func whyVacant(d found) string {
	if d.look == lookBlank {
		return "it is empty, and the store exists already; an empty disk is not taken in by itself"
	}
	return d.what()
}
