package storagetest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"ringfence/storage"
)

func setKV(t *testing.T, kv storage.KV, key, value string) error {
	t.Helper()
	var b storage.Batch
	b.Set([]byte(key), []byte(value))
	return kv.Apply(t.Context(), &b)
}

func apply(t *testing.T, kv storage.KV, b *storage.Batch) {
	t.Helper()
	if err := kv.Apply(t.Context(), b); err != nil {
		t.Fatal(err)
	}
}

// wantKV compares the whole store with want, by a walk and by gets.
func wantKV(t *testing.T, kv storage.KV, want map[string]string) {
	t.Helper()
	got := walkKV(t, kv, nil, nil)
	keys := slices.Sorted(maps.Keys(want))
	if len(got) != len(keys) {
		t.Errorf("%d keys, want %d", len(got), len(keys))
		return
	}
	for i, k := range keys {
		if got[i] != [2]string{k, want[k]} {
			t.Errorf("key %d is %q, want %q=%q", i, got[i], k, want[k])
		}
		v, err := kv.Get(t.Context(), []byte(k))
		if err != nil || string(v) != want[k] {
			t.Errorf("get %q: %q, %v; want %q", k, v, err, want[k])
		}
	}
}

// walkKV gives the pairs of a range in the order of the iterator.
func walkKV(t *testing.T, kv storage.KV, lo, hi []byte) (pairs [][2]string) {
	t.Helper()
	it, err := kv.Iter(t.Context(), lo, hi)
	if err != nil {
		t.Fatal(err)
	}
	for it.Next() {
		v, err := it.Value()
		if err != nil {
			t.Fatal(err)
		}
		pairs = append(pairs, [2]string{string(it.Key()), string(v)})
	}
	if err := errors.Join(it.Err(), it.Close()); err != nil {
		t.Fatal(err)
	}
	return pairs
}

func testKVBasics(t *testing.T, d *diskCase) {
	kv := d.KV()
	wantKV(t, kv, nil)
	_, err := kv.Get(t.Context(), []byte("a"))
	want(t, "get what is not there", err, storage.ErrNotFound)
	var b storage.Batch
	key, value := []byte("a"), []byte("1")
	b.Set(key, value)
	b.Set([]byte("b"), nil)
	b.Set([]byte{0, 0xff}, bytes.Repeat([]byte("x"), 70_000))
	b.Set([]byte("c"), []byte("gone"))
	b.Delete([]byte("c"))
	b.Delete([]byte("never was"))
	b.Set([]byte("a"), []byte("2")) // in order: the last one wins
	apply(t, kv, &b)
	key[0], value[0] = 'X', 'X' // the caller's again
	state := map[string]string{"a": "2", "b": "", "\x00\xff": string(bytes.Repeat([]byte("x"), 70_000))}
	wantKV(t, kv, state)
	got, err := kv.Get(t.Context(), []byte("a"))
	if err != nil {
		t.Fatal(err)
	}
	got[0] = 'Y' // a copy
	wantKV(t, kv, state)
	apply(t, kv, &storage.Batch{})
	wantKV(t, kv, state)
}

