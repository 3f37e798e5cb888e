package storage

import (
	"os"
	"testing"
)

func TestReclaimRange(t *testing.T) {
	page := int64(os.Getpagesize())
	const limit = 1 << 20
	for _, c := range []struct {
		off           int64
		n             int
		threshold     int64
		start, length int64
		reclaim       bool
	}{
		{0, limit, limit, 0, limit, true},
		{0, limit - 1, limit, 0, 0, false},
		{page - 1, limit + 1, limit, 0, page + limit, true},
		{page, limit, limit, page, limit, true},
		{3*page + 17, limit, limit, 3 * page, limit + 17, true},
		{5, 1, 0, 0, 6, true},
		{5, 0, 0, 0, 0, false},
		{0, limit, -1, 0, 0, false},
	} {
		start, length, reclaim := ReclaimRange(c.off, c.n, c.threshold)
		if start != c.start || length != c.length || reclaim != c.reclaim {
			t.Errorf("%d bytes at %d, threshold %d: %d bytes at %d (%t), want %d at %d (%t)",
				c.n, c.off, c.threshold, length, start, reclaim, c.length, c.start, c.reclaim)
		}
	}
}
