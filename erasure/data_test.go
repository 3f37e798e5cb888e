package erasure

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// Sizes around every edge of a stripe of 4 x 256 KiB.
var edgeSizes = []int{
	0, 1, 2, 3, 4, 5, 4095, 4096, 4097, 16 << 10, 16385, 100000, 256<<10 - 1, 256 << 10, 1<<20 - 1, 1 << 20, 1<<20 + 1,
	1<<20 + 4, 2<<20 - 3, 2 << 20, 5<<20 + 12345,
}

func TestRoundTrip(t *testing.T) {
	for _, shape := range [][2]int{{1, 0}, {2, 1}, {3, 1}, {4, 2}, {6, 2}, {8, 4}, {16, 4}, {5, 0}, {16, 8}} {
		for _, how := range []string{"parallel", "inline"} {
			t.Run(fmt.Sprintf("%d disks, parity %d, %s", shape[0], shape[1], how), func(t *testing.T) {
				rig := newDataRig(t, shape[0], shape[1], func(o *dataOptions) {
					if how == "inline" {
						o.Env = inline()
					}
				})
				rng := rand.New(rand.NewPCG(1, uint64(shape[0])))
				for _, size := range edgeSizes {
					testRoundTrip(rig, size, rng)
				}
			})
		}
	}
}

func testRoundTrip(rig *dataRig, size int, rng *rand.Rand) {
	body := randomBytes(size, uint64(size))
	in := rig.input(body)
	in.Body = &dribble{body: body, rng: rng}
	if size%2 == 1 {
		in.Size = -1
	}
	b := rig.storeAs(in)
	if b.Size != int64(size) || len(b.Missing) != 0 || b.Layout.shards() != len(rig.disks) {
		rig.t.Fatalf("stored %d bytes as %+v", size, b)
	}
	rig.wantBytes(b, body, 0, int64(size))
	for range 8 {
		off := rng.Int64N(int64(size) + 1)
		rig.wantBytes(b, body, off, rng.Int64N(int64(size)-off+1))
	}
	if err := rig.remove(rig.t.Context(), b); err != nil {
		rig.t.Fatalf("remove: %v", err)
	}
	if err := rig.remove(rig.t.Context(), b); err != nil {
		rig.t.Fatalf("remove again: %v", err)
	}
	rig.wantNoShards()
}
