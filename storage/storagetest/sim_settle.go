package storagetest

import "slices"

// SettleRemovals makes the removals so far durable, as a file system does by
// itself within a minute. Files that nobody synced stay at risk.
func (s *Sim) SettleRemovals() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dirty = slices.DeleteFunc(s.dirty, func(f *simFile) bool { return f.unlinked })
}
