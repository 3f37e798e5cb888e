package erasure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"ringfence/erasure/rs"
	"ringfence/storage"
)

// writeWindow is how many stripes of a write are in memory: one is filled from
// the body while the disks write the other. At 4+2 that is 3 MiB.
const writeWindow = 2

// writeInput is one run of bytes to store.
type writeInput struct {
	// UUID and Part name the shards. The stored blob may carry another random
	// part in its UUID: a write that has to start again takes a fresh name.
	UUID  storage.UUID
	Part  uint16
	Owner []byte    // at most maxOwner bytes, kept with every shard
	Body  io.Reader // read to its end on the caller's goroutine
	Size  int64     // exact length of Body in bytes, or -1
}

// stagedBlob is a blob whose bytes are on their way to the disks. It belongs to
// one goroutine, and ends with seal or abort.
type stagedBlob struct {
	d      *data
	id     storage.ShardID
	layout Layout
	size   int64 // bytes of body so far
	steps  int   // that every lane was given
	codec  *rs.Codec
	lanes  []*lane // by shard
	res    *storage.Reservation
	wake   chan struct{} // a lane made progress
	ring   [writeWindow]*stripe
	window int // stripes that memory was reserved for
}

// write reads the body to its end and hands it to the disks. Nothing is durable
// or visible until seal. When it fails nothing is left behind, except on disks
// that do not answer.
//
// Errors: the body's own as it is, io.ErrUnexpectedEOF or ErrBodyTooLong when
// the body is not Size bytes long, ErrUnavailable, ErrFull, ErrOverload, ctx's.
// Until all disks have made their shard nothing of the body is read.
func (d *data) write(ctx context.Context, in writeInput) (*stagedBlob, error) {
	if len(in.Owner) > maxOwner {
		return nil, fmt.Errorf("write blob: owner of %d bytes, at most %d", len(in.Owner), maxOwner)
	}
	w, err := d.stage(ctx, in)
	if err != nil {
		return nil, err
	}
	if err := w.fill(ctx, in.Body, in.Size); err != nil {
		w.abort()
		return nil, err
	}
	return w, nil
}

// stage makes shards on all disks that are well. A disk that fails to is left
// out, and all begins anew with a narrower layout under a fresh name: names
// are write-once, and every shard records its layout.
func (d *data) stage(ctx context.Context, in writeInput) (*stagedBlob, error) {
	var out uint16 // slots that failed
	var faults []error
	uuid := in.UUID
	for range MaxSetSize + 1 {
		slots, away := d.writable(out)
		layout, ok := chooseLayout(uuid, in.Size, slots, d.opts.Parity)
		if ok && in.Size > stripesMax*int64(layout.stripeSize()) {
			return nil, ErrBodyTooLong
		}
		if !ok {
			return nil, writeFailure("write", len(slots), d.opts.Parity+1, append(faults, away...))
		}
		w, err := d.stageOn(ctx, in, uuid, layout)
		if err != nil {
			return nil, err
		}
		err = w.await(ctx, d.opts.Parity+1) // fewer leave no narrower layout
		failed := w.failures()
		if err == nil && len(failed) == 0 {
			if len(slots) < len(d.opts.Disks) {
				d.count.Narrowed.Add(1)
			}
			return w, nil
		}
		w.abort()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		for _, f := range failed {
			if !errors.Is(f, storage.ErrExists) {
				out |= 1 << f.Slot
				d.writes[f.Slot].avoid(d.opts.Env.Now())
			}
			faults = append(faults, f)
		}
		d.opts.Env.Rand(uuid[4:]) // the first four bytes are the epoch
	}
	return nil, writeFailure("write", 0, d.opts.Parity+1, faults)
}

// writable gives the slots for a new layout, and why the others are not.
// Disks that were set aside are used when there are too few without them.
func (d *data) writable(out uint16) ([]uint8, []error) {
	var well, aside []uint8
	var away []error
	now := d.opts.Env.Now()
	for i, disk := range d.opts.Disks {
		if out>>i&1 == 1 {
			continue
		}
		slot := uint8(i)
		switch h := disk.Health(); {
		case h.State == storage.StateFull:
			away = append(away, &shardError{Slot: slot, Err: storage.ErrFull})
		case h.State != storage.StateOK:
			away = append(away, &shardError{Slot: slot, Err: fmt.Errorf("%w: %s", storage.ErrOffline, h.Reason)})
		case d.writes[i].avoided(now):
			aside = append(aside, slot)
		default:
			well = append(well, slot)
		}
	}
	if len(well) < d.opts.Parity+1 {
		well = append(well, aside...)
	}
	return well, away
}

// stageOn reserves memory and asks all disks of the layout for a shard.
func (d *data) stageOn(ctx context.Context, in writeInput, uuid storage.UUID, layout Layout) (*stagedBlob, error) {
	codec, err := d.codecs.Get(int(layout.K), int(layout.M))
	if err != nil {
		return nil, fmt.Errorf("write: %w", err)
	}
	w := &stagedBlob{
		d: d, id: storage.ShardID{UUID: uuid, Part: in.Part}, layout: layout, codec: codec,
		wake: make(chan struct{}, 1), window: writeWindow,
	}
	if in.Size >= 0 {
		w.window = int(min(writeWindow, layout.stripes(in.Size)))
	}
	if w.window > 0 {
		if w.res, err = d.reserve(ctx, int64(w.window)*stripeBytes(layout)); err != nil {
			return nil, err
		}
	}
	info := storage.ShardInfo{BlockSize: layout.BlockSize}
	if in.Size > 0 {
		info.Size = layout.shardSize(in.Size)
	}
	for i, slot := range layout.Slots {
		info.Owner = joinOwner(place{Layout: layout, Shard: uint8(i), Size: max(in.Size, -1)}, in.Owner)
		w.lanes = append(w.lanes, newLane(ctx, w, uint8(i), slot, info))
	}
	w.steps = 1
	for _, l := range w.lanes {
		l.push(step{kind: stepCreate})
	}
	return w, nil
}

