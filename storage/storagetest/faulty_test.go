package storagetest

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"ringfence/storage"
)

func newFaulty(t *testing.T) (*Faulty, backendCase, storage.File) {
	t.Helper()
	f := NewFaulty(NewMemBackend(), nil)
	c := backendCase{Backend: f, pool: testPool(t)}
	c.put(t, "a", pattern(3*storage.BlockAlign))
	return f, c, c.open(t, "a")
}

func TestFaultyFailsByScript(t *testing.T) {
	f, c, file := newFaulty(t)
	f.SetScript(FailCalls(CallRead, nil))
	buf, err := c.pool.Get(100)
	if err != nil {
		t.Fatal(err)
	}
	defer buf.Release()
	for range 3 {
		if n, err := file.ReadAt(t.Context(), buf, 0); n != 0 || !errors.Is(err, storage.ErrFailed) {
			t.Errorf("read: %d, %v", n, err)
		}
	}
	if _, err := c.Open(t.Context(), "a"); err != nil { // only reads fail
		t.Error(err)
	}
	f.SetScript(FailNth(f.Calls()+2, storage.ErrFull))
	for i, is := range []error{nil, storage.ErrFull, nil} {
		if err := c.Mkdir(t.Context(), "d"); !errors.Is(err, is) {
			t.Errorf("call %d: %v, want %v", i, err, is)
		}
	}
}

func TestFaultyDamagesReads(t *testing.T) {
	f, c, file := newFaulty(t)
	content := pattern(3 * storage.BlockAlign)
	kind := FaultFlip
	f.SetScript(func(call Call) Fault {
		if call.Kind == CallRead {
			return Fault{Kind: kind, Bit: 12}
		}
		return Fault{}
	})
	got := c.read(t, file, 0, 1000)
	if got[1] ^= 1 << 4; !bytes.Equal(got, content[:1000]) {
		t.Error("a flip does not invert the one bit")
	}
	kind = FaultMisdirect
	if got := c.read(t, file, 0, 1000); !bytes.Equal(got, content[storage.BlockAlign:][:1000]) {
		t.Error("a misdirected read does not give the next block")
	}
	f.SetScript(nil)
	if got := c.read(t, file, 0, 1000); !bytes.Equal(got, content[:1000]) {
		t.Error("the medium was changed")
	}
}

func TestFaultyGatesAndCrashes(t *testing.T) {
	f, c, file := newFaulty(t)
	gate := make(chan struct{})
	f.SetScript(func(Call) Fault { return Fault{Wait: gate} })
	buf, err := c.pool.Get(100)
	if err != nil {
		t.Fatal(err)
	}
	defer buf.Release()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := file.ReadAt(ctx, buf, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled behind a gate: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- c.Mkdir(t.Context(), "d") }()
	close(gate)
	if err := <-done; err != nil {
		t.Error(err)
	}
	f.SetScript(func(call Call) Fault {
		if call.Kind == CallRename {
			return Fault{Kind: FaultCrash}
		}
		return Fault{}
	})
	want(t, "rename", c.Rename(t.Context(), "a", "b"), storage.ErrOffline)
	f.SetScript(nil)
	want(t, "after the crash", c.Check(), storage.ErrOffline)
	if _, err := f.inner.Open(t.Context(), "b"); err != nil {
		t.Errorf("what crashed did not happen: %v", err)
	}
}

func TestFaultyLies(t *testing.T) {
	f, c, _ := newFaulty(t)
	mem, ok := f.inner.(*MemBackend)
	if !ok {
		t.Fatal("no MemBackend")
	}
	f.SetScript(func(call Call) Fault {
		if call.Kind == CallSyncDir {
			return Fault{Kind: FaultLie}
		}
		return Fault{}
	})
	if err := c.SyncDir(t.Context(), "."); err != nil {
		t.Fatal(err)
	}
	if got := crashes(t, mem, "a"); len(got) != 2 {
		t.Errorf("a sync that lied: %v", got)
	}
	f.SetScript(nil)
	if err := c.SyncDir(t.Context(), "."); err != nil {
		t.Fatal(err)
	}
	if got := crashes(t, mem, "a"); len(got) != 1 {
		t.Errorf("an honest sync: %v", got)
	}
}
