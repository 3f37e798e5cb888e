package hybrid

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"ringfence/storage"
	"ringfence/storage/uring"
	"ringfence/storage/uring/ring"
	"ringfence/storage/uring/ringtest"
)

// sized is a file that has nothing but a size.
type sized struct {
	storage.RawFile
	size  int64
	err   error
	calls int
}

func (s *sized) Size() (int64, error) {
	s.calls++
	return s.size, s.err
}

// TestRegions: which reads share a predictor.
func TestRegions(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		name string
		size int64
		off  int64
		want int // the region's index, -1 for the first predictor
		list int // regions in all, of what was measured
	}{
		{"the first read", 100 * mib, 0, -1, 0},
		{"the end of the first region", 100 * mib, regionBytes - 1, -1, 0},
		{"the second region", 100 * mib, regionBytes, 1, 13},
		{"the last region", 100 * mib, 100*mib - 1, 12, 13},
		{"beyond the end", 100 * mib, 1000 * mib, 12, 13},
		{"beyond the end of a small file", regionBytes, regionBytes, -1, 0},
		{"one byte in the second region", regionBytes + 1, regionBytes, 1, 2},
		{"as many as there may be", regionsMax * regionBytes, regionsMax*regionBytes - 1, regionsMax - 1, regionsMax},
		{"larger ones", regionsMax*regionBytes + 1, regionsMax * regionBytes, regionsMax - 1, regionsMax},
		{"larger ones, the first of them", 2 * regionsMax * regionBytes, 2*regionBytes - 1, 0, regionsMax},
		{"larger ones, the second of them", 2 * regionsMax * regionBytes, 2 * regionBytes, 1, regionsMax},
		{"an empty file", 0, regionBytes, -1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			disk := new(storage.Predictor)
			s := &sized{size: c.size}
			f := &file{RawFile: s}
			f.warmth.first.Wider = disk
			got, again := f.warmth.at(f, c.off), f.warmth.at(f, c.off)
			var list []storage.Predictor
			if r := f.warmth.others.Load(); r != nil {
				list = r.list
			}
			want := &f.warmth.first
			if c.want >= 0 && c.want < len(list) {
				want = &list[c.want]
			}
			if got != want || again != want || len(list) != c.list || got.Wider != disk || s.calls > 1 {
				t.Errorf("first %v, %d regions, measured %d times", got == &f.warmth.first, len(list), s.calls)
			}
		})
	}
}

// TestRegionsAreOnTheirOwn: a cold part of a file says nothing of another.
func TestRegionsAreOnTheirOwn(t *testing.T) {
	f := &file{RawFile: &sized{size: 4 * regionBytes}}
	f.warmth.first.Wider = new(storage.Predictor)
	w := &f.warmth
	w.asked.Store(true)
	for range 20 {
		w.at(f, regionBytes).Observe(true)
		w.at(f, 3*regionBytes).Observe(false)
	}
	if w.skips(f, regionBytes) || !w.skips(f, 3*regionBytes) {
		t.Error("a hot region is skipped, or a cold one is not")
	}
}

// TestFirstReadOfAFileIsAttempted, also on a cold disk, but it only.
func TestFirstReadOfAFileIsAttempted(t *testing.T) {
	disk := new(storage.Predictor)
	for range 30 {
		disk.Observe(false)
	}
	for range 10 {
		f := &file{RawFile: &sized{size: 100}}
		f.warmth.first.Wider = disk
		if f.warmth.skips(f, 0) {
			t.Fatal("the first attempt is left out")
		}
		f.warmth.first.Observe(false)
		skipped := 0
		for range 10 {
			if f.warmth.skips(f, 0) {
				skipped++
			}
		}
		if skipped == 0 {
			t.Fatal("all attempts are made")
		}
	}
}

// TestFirstPass: cold reads go past the page cache for as many bytes as the
// file has, wherever they are.
func TestFirstPass(t *testing.T) {
	s := &sized{size: 1000}
	f := &file{RawFile: s}
	for i, want := range []bool{true, true, true, false, false} {
		if got := f.warmth.firstPass(f, 300); got != want {
			t.Errorf("read %d: %v", i, got)
		}
	}
	if s.calls != 1 {
		t.Errorf("measured %d times", s.calls)
	}
	whole := &file{RawFile: &sized{size: 1000}}
	if !whole.warmth.firstPass(whole, 1000) || whole.warmth.firstPass(whole, 1) {
		t.Error("a whole file is not one pass")
	}
}

