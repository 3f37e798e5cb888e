package uring

import (
	"context"
	"errors"
	"fmt"
	"math"
	"unsafe"

	"ringfence/storage"
)

// alignMax bounds what a file system may ask of O_DIRECT: whole buffers.
const alignMax = storage.MaxBuf

// Read fills the Bufs of r and returns how many bytes it read: fewer only at the
// end of the file. It waits for permits, in turn, and for the outcome. When ctx
// ends it returns at once with ctx's error; the shard keeps its own references
// to Bufs and File until the kernel is done, which it is asked to be soon.
//
// All Bufs go to one shard as one batch; of more than Options.Entries, one
// batch after the other. Errors are bare unix.Errno values where the kernel
// failed the read, or the sentinels of this package and storage.ErrNoBuffer.
func (d *Driver) Read(ctx context.Context, r Request) (int, error) {
	total := 0
	for {
		batch := r
		batch.Bufs = r.Bufs[:min(len(r.Bufs), d.opts.Entries)]
		n, err := d.read(ctx, batch, false)
		total += n
		r.Bufs = r.Bufs[len(batch.Bufs):]
		if err != nil || len(r.Bufs) == 0 || n < size(batch.Bufs) {
			return total, err
		}
		r.Off += int64(n)
	}
}

func size(bufs []*storage.Buf) int {
	n := 0
	for _, b := range bufs {
		n += len(b.Bytes())
	}
	return n
}

// ReadAt fills b from off on. Otherwise as Read.
func (d *Driver) ReadAt(ctx context.Context, f storage.Descriptor, b *storage.Buf, off int64) (int, error) {
	return d.readOne(ctx, Request{File: f, Off: off}, b, false)
}

// ReadAtDirect fills b from off on through a descriptor with O_DIRECT, whose
// reads need the alignment. The range needs none. Otherwise as Read.
func (d *Driver) ReadAtDirect(ctx context.Context, f storage.Descriptor, b *storage.Buf, off int64, align int) (int, error) {
	if align == 0 {
		return 0, fmt.Errorf("%w: alignment 0", ErrInvalid)
	}
	return d.readOne(ctx, Request{File: f, Off: off, Align: align}, b, false)
}

// ReadCurrent reads from where the file stands, as read(2) does: for pipes and
// other streams. A short read is final. Otherwise as Read.
func (d *Driver) ReadCurrent(ctx context.Context, f storage.Descriptor, b *storage.Buf) (int, error) {
	return d.readOne(ctx, Request{File: f}, b, true)
}

// TrySubmit starts a read of at most Options.Entries Bufs and never waits:
// ErrSaturated if no shard has room, or others wait for it.
func (d *Driver) TrySubmit(r Request) (*Op, error) { return d.trySubmit(r, false) }

func (d *Driver) trySubmit(r Request, current bool) (*Op, error) {
	o := &Op{done: make(chan struct{})}
	if err := o.prepare(&d.opts, r, current); err != nil {
		return nil, err
	}
	if o.count == 0 {
		o.state.Store(opDelivered)
		close(o.done)
		return o, nil
	}
	if err := d.permits.try(o); err != nil {
		return nil, err
	}
	if err := d.start(o); err != nil {
		return nil, err
	}
	return o, nil
}

func (d *Driver) read(ctx context.Context, r Request, current bool) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	o, _ := d.ops.Get().(*Op)
	return d.readOp(ctx, o, r, current)
}

// readOne keeps the list of one Buf in the Op: it need not be allocated there.
func (d *Driver) readOne(ctx context.Context, r Request, b *storage.Buf, current bool) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	o, _ := d.ops.Get().(*Op)
	o.one[0] = b
	r.Bufs = o.one[:]
	return d.readOp(ctx, o, r, current)
}

// readOp reads, and puts o back unless the shard may still have it.
func (d *Driver) readOp(ctx context.Context, o *Op, r Request, current bool) (n int, err error) {
	err = o.prepare(&d.opts, r, current)
	if err == nil && o.count > 0 {
		err = d.permits.wait(ctx, o)
		if err == nil {
			err = d.start(o)
		}
		if err == nil {
			n, err = o.Wait(ctx)
			if o.state.Load() != opDelivered {
				return n, err
			}
			// The last reference may close the file, which is none of the
			// shard's work.
			if closing := o.file.Release(); err == nil {
				err = closing
			}
		}
	}
	o.reset()
	d.ops.Put(o)
	return n, err
}

