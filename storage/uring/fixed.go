package uring

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"ringfence/storage"
)

const (
	// placesMax is the kernel's limit of registered pieces of memory.
	placesMax = 1 << 14
	// legacyBytes is the size of each of a shard's two regions in ModeLegacy:
	// any Buf fits.
	legacyBytes = storage.MaxBuf
	// legacyAlign is what the parts of a region are aligned to.
	legacyAlign = storage.BlockAlign
)

// registry is what a driver knows of registered memory. Registering is an
// optimisation: when it is refused, for want of memory that may be locked most
// likely, the driver reads without for the rest of its life.
type registry struct {
	d       *Driver
	refused atomic.Bool
	bytes   atomic.Int64 // registered on all rings together
	undo    []func()
}

func (r *registry) open(d *Driver) {
	r.d = d
	switch d.opts.Mode {
	case ModeDynamic:
		r.undo = append(r.undo, d.opts.Pool.OnUnmap(r.unmapped))
	case ModeStatic:
		release, err := d.opts.Pool.MapAll()
		if err != nil {
			r.refuse(err)
			return
		}
		r.undo = append(r.undo, release)
	}
}

// close lets the pool unmap again. No ring uses it any more, or what it uses is
// never given back.
func (r *registry) close() {
	for _, f := range r.undo {
		f()
	}
	r.undo = nil
}

// unmapped notes that a slab is gone. The kernel keeps its pages until the
// shard has taken it out of the table, at its next turn.
func (r *registry) unmapped(id uint64) {
	for _, l := range r.d.lanes {
		l.mu.Lock()
		s := l.shard
		l.mu.Unlock()
		if s != nil {
			s.fixed.noteGone(id)
		}
	}
}

// mode is the one in effect.
func (r *registry) mode() Mode {
	if r.refused.Load() {
		return ModeNonFixed
	}
	return r.d.opts.Mode
}

func (r *registry) refuse(err error) {
	if !r.refused.Swap(true) {
		r.d.opts.Log.Warn().Err(err).Str("dir", r.d.opts.Dir).Stringer("mode", r.d.opts.Mode).Msg("buffers can't be registered: reading without")
	}
}

// fixedTable is a shard's table of registered memory. All but gone belongs to
// the shard's goroutine.
type fixedTable struct {
	slabs   map[uint64]uint16 // place by slab
	free    []uint16          // places
	bytes   int64
	regions [2]region // ModeLegacy
	turn    int

	mu   sync.Mutex
	gone map[uint64]bool // slabs to take out; protected by mu. One entry per place at most
}

// region is memory of a shard's own, given out from one end to the other, and
// again from the start when nothing of it is in use.
type region struct {
	mem   []byte
	next  int
	inUse int
}

// fixedPart says where registered memory lies, and which region of ModeLegacy
// has a part of it to get back.
type fixedPart struct {
	ok         bool
	place      uint16
	start, end uintptr
	region     *region
	counted    bool // among the reads into registered memory
}

// covers reports whether n bytes from at on lie within.
func (p fixedPart) covers(at uintptr, n int) bool {
	return p.ok && at >= p.start && at <= p.end && uintptr(n) <= p.end-at
}

func partOf(place uint16, mem []byte) fixedPart {
	start := uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	return fixedPart{ok: true, place: place, start: start, end: start + uintptr(len(mem))}
}

// open sets the table up on a new ring.
func (f *fixedTable) open(s *shard) {
	r := &s.d.registry
	switch r.mode() {
	case ModeLegacy:
		if err := f.openLegacy(s); err != nil {
			r.refuse(err)
		}
	case ModeDynamic, ModeStatic:
		// Partly used slabs may be more than the budget fills.
		n := min(placesMax, 2*int(s.d.opts.Pool.Stats().BudgetBytes/storage.MaxBuf)+2)
		if err := s.ring.Buffers(n); err != nil {
			r.refuse(err)
			return
		}
		f.slabs = make(map[uint64]uint16, n)
		for i := range n {
			f.free = append(f.free, uint16(n-1-i))
		}
		if r.mode() == ModeStatic {
			s.d.opts.Pool.Slabs(func(id uint64, mem []byte) { f.register(s, id, mem) })
		}
	}
}

