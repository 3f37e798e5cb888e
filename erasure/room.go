package erasure

import (
	"fmt"

	"ringfence/storage"
)

// room refuses what makes the metadata grow, with ErrFull, when disks with
// space are fewer than a commit needs. Full disks still commit: what they keep
// free is for deletions, which need it to give space back. Small objects live in
// the metadata, so without this they would fill the disks to the last byte, and
// nothing could be deleted any more.
func (s *set) room() error {
	well, full := 0, 0
	for _, d := range s.disks {
		switch d.Health().State {
		case storage.StateOK:
			well++
		case storage.StateFull:
			full++
		case storage.StateFailed, storage.StateOffline:
		}
	}
	if need := len(s.disks)/2 + 1; well < need && well+full >= need {
		return fmt.Errorf("%w: %d of %d disks take new data, %d are needed", ErrFull, well, len(s.disks), need)
	}
	return nil
}
