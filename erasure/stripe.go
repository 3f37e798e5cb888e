package erasure

import (
	"sync/atomic"

	"ringfence/storage"
)

// stripe is the memory of one stripe of a write: the data in one buffer as it
// came, which is how its blocks lie anyway, and the parity in another. The
// writer and each lane that was given it hold a reference.
type stripe struct {
	data   *storage.Buf
	parity *storage.Buf // nil without parity
	number int64
	blocks [MaxSetSize][]byte // cut from data and parity
	refs   atomic.Int32
}

// stripeBytes is what a stripe takes from a reservation.
func stripeBytes(l Layout) int64 {
	n := storage.BufBytes(l.stripeSize())
	if l.M > 0 {
		n += storage.BufBytes(int(l.M) * l.BlockSize)
	}
	return n
}

// newStripe takes the memory of a stripe from get. The caller has the one
// reference.
func newStripe(l Layout, get func(size int) (*storage.Buf, error)) (*stripe, error) {
	st := &stripe{}
	st.refs.Store(1)
	var err error
	if st.data, err = get(l.stripeSize()); err != nil {
		return nil, err
	}
	if l.M == 0 {
		return st, nil
	}
	if st.parity, err = get(int(l.M) * l.BlockSize); err != nil {
		st.data.Release()
		return nil, err
	}
	return st, nil
}

// cut makes the blocks of stripe number s, whose first n bytes are the body's.
func (st *stripe) cut(l Layout, s int64, n int) {
	length := l.blockLen(n)
	data := st.data.Bytes()
	clear(data[n : int(l.K)*length])
	for i := range int(l.K) {
		st.blocks[i] = data[i*length : (i+1)*length]
	}
	if st.parity != nil {
		parity := st.parity.Bytes()
		for i := range int(l.M) {
			st.blocks[int(l.K)+i] = parity[i*length : (i+1)*length]
		}
	}
	st.number = s
}

// shared reports whether anyone but the writer holds the stripe.
func (st *stripe) shared() bool { return st.refs.Load() > 1 }

func (st *stripe) retain() { st.refs.Add(1) }

// release drops a reference; the last gives the memory back.
func (st *stripe) release() {
	if st.refs.Add(-1) > 0 {
		return
	}
	st.data.Release()
	if st.parity != nil {
		st.parity.Release()
	}
}