func (f *fixedTable) openLegacy(s *shard) error {
	if err := s.ring.Buffers(len(f.regions)); err != nil {
		return err
	}
	for i := range f.regions {
		mem, err := unix.Mmap(-1, 0, legacyBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return err
		}
		// Refused where the kernel has no huge pages: small ones do as well.
		_ = unix.Madvise(mem, unix.MADV_HUGEPAGE)
		f.regions[i].mem = mem
		if err := s.ring.SetBuffer(i, mem); err != nil {
			return err
		}
		f.count(s, legacyBytes)
	}
	return nil
}

func (f *fixedTable) count(s *shard, n int64) {
	f.bytes += n
	s.d.registry.bytes.Add(n)
}

// close gives the memory back, once the ring is closed.
func (f *fixedTable) close(s *shard) error {
	f.count(s, -f.bytes)
	for i := range f.regions {
		if mem := f.regions[i].mem; mem != nil {
			f.regions[i].mem = nil
			if err := unix.Munmap(mem); err != nil {
				return err
			}
		}
	}
	return nil
}

// register puts a slab into the table, if there is a place for it.
func (f *fixedTable) register(s *shard, id uint64, mem []byte) (place uint16, ok bool) {
	if s.d.registry.refused.Load() || len(f.free) == 0 {
		return 0, false
	}
	place = f.free[len(f.free)-1]
	if err := s.ring.SetBuffer(int(place), mem); err != nil {
		s.d.registry.refuse(err)
		return 0, false
	}
	f.free = f.free[:len(f.free)-1]
	f.slabs[id] = place
	f.count(s, int64(len(mem)))
	return place, true
}

func (f *fixedTable) noteGone(id uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gone == nil {
		f.gone = make(map[uint64]bool)
	}
	// A shard that is stuck, or has never met the slab, must not gather notes
	// without end: what is lost here stays pinned until the ring is closed.
	if len(f.gone) < placesMax {
		f.gone[id] = true
	}
}

// forget takes slabs out of the table that were unmapped, or all of them when
// registration was refused.
func (f *fixedTable) forget(s *shard) {
	if len(f.slabs) == 0 {
		return
	}
	if s.d.registry.refused.Load() {
		for id := range f.slabs {
			f.drop(s, id)
		}
		return
	}
	f.mu.Lock()
	gone := f.gone
	f.gone = nil
	f.mu.Unlock()
	for id := range gone {
		f.drop(s, id)
	}
}

func (f *fixedTable) drop(s *shard, id uint64) {
	place, ok := f.slabs[id]
	if !ok {
		return
	}
	delete(f.slabs, id)
	if err := s.ring.SetBuffer(int(place), nil); err != nil {
		s.d.registry.refuse(err) // the place stays taken
		return
	}
	f.free = append(f.free, place)
	f.count(s, -storage.MaxBuf)
}

// find says where in registered memory a Buf lies, if it does, and registers
// its slab in ModeDynamic.
func (f *fixedTable) find(s *shard, b *storage.Buf) fixedPart {
	if f.slabs == nil || s.d.registry.refused.Load() {
		return fixedPart{}
	}
	id, mem := b.Slab()
	place, ok := f.slabs[id]
	if !ok && s.d.opts.Mode == ModeDynamic {
		place, ok = f.register(s, id, mem)
	}
	if !ok {
		return fixedPart{}
	}
	return partOf(place, mem)
}

// carve gives n bytes of the region whose turn it is. When both are used up the
// read has to do without.
func (f *fixedTable) carve(s *shard, n int) ([]byte, fixedPart, bool) {
	if s.d.opts.Mode != ModeLegacy || s.d.registry.refused.Load() {
		return nil, fixedPart{}, false
	}
	n = (n + legacyAlign - 1) &^ (legacyAlign - 1)
	for range f.regions {
		r := &f.regions[f.turn]
		if r.inUse == 0 {
			r.next = 0
		}
		if n <= len(r.mem)-r.next {
			part := partOf(uint16(f.turn), r.mem)
			part.region = r
			mem := r.mem[r.next : r.next+n : r.next+n]
			r.next += n
			r.inUse++
			return mem, part, true
		}
		f.turn = (f.turn + 1) % len(f.regions)
	}
	return nil, fixedPart{}, false
}

// uncarve gives a part of a region back.
func (p fixedPart) uncarve() {
	if p.region != nil {
		p.region.inUse--
	}
}
