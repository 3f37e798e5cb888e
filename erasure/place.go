package erasure

import "fmt"

// MaxSetSize is the largest number of disks in one erasure set.
const MaxSetSize = 16

// DefaultParity is the number of parity shards for a set of that many disks:
// as many losses as people expect to survive at that size. One disk cannot
// survive any.
func DefaultParity(disks int) int {
	switch {
	case disks <= 1:
		return 0
	case disks <= 3:
		return 1
	case disks <= 7:
		return 2
	}
	return 4
}

// CheckParity refuses nonsense: parity beyond half of the set would store more
// redundancy than data, and a set that lost it would have no majority for its
// metadata either.
func CheckParity(setSize, parity int) error {
	if setSize < 1 || setSize > MaxSetSize {
		return fmt.Errorf("a set of %d disks: want 1 to %d", setSize, MaxSetSize)
	}
	if parity < 0 || parity > setSize/2 {
		return fmt.Errorf("parity %d for a set of %d disks: want 0 to %d", parity, setSize, setSize/2)
	}
	return nil
}

// SplitSets divides disks into sets of at most MaxSetSize, as few and as equal
// as possible, the larger ones first.
func SplitSets(disks int) ([]int, error) {
	if disks < 1 {
		return nil, fmt.Errorf("%d disks: want at least one", disks)
	}
	n := (disks + MaxSetSize - 1) / MaxSetSize
	sets := make([]int, n)
	for i := range sets {
		sets[i] = disks / n
		if i < disks%n {
			sets[i]++
		}
	}
	return sets, nil
}