func testKVOrder(t *testing.T, d *diskCase) {
	kv := d.KV()
	var b storage.Batch
	keys := []string{"", "\x00", "\x00\x00", "a", "a\x00", "a\xff", "aa", "ab", "b", "\x7f", "\x80", "\xff", "\xff\xff"}
	keys = keys[1:] // an empty key is nobody's
	for _, i := range rand.New(rand.NewPCG(2, 2)).Perm(len(keys)) {
		b.Set([]byte(keys[i]), []byte(fmt.Sprint(i)))
	}
	apply(t, kv, &b)
	slices.Sort(keys)
	for _, lo := range append(keys, "", "a0", "zz") {
		for _, hi := range append(keys, "a0", "zz") {
			var want, got []string
			for _, k := range keys {
				if lo <= k && k < hi {
					want = append(want, k)
				}
			}
			for _, p := range walkKV(t, kv, []byte(lo), []byte(hi)) {
				got = append(got, p[0])
			}
			if !slices.Equal(got, want) {
				t.Fatalf("from %q to %q: %q, want %q", lo, hi, got, want)
			}
		}
	}
	it, err := kv.Iter(t.Context(), []byte("a"), []byte("b"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ seek, key, next string }{
		{"aa", "aa", "ab"}, {"a1", "aa", "ab"}, {"", "a", "a\x00"}, {"ab", "ab", "a\xff"}, {"a\xff", "a\xff", ""}, {"b", "", ""}, {"a", "a", "a\x00"},
	} {
		if ok := it.SeekGE([]byte(c.seek)); ok != (c.key != "") || (ok && string(it.Key()) != c.key) {
			t.Errorf("seek %q: %t", c.seek, ok)
		} else if ok {
			if ok := it.Next(); ok != (c.next != "") || (ok && string(it.Key()) != c.next) {
				t.Errorf("next after seek %q: %t", c.seek, ok)
			}
		}
	}
	if err := errors.Join(it.Err(), it.Close()); err != nil {
		t.Error(err)
	}
}

func testKVSnapshot(t *testing.T, d *diskCase) {
	kv := d.KV()
	var b storage.Batch
	for i := range 100 {
		b.Set(fmt.Appendf(nil, "%03d", i), []byte("old"))
	}
	apply(t, kv, &b)
	it, err := kv.Iter(t.Context(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	b = storage.Batch{}
	b.DeleteRange([]byte("010"), []byte("090"))
	b.Set([]byte("005"), []byte("new"))
	b.Set([]byte("0055"), []byte("new"))
	apply(t, kv, &b)
	n := 0
	for it.Next() {
		v, err := it.Value()
		if err != nil || string(v) != "old" || string(it.Key()) != fmt.Sprintf("%03d", n) {
			t.Fatalf("key %d of the snapshot: %q=%q, %v", n, it.Key(), v, err)
		}
		n++
	}
	if n != 100 {
		t.Errorf("%d keys of 100", n)
	}
	if err := errors.Join(it.Err(), it.Close()); err != nil {
		t.Error(err)
	}
	if got := walkKV(t, kv, nil, nil); len(got) != 21 {
		t.Errorf("%d keys now, want 21", len(got))
	}
}

func testKVRandom(t *testing.T, d *diskCase) {
	kv := d.KV()
	model := map[string]string{}
	rng := rand.New(rand.NewPCG(3, 3))
	rounds := 60
	if testing.Short() {
		rounds = 20
	}
	for i := range rounds {
		var b storage.Batch
		for range rng.IntN(20) {
			k, hi := fmt.Sprintf("%02x", rng.IntN(256)), fmt.Sprintf("%02x", rng.IntN(256))
			switch rng.IntN(8) {
			case 0:
				b.Delete([]byte(k))
				delete(model, k)
			case 1:
				if k < hi {
					b.DeleteRange([]byte(k), []byte(hi))
					maps.DeleteFunc(model, func(key, _ string) bool { return k <= key && key < hi })
				}
			default:
				v := fmt.Sprint(i, rng.IntN(100))
				b.Set([]byte(k), []byte(v))
				model[k] = v
			}
		}
		apply(t, kv, &b)
		if i%10 == 9 {
			wantKV(t, kv, model)
		}
	}
	if d.h.Reopen != nil {
		d.reopen(t)
		wantKV(t, d.KV(), model)
	}
}

// testKVAtomic looks for half a batch while batches are applied.
func testKVAtomic(t *testing.T, d *diskCase) {
	kv := d.KV()
	var writers, readers sync.WaitGroup
	stop := make(chan struct{})
	for g := range 2 {
		writers.Go(func() {
			for i := range 50 {
				var b storage.Batch
				for k := range 5 {
					b.Set(fmt.Appendf(nil, "%d/%d", g, k), fmt.Append(nil, i))
				}
				if err := kv.Apply(t.Context(), &b); err != nil {
					t.Error(err)
					return
				}
			}
		})
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				pairs := walkKV(t, kv, fmt.Appendf(nil, "%d/", g), fmt.Appendf(nil, "%d0", g))
				for _, p := range pairs {
					if len(pairs) != 5 || p[1] != pairs[0][1] {
						t.Errorf("half a batch: %q", pairs)
						return
					}
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
}

func testKVDead(t *testing.T, d *diskCase) {
	if d.h.FailApply == nil {
		t.Skip("needs FailApply")
	}
	kv := d.KV()
	if err := setKV(t, kv, "a", "1"); err != nil {
		t.Fatal(err)
	}
	it, err := kv.Iter(t.Context(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	d.h.FailApply(t, d.Disk)
	if err := setKV(t, kv, "b", "2"); err == nil {
		t.Fatal("apply succeeds")
	}
	for range 3 { // for ever
		_, errGet := kv.Get(t.Context(), []byte("a"))
		_, errB := kv.Get(t.Context(), []byte("b"))
		_, errIter := kv.Iter(t.Context(), nil, nil)
		for op, err := range map[string]error{"get": errGet, "get of what failed": errB, "iter": errIter, "apply": setKV(t, kv, "c", "3")} {
			want(t, op, err, storage.ErrFailed)
		}
	}
	if err := it.Close(); err != nil {
		t.Errorf("close of an iterator from before: %v", err)
	}
	if h := d.Health(); h.State != storage.StateFailed || h.Reason == "" {
		t.Errorf("health: %+v", h)
	}
	// Shards do not depend on it.
	s := d.shard(4096, 5000)
	s.seal(t, d)
	s.verify(t, d, 2)
	if d.h.Reopen == nil {
		return
	}
	_ = d.Close() // what a dead store says when it closes is its own business
	d.Disk = d.h.Reopen(t, d.Disk)
	if v, err := d.KV().Get(t.Context(), []byte("a")); err != nil || string(v) != "1" {
		t.Errorf("what was acknowledged reads %q, %v", v, err)
	}
	if err := setKV(t, d.KV(), "c", "3"); err != nil {
		t.Error(err)
	}
	s.verify(t, d, 2)
}

func testKVReset(t *testing.T, d *diskCase) {
	s := d.shard(4096, 5000)
	s.seal(t, d)
	old := d.KV()
	if err := setKV(t, old, "a", "1"); err != nil {
		t.Fatal(err)
	}
	if err := d.ResetKV(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, errGet := old.Get(t.Context(), []byte("a"))
	if errGet == nil || errors.Is(errGet, storage.ErrNotFound) || setKV(t, old, "b", "2") == nil {
		t.Errorf("the old store still answers: %v", errGet)
	}
	wantKV(t, d.KV(), nil)
	if err := setKV(t, d.KV(), "c", "3"); err != nil {
		t.Fatal(err)
	}
	s.verify(t, d, 2)
	if d.h.Reopen != nil {
		d.reopen(t)
		wantKV(t, d.KV(), map[string]string{"c": "3"})
		s.verify(t, d, 2)
	}
}
