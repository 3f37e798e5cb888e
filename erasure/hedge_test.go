package erasure

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ringfence/storage"
	"ringfence/storage/storagetest"
)

func TestPaceLearns(t *testing.T) {
	var p pace
	if got := p.late(); got != 5*hedgeMin {
		t.Errorf("a disk that nobody knows is late after %v", got)
	}
	for range 1000 {
		p.observe(200 * time.Microsecond)
	}
	if got := p.late(); got != hedgeMin {
		t.Errorf("a fast disk is late after %v, want %v", got, hedgeMin)
	}
	for i := range 1000 {
		if i%10 == 0 {
			p.observe(40 * time.Millisecond)
		} else {
			p.observe(8 * time.Millisecond)
		}
	}
	if got := p.late(); got < 120*time.Millisecond || got > 240*time.Millisecond {
		t.Errorf("a disk with a 95th percentile of 40 ms is late after %v", got)
	}
	for range 2000 {
		p.observe(5 * time.Second)
	}
	if got := p.late(); got != hedgeMax {
		t.Errorf("a very slow disk is late after %v, want %v", got, hedgeMax)
	}
}

func TestPaceAvoids(t *testing.T) {
	var p pace
	now := time.Unix(1000, 0)
	if p.avoided(now) {
		t.Error("a new disk is avoided")
	}
	if !p.avoid(now) || p.avoid(now) {
		t.Error("the first avoidance is not told from the second")
	}
	if !p.avoided(now) || !p.avoided(now.Add(avoidMin-1)) {
		t.Error("the disk is not avoided")
	}
	later := now.Add(avoidMin)
	if p.avoided(later) || !p.avoided(later) {
		t.Error("not exactly one caller tries the disk again")
	}
	p.observe(2 * hedgeMax)
	if !p.aside(later) {
		t.Error("a read that took very long takes the disk back in")
	}
	p.observe(time.Millisecond)
	if p.aside(later) || p.avoided(later) {
		t.Error("a good read does not take the disk back in")
	}
	for i := range lossesMax {
		if got := p.lost(); got != (i == lossesMax-1) {
			t.Errorf("lost read %d: suspect is %t", i, got)
		}
	}
	for range 10 {
		p.avoid(now)
		now = now.Add(time.Hour)
	}
	p.avoid(now)
	if !p.avoided(now.Add(avoidMax-1)) || p.avoided(now.Add(avoidMax)) {
		t.Error("the avoidance does not end at its maximum")
	}
}

func TestBudgetBoundsExtraReads(t *testing.T) {
	var b budget
	spent := 0
	for i := range 100000 {
		b.earn(1)
		if i > 5000 && b.spend(1) {
			spent++
		}
	}
	if limit := 95000/budgetPart + (budgetSaved+budgetCredit)/budgetPart; spent > limit || spent < 95000/budgetPart {
		t.Errorf("%d extra reads in 95000, want about one in %d", spent, budgetPart)
	}
}

// hang makes every step of a kind on a disk wait until the returned function is
// called, or its context ends.
func (rig *dataRig) hang(slot int, kinds ...storagetest.OpKind) func() {
	gate := make(chan struct{})
	rig.sims[slot].SetHook(func(op storagetest.Op) storagetest.Fault {
		if slices.Contains(kinds, op.Kind) {
			return storagetest.Fault{Wait: gate}
		}
		return storagetest.Fault{}
	})
	return func() { close(gate) }
}

// A disk that hangs costs a read a moment, then it is left alone.
func TestReadPassesAHungDisk(t *testing.T) {
	for _, kind := range []storagetest.OpKind{storagetest.OpRead, storagetest.OpOpenShard} {
		synctest.Test(t, func(t *testing.T) {
			rig := newDataRig(t, 6, 2, nil)
			body := randomBytes(6<<20, 21)
			b := rig.store(body)
			slot := int(b.Layout.Slots[1])
			rig.hang(slot, kind)
			for i := range lossesMax + 3 {
				start := time.Now()
				rig.wantBytes(b, body, 0, b.Size)
				took := time.Since(start)
				if took > hedgeMax/5 {
					t.Errorf("read %d took %v", i, took)
				}
				if i >= lossesMax && took > 0 {
					t.Errorf("read %d still waits %v for a disk that is known to hang", i, took)
				}
			}
			if n := rig.count.Hedged.Load(); n != lossesMax {
				t.Errorf("%d extra reads, want one for each of the first %d", n, lossesMax)
			}
			if !rig.health()[slot].Avoided {
				t.Error("the disk is not set aside")
			}
			rig.heal()
			<-time.After(avoidMin)
			rig.wantBytes(b, body, 0, b.Size)
			if rig.health()[slot].Avoided {
				t.Error("the disk works again and is still set aside")
			}
		})
	}
}

