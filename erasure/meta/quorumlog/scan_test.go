package quorumlog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ringfence/erasure/meta"
	"ringfence/storage"
	"ringfence/storage/storagetest"
)

// walkAll scans from lo and joins keys and values.
func walkAll(ctx context.Context, e *Engine, lo string) (string, error) {
	c, err := e.Scan(ctx, []byte(lo), nil)
	if err != nil {
		return "", err
	}
	var all []string
	for c.Next() {
		all = append(all, fmt.Sprintf("%s=%s", c.Item().Key, c.Item().Val))
	}
	return strings.Join(all, " "), errors.Join(c.Err(), c.Close())
}

// filled is an engine of n disks with k00 to k29, all of them level.
func filled(t *testing.T, n int, disks func(*world) []storage.Disk) (*world, *Engine) {
	t.Helper()
	w := newWorld(t, n)
	e, err := New(Options{Disks: disks(w)})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 30 {
		mustPut(t, e, fmt.Sprintf("k%02d", i), fmt.Sprint(i))
	}
	until(t, "level", func() bool { return level(e) })
	return w, e
}

// from is what walkAll finds in a filled engine.
func from(i int) string {
	var all []string
	for ; i < 30; i++ {
		all = append(all, fmt.Sprintf("k%02d=%d", i, i))
	}
	return strings.Join(all, " ")
}

// TestScanBesideHungDisks scans while two disks of six hang when they are asked
// for a walk, or for its first key.
func TestScanBesideHungDisks(t *testing.T) {
	for _, kind := range []storagetest.OpKind{storagetest.OpIter, storagetest.OpNext} {
		t.Run(kind.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, e := filled(t, 6, (*world).disks)
				defer gated(w.bays[0], kind)()
				defer gated(w.bays[3], kind)()
				slowest := time.Duration(0)
				for i := range 30 {
					began := time.Now()
					got, err := walkAll(t.Context(), e, fmt.Sprintf("k%02d", i))
					if err != nil || got != from(i) {
						t.Fatalf("from %d: %q, %v", i, got, err)
					}
					slowest = max(slowest, time.Since(began))
				}
				if slowest > time.Second || slowest == 0 {
					t.Errorf("the slowest scan took %v", slowest)
				}
			})
		})
	}
}

// TestScanBreaksOff has the disk of a walk hang in the middle: the walk ends, and
// the next one goes elsewhere.
func TestScanBreaksOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, e := filled(t, 3, (*world).disks)
		c, err := e.Scan(t.Context(), []byte("k00"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if !c.Next() {
			t.Fatalf("first: %v", c.Err())
		}
		src := c.(*cursor).src.m.slot
		release := gated(w.bays[src], storagetest.OpNext)
		began, n := time.Now(), 1
		for c.Next() {
			n++
		}
		if !errors.Is(c.Err(), meta.ErrUnavailable) || n >= 30 {
			t.Errorf("after %d of 30 keys: %v", n, c.Err())
		}
		if c.Next() || c.SeekGE([]byte("k00")) {
			t.Error("it goes on after an error")
		}
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if got, err := walkAll(t.Context(), e, "k00"); err != nil || got != from(0) {
			t.Errorf("again: %q, %v", got, err)
		}
		if d := time.Since(began); d > patience {
			t.Errorf("took %v", d)
		}
		if n := e.members[src].slow.Load(); n != 1 {
			t.Errorf("the disk counts %d slow reads, want 1", n)
		}
		release()
		synctest.Wait()
		if n := e.members[src].slow.Load(); n != 0 {
			t.Errorf("and %d afterwards", n)
		}
	})
}

// TestAllDisksHang asks when nobody can answer: that takes no longer than
// patience, and is over when they do.
func TestAllDisksHang(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, e := filled(t, 3, (*world).disks)
		var releases []func()
		for _, b := range w.bays {
			release := gated(b, storagetest.OpGet, storagetest.OpIter)
			defer release()
			releases = append(releases, release)
		}
		for name, ask := range map[string]func() error{
			"get":  func() error { _, err := e.Get(t.Context(), []byte("k00")); return err },
			"scan": func() error { _, err := walkAll(t.Context(), e, "k00"); return err },
			"commit": func() error {
				_, err := e.Commit(t.Context(), meta.Group{}, []meta.Cond{{Key: []byte("k00")}}, nil)
				return err
			},
		} {
			began := time.Now()
			if err := ask(); !errors.Is(err, meta.ErrUnavailable) {
				t.Errorf("%s: %v", name, err)
			}
			if d := time.Since(began); d > patience {
				t.Errorf("%s took %v", name, d)
			}
		}
		for _, release := range releases {
			release()
		}
		want(t, e, "k00", "0")
		if got, err := walkAll(t.Context(), e, "k00"); err != nil || got != from(0) {
			t.Errorf("scan: %q, %v", got, err)
		}
	})
}

