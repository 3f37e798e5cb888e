package erasure

import (
	"fmt"

	"ringfence/erasure/meta"
	"ringfence/storage"
)

// Health is a snapshot of a store.
type Health struct {
	// Ready: every set reads and writes. Reasons say what is wrong, also when
	// the store is ready all the same; they are for people.
	Ready   bool
	Reasons []string
	Sets    []SetHealth
}

// SetHealth is a snapshot of one set.
type SetHealth struct {
	Index    int
	Readable bool
	Writable bool
	Reason   string // of the metadata; "" when it reads and writes
	Epoch    uint64
	Head     uint64 // revision of the last acknowledged commit
	Disks    []SetDisk
}

// SetDisk is a snapshot of one disk of a set.
type SetDisk struct {
	Slot       int
	ID         string
	State      string // of the disk: ok, full, failed, offline
	Reason     string
	Metadata   string // of its metadata: insync, lagging, blank, divergent, corrupt, offline
	Applied    uint64 // revision up to which it has the metadata
	FreeBytes  int64
	TotalBytes int64
	Damaged    int64 // reads that met a damaged shard on it since the start
}

// Health looks at all sets and disks. It is cheap.
func (s *Store) Health() Health {
	h := Health{Ready: true}
	for _, set := range s.sets {
		sh := set.health()
		if !sh.Readable || !sh.Writable {
			h.Ready = false
		}
		if sh.Reason != "" {
			h.Reasons = append(h.Reasons, fmt.Sprintf("set %d: %s", sh.Index, sh.Reason))
		}
		for _, d := range sh.Disks {
			if d.State != storage.StateOK.String() {
				h.Reasons = append(h.Reasons, fmt.Sprintf("set %d: disk %d (%s) is %s: %s", sh.Index, d.Slot, d.ID, d.State, d.Reason))
			}
		}
		h.Sets = append(h.Sets, sh)
	}
	return h
}

// health joins what the engine and the disks say. A set reads while as many
// disks answer as a full layout has data shards, and writes while one data
// shard can be stored beside full parity.
func (s *set) health() SetHealth {
	e := s.engine.Health()
	h := SetHealth{Index: s.index, Readable: e.Readable, Writable: e.Writable, Reason: e.Reason, Epoch: e.Epoch, Head: uint64(e.Head)}
	states := make(map[int]meta.DiskHealth, len(e.Disks))
	for _, d := range e.Disks {
		states[d.Slot] = d
	}
	reading, writing := 0, 0
	for i, disk := range s.disks {
		dh := disk.Health()
		switch dh.State {
		case storage.StateOK:
			reading++
			writing++
		case storage.StateFull:
			reading++
		case storage.StateFailed, storage.StateOffline:
		}
		h.Disks = append(h.Disks, SetDisk{
			Slot:       i,
			ID:         disk.Identity().Disk.String(),
			State:      dh.State.String(),
			Reason:     dh.Reason,
			Metadata:   states[i].State,
			Applied:    uint64(states[i].Applied),
			FreeBytes:  dh.FreeBytes,
			TotalBytes: dh.TotalBytes,
			Damaged:    s.damage.met[i].Load(),
		})
	}
	need := len(s.disks) - s.parity
	if reading < need {
		h.Readable = false
		h.Reason = join(h.Reason, fmt.Sprintf("%d of %d disks can be read, %d are needed", reading, len(s.disks), need))
	}
	if writing < s.parity+1 {
		h.Writable = false
		h.Reason = join(h.Reason, fmt.Sprintf("%d of %d disks take new data, %d are needed", writing, len(s.disks), s.parity+1))
	}
	return h
}

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}