// The budget of extra reads does not stand between a read and its end.
func TestReadPassesAHungDiskWithoutBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newDataRig(t, 6, 2, nil)
		body := randomBytes(6<<20, 22)
		b := rig.store(body)
		for rig.budget.spend(1) {
			continue
		}
		rig.hang(int(b.Layout.Slots[0]), storagetest.OpRead)
		rig.hang(int(b.Layout.Slots[5]), storagetest.OpRead)
		start := time.Now()
		rig.wantBytes(b, body, 0, b.Size)
		if took := time.Since(start); took > 2*hedgeMax+100*time.Millisecond {
			t.Errorf("the read took %v", took)
		}
	})
}

// Too many hung disks end a read, in bounded time, with an error that says that
// the bytes may come back.
func TestReadGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newDataRig(t, 6, 2, nil)
		b := rig.store(randomBytes(6<<20, 23))
		for i := range 3 {
			rig.hang(i, storagetest.OpRead)
		}
		start := time.Now()
		_, err := rig.load(b, 0, b.Size)
		if took := time.Since(start); !errors.Is(err, ErrUnavailable) || took > rig.opts.StallAfter+time.Second {
			t.Errorf("three disks hang: %v after %v", err, took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		r, err := rig.open(ctx, b)
		if err != nil {
			t.Fatal(err)
		}
		defer r.close()
		start = time.Now()
		if err := r.prefetch(ctx, 0, b.Size); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("prefetch with a deadline: %v", err)
		}
		if took := time.Since(start); took > 300*time.Millisecond {
			t.Errorf("prefetch with a deadline took %v", took)
		}
	})
}

// deafDisk hangs in reads and seals without regard for the context, as a kernel
// may that waits for a dead device.
type deafDisk struct {
	storage.Disk
	creates bool // hang in create, too
	mu      sync.Mutex
	gate    chan struct{}
}

func (d *deafDisk) wait() {
	d.mu.Lock()
	gate := d.gate
	d.mu.Unlock()
	if gate != nil {
		<-gate
	}
}

func (d *deafDisk) set(gate chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gate = gate
}

func (d *deafDisk) OpenShard(ctx context.Context, id storage.ShardID) (storage.ShardReader, error) {
	r, err := d.Disk.OpenShard(ctx, id)
	return &deafReader{r, d}, err
}

func (d *deafDisk) CreateShard(ctx context.Context, id storage.ShardID, info storage.ShardInfo) (storage.ShardWriter, error) {
	if d.creates {
		d.wait()
	}
	w, err := d.Disk.CreateShard(ctx, id, info)
	return &deafWriter{w, d}, err
}

type deafReader struct {
	storage.ShardReader
	d *deafDisk
}

func (r *deafReader) ReadBlocks(ctx context.Context, first int, bufs []*storage.Buf) error {
	r.d.wait()
	return r.ShardReader.ReadBlocks(ctx, first, bufs)
}

type deafWriter struct {
	storage.ShardWriter
	d *deafDisk
}

func (w *deafWriter) Append(ctx context.Context, block []byte, sum storage.Sum) error {
	w.d.wait()
	return w.ShardWriter.Append(ctx, block, sum)
}