// fill reads the body stripe by stripe, each while the disks write the one
// before.
func (w *stagedBlob) fill(ctx context.Context, body io.Reader, size int64) error {
	defer w.releaseRing()
	left := size
	if size < 0 {
		left = math.MaxInt64
	}
	for s := int64(0); left > 0; s++ {
		if s == stripesMax {
			return ErrBodyTooLong
		}
		st, err := w.nextStripe(ctx, s)
		if err != nil {
			return err
		}
		want := int(min(int64(w.layout.stripeSize()), left))
		n, err := readBody(body, st.data.Bytes()[:want])
		if err != nil && (size >= 0 || err != io.EOF) {
			return shortBody(err)
		}
		if n > 0 {
			if err := w.send(st, s, n); err != nil {
				return err
			}
		}
		if n < want {
			return nil // the end of a body of unknown length
		}
		left -= int64(n)
	}
	return endBody(body)
}

// shortBody is what it means that the body ended early.
func shortBody(err error) error {
	if err == io.EOF { // bare is an end, wrapped is the body's own error
		return io.ErrUnexpectedEOF
	}
	return err
}

// readBody fills p, or reads to the end of the body: then the error is io.EOF.
func readBody(body io.Reader, p []byte) (int, error) {
	n, empty := 0, 0
	for n < len(p) {
		m, err := body.Read(p[n:])
		n += m
		if err != nil && (n < len(p) || err != io.EOF) {
			return n, err
		}
		if m > 0 {
			empty = 0
		} else if empty++; empty == 100 {
			return n, io.ErrNoProgress
		}
	}
	return n, nil
}

// endBody wants the end of the body now: what checks it, such as a trailer, is
// checked when the end is read.
func endBody(body io.Reader) error {
	var p [1]byte
	n, err := readBody(body, p[:])
	switch {
	case n > 0:
		return ErrBodyTooLong
	case err == io.EOF:
		return nil
	}
	return err
}

// send encodes the first n bytes of a stripe and gives every disk its block.
func (w *stagedBlob) send(st *stripe, s int64, n int) error {
	st.cut(w.layout, s, n)
	if err := w.codec.Encode(st.blocks[:w.layout.shards()]); err != nil {
		return fmt.Errorf("write stripe %d: %w", s, err)
	}
	w.size += int64(n)
	w.steps++
	for _, l := range w.lanes {
		l.push(step{kind: stepAppend, stripe: st})
	}
	return nil
}

// seal makes the blob durable and ends the write. Its error means that the blob
// is not to be used; nothing is left of it then, except on disks that do not
// answer.
func (w *stagedBlob) seal(ctx context.Context) (blob, error) {
	w.steps++
	for _, l := range w.lanes {
		l.push(step{kind: stepSeal, ctx: ctx})
	}
	if err := w.await(ctx, w.layout.quorum()); err != nil {
		w.abort()
		return blob{}, err
	}
	b := blob{UUID: w.id.UUID, Part: w.id.Part, Size: w.size, Layout: w.layout}
	for _, f := range w.failures() {
		b.Missing = append(b.Missing, f.Shard)
		if !errors.Is(f, errSlow) {
			w.d.count.Dropped.Add(1)
			w.d.writes[f.Slot].avoid(w.d.opts.Env.Now())
		}
		w.d.opts.Log.Warn().Stringer("shard", w.id).Uint8("slot", f.Slot).Err(f.Err).Msg("write left a disk out")
	}
	w.end()
	return b, nil
}

// abort gives the write up, removes what the disks have of it, and waits for
// them, but not for ever. Harmless after seal.
func (w *stagedBlob) abort() {
	if w.lanes == nil {
		return
	}
	for _, l := range w.lanes {
		l.drop(errAborted, true)
	}
	slow, stop := w.d.opts.Env.After(w.d.opts.SlowAfter)
	defer stop()
	for waiting := true; waiting && w.cleaning(); {
		select {
		case <-w.wake:
		case <-slow:
			waiting = false
		}
	}
	w.end()
}

// cleaning reports whether a lane still works that is worth waiting for. One
// that was left out as too slow is not.
func (w *stagedBlob) cleaning() bool {
	for _, l := range w.lanes {
		if l.busy() && !errors.Is(l.failure(), errSlow) {
			return true
		}
	}
	return false
}

// end gives everything back. Lanes that hang keep their stripe until they end.
func (w *stagedBlob) end() {
	for _, l := range w.lanes {
		l.cancel()
	}
	w.releaseRing()
	if w.res != nil {
		w.res.Release()
	}
	w.lanes, w.res = nil, nil
}

// failures are the lanes that were left out.
func (w *stagedBlob) failures() []*shardError {
	var all []*shardError
	for _, l := range w.lanes {
		if err := l.failure(); err != nil {
			all = append(all, &shardError{Shard: l.shard, Slot: l.slot, Err: err})
		}
	}
	return all
}

// await waits until every lane has done all steps up to now, or is left out:
// because it failed, or because it is late and need others are not. An error
// means that fewer than need are left.
func (w *stagedBlob) await(ctx context.Context, need int) error {
	return w.awaitStep(ctx, w.steps, need)
}