// TestFirstPassOfWhoKnows: a file that can't be measured is not read past the
// page cache, and all its reads are of its first region; until it can be.
func TestFirstPassOfWhoKnows(t *testing.T) {
	s := &sized{size: 4 * regionBytes, err: errors.New("no size")}
	f := &file{RawFile: s}
	for range 3 {
		if f.warmth.firstPass(f, 300) {
			t.Error("a file without a size is read past the page cache")
		}
		if f.warmth.at(f, regionBytes) != &f.warmth.first {
			t.Error("a file without a size has regions")
		}
	}
	s.err = nil
	if !f.warmth.firstPass(f, 300) || f.warmth.at(f, regionBytes) == &f.warmth.first {
		t.Error("not measured when it could be")
	}
}

// TestColdReadsGoPastThePageCache the first time through a file, and through it
// from then on.
func TestColdReadsGoPastThePageCache(t *testing.T) {
	needRings(t)
	const fileBytes, reads = 1 << 20, 80
	content := pattern(fileBytes)
	for _, c := range []struct {
		name    string
		size    int
		set     func(k Knobs)
		created bool // by the Backend, and still open
		goes    bool
	}{
		{"the smallest", coldFrom, func(Knobs) {}, false, true},
		{"128 KiB", 128 << 10, func(Knobs) {}, false, true},
		{"too small", coldFrom - 1, func(Knobs) {}, false, false},
		{"switched off", 128 << 10, func(k Knobs) { k.ColdDirect.Store(false) }, false, false},
		{"inline off", 128 << 10, ringOnly, false, false},
		{"being written", 128 << 10, func(Knobs) {}, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, rigOptions{set: c.set, attempt: allMiss})
			r.put(t, "a", content)
			f := r.open(t, "a")
			if _, _, err := f.Direct(); err != nil {
				t.Skipf("SKIP %s: no O_DIRECT here: %v", t.Name(), err)
			}
			read := storage.File(f)
			if c.created {
				read = r.create(t, "b", content)
			}
			for i := range reads {
				r.want(t, read, content, i%8*(100<<10), c.size)
			}
			s := r.Status()
			want := int64(0)
			if c.goes {
				want = min(s.Inline.Skipped, int64(fileBytes/c.size))
			}
			if c.goes && want < int64(fileBytes/c.size) {
				t.Errorf("only %d attempts were left out", s.Inline.Skipped)
			}
			if s.Reads != (storage.ReadCounts{Ring: reads - want, RingDirect: want}) {
				t.Errorf("%+v, want %d past the page cache; %+v", s.Reads, want, s.Inline)
			}
		})
	}
}

// TestColdReadsThatDirectRefuses are ordinary ring reads from then on.
func TestColdReadsThatDirectRefuses(t *testing.T) {
	needRings(t)
	const size = 1 << 20
	script := &ringtest.Script{}
	r := newRig(t, rigOptions{attempt: allMiss, rings: uring.Options{Setup: ringtest.Wrap(ring.New, script)}})
	content := pattern(size)
	r.put(t, "a", content)
	f := r.open(t, "a")
	direct, _, err := f.Direct()
	if err != nil {
		t.Skipf("SKIP %s: no O_DIRECT here: %v", t.Name(), err)
	}
	for i := 0; r.Stats().Reads.RingDirect == 0; i++ {
		if i == 40 {
			t.Fatalf("no read went past the page cache: %+v", r.Status())
		}
		r.want(t, f, content, 0, coldFrom)
	}
	before := r.Stats().Reads
	script.Results(func(e ring.SQE, res int32) int32 {
		if int(e.FD) == direct.FD() {
			return -int32(unix.EINVAL)
		}
		return res
	})
	for range 40 {
		r.want(t, f, content, 0, coldFrom)
	}
	s := r.Status()
	if l := s.latch(LatchDirect); !l.On || l.Trips != 1 || s.Reads.RingDirect != before.RingDirect || s.Tier != "ring" {
		t.Errorf("%+v, %+v", s.Latches, s.Reads)
	}
}

// create makes a file through the Backend and leaves it open.
func (r *rig) create(t testing.TB, name string, content []byte) storage.File {
	t.Helper()
	f, err := r.Create(t.Context(), name, int64(len(content)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := f.WriteAt(t.Context(), content, 0); err != nil {
		t.Fatal(err)
	}
	return f
}