// A disk that cannot even be cancelled keeps its own memory and nobody else's
// time.
func TestDeafDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deaf := &deafDisk{}
		rig := newDataRig(t, 6, 2, func(o *dataOptions) {
			deaf.Disk = o.Disks[0]
			o.Disks[0] = deaf
		})
		body := randomBytes(6<<20, 24)
		b := rig.store(body)
		gate := make(chan struct{})
		deaf.set(gate)
		for range 20 {
			rig.wantBytes(b, body, 0, b.Size)
		}
		if held := rig.pool.InUse(); held > 3<<20 {
			t.Errorf("20 reads left %d bytes with a disk that hangs", held)
		}
		start := time.Now()
		in := rig.input(body)
		rig.pardonAll() // as if the reads had not noticed
		w, err := rig.write(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		late, err := w.seal(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > 2*rig.opts.SlowAfter {
			t.Errorf("a write past a hung disk took %v", took)
		}
		if !slices.Equal(late.Missing, []uint8{uint8(late.Layout.indexOf(0))}) {
			t.Errorf("shards %v are missing, want that of disk 0", late.Missing)
		}
		start = time.Now()
		again := rig.store(body)
		if took := time.Since(start); took > 0 || again.Layout.indexOf(0) >= 0 {
			t.Errorf("the next write waits %v for the hung disk (%+v)", took, again.Layout)
		}
		rig.wantBytes(late, body, 0, late.Size)
		close(gate)
		synctest.Wait()
		if held := rig.pool.InUse(); held != 0 {
			t.Errorf("%d bytes are still held after the disk came back", held)
		}
		if ids := rig.sims[0].Shards(); len(ids) != 1 {
			t.Errorf("disk 0 holds %v, want only the first blob", ids)
		}
	})
}

// A disk that cannot be cancelled in a create costs one write a moment; what it
// makes too late is removed when it comes back.
func TestDeafCreate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		deaf := &deafDisk{creates: true, gate: gate}
		rig := newDataRig(t, 6, 2, func(o *dataOptions) {
			deaf.Disk = o.Disks[0]
			o.Disks[0] = deaf
		})
		body := randomBytes(3<<20, 28)
		for i := range 2 {
			start := time.Now()
			b := rig.store(body)
			took := time.Since(start)
			if i == 0 && took != rig.opts.SlowAfter || i == 1 && took != 0 {
				t.Errorf("write %d took %v", i, took)
			}
			if b.Layout.K != 3 || b.Layout.M != 2 || len(b.Missing) != 0 || b.Layout.indexOf(0) >= 0 {
				t.Errorf("write %d: %+v", i, b)
			}
			rig.wantBytes(b, body, 0, b.Size)
		}
		close(gate)
		synctest.Wait()
		if ids := rig.sims[0].Shards(); len(ids) != 0 {
			t.Errorf("disk 0 holds %v", ids)
		}
	})
}

func (rig *dataRig) pardonAll() {
	for i := range rig.writes {
		rig.writes[i].pardon()
		rig.reads[i].pardon()
	}
}

// A write leaves a slow disk out only when enough others are done, and waits
// for it a while before.
func TestWriteLeavesASlowDiskOut(t *testing.T) {
	kinds := []storagetest.OpKind{storagetest.OpCreate, storagetest.OpAppend, storagetest.OpSealData, storagetest.OpSealDir}
	for _, kind := range kinds {
		synctest.Test(t, func(t *testing.T) {
			rig := newDataRig(t, 6, 2, nil)
			body := randomBytes(6<<20, 25)
			open := rig.hang(3, kind)
			stop := time.AfterFunc(rig.opts.SlowAfter/2, open)
			start := time.Now()
			b := rig.store(body)
			if took := time.Since(start); took != rig.opts.SlowAfter/2 || len(b.Missing) != 0 || b.Layout.K != 4 {
				t.Errorf("%v is slow for a moment: %v, %+v", kind, took, b)
			}
			stop.Stop()
			rig.hang(3, kind)
			start = time.Now()
			b = rig.store(body)
			took := time.Since(start)
			if took != rig.opts.SlowAfter {
				t.Errorf("%v hangs: the write took %v, want %v", kind, took, rig.opts.SlowAfter)
			}
			if kind == storagetest.OpCreate && b.Layout.K != 3 || kind != storagetest.OpCreate && !slices.Equal(b.Missing, []uint8{uint8(b.Layout.indexOf(3))}) {
				t.Errorf("%v hangs: %+v", kind, b)
			}
			rig.wantBytes(b, body, 0, b.Size)
		})
	}
}

