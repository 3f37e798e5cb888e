package erasure

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"time"

	"ringfence/storage"
)

// start aims a window at the stripes from s on and begins to read it.
func (r *blobReader) start(s, off, end int64) (*window, error) {
	var w *window
	if n := len(r.state.windows); n > 0 {
		w = r.state.windows[n-1]
		r.state.windows = r.state.windows[:n-1]
	} else {
		w = &window{}
	}
	w.aim(&r.b, s, off, end)
	for i := range w.n {
		w.stripes[i].bad = r.state.faults.dead
	}
	r.mu.Lock()
	r.eager = false
	r.mu.Unlock()
	n, err := r.extend(w)
	if err != nil {
		r.discard(w)
		return nil, err
	}
	r.d.budget.earn(n)
	return w, nil
}

// await returns when every wanted block of the window is there and verified.
// It waits for the disks no longer than others can do their work: what fails
// or is late is asked of the next shard at once.
func (r *blobReader) await(ctx context.Context, w *window) error {
	since := r.d.opts.Env.Now()
	k := int(r.b.Layout.K)
	for {
		failed := r.harvest(w)
		lost := r.giveUp(w, false)
		if w.done(k) {
			break
		}
		if lost {
			continue // the last that counts may have ended while others did
		}
		n, err := r.extend(w)
		if err != nil {
			return err
		}
		if n > 0 {
			r.spread()
			if failed {
				r.d.count.Retried.Add(int64(n))
			}
			continue
		}
		if err := r.hopeless(ctx, w); err != nil {
			return err
		}
		select {
		case <-r.wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-r.ticks(since):
			r.state.stop()
			r.state.tick = nil
			if err := r.checkLate(ctx, w, since); err != nil {
				return err
			}
		}
	}
	for i := range w.n {
		if err := r.reconstruct(w, i); err != nil {
			return err
		}
	}
	return nil
}

// extend starts the fetches that the window lacks and returns how many.
func (r *blobReader) extend(w *window) (int, error) {
	l := r.b.Layout
	var picks [windowMax]uint16
	var any uint16
	for i := range w.n {
		picks[i] = w.stripes[i].plan(int(l.K), l.shards(), r.state.faults.avoid)
		any |= picks[i]
	}
	started := 0
	for ; any != 0; any &= any - 1 {
		shard := bits.TrailingZeros16(any)
		for i := 0; i < w.n; i++ {
			n := 0
			for i+n < w.n && picks[i+n]>>shard&1 == 1 {
				n++
			}
			if n == 0 {
				continue
			}
			if err := r.launch(w, uint8(shard), i, n); err != nil {
				return started, err
			}
			started++
			i += n
		}
	}
	return started, nil
}

// launch starts a fetch of n blocks of a shard into the window from stripe at
// on.
func (r *blobReader) launch(w *window, shard uint8, at, n int) error {
	var f *fetch
	if m := len(r.state.fetches); m > 0 {
		f = r.state.fetches[m-1]
		r.state.fetches = r.state.fetches[:m-1]
	} else {
		f = &fetch{r: r}
		f.run = f.do
	}
	for i := range n {
		b, err := r.buf()
		if err != nil {
			f.release()
			return err
		}
		f.bufs[i] = b
		w.stripes[at+i].pend |= 1 << shard
	}
	f.shard, f.at, f.n, f.block = shard, at, n, w.first+int64(at)
	f.ctx = r.heat(at, n).ctx
	f.good, f.dirty, f.err, f.waited = [windowMax]bool{}, false, nil, false
	f.begun, f.over, f.lost = time.Time{}, false, false
	w.fetches = append(w.fetches, f)
	r.mu.Lock()
	r.pending++
	r.mu.Unlock()
	r.d.task(f.run)
	return nil
}

// spread asks to be woken for every fetch from now on, since any one of them
// may be the one that completes a stripe.
func (r *blobReader) spread() {
	r.mu.Lock()
	r.eager = true
	r.mu.Unlock()
}

// harvest takes the fetches that are over and reports whether one failed.
func (r *blobReader) harvest(w *window) bool {
	failed := false
	left := w.fetches[:0]
	for _, f := range w.fetches {
		r.mu.Lock()
		over := f.over
		r.mu.Unlock()
		if !over {
			left = append(left, f)
			continue
		}
		r.take(w, f)
		failed = failed || f.err != nil
		r.state.fetches = append(r.state.fetches, f)
	}
	clear(w.fetches[len(left):])
	w.fetches = left
	return failed
}

