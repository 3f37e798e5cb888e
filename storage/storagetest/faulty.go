package storagetest

import (
	"context"
	"fmt"
	"io/fs"
	"sync/atomic"

	"ringfence/storage"
)

// CallKind names a call of a Backend or one of its files.
type CallKind string

// The calls.
const (
	CallCreate  CallKind = "create"
	CallOpen    CallKind = "open"
	CallRename  CallKind = "rename"
	CallRemove  CallKind = "remove"
	CallMkdir   CallKind = "mkdir"
	CallReadDir CallKind = "readdir"
	CallSyncDir CallKind = "syncdir"
	CallCheck   CallKind = "check"
	CallRead    CallKind = "read"
	CallWrite   CallKind = "write"
	CallSync    CallKind = "sync"
	CallSize    CallKind = "size"
)

// Call is a call about to be made.
type Call struct {
	Kind CallKind
	Name string // of the file or folder
	Off  int64  // reads and writes
	Len  int
	N    uint64 // of all calls, from 1
}

// Script decides what happens to a call. It is called concurrently. Of the
// faults, FaultMisdirect shifts a read by a block of BlockAlign, and FaultLie
// skips a Sync or SyncDir.
type Script func(Call) Fault

// Faulty is a Backend that does what another does, except where its script says
// otherwise. It is meant to be injected wherever a Backend is: a Faulty that
// fails every read makes every read of a disk fail, or something went around
// the Backend.
type Faulty struct {
	inner  storage.Backend
	script atomic.Pointer[Script]
	calls  atomic.Uint64
	down   atomic.Bool
}

var _ storage.Backend = (*Faulty)(nil)

// NewFaulty wraps inner. A nil script lets everything pass.
func NewFaulty(inner storage.Backend, script Script) *Faulty {
	f := &Faulty{inner: inner}
	f.SetScript(script)
	return f
}

// SetScript replaces the script, for open files too.
func (f *Faulty) SetScript(script Script) {
	if script == nil {
		script = func(Call) Fault { return Fault{} }
	}
	f.script.Store(&script)
}

// Calls is the number of calls so far.
func (f *Faulty) Calls() uint64 { return f.calls.Load() }

// FailCalls is a Script that fails every call of one kind; a nil err means
// storage.ErrFailed.
func FailCalls(kind CallKind, err error) Script {
	return func(c Call) Fault {
		if c.Kind == kind {
			return Fault{Kind: FaultFail, Err: err}
		}
		return Fault{}
	}
}

// FailNth is a Script that fails call n of all calls, once.
func FailNth(n uint64, err error) Script {
	return func(c Call) Fault {
		if c.N == n {
			return Fault{Kind: FaultFail, Err: err}
		}
		return Fault{}
	}
}

// do makes a call as the script wants it. run must not touch buffers after it
// returned.
func (f *Faulty) do(ctx context.Context, c Call, run func(Fault) error) error {
	wrap := func(err error) error {
		return &storage.DiskError{Op: string(c.Kind), Disk: "faulty", Err: fmt.Errorf("%s: injected: %w", c.Name, err)}
	}
	if f.down.Load() {
		return wrap(storage.ErrOffline)
	}
	c.N = f.calls.Add(1)
	fault := (*f.script.Load())(c)
	if fault.Wait != nil {
		select {
		case <-fault.Wait:
		case <-ctx.Done():
			return wrap(ctx.Err())
		}
	}
	if fault.Kind == FaultFail {
		return wrap(fault.err())
	}
	if fault.Kind == FaultLie && (c.Kind == CallSync || c.Kind == CallSyncDir) {
		return nil
	}
	err := run(fault)
	switch {
	case fault.Kind == FaultCrash:
		f.down.Store(true)
		return wrap(storage.ErrOffline)
	case fault.Kind == FaultUnknown && err == nil:
		return wrap(fault.err())
	}
	return err
}

// Create implements storage.Backend.
func (f *Faulty) Create(ctx context.Context, name string, sizeHint int64) (storage.File, error) {
	return f.file(ctx, Call{Kind: CallCreate, Name: name}, func() (storage.File, error) {
		return f.inner.Create(ctx, name, sizeHint)
	})
}

// Open implements storage.Backend.
func (f *Faulty) Open(ctx context.Context, name string) (storage.File, error) {
	return f.file(ctx, Call{Kind: CallOpen, Name: name}, func() (storage.File, error) {
		return f.inner.Open(ctx, name)
	})
}

