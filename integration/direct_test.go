package integration

import (
	"fmt"
	"net/http"
	"syscall"
	"testing"
)

// needExt4 skips where temporary files are on another file system: what
// O_DIRECT means there, and whether it passes the page cache, is its own matter.
func needExt4(t *testing.T) {
	t.Helper()
	const magic = 0xEF53
	var fs syscall.Statfs_t
	if err := syscall.Statfs(t.TempDir(), &fs); err != nil {
		t.Fatal(err)
	}
	switch {
	case fs.Type == magic:
	case required("ext4"):
		t.Fatalf("temporary files are on a file system of type %#x, not on ext4", fs.Type)
	default:
		t.Skipf("temporary files are on a file system of type %#x, not on ext4: set TMPDIR", fs.Type)
	}
}

// TestDirectReadsAreDirect: from the threshold on, each block that a range needs
// is one ring read past the page cache, and below it none is.
func TestDirectReadsAreDirect(t *testing.T) {
	t.Parallel()
	needExt4(t)
	const block = 256 << 10
	g := startRings(t, 6, ringsOn, inlineOff, "RINGFENCE_O_DIRECT_READ_ENABLE=on", fmt.Sprintf("RINGFENCE_O_DIRECT_READ_THRESHOLD=%d", block))
	tg := g.target()
	tg.wantTier(t, "ring")
	bucket := tg.bucket(t)
	body := noiseBytes(3, 8*mib)
	tg.want(t, http.StatusOK, request{method: http.MethodPut, bucket: bucket, key: "large", body: body})
	small := noiseBytes(4, 4*block-4)
	tg.want(t, http.StatusOK, request{method: http.MethodPut, bucket: bucket, key: "small", body: small})
	const ranges = 20
	// read asks for a byte of each of so many blocks, and returns how many ring
	// reads went past the page cache.
	read := func(key string, want []byte) float64 {
		before := total(g.metrics(t), "ringfence_disk_reads_total", `tier="ring_direct"`)
		for i := range ranges {
			off := (i*block + i*4099) % len(want)
			a := tg.want(t, http.StatusPartialContent, request{method: http.MethodGet, bucket: bucket, key: key, header: http.Header{"Range": {fmt.Sprintf("bytes=%d-%d", off, off)}}})
			if len(a.body) != 1 || a.body[0] != want[off] {
				t.Errorf("%s: byte %d is wrong", key, off)
			}
		}
		return total(g.metrics(t), "ringfence_disk_reads_total", `tier="ring_direct"`) - before
	}
	// A busy machine asks another disk, too, now and then.
	got := 0.0
	for range 5 {
		if got = read("large", body); got == ranges {
			break
		}
	}
	if got != ranges {
		t.Errorf("%v reads past the page cache for %d ranges", got, ranges)
	}
	if got := read("small", small); got != 0 {
		t.Errorf("%v reads past the page cache below the threshold", got)
	}
	for disk, e := range tg.engines(t) {
		if len(e.Latched) != 0 {
			t.Errorf("%s: latched %v", disk, e.Latched)
		}
	}
	g.stop(t)
}
