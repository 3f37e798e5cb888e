//go:build faultinject

package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"ringfence/storage"
	"ringfence/storage/uring"
	"ringfence/storage/uring/ring"
	"ringfence/storage/uring/ringtest"
)

// A binary built with the tag faultinject makes its disks sick by order, for
// tests that see only the wire. RINGFENCE_FAULT_FILE names a file that is read
// 50 times a second. It has one order a line:
//
//	stall DISK   reads of the disk (its directory) don't come back, whatever
//	             reads them, until the line is gone
//	flip DISK    one bit of one read by a ring is flipped; each time that the
//	             file changes every such line counts once
//
// A file that is missing has no orders.
const faultFile = envPrefix + "FAULT_FILE"

var faultVariables = []string{faultFile}

const (
	faultInterval = 20 * time.Millisecond
	flipFrom      = 1024 // bytes; smaller reads are probes
)

// faults are the orders in force.
type faults struct {
	file string

	mu    sync.Mutex // protects the fields below
	disks map[string]*faultyDisk
	last  string // contents of the file
}

// faultyDisk is what can be done to one disk.
type faultyDisk struct {
	script  ringtest.Script
	flips   atomic.Int64 // left to do
	release func()       // of the stalled rings; nil if they aren't; faults.mu protects it
	stalled atomic.Pointer[chan struct{}]
}

func (p *process) newFaults() *faults {
	return &faults{file: p.variable(faultFile), disks: map[string]*faultyDisk{}}
}

func (f *faults) disk(path string) *faultyDisk {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.diskLocked(path)
}

func (f *faults) diskLocked(path string) *faultyDisk {
	d := f.disks[path]
	if d == nil {
		d = &faultyDisk{}
		d.script.Results(d.flip)
		f.disks[path] = d
	}
	return d
}

// rings are the options of a disk's rings.
func (f *faults) rings(path string) uring.Options {
	return uring.Options{Setup: ringtest.Wrap(ring.New, &f.disk(path).script)}
}

// backend is what a disk reads with.
func (f *faults) backend(path string, b storage.Backend) storage.Backend {
	return &faultyBackend{b, f.disk(path)}
}

// begin starts what looks for orders, and gives what stops it.
func (f *faults) begin(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(faultInterval)
		defer tick.Stop()
		for {
			f.look()
			select {
			case <-ctx.Done():
				f.obey("") // or the disks would not close
				return
			case <-tick.C:
			}
		}
	}()
	return func() { cancel(); <-done }
}

func (f *faults) look() {
	// A file that can't be read has no orders, like one that is missing.
	text, _ := os.ReadFile(f.file)
	f.obey(string(text))
}

// obey puts the orders of a text into force, instead of the former ones.
func (f *faults) obey(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if text == f.last {
		return
	}
	f.last = text
	stall := map[string]bool{}
	for line := range strings.Lines(text) {
		order, path, _ := strings.Cut(strings.TrimSpace(line), " ")
		path = filepath.Clean(strings.TrimSpace(path))
		switch order {
		case "stall":
			stall[path] = true
			f.diskLocked(path)
		case "flip":
			f.diskLocked(path).flips.Add(1)
		}
	}
	for path, d := range f.disks {
		d.stallLocked(stall[path])
	}
}

// stallLocked stalls the disk, or lets it go on.
func (d *faultyDisk) stallLocked(on bool) {
	switch held := d.stalled.Load(); {
	case on && held == nil:
		d.release = d.script.Stall(ringtest.AnyFD)
		c := make(chan struct{})
		d.stalled.Store(&c)
	case !on && held != nil:
		d.stalled.Store(nil)
		close(*held)
		d.release()
	}
}

// flip changes what a ring read, if it is to.
func (d *faultyDisk) flip(e ring.SQE, res int32) int32 {
	if res < flipFrom || d.flips.Load() <= 0 || (e.Opcode != ring.OpRead && e.Opcode != ring.OpReadFixed) {
		return res
	}
	if d.flips.Add(-1) < 0 {
		d.flips.Add(1)
		return res
	}
	// The address came from a pointer that the driver keeps alive.
	at := uintptr(e.Addr)
	*(*(**byte)(unsafe.Pointer(&at))) ^= 1
	return res
}

// faultyBackend is a Backend whose reads stall by order.
type faultyBackend struct {
	storage.Backend
	disk *faultyDisk
}

// Create implements storage.Backend.
func (b *faultyBackend) Create(ctx context.Context, name string, sizeHint int64) (storage.File, error) {
	f, err := b.Backend.Create(ctx, name, sizeHint)
	return b.file(f), err
}

// Open implements storage.Backend.
func (b *faultyBackend) Open(ctx context.Context, name string) (storage.File, error) {
	f, err := b.Backend.Open(ctx, name)
	return b.file(f), err
}

func (b *faultyBackend) file(f storage.File) storage.File {
	if raw, ok := f.(storage.RawFile); ok {
		return &faultyFile{raw, b.disk}
	}
	return f
}

// faultyFile is a file whose reads stall by order.
type faultyFile struct {
	storage.RawFile
	disk *faultyDisk
}

// wait waits while the disk is stalled.
func (f *faultyFile) wait(ctx context.Context) error {
	held := f.disk.stalled.Load()
	if held == nil {
		return nil
	}
	select {
	case <-*held:
		return nil
	case <-ctx.Done():
		return f.Wrap(ctx.Err())
	}
}

// ReadAt implements storage.File.
func (f *faultyFile) ReadAt(ctx context.Context, b *storage.Buf, off int64) (int, error) {
	if err := f.wait(ctx); err != nil {
		return 0, err
	}
	return f.RawFile.ReadAt(ctx, b, off)
}

// ReadVec implements storage.VectorReader.
func (f *faultyFile) ReadVec(ctx context.Context, bufs []*storage.Buf, off int64) (int, error) {
	if err := f.wait(ctx); err != nil {
		return 0, err
	}
	return f.RawFile.ReadVec(ctx, bufs, off)
}

// ReadInline implements storage.RawFile: of a disk that is stalled the page
// cache holds nothing.
func (f *faultyFile) ReadInline(ctx context.Context, bufs []*storage.Buf, off int64) (int, bool, error) {
	if f.disk.stalled.Load() != nil {
		return 0, false, nil
	}
	return f.RawFile.ReadInline(ctx, bufs, off)
}
