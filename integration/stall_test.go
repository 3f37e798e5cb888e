package integration

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
)

// sick is a gateway whose disks get sick by order.
type sick struct {
	*gateway
	control string
}

func startSick(t *testing.T, disks int, environ ...string) sick {
	t.Helper()
	needRings(t)
	dir := t.TempDir()
	s := sick{newGateway(dir, disks), filepath.Join(dir, "orders")}
	s.binary = faultyBinary(t)
	s.environ = append(append(s.environ, "RINGFENCE_FAULT_FILE="+s.control), environ...)
	s.start(t)
	return s
}

func (s sick) order(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(s.control, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// firstByte is how long an object takes to begin; all of it is compared.
func firstByte(t *testing.T, tg target, bucket, key string, want []byte) time.Duration {
	t.Helper()
	req, err := tg.signed(t.Context(), request{method: http.MethodGet, bucket: bucket, key: key})
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	resp, err := rawClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	var one [1]byte
	_, err = io.ReadFull(resp.Body, one[:])
	took := time.Since(begin)
	rest, readErr := io.ReadAll(resp.Body)
	if err := errors.Join(err, readErr, resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK || !bytes.Equal(append(one[:], rest...), want) {
		t.Errorf("%s: %s, %d bytes, or wrong ones", key, resp.Status, len(rest)+1)
	}
	return took
}

// TestStalledDisk: a disk that stops answering for 5 s costs the set's clients
// a moment each until it is set aside; what was asked of it is cancelled on its
// rings and reclaimed; the other disks' rings notice nothing.
func TestStalledDisk(t *testing.T) {
	s := startSick(t, 6, ringsOn, inlineOff)
	tg := s.target()
	tg.wantTier(t, "ring")
	bucket := tg.bucket(t)
	objects := map[string][]byte{}
	for i := range 24 {
		key := fmt.Sprint(i)
		objects[key] = noiseBytes(uint64(i), 2*mib)
		tg.want(t, http.StatusOK, request{method: http.MethodPut, bucket: bucket, key: key, body: objects[key]})
	}
	for key, want := range objects {
		firstByte(t, tg, bucket, key, want)
	}
	disk := s.disks[1]
	before := s.metrics(t)
	s.order(t, "stall "+disk+"\n")
	stalled := time.Now()
	var took []time.Duration
	queued, held := 0.0, 0.0
	for time.Since(stalled) < 5*time.Second {
		for key, want := range objects {
			took = append(took, firstByte(t, tg, bucket, key, want))
			if len(took)%4 == 0 {
				page := s.metrics(t)
				conserve(t, page)
				for _, each := range s.disks {
					oldest := total(page, "ringfence_uring_oldest_seconds", `disk="`+each+`"`)
					if each == disk {
						held = max(held, oldest)
					} else {
						queued = max(queued, oldest)
					}
				}
			}
		}
	}
	slices.Sort(took)
	t.Logf("%d downloads beside a disk that stalls: first byte after %v (median), %v (at most); oldest read of the disk %.3f s, of others %.3f s",
		len(took), took[len(took)/2], took[len(took)-1], held, queued)
	if median := took[len(took)/2]; median >= 300*time.Millisecond {
		t.Errorf("the median first byte took %v", median)
	}
	if held < 3 {
		t.Errorf("the oldest read of the disk was %.1f s old: it did not stall", held)
	}
	if queued > 1 {
		t.Errorf("a read waited %.1f s on a disk that is well", queued)
	}
	s.order(t, "")
	eventually(t, 20*time.Second, "what was asked of the disk is reclaimed", func() bool {
		page := s.metrics(t)
		return conserve(t, page).inFlight == 0 && page["ringfence_buffer_bytes"] == 0
	})
	after := s.metrics(t)
	ofDisk := `disk="` + disk + `"`
	if n := total(after, "ringfence_uring_orphan_reclaimed_total", ofDisk) - total(before, "ringfence_uring_orphan_reclaimed_total", ofDisk); n < 1 {
		t.Errorf("%v reads of the stalled disk were orphaned, want at least one", n)
	}
	for key, want := range objects {
		firstByte(t, tg, bucket, key, want)
	}
	s.stop(t)
}

// TestLyingRings: rings that return another byte than the disk holds serve none
// of it, and are not believed any more.
func TestLyingRings(t *testing.T) {
	s := startSick(t, 6, ringsOn, inlineOff, "RINGFENCE_IO_URING_SHADOW_SHARE=1")
	tg := s.target()
	tg.wantTier(t, "ring")
	bucket := tg.bucket(t)
	body := noiseBytes(1, 4*mib)
	tg.want(t, http.StatusOK, request{method: http.MethodPut, bucket: bucket, key: "k", body: body})
	firstByte(t, tg, bucket, "k", body)
	s.order(t, "flip "+s.disks[0]+"\n")
	mismatches := func(disk string) float64 {
		return total(s.metrics(t), "ringfence_uring_shadow_mismatch_total", `disk="`+disk+`"`)
	}
	eventually(t, 20*time.Second, "the lie is found", func() bool {
		firstByte(t, tg, bucket, "k", body)
		return mismatches(s.disks[0]) > 0
	})
	eventually(t, 20*time.Second, "the disk is latched", func() bool {
		return total(s.metrics(t), "ringfence_uring_latched", `disk="`+s.disks[0]+`"`) > 0
	})
	for _, disk := range s.disks[1:] {
		if n, latched := mismatches(disk), total(s.metrics(t), "ringfence_uring_latched", `disk="`+disk+`"`); n != 0 || latched != 0 {
			t.Errorf("%s is well: %v mismatches, latched %v", disk, n, latched)
		}
	}
	firstByte(t, tg, bucket, "k", body)
	s.stop(t)
}

// TestTooFewShardsCutTheConnection: when more shards turn bad during a download
// than parity makes good, the client sees an error, and never the beginning of
// an object that looks like all of it.
func TestTooFewShardsCutTheConnection(t *testing.T) {
	t.Parallel()
	for _, environ := range [][]string{nil, {ringsOn, inlineOff}} {
		if environ != nil {
			needRings(t)
		}
		g := newGateway(t.TempDir(), 6)
		needProcess(t)
		g.environ = append(g.environ, environ...)
		g.start(t)
		tg := g.target()
		bucket := tg.bucket(t)
		body := noiseBytes(9, 64*mib)
		tg.want(t, http.StatusOK, request{method: http.MethodPut, bucket: bucket, key: "k", body: body})
		req, err := tg.signed(t.Context(), request{method: http.MethodGet, bucket: bucket, key: "k"})
		if err != nil {
			t.Fatal(err)
		}
		resp, err := rawClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, mib)
		if _, err := io.ReadFull(resp.Body, got); err != nil {
			t.Fatal(err)
		}
		for _, disk := range g.disks[:3] {
			if err := overwriteFiles(filepath.Join(disk, "shards")); err != nil {
				t.Fatal(err)
			}
		}
		rest, err := io.ReadAll(resp.Body)
		got = append(got, rest...)
		if !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("after %d of %d bytes: %v, want a connection that breaks off", len(got), len(body), err)
		}
		if len(got) >= len(body) || !bytes.HasPrefix(body, got) {
			t.Errorf("%d bytes came, or wrong ones", len(got))
		}
		_ = resp.Body.Close() // cut
		if a := tg.do(t, request{method: http.MethodGet, bucket: bucket, key: "k"}); a.status < 500 {
			t.Errorf("once more: %d", a.status)
		}
		g.stop(t)
	}
}
