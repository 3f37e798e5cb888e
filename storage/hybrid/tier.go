package hybrid

import "math"

// step is where a read begins.
type step uint8

const (
	stepBase   step = iota // the reference reads all of it
	stepDirect             // a ring reads past the page cache; the reference what fails
	stepInline             // the page cache first; a ring reads what it does not hold
	stepCold               // a ring, past the page cache the first time through the file
	stepRing               // a ring
)

// directState is what is known of O_DIRECT on a disk.
type directState uint32

const (
	directWorks  directState = iota // or was not tried yet
	directNone                      // the file system has no such thing
	directBroken                    // it opens files so, and refuses our reads
)

// coldFrom is from how many bytes on a cold read is worth a detour around the
// page cache.
const coldFrom = 64 << 10

// facts are what the choice of a tier depends on.
type facts struct {
	off     int64
	length  int
	empty   bool // some buffer has no bytes
	written bool // the file was made by Create and may still be written to
	inline  bool // switched on
	direct  bool // switched on
	cold    bool // switched on: cold reads go past the page cache
	from    int64
	state   directState
}

// decide chooses the first step of a read while a driver serves. skip is asked
// only if an inline attempt is the question.
//
// A read that is large enough for O_DIRECT makes no inline attempt. A failed
// one starts readahead of its whole range, so that the device would read every
// cold range twice and the page cache would fill with what was to go past it. A
// large range that happens to be cached is read from the device instead: the
// same bytes, since files that are read so are no longer written to, and the
// administrator asked for it. Hot data below the threshold stays inline.
//
// A read that the page cache is not expected to hold goes past it as well, if
// that is worth it: the device reads it for a quarter of the processor's work,
// and what is read once displaces nothing. Whoever reads the file a second time
// fills the page cache with it.
//
// Where the file system has no O_DIRECT, large reads are ordinary ones. Where
// it opens files with O_DIRECT and our reads fail, the reference's own way past
// the page cache may still work, so it is asked.
func decide(f facts, skip func() bool) step {
	switch {
	case f.off < 0, f.length == 0, f.empty, f.off > math.MaxInt64-int64(f.length):
		return stepBase // odd ones are not worth a second opinion
	case f.direct && !f.written && int64(f.length) >= f.from && f.state == directWorks:
		return stepDirect
	case f.direct && !f.written && int64(f.length) >= f.from && f.state == directBroken:
		return stepBase
	case !f.inline:
		return stepRing
	case !skip():
		return stepInline
	case f.cold && !f.written && f.length >= coldFrom && f.state == directWorks:
		return stepCold
	}
	return stepRing
}