// take moves the blocks of a fetch that is over into the window.
func (r *blobReader) take(w *window, f *fetch) {
	bit := uint16(1) << f.shard
	for i := range f.n {
		st := &w.stripes[f.at+i]
		st.pend &^= bit
		st.late &^= bit
		b := f.bufs[i]
		f.bufs[i] = nil
		switch {
		case f.good[i]:
			st.have |= bit
			st.blocks[f.shard] = b
		case f.dirty:
			b.Release()
			st.bad |= bit
		default:
			r.state.spare = append(r.state.spare, b)
			st.bad |= bit
		}
	}
	slot := r.b.Layout.Slots[f.shard]
	if f.err == nil {
		r.d.reads[slot].observe(f.took)
		return
	}
	r.fault(f)
}

// fault remembers why a shard failed, and tells those who can do something
// about it.
func (r *blobReader) fault(f *fetch) {
	if f.ctx.Err() != nil {
		return // the disk was not to blame
	}
	bit := uint16(1) << f.shard
	slot := r.b.Layout.Slots[f.shard]
	faults := &r.state.faults
	faults.errs[f.shard] = f.err
	faults.avoid |= bit
	r.mu.Lock()
	opened := r.handles[f.shard] != nil
	r.mu.Unlock()
	if errors.Is(f.err, storage.ErrOffline) || errors.Is(f.err, storage.ErrFailed) && !opened {
		r.d.reads[slot].avoid(r.d.opts.Env.Now())
	}
	if isDamage(f.err) && !opened {
		faults.dead |= bit
	}
	// An I/O error in a file that opens is a bad spot of this shard.
	damaged := isDamage(f.err) || errors.Is(f.err, storage.ErrFailed) && opened
	if !damaged || faults.told&bit != 0 {
		return
	}
	faults.told |= bit
	r.d.count.Damaged.Add(1)
	r.d.opts.Damaged(r.b, f.shard, f.err)
}

// hopeless is the error of a window that cannot be completed any more, or nil.
func (r *blobReader) hopeless(ctx context.Context, w *window) error {
	k := int(r.b.Layout.K)
	for i := range w.n {
		if w.stripes[i].hopeless(k) {
			return contextError(ctx, r.failure(w, i))
		}
	}
	return nil
}

// failure is the error of stripe i of the window, which has too few good blocks.
func (r *blobReader) failure(w *window, i int) error {
	m := w.stripes[i].marks
	lost := 0
	var disks []error
	for s, err := range r.state.faults.errs {
		if err == nil {
			continue
		}
		disks = append(disks, &shardError{Shard: uint8(s), Slot: r.b.Layout.Slots[s], Err: err})
		if m.bad>>s&1 == 1 && isDamage(err) {
			lost++
		}
	}
	op := fmt.Sprintf("read stripe %d of %s", w.first+int64(i), r.b.id())
	return readFailure(op, bits.OnesCount16(m.have), int(r.b.Layout.K), lost, r.b.Layout.shards(), disks)
}

// ticks is the timer to look for late fetches by. It is kept from window to
// window, so that a healthy read arms one now and then, not one per stripe.
func (r *blobReader) ticks(since time.Time) <-chan time.Time {
	if r.state.tick == nil {
		after := hedgeMin
		if r.d.opts.Env.Now().Sub(since) > 2*hedgeMax {
			after = 10 * hedgeMin
		}
		r.state.tick, r.state.stop = r.d.opts.Env.After(after)
	}
	return r.state.tick
}

// checkLate stops counting on fetches that take too long. Up to hedgeMax that
// is within the budget of extra reads, then in any case.
func (r *blobReader) checkLate(ctx context.Context, w *window, since time.Time) error {
	r.harvest(w) // what is over is not late
	now := r.d.opts.Env.Now()
	for _, f := range w.fetches {
		slot := r.b.Layout.Slots[f.shard]
		took := r.took(f, now, since)
		if f.waited || took < r.d.reads[slot].late() || took < hedgeMax && !r.d.budget.spend(1) {
			continue
		}
		f.waited = true
		r.state.faults.avoid |= 1 << f.shard
		r.d.count.Hedged.Add(1)
		for i := range f.n {
			if st := &w.stripes[f.at+i]; st.pend>>f.shard&1 == 1 {
				st.late |= 1 << f.shard
			}
		}
	}
	if now.Sub(since) < r.d.opts.StallAfter {
		return nil
	}
	for _, f := range w.fetches {
		r.state.faults.errs[f.shard] = errSlow
		r.d.suspect(r.b.Layout.Slots[f.shard], "read")
	}
	for i := range w.n {
		if !w.stripes[i].done(int(r.b.Layout.K)) {
			return contextError(ctx, r.failure(w, i))
		}
	}
	return nil
}

