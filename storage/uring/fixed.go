package uring

import "sync/atomic"

type registry struct {
	bytes atomic.Int64
	d     *Driver
}

func (r *registry) open(d *Driver) error { r.d = d; return nil }
func (r *registry) close()               {}
func (r *registry) mode() Mode           { return ModeNonFixed }

type fixedTable struct{}
type fixedPart struct{}

func (fixedPart) covers(at uintptr, n int) (uint16, bool)   { return 0, false }
func (f *fixedTable) open(s *shard)                         {}
func (f *fixedTable) close(s *shard)                        {}
func (f *fixedTable) forget(s *shard)                       {}
func (f *fixedTable) find(s *shard, b any) fixedPart        { return fixedPart{} }
func (f *fixedTable) carve(n int) ([]byte, fixedPart, bool) { return nil, fixedPart{}, false }
func (f *fixedTable) uncarve(p fixedPart)                   {}