// TestScanPassesOverABadValue has a bad value on a disk that can't be spared. One
// scan may break off by it, the next must not, and the disk is rebuilt as soon
// as it can be spared.
func TestScanPassesOverABadValue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, e := filled(t, 3, (*world).disks)
		w.bays[2].sim.Vanish()
		mustPut(t, e, "k30", "30")
		until(t, "disk 2 is out", func() bool { return inSync(e) == 2 })
		(&sim{t: t}).flip(w.bays[0], []byte("k17"))
		broken := 0
		for i := range 17 {
			got, err := walkAll(t.Context(), e, fmt.Sprintf("k%02d", i))
			if err != nil {
				broken++
				got, err = walkAll(t.Context(), e, fmt.Sprintf("k%02d", i))
			}
			if err != nil || got != from(i)+" k30=30" {
				t.Fatalf("from %d: %q, %v", i, got, err)
			}
		}
		if broken != 1 {
			t.Errorf("%d scans broke off, want 1", broken)
		}
		w.bays[2].sim.Return()
		if err := w.bays[2].open(); err != nil {
			t.Fatal(err)
		}
		until(t, "rebuilt", func() bool {
			e.Tend(t.Context())
			return level(e) && !e.members[0].bad.Load()
		})
		res, err := e.Scrub(t.Context())
		if err != nil || len(res.Damaged) > 0 {
			t.Errorf("scrub: %+v, %v", res, err)
		}
		same(t, w)
	})
}

// TestCursorMoves compares random moves with those in a sorted slice.
func TestCursorMoves(t *testing.T) {
	w := newWorld(t, 1)
	e := unstarted(t, w, Options{})
	rng := rand.New(rand.NewPCG(1, 2))
	var keys []string
	for range 300 {
		keys = append(keys, fmt.Sprintf("%04d", rng.IntN(5000)))
	}
	sort.Strings(keys)
	keys = slices.Compact(keys)
	for _, k := range keys {
		mustPut(t, e, k, k+strings.Repeat("v", rng.IntN(5000)))
	}
	for range 300 {
		lo, hi := fmt.Sprintf("%04d", rng.IntN(5000)), fmt.Sprintf("%04d", rng.IntN(5000))
		if lo > hi {
			lo, hi = hi, lo
		}
		first, _ := slices.BinarySearch(keys, lo)
		last, _ := slices.BinarySearch(keys, hi)
		inside := keys[first:last]
		c, err := e.Scan(t.Context(), []byte(lo), []byte(hi))
		if err != nil {
			t.Fatal(err)
		}
		at := -1
		for range 100 {
			var ok bool
			if rng.IntN(4) == 0 {
				to := fmt.Sprintf("%04d", rng.IntN(5000))
				if at >= 0 && at < len(inside) && rng.IntN(2) == 0 {
					to = inside[min(at+rng.IntN(5), len(inside)-1)] + "x"[:rng.IntN(2)]
				}
				ok = c.SeekGE([]byte(to))
				at, _ = slices.BinarySearch(inside, to)
			} else {
				ok = c.Next()
				at = min(at+1, len(inside))
			}
			if ok != (at < len(inside)) {
				t.Fatalf("at %d of %d: %v, %v", at, len(inside), ok, c.Err())
			}
			if ok && (string(c.Item().Key) != inside[at] || string(c.Item().Val[:4]) != inside[at]) {
				t.Fatalf("%q, want %q", c.Item().Key, inside[at])
			}
		}
		if err := errors.Join(c.Err(), c.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// countedDisk counts the iterators that are open.
type countedDisk struct {
	storage.Disk
	open *atomic.Int64
}

func (d countedDisk) KV() storage.KV { return countedKV{d.Disk.KV(), d.open} }

type countedKV struct {
	storage.KV
	open *atomic.Int64
}

func (kv countedKV) Iter(ctx context.Context, lo, hi []byte) (storage.Iter, error) {
	it, err := kv.KV.Iter(ctx, lo, hi)
	if err != nil {
		return nil, err
	}
	kv.open.Add(1)
	return countedIter{it, kv.open}, nil
}

type countedIter struct {
	storage.Iter
	open *atomic.Int64
}

func (it countedIter) Close() error {
	it.open.Add(-1)
	return it.Iter.Close()
}

// TestIteratorsAreClosed scans beside a disk that hangs at times: whatever comes
// too late is closed.
func TestIteratorsAreClosed(t *testing.T) {
	for _, kind := range []storagetest.OpKind{storagetest.OpIter, storagetest.OpNext} {
		t.Run(kind.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var open atomic.Int64
				w, e := filled(t, 3, func(w *world) (all []storage.Disk) {
					for _, d := range w.disks() {
						all = append(all, countedDisk{d, &open})
					}
					return all
				})
				c, err := e.Scan(t.Context(), nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				c.Next()
				release := gated(w.bays[c.(*cursor).src.m.slot], kind)
				for c.Next() {
					continue
				}
				if err := c.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
				for i := range 10 {
					if _, err := walkAll(t.Context(), e, fmt.Sprint("k0", i)); err != nil {
						t.Errorf("scan: %v", err)
					}
				}
				release()
				synctest.Wait()
				if n := open.Load(); n != 0 {
					t.Errorf("%d iterators are open", n)
				}
			})
		})
	}
}
