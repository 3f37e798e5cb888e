package rs_test

import (
	"bytes"
	"testing"

	"ringfence/erasure/rs"
)

// gfMul multiplies in GF(2^8) with polynomial 0x11d, bit by bit.
func gfMul(a, b byte) byte {
	var p byte
	for x := uint16(a); b != 0; b >>= 1 {
		if b&1 == 1 {
			p ^= byte(x)
		}
		if x <<= 1; x&0x100 != 0 {
			x ^= 0x11d
		}
	}
	return p
}

func gfPow(a byte, n int) byte {
	p := byte(1)
	for range n {
		p = gfMul(p, a)
	}
	return p
}

// invert gives the inverse of a square matrix by Gauss and Jordan.
func invert(t *testing.T, m [][]byte) [][]byte {
	t.Helper()
	n := len(m)
	a := make([][]byte, n)
	for i := range a {
		a[i] = append(bytes.Clone(m[i]), make([]byte, n)...)
		a[i][n+i] = 1
	}
	for c := range n {
		p := c
		for p < n && a[p][c] == 0 {
			p++
		}
		if p == n {
			t.Fatal("the matrix has no inverse")
		}
		a[c], a[p] = a[p], a[c]
		inv := gfPow(a[c][c], 254)
		for j := range a[c] {
			a[c][j] = gfMul(a[c][j], inv)
		}
		for r := range n {
			if f := a[r][c]; r != c && f != 0 {
				for j := range a[r] {
					a[r][j] ^= gfMul(f, a[c][j])
				}
			}
		}
	}
	for i := range a {
		a[i] = a[i][n:]
	}
	return a
}

// The parity is what docs/format.md says, by arithmetic that shares nothing
// with the library.
func TestParityIsAsDescribed(t *testing.T) {
	for _, shape := range [][2]int{{1, 1}, {2, 1}, {3, 1}, {4, 2}, {8, 4}, {12, 4}, {8, 8}} {
		k, m := shape[0], shape[1]
		c, err := rs.New(k, m)
		if err != nil {
			t.Fatal(err)
		}
		blocks := stripe(t, c, k, m, 67)
		v := make([][]byte, k+m)
		for r := range v {
			v[r] = make([]byte, k)
			for col := range v[r] {
				v[r][col] = gfPow(byte(r), col)
			}
		}
		top := invert(t, v[:k])
		for p := range m {
			want := make([]byte, 67)
			for col := range k {
				var coef byte
				for j := range k {
					coef ^= gfMul(v[k+p][j], top[j][col])
				}
				for i, b := range blocks[col] {
					want[i] ^= gfMul(coef, b)
				}
			}
			if !bytes.Equal(want, blocks[k+p]) {
				t.Errorf("%d+%d: parity block %d is not as described", k, m, p)
			}
		}
	}
}