// When all disks are busy, the last of them is not slow.
func TestWriteWaitsForBusyDisks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newDataRig(t, 6, 2, nil)
		for slot := range 6 {
			after := 5 * time.Second
			if slot == 3 {
				after = 12 * time.Second
			}
			time.AfterFunc(after, rig.hang(slot, storagetest.OpSealData))
		}
		body := randomBytes(1<<20, 26)
		start := time.Now()
		b := rig.store(body)
		if took := time.Since(start); took != 12*time.Second || len(b.Missing) != 0 {
			t.Errorf("took %v, missing %v", took, b.Missing)
		}
	})
}

// Disks that hang in the middle of a write end it soon, when parity would make
// all of them good: the next write does without them.
func TestWriteGivesUp(t *testing.T) {
	for _, c := range []struct{ disks, parity, hung int }{{6, 2, 2}, {3, 1, 1}, {4, 2, 2}} {
		for _, kind := range []storagetest.OpKind{storagetest.OpAppend, storagetest.OpSealData} {
			synctest.Test(t, func(t *testing.T) { giveUp(t, c.disks, c.parity, c.hung, kind) })
		}
	}
}

func giveUp(t *testing.T, disks, parity, hung int, kind storagetest.OpKind) {
	rig := newDataRig(t, disks, parity, nil)
	body := randomBytes(9<<20, 26)
	for i := range hung {
		rig.hang(i, kind)
	}
	start := time.Now()
	if _, err := writeAndSeal(rig, rig.input(body)); !errors.Is(err, ErrUnavailable) {
		t.Errorf("%d of %d+%d hang in %v: %v, want ErrUnavailable", hung, disks-parity, parity, kind, err)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("%d of %d+%d hang in %v: gave up after %v", hung, disks-parity, parity, kind, took)
	}
	start = time.Now()
	b, err := writeAndSeal(rig, rig.input(body))
	if disks-hung > parity {
		if took := time.Since(start); err != nil || took > 0 || int(b.Layout.K) != disks-hung-parity {
			t.Errorf("%d of %d+%d hang in %v: the next write: %+v, %v after %v", hung, disks-parity, parity, kind, b.Layout, err, took)
		}
		rig.wantBytes(b, body, 0, b.Size)
		if err := rig.remove(t.Context(), b); err != nil {
			t.Error(err)
		}
	}
	rig.heal()
	synctest.Wait()
	rig.wantNoShards()
}

// More disks that hang than parity makes good are waited for: that is no case
// of a sick disk.
func TestWriteStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newDataRig(t, 6, 2, nil)
		for i := range 3 {
			time.AfterFunc(20*time.Second, rig.hang(i, storagetest.OpSealData))
		}
		body := randomBytes(3<<20, 26)
		start := time.Now()
		b := rig.store(body)
		if took := time.Since(start); took != 20*time.Second || len(b.Missing) != 0 {
			t.Errorf("took %v, missing %v", took, b.Missing)
		}
		rig.wantBytes(b, body, 0, b.Size)
	})
}

// A slow client holds nothing but its own memory, and wrong bytes never reach
// it.
func TestReadForASlowClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newDataRig(t, 6, 2, nil)
		body := randomBytes(6<<20, 27)
		b := rig.store(body)
		var got bytes.Buffer
		r, err := rig.open(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		n, err := r.writeTo(t.Context(), writerFunc(func(p []byte) (int, error) {
			<-time.After(time.Minute)
			if held := rig.pool.InUse(); held > 4<<20 {
				t.Errorf("a slow client holds %d bytes", held)
			}
			return got.Write(p)
		}), 0, b.Size)
		r.close()
		if err != nil || n != b.Size || !bytes.Equal(got.Bytes(), body) {
			t.Errorf("%d bytes, %v", n, err)
		}
		if rig.count.Hedged.Load() != 0 {
			t.Error("waiting for the client counts as waiting for a disk")
		}
	})
}