// took is how long the disk has had for a fetch. What a busy machine takes to
// start the task is not the disk's fault, and would be no shorter elsewhere, so
// it counts only when it is absurd.
func (r *blobReader) took(f *fetch, now, since time.Time) time.Duration {
	r.mu.Lock()
	begun := f.begun
	r.mu.Unlock()
	if !begun.IsZero() {
		return now.Sub(begun)
	}
	if waited := now.Sub(since); waited >= hedgeMax {
		return waited
	}
	return 0
}

// giveUp lets go of the fetches that lost: those of which every stripe is done
// without them, or all of them. They are cancelled at once, all the way down to
// the engine that reads for them, and keep their memory until they end. It
// reports whether there were any.
func (r *blobReader) giveUp(w *window, all bool) bool {
	if len(w.fetches) == 0 {
		return false
	}
	k := int(r.b.Layout.K)
	left := w.fetches[:0]
	var ended [windowMax][windowMax]bool
	for _, f := range w.fetches {
		if !all && !w.doneFor(f, k) {
			left = append(left, f)
			continue
		}
		r.lose(w, f)
		ended[f.at][f.at+f.n-1] = true
	}
	lost := len(left) < len(w.fetches)
	clear(w.fetches[len(left):])
	w.fetches = left
	// Only now, since what is cancelled ends, and has to know by then that
	// nobody waits for it.
	for first := range ended {
		for last, end := range ended[first] {
			if end {
				r.state.heats[first][last].end()
			}
		}
	}
	return lost
}

// lose leaves a fetch to itself.
func (r *blobReader) lose(w *window, f *fetch) {
	r.mu.Lock()
	over := f.over
	f.lost = true
	if !over {
		r.pending--
	}
	r.mu.Unlock()
	if over {
		r.take(w, f)
		r.state.fetches = append(r.state.fetches, f)
		return
	}
	bit := uint16(1) << f.shard
	for i := range f.n {
		w.stripes[f.at+i].pend &^= bit
	}
	slot := r.b.Layout.Slots[f.shard]
	if f.waited && r.d.reads[slot].lost() && r.d.reads[slot].avoid(r.d.opts.Env.Now()) {
		r.d.opts.Log.Warn().Uint8("slot", slot).Msg("disk is set aside for reads: others are sooner")
	}
}

// reconstruct computes the wanted blocks of stripe i of the window that were
// not read, from those that were.
func (r *blobReader) reconstruct(w *window, i int) error {
	st := &w.stripes[i]
	missing := st.want &^ st.have
	if missing == 0 {
		return nil
	}
	var blocks [MaxSetSize][]byte
	var want [MaxSetSize]bool
	n := r.b.Layout.shards()
	for s := range n {
		if st.have>>s&1 == 1 {
			blocks[s] = st.blocks[s].Bytes()
		}
		if missing>>s&1 == 0 {
			continue
		}
		b, err := r.buf()
		if err != nil {
			return err
		}
		b.SetLen(st.length)
		st.blocks[s] = b
		want[s] = true
		blocks[s] = b.Bytes()[:0]
	}
	if err := r.codec.Reconstruct(blocks[:n], want[:n]); err != nil {
		return fmt.Errorf("read stripe %d of %s: %w", w.first+int64(i), r.b.id(), err)
	}
	// From now on as good as read: prefetch and writeTo both wait for a window.
	st.have |= missing
	r.d.count.Reconstructed.Add(int64(bits.OnesCount16(missing)))
	return nil
}

// discard takes the memory of a window back. nil is fine.
func (r *blobReader) discard(w *window) {
	if w == nil {
		return
	}
	r.giveUp(w, true)
	for i := range w.n {
		st := &w.stripes[i]
		for s, b := range st.blocks {
			if b != nil {
				r.state.spare = append(r.state.spare, b)
				st.blocks[s] = nil
			}
		}
	}
	r.state.windows = append(r.state.windows, w)
}