// prepare checks a request and lays its pieces out. It touches nothing else.
func (o *Op) prepare(opts *Options, r Request, current bool) error {
	if r.File == nil || len(r.Bufs) > opts.Entries {
		return fmt.Errorf("%w: file %v, %d buffers (at most %d)", ErrInvalid, r.File, len(r.Bufs), opts.Entries)
	}
	total := int64(0)
	for _, b := range r.Bufs {
		total += int64(len(b.Bytes()))
	}
	if err := check(r.Off, total, r.Align); err != nil {
		return err
	}
	o.file, o.align, o.current = r.File, r.Align, current
	off := r.Off
	for _, b := range r.Bufs {
		mem := b.Bytes()
		p := piece{buf: b, mem: mem, off: off, slot: -1}
		if len(mem) > 0 {
			if opts.Pool == nil && o.bounces(&p) {
				return fmt.Errorf("%w: misaligned, and there is no pool for aligned buffers", ErrInvalid)
			}
			o.count++
		}
		o.pieces = append(o.pieces, p)
		off += int64(len(mem))
	}
	o.bytes = total
	return nil
}

// check says whether a range can be read: before anything is taken for it.
func check(off, size int64, align int) error {
	switch {
	case off < 0 || size < 0:
		return fmt.Errorf("%w: %d bytes at %d", ErrInvalid, size, off)
	case size > ReadMax:
		return fmt.Errorf("%w: %d bytes, at most %d at once", ErrInvalid, size, ReadMax)
	case align < 0 || align > alignMax || align&(align-1) != 0:
		return fmt.Errorf("%w: alignment %d", ErrInvalid, align)
	case off > math.MaxInt64-size-int64(max(align-1, 0)):
		return fmt.Errorf("%w: %d bytes at %d end beyond every file", ErrInvalid, size, off)
	}
	return nil
}

// geometry is the aligned range that a piece is read as: off is where it begins
// in the file, head how many bytes come before those that are wanted, region
// its length. Without O_DIRECT it is the piece itself.
type geometry struct {
	off    int64
	head   int
	region int
}

func align(off int64, want, to int) geometry {
	if to == 0 {
		return geometry{off: off, region: want}
	}
	head := int(off & int64(to-1))
	return geometry{off: off - int64(head), head: head, region: (head + want + to - 1) &^ (to - 1)}
}

// bounces reports whether the kernel can't read into the memory of a piece.
func (o *Op) bounces(p *piece) bool {
	if o.align == 0 {
		return false
	}
	g := align(p.off, len(p.mem), o.align)
	return g.head > 0 || g.region > cap(p.mem) || uintptr(unsafe.Pointer(unsafe.SliceData(p.mem)))&uintptr(o.align-1) != 0
}

// start takes the references that the shard needs and posts o, which has been
// admitted. When it fails, everything was given back.
func (d *Driver) start(o *Op) error {
	err := o.acquire(d.opts.Pool)
	if err == nil {
		o.left, o.since = o.count, d.now()
		if o.shard.mail.post(message{op: o}) {
			return nil
		}
		o.releaseBufs()
		err = ErrClosed
		if closing := o.file.Release(); closing != nil {
			err = errors.Join(err, closing)
		}
	}
	d.permits.release(o.shard, o.count, o.bytes)
	return err
}

func (o *Op) acquire(pool *storage.Pool) error {
	if err := o.file.Acquire(); err != nil {
		return err
	}
	for i := range o.pieces {
		p := &o.pieces[i]
		if len(p.mem) == 0 {
			continue
		}
		p.buf.Retain()
		if !o.bounces(p) {
			continue
		}
		// Room for a part will do: what doesn't fit is read bit by bit.
		g := align(p.off, len(p.mem), o.align)
		b, err := pool.Get(min(g.region, storage.MaxBuf))
		if err != nil {
			clear(o.pieces[i+1:])
			o.releaseBufs()
			return errors.Join(err, o.file.Release())
		}
		p.bounce = b
	}
	return nil
}

func (o *Op) releaseBufs() {
	for i := range o.pieces {
		o.pieces[i].release()
	}
}

func (p *piece) release() {
	if len(p.mem) == 0 {
		return
	}
	if p.bounce != nil {
		p.bounce.Release()
		p.bounce = nil
	}
	p.buf.Release()
}
