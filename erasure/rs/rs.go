// Package rs is Reed-Solomon over GF(2^8), so thin that the library under it
// can be replaced.
//
// A codec of K data and M parity blocks makes M parity blocks such that any K
// of the K+M blocks give back the others. The matrix is part of the format on
// disk: a golden test holds it. Coding runs on the caller's goroutine only. A
// stripe is at most about a megabyte, which takes tens of microseconds, less
// than it takes to wake helpers up on a busy machine, where requests and not
// cores are plenty.
package rs

import (
	"errors"
	"fmt"
	"sync"

	"github.com/klauspost/reedsolomon"
)

// MaxShards bounds K+M.
const MaxShards = 16

// ErrTooFew says that fewer than K blocks are left.
var ErrTooFew = errors.New("too few blocks to reconstruct")

// Codec encodes and reconstructs stripes of one shape. It may be used
// concurrently.
type Codec struct {
	data, parity int
	enc          reedsolomon.Encoder // nil when parity is 0
}

// New makes a codec of k data and m parity blocks: 1 <= k, 0 <= m,
// k+m <= MaxShards.
func New(k, m int) (*Codec, error) {
	if k < 1 || m < 0 || k+m > MaxShards {
		return nil, fmt.Errorf("no code of %d data and %d parity blocks", k, m)
	}
	c := &Codec{data: k, parity: m}
	if m == 0 {
		return c, nil
	}
	enc, err := reedsolomon.New(k, m, reedsolomon.WithMaxGoroutines(1))
	if err != nil {
		return nil, fmt.Errorf("make code %d+%d: %w", k, m, err)
	}
	c.enc = enc
	return c, nil
}

// Encode computes the parity blocks, the last M of blocks, from the data
// blocks, the first K. All of them have the same length, and parity blocks are
// overwritten. Blocks of length 0 need no coding.
func (c *Codec) Encode(blocks [][]byte) error {
	if err := c.check(blocks); err != nil {
		return err
	}
	if c.parity == 0 || len(blocks[0]) == 0 {
		return nil
	}
	if err := c.enc.Encode(blocks); err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	return nil
}

// check wants K+M blocks of one length.
func (c *Codec) check(blocks [][]byte) error {
	if len(blocks) != c.data+c.parity {
		return fmt.Errorf("%d blocks, want %d+%d", len(blocks), c.data, c.parity)
	}
	for i, b := range blocks {
		if len(b) != len(blocks[0]) {
			return fmt.Errorf("block %d has %d bytes, block 0 has %d", i, len(b), len(blocks[0]))
		}
	}
	return nil
}

// Reconstruct fills the blocks that want names from any K others. Blocks that
// are there have their full length, all the same; a block that is not there is
// empty; a wanted one is empty and has the capacity to be filled in place. want
// has K+M entries. ErrTooFew when fewer than K blocks are there.
func (c *Codec) Reconstruct(blocks [][]byte, want []bool) error {
	n := c.data + c.parity
	if len(blocks) != n || len(want) != n {
		return fmt.Errorf("%d blocks and %d wishes, want %d", len(blocks), len(want), n)
	}
	size, have, missing := 0, 0, 0
	for _, b := range blocks {
		if len(b) > 0 {
			size = len(b)
			have++
		}
	}
	for i, b := range blocks {
		if len(b) > 0 && len(b) != size {
			return fmt.Errorf("block %d has %d bytes, others have %d", i, len(b), size)
		}
		if !want[i] || len(b) > 0 {
			continue
		}
		missing++
		if cap(b) < size {
			return fmt.Errorf("block %d has room for %d bytes, want %d", i, cap(b), size)
		}
	}
	if missing == 0 {
		return nil
	}
	if have < c.data {
		return ErrTooFew
	}
	if err := c.enc.ReconstructSome(blocks, want); err != nil {
		return fmt.Errorf("reconstruct: %w", err)
	}
	return nil
}

// Cache makes each codec once. The zero value is ready; it may be used
// concurrently.
type Cache struct {
	mu sync.Mutex
	// mu protects the field below. At most one codec per shape: 136.
	codecs map[[2]int]*Codec
}

// Get is New, remembered.
func (c *Cache) Get(k, m int) (*Codec, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if codec, ok := c.codecs[[2]int{k, m}]; ok {
		return codec, nil
	}
	codec, err := New(k, m)
	if err != nil {
		return nil, err
	}
	if c.codecs == nil {
		c.codecs = make(map[[2]int]*Codec)
	}
	c.codecs[[2]int{k, m}] = codec
	return codec, nil
}