func (f *Faulty) file(ctx context.Context, c Call, open func() (storage.File, error)) (storage.File, error) {
	var file storage.File
	err := f.do(ctx, c, func(Fault) (err error) {
		file, err = open()
		return err
	})
	if err != nil {
		if file != nil {
			return nil, fmt.Errorf("%w (close: %v)", err, file.Close())
		}
		return nil, err
	}
	return &faultyFile{backend: f, inner: file, name: c.Name}, nil
}

// Rename implements storage.Backend.
func (f *Faulty) Rename(ctx context.Context, source, target string) error {
	return f.do(ctx, Call{Kind: CallRename, Name: source}, func(Fault) error { return f.inner.Rename(ctx, source, target) })
}

// Remove implements storage.Backend.
func (f *Faulty) Remove(ctx context.Context, name string) error {
	return f.do(ctx, Call{Kind: CallRemove, Name: name}, func(Fault) error { return f.inner.Remove(ctx, name) })
}

// Mkdir implements storage.Backend.
func (f *Faulty) Mkdir(ctx context.Context, name string) error {
	return f.do(ctx, Call{Kind: CallMkdir, Name: name}, func(Fault) error { return f.inner.Mkdir(ctx, name) })
}

// ReadDir implements storage.Backend.
func (f *Faulty) ReadDir(ctx context.Context, name string) (entries []fs.DirEntry, err error) {
	err = f.do(ctx, Call{Kind: CallReadDir, Name: name}, func(Fault) (err error) {
		entries, err = f.inner.ReadDir(ctx, name)
		return err
	})
	return entries, err
}

// SyncDir implements storage.Backend.
func (f *Faulty) SyncDir(ctx context.Context, name string) error {
	return f.do(ctx, Call{Kind: CallSyncDir, Name: name}, func(Fault) error { return f.inner.SyncDir(ctx, name) })
}

// Stats implements storage.Backend. It is never faulty.
func (f *Faulty) Stats() storage.BackendStats { return f.inner.Stats() }

// Check implements storage.Backend.
func (f *Faulty) Check() error {
	return f.do(context.Background(), Call{Kind: CallCheck, Name: "."}, func(Fault) error { return f.inner.Check() })
}

// Close implements storage.Backend. It is never faulty.
func (f *Faulty) Close() error { return f.inner.Close() }

type faultyFile struct {
	backend *Faulty
	inner   storage.File
	name    string
}

var _ storage.VectorReader = (*faultyFile)(nil)

// ReadAt implements storage.File.
func (f *faultyFile) ReadAt(ctx context.Context, b *storage.Buf, off int64) (int, error) {
	return f.ReadVec(ctx, []*storage.Buf{b}, off)
}

// ReadVec implements storage.VectorReader.
func (f *faultyFile) ReadVec(ctx context.Context, bufs []*storage.Buf, off int64) (n int, err error) {
	c := Call{Kind: CallRead, Name: f.name, Off: off}
	for _, b := range bufs {
		c.Len += len(b.Bytes())
	}
	err = f.backend.do(ctx, c, func(fault Fault) (err error) {
		if fault.Kind == FaultMisdirect {
			off += storage.BlockAlign
		}
		n, err = storage.ReadFull(ctx, f.inner, bufs, off)
		if fault.Kind == FaultFlip && err == nil && n > 0 {
			flip(bufs[0].Bytes()[:min(n, len(bufs[0].Bytes()))], fault.Bit)
		}
		return err
	})
	if err != nil {
		n = 0
	}
	return n, err
}

// WriteAt implements storage.File.
func (f *faultyFile) WriteAt(ctx context.Context, p []byte, off int64) error {
	c := Call{Kind: CallWrite, Name: f.name, Off: off, Len: len(p)}
	return f.backend.do(ctx, c, func(Fault) error { return f.inner.WriteAt(ctx, p, off) })
}

// Sync implements storage.File.
func (f *faultyFile) Sync(ctx context.Context) error {
	return f.backend.do(ctx, Call{Kind: CallSync, Name: f.name}, func(Fault) error { return f.inner.Sync(ctx) })
}

// Size implements storage.File.
func (f *faultyFile) Size() (size int64, err error) {
	err = f.backend.do(context.Background(), Call{Kind: CallSize, Name: f.name}, func(Fault) (err error) {
		size, err = f.inner.Size()
		return err
	})
	return size, err
}

// Close implements storage.File. It is never faulty: what it frees must be freed.
func (f *faultyFile) Close() error { return f.inner.Close() }
