package integration

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// stock is a set of objects of all kinds of storage, with their bytes.
type stock map[string][]byte

func putStock(t *testing.T, tg target, bucket, name string) stock {
	t.Helper()
	s := stock{}
	for i, size := range []int64{0, 100, 16 << 10, 16<<10 + 1, 300_000, 2*mib + 1, 6 * mib} {
		key := fmt.Sprintf("%s/%d", name, size)
		s[key] = noiseBytes(uint64(i)+uint64(len(name))<<20, size)
		tg.want(t, http.StatusOK, request{method: http.MethodPut, bucket: bucket, key: key, body: s[key]})
	}
	return s
}

// check reads everything back.
func (s stock) check(t *testing.T, tg target, bucket string) {
	t.Helper()
	for key, want := range s {
		a := tg.want(t, http.StatusOK, request{method: http.MethodGet, bucket: bucket, key: key})
		if !bytes.Equal(a.body, want) {
			t.Errorf("%s: %d bytes of %d, or others", key, len(a.body), len(want))
		}
	}
}

func (s stock) keys() []string {
	var keys []string
	for key := range s {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// ruin is a way to lose a disk.
type ruin struct {
	name   string
	hidden bool // nothing but reading what it holds can tell
	do     func(disk string) error
}

func ruins() []ruin {
	return []ruin{
		{"removed", false, removeAll},
		{"emptied", false, emptyDir},
		{"overwritten", true, overwriteFiles},
		{"made a file", false, func(disk string) error {
			if err := removeAll(disk); err != nil {
				return err
			}
			return os.WriteFile(disk, []byte("not a directory"), 0o600)
		}},
	}
}

// removeAll removes what a gateway may be adding to: that makes a directory
// which was just emptied "not empty" for a moment.
func removeAll(path string) (err error) {
	for range 100 {
		if err = os.RemoveAll(path); !errors.Is(err, syscall.ENOTEMPTY) {
			break
		}
	}
	return err
}

func emptyDir(disk string) error {
	entries, err := os.ReadDir(disk)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := removeAll(filepath.Join(disk, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// overwriteFiles fills every file below disk with noise, in place.
func overwriteFiles(disk string) error {
	return filepath.WalkDir(disk, func(path string, d fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil // the gateway removes files meanwhile
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil {
			return err
		}
		noise := make([]byte, info.Size())
		if _, err := rand.Read(noise); err != nil {
			return err
		}
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := f.Write(noise); err != nil {
			_ = f.Close() // the write's error says more
			return err
		}
		return f.Close()
	})
}

// TestTwoDisksLost: with a parity of two, any two disks may go while the
// gateway serves, and it still starts without them.
func TestTwoDisksLost(t *testing.T) {
	for _, how := range ruins() {
		t.Run(how.name, func(t *testing.T) {
			t.Parallel()
			g := startGateway(t, 6)
			tg := g.target()
			bucket := tg.bucket(t)
			before := putStock(t, tg, bucket, "before")
			for _, disk := range []int{1, 4} {
				if err := how.do(g.disks[disk]); err != nil {
					t.Fatal(err)
				}
				before.check(t, tg, bucket)
			}
			after := putStock(t, tg, bucket, "after")
			before.check(t, tg, bucket)
			after.check(t, tg, bucket)
			tg.want(t, http.StatusNoContent, request{method: http.MethodDelete, bucket: bucket, key: "before/0"})
			delete(before, "before/0")
			if !how.hidden {
				eventually(t, 15*time.Second, "the lost disks are named by /-/ready, which stays ready", func() bool {
					code, body := g.readiness(t)
					return code == http.StatusOK && strings.Contains(body, g.disks[1]) && strings.Contains(body, g.disks[4])
				})
			}
			eventually(t, 10*time.Second, "no buffer is kept", func() bool { return g.metrics(t)["ringfence_buffer_bytes"] == 0 })
			want := append(after.keys(), before.keys()...)
			if got := listV2(t, tg, bucket, "", ""); !slices.Equal(got, want) {
				t.Errorf("listing: %s", difference(got, want))
			}
			if how.name == "made a file" {
				return // a start with a file in place of a directory is TestRefusals' matter
			}
			g.stop(t)
			g.start(t)
			before.check(t, tg, bucket)
			after.check(t, tg, bucket)
			putStock(t, tg, bucket, "restarted").check(t, tg, bucket)
			if got := listV2(t, tg, bucket, "before/", ""); !slices.Equal(got, before.keys()) {
				t.Errorf("after the restart: %s", difference(got, before.keys()))
			}
		})
	}
}

// TestThreeDisksGone: beyond parity nothing is answered wrongly: 503 until the
// disks are back, and then everything is there.
func TestThreeDisksGone(t *testing.T) {
	t.Parallel()
	g := startGateway(t, 6)
	tg := g.target()
	bucket := tg.bucket(t)
	objects := putStock(t, tg, bucket, "objects")
	away := func(disk int) string { return filepath.Join(g.dir, fmt.Sprintf("away%d", disk)) }
	gone := []int{0, 2, 5}
	for _, disk := range gone {
		if err := os.Rename(g.disks[disk], away(disk)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 15*time.Second, "not ready, and the disks named", func() bool {
		code, body := g.readiness(t)
		return code == http.StatusServiceUnavailable && strings.Contains(body, g.disks[0]) && strings.Contains(body, g.disks[5])
	})
	// The first write finds out that the metadata has no majority, and its
	// outcome stays open until the disks are back. After it nothing is tried.
	if a := tg.do(t, request{method: http.MethodPut, bucket: bucket, key: "first", body: []byte("x")}); a.status != http.StatusServiceUnavailable {
		t.Errorf("the first write: %d %s", a.status, a.code())
	}
	for key, want := range objects {
		a := tg.do(t, request{method: http.MethodGet, bucket: bucket, key: key})
		switch {
		case a.status == http.StatusServiceUnavailable:
		case a.status == http.StatusOK && bytes.Equal(a.body, want): // still readable is fine
		default:
			t.Errorf("read %s: %d %s", key, a.status, a.code())
		}
		if a := tg.do(t, request{method: http.MethodPut, bucket: bucket, key: key, body: []byte("new")}); a.status != http.StatusServiceUnavailable {
			t.Errorf("write %s: %d %s, want 503", key, a.status, a.code())
		}
		if a := tg.do(t, request{method: http.MethodDelete, bucket: bucket, key: key}); a.status != http.StatusServiceUnavailable {
			t.Errorf("delete %s: %d %s, want 503", key, a.status, a.code())
		}
	}
	code, _ := g.readiness(t)
	if code != http.StatusServiceUnavailable {
		t.Errorf("ready: %d", code)
	}
	for _, disk := range gone {
		if err := os.Rename(away(disk), g.disks[disk]); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 40*time.Second, "ready again", func() bool {
		code, _ := g.readiness(t)
		return code == http.StatusOK
	})
	objects.check(t, tg, bucket)
	if got := listV2(t, tg, bucket, "objects/", ""); !slices.Equal(got, objects.keys()) {
		t.Errorf("listing: %s", difference(got, objects.keys()))
	}
	putStock(t, tg, bucket, "objects").check(t, tg, bucket)
}

// TestDiskComesBack: a disk that missed writes catches up and may then stand in
// for two others.
func TestDiskComesBack(t *testing.T) {
	t.Parallel()
	g := startGateway(t, 6)
	tg := g.target()
	bucket := tg.bucket(t)
	old := putStock(t, tg, bucket, "old")
	away := filepath.Join(g.dir, "away")
	if err := os.Rename(g.disks[3], away); err != nil {
		t.Fatal(err)
	}
	missed := putStock(t, tg, bucket, "missed")
	tg.want(t, http.StatusNoContent, request{method: http.MethodDelete, bucket: bucket, key: "old/100"})
	delete(old, "old/100")
	if err := os.Rename(away, g.disks[3]); err != nil {
		t.Fatal(err)
	}
	eventually(t, 40*time.Second, "no disk is degraded", func() bool {
		code, body := g.readiness(t)
		return code == http.StatusOK && !strings.Contains(body, g.disks[3])
	})
	for _, disk := range []int{0, 1} {
		if err := removeAll(g.disks[disk]); err != nil {
			t.Fatal(err)
		}
	}
	// The metadata of all objects is on four disks again. What was written
	// while a disk was away has as much parity as was promised then.
	want := append(missed.keys(), old.keys()...)
	eventually(t, 15*time.Second, "the listing is whole", func() bool {
		return slices.Equal(listV2(t, tg, bucket, "", ""), want)
	})
	old.check(t, tg, bucket)
	missed.check(t, tg, bucket)
}
