package quorumlog

import (
	"errors"
	"fmt"
	"slices"

	"ringfence/erasure/meta"
	"ringfence/storage"
)

// standing is what a disk's metadata store turned out to be.
type standing uint8

const (
	standGone    standing = iota // no answer, or an error that says nothing about the contents
	standEmpty                   // blank: it can't say whether it ever held something
	standClean                   // a prefix of some log
	standPartial                 // a catch-up or copy that did not end
	standCorrupt                 // not what was written, or less than was acknowledged
)

func (s standing) state() memberState {
	switch s {
	case standEmpty:
		return stateBlank
	case standClean, standPartial:
		return stateLagging
	case standCorrupt:
		return stateCorrupt
	}
	return stateOffline
}

// report is what one disk says.
type report struct {
	stand    standing
	kv       storage.KV
	cell     cell
	promised uint64
	err      error // why it is gone or corrupt
}

// astray reports whether the disk certainly has what the log up to end has not:
// it is as long, and from an earlier epoch. A shorter one may be astray too.
func (r *report) astray(end point) bool {
	return r.stand == standClean && r.cell.at.epoch < end.epoch && r.cell.at.seq >= end.seq
}

// recoveryPlan is what a recovery does with the reports.
type recoveryPlan struct {
	fresh   bool // nothing was ever committed: start the log
	voters  int
	leader  int // slot of the disk with the longest log
	epoch   uint64
	witness []mark
}

// errTooFew says that recovery needs more disks.
var errTooFew = fmt.Errorf("%w: too few metadata disks", meta.ErrUnavailable)

// decide chooses the log. It takes votes away from disks that don't deserve
// them, by changing their reports. It is pure otherwise.
//
// known is what this process saw the disks acknowledge.
func decide(reports []report, known []mark, quorum int, fresh bool, r rules) (recoveryPlan, error) {
	p := recoveryPlan{leader: -1, witness: witnesses(reports, known)}
	if !r.noWitness {
		accuse(reports, p.witness)
	}
	nothing, answered := 0, 0
	for i := range reports {
		rep := &reports[i]
		if rep.stand != standGone {
			answered++
		}
		if rep.stand == standEmpty || rep.stand == standClean && rep.cell.at.seq == 0 {
			nothing++
		}
		if rep.stand != standGone && rep.stand != standCorrupt {
			p.epoch = max(p.epoch, rep.cell.at.epoch)
			if !r.noPromise {
				p.epoch = max(p.epoch, rep.promised)
			}
		}
	}
	for _, w := range p.witness {
		if !r.noPromise {
			p.epoch = max(p.epoch, w.epoch)
		}
	}
	p.epoch++
	if r.noEpoch {
		p.epoch = 1
	}
	if nothing == answered && (answered == len(reports) || fresh && answered >= quorum) {
		p.fresh = true
		return p, nil
	}
	floor, whole := p.elect(reports, r)
	need := len(reports) - quorum + 1
	if p.leader >= 0 && reports[p.leader].cell.at.mark().compare(floor) < 0 && whole > need {
		// The votes of disks that have their log whole suffice, even if one of them
		// forgot: what is beyond was never acknowledged.
		floor, p.voters = mark{}, whole
	}
	switch {
	case p.voters < need:
		return p, fmt.Errorf("%w: %d of %d know their part of the log, recovery needs %d", errTooFew, p.voters, len(reports), need)
	case p.leader < 0 || reports[p.leader].cell.at.mark().compare(floor) < 0:
		return p, fmt.Errorf("%w: the log up to %d.%d is only on disks that don't answer", errTooFew, floor.epoch, floor.seq)
	}
	return p, nil
}

// elect finds the longest log that a disk has whole, and counts the votes. Disks
// at one mark have one history; if two of them don't, the fewer are corrupt.
//
// A disk whose catch-up did not end has no log to give, but it has a vote: all
// that it ever acknowledged was in the log that it is being brought to, at or
// before its point. The chosen log must reach floor, the last such point, unless
// there are votes to spare. whole is how many have their log.
func (p *recoveryPlan) elect(reports []report, r rules) (floor mark, whole int) {
	votes := func(rep *report) bool {
		return rep.stand == standClean || r.blankVotes && rep.stand == standEmpty
	}
	var best mark
	histories := make(map[[16]byte]int)
	for i := range reports {
		rep := &reports[i]
		at := rep.cell.at.mark()
		switch {
		case votes(rep):
			if at.compare(best) > 0 {
				best = at
				clear(histories)
			}
			if at == best {
				histories[rep.cell.at.chain]++
			}
		case rep.stand == standPartial && at.compare(p.witness[i]) >= 0:
			p.voters++
			if at.compare(floor) > 0 {
				floor = at
			}
		}
	}
	most := 0
	for i := range reports {
		rep := &reports[i]
		if votes(rep) && rep.cell.at.mark() == best && histories[rep.cell.at.chain] > most {
			most, p.leader = histories[rep.cell.at.chain], i
		}
	}
	for i := range reports {
		rep := &reports[i]
		if !votes(rep) {
			continue
		}
		if rep.cell.at.mark() == best && rep.cell.at.chain != reports[p.leader].cell.at.chain {
			rep.stand, rep.err = standCorrupt, errors.New("its history differs from that of the other disks")
			continue
		}
		whole++
	}
	p.voters += whole
	return floor, whole
}

// witnesses merges what all disks remember of each other and of themselves. A
// memory stays true whatever became of the disk that has it.
func witnesses(reports []report, known []mark) []mark {
	seen := slices.Clone(known)
	for i, rep := range reports {
		if rep.stand == standGone || rep.stand == standCorrupt {
			continue
		}
		for slot, w := range rep.cell.witness {
			if slot < len(seen) && w.compare(seen[slot]) > 0 {
				seen[slot] = w
			}
		}
		if at := rep.cell.at.mark(); rep.stand == standClean && at.compare(seen[i]) > 0 {
			seen[i] = at
		}
	}
	return seen
}

// accuse marks disks that report less than a peer saw them acknowledge: they
// lost synced writes, so nothing they say can be trusted.
func accuse(reports []report, seen []mark) {
	for i := range reports {
		rep := &reports[i]
		if rep.stand == standClean && rep.cell.at.mark().compare(seen[i]) < 0 {
			rep.stand, rep.err = standCorrupt, forgot(rep.cell.at.mark(), seen[i])
		}
	}
}

func forgot(has, had mark) error {
	return fmt.Errorf("%w: it is at %d.%d but acknowledged %d.%d: synced writes were lost", storage.ErrCorrupt, has.epoch, has.seq, had.epoch, had.seq)
}
