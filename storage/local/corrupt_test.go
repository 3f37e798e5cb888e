package local_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"ringfence/storage"
	"ringfence/storage/local"
)

// TestCorruptStore damages every file of a store in turn: the disk opens, its
// shards are served, and the store says ErrCorrupt, or still has everything.
func TestCorruptStore(t *testing.T) {
	damages := map[string]func(data []byte){
		"garbage":       func(data []byte) { copy(data, bytes.Repeat([]byte{0x5a}, len(data))) },
		"bit at start":  func(data []byte) { data[min(40, len(data)-1)] ^= 1 },
		"bit in middle": func(data []byte) { data[len(data)/2] ^= 1 },
	}
	mem := memWith(t, "/disk")
	r := newRig(t, mem, "/disk")
	r.opts.MemTableBytes = 64 << 10 // so that there are tables
	r.reopen(t)
	if err := writeShard(t, r.disk, shardID(1, 0), 5000); err != nil {
		t.Fatal(err)
	}
	value := strings.Repeat("v", 1000)
	for i := range 200 {
		set(t, r.disk.KV(), fmt.Sprintf("k%03d", i), value)
	}
	if err := r.disk.Close(); err != nil {
		t.Fatal(err)
	}
	pristine := snapshot(t, mem, "/disk/meta")
	kinds := map[string]int{}
	for name, data := range pristine {
		if name == "LOCK" || strings.HasPrefix(name, "OPTIONS") || len(data) == 0 {
			continue
		}
		for what, damage := range damages {
			restore(t, mem, "/disk/meta", pristine)
			broken := bytes.Clone(data)
			damage(broken)
			overwrite(t, mem, "/disk/meta/"+name, broken)
			if corruptStore(t, r, value, name+": "+what) {
				kinds[strings.Trim(name, "-0123456789")]++
			}
		}
	}
	for kind, least := range map[string]int{"MANIFEST": 2, ".sst": 3, ".log": 2} {
		if kinds[kind] < least {
			t.Errorf("%s: %d damages noticed, want %d at least: %v", kind, kinds[kind], least, kinds)
		}
	}
}

// TestManifestBits flips bits all over a MANIFEST, its last record included:
// each is noticed, or nothing is lost.
func TestManifestBits(t *testing.T) {
	mem := memWith(t, "/disk")
	r := newRig(t, mem, "/disk")
	r.opts.MemTableBytes = 64 << 10
	r.reopen(t)
	value := strings.Repeat("v", 1000)
	for i := range 200 {
		set(t, r.disk.KV(), fmt.Sprintf("k%03d", i), value)
	}
	if err := r.disk.Close(); err != nil {
		t.Fatal(err)
	}
	if err := writeLater(t, r, shardID(1, 0)); err != nil {
		t.Fatal(err)
	}
	pristine := snapshot(t, mem, "/disk/meta")
	name := ""
	for n := range pristine { // the later one, after a reopening
		if strings.HasPrefix(n, "MANIFEST") && n > name {
			name = n
		}
	}
	noticed, flips := 0, 0
	for at := 0; at < len(pristine[name]); at += max(1, len(pristine[name])/60) {
		restore(t, mem, "/disk/meta", pristine)
		overwrite(t, mem, "/disk/meta/"+name, flip(bytes.Clone(pristine[name]), at))
		flips++
		if corruptStore(t, r, value, fmt.Sprintf("%s: byte %d of %d", name, at, len(pristine[name]))) {
			noticed++
		}
	}
	if noticed < flips {
		t.Errorf("%d of %d flips noticed", noticed, flips)
	}
}

// writeLater writes a shard with the disk open for only that.
func writeLater(t *testing.T, r *rig, id storage.ShardID) error {
	r.open(t)
	return errors.Join(writeShard(t, r.disk, id, 5000), r.disk.Close())
}

// TestPlantedRecord: a client puts a value that looks like a record of the log;
// a crash that tears the write mustn't make the store look damaged.
func TestPlantedRecord(t *testing.T) {
	mem := memWith(t, "/disk")
	r := newRig(t, mem, "/disk")
	set(t, r.disk.KV(), "a", "1")
	name := ""
	for n := range snapshot(t, mem, "/disk/meta") {
		if strings.HasSuffix(n, ".log") {
			name = max(name, n) // an older one may still be on its way out
		}
	}
	number := must[uint64](t)(strconv.ParseUint(strings.TrimSuffix(name, ".log"), 10, 32))
	before := len(snapshot(t, mem, "/disk/meta")[name])
	planted := local.LogRecord(uint32(number), 1<<40, []byte("payload"))
	set(t, r.disk.KV(), "evil", "xx"+string(planted)+"yy")
	if err := r.disk.Close(); err != nil {
		t.Fatal(err)
	}
	data := bytes.Clone(snapshot(t, mem, "/disk/meta")[name])
	at := bytes.Index(data, planted)
	if at < 0 {
		t.Fatal("the value isn't in the log as it is")
	}
	t.Logf("log of %d bytes, %d before, planted at %d", len(data), before, at)
	for _, torn := range []int{before, before + 6, at - 1} { // the header, its type, the payload
		broken := bytes.Clone(data)
		clear(broken[torn:min(torn+8, at)])
		overwrite(t, mem, "/disk/meta/"+name, broken)
		files := snapshot(t, mem, "/disk/meta")
		r.open(t)
		if got := get(t, r.disk.KV(), "a"); got != "1" {
			t.Fatalf("a: %s", got)
		}
		if err := r.disk.Close(); err != nil {
			t.Fatal(err)
		}
		restore(t, mem, "/disk/meta", files)
	}
}

// corruptStore opens a disk with a damaged store and reports whether the store
// noticed. If it did, the disk must recover by a reset.
func corruptStore(t *testing.T, r *rig, value, what string) bool {
	r.open(t)
	defer func() {
		if err := r.disk.Close(); err != nil {
			t.Errorf("%s: close: %v", what, err)
		}
	}()
	checkShard(t, r.disk, shardID(1, 0), 5000)
	var err error
	for i := 0; i < 200 && err == nil; i++ {
		var v []byte
		v, err = r.disk.KV().Get(t.Context(), fmt.Appendf(nil, "k%03d", i))
		if err == nil && string(v) != value {
			t.Errorf("%s: wrong bytes", what)
		}
	}
	if !errors.Is(err, storage.ErrCorrupt) {
		// A log that is garbage as a whole can't be told from one whose writes
		// were never durable: nothing of it proves anything.
		if err != nil && !strings.HasSuffix(what, ".log: garbage") {
			t.Errorf("%s: not noticed, and something is lost: %v", what, err)
		}
		return false
	}
	if h := r.disk.Health(); h.State != storage.StateFailed || !strings.Contains(h.Reason, "corrupt") {
		t.Errorf("%s: health %+v", what, h)
	}
	var b storage.Batch
	b.Set([]byte("x"), []byte("y"))
	if err := r.disk.KV().Apply(t.Context(), &b); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("%s: apply: %v", what, err)
	}
	if err := errors.Join(writeShard(t, r.disk, shardID(2, 0), 5000), r.disk.RemoveShard(t.Context(), shardID(2, 0))); err != nil {
		t.Errorf("%s: shards must go on: %v", what, err)
	}
	if err := r.disk.ResetKV(t.Context()); err != nil {
		t.Errorf("%s: reset: %v", what, err)
	}
	set(t, r.disk.KV(), "x", "y")
	return true
}

// snapshot reads all files of a folder.
func snapshot(t testing.TB, fs vfs.FS, dir string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for _, name := range must[[]string](t)(fs.List(dir)) {
		f, err := fs.Open(fs.PathJoin(dir, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // an open store removes what it doesn't need any more
		}
		if err != nil {
			t.Fatal(err)
		}
		files[name] = must[[]byte](t)(io.ReadAll(f))
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// restore makes a folder hold exactly files.
func restore(t testing.TB, fs vfs.FS, dir string, files map[string][]byte) {
	t.Helper()
	for _, name := range must[[]string](t)(fs.List(dir)) {
		if err := fs.Remove(fs.PathJoin(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, data := range files {
		overwrite(t, fs, fs.PathJoin(dir, name), data)
	}
}

func overwrite(t testing.TB, fs vfs.FS, path string, data []byte) {
	t.Helper()
	f := must[vfs.File](t)(fs.Create(path, "test"))
	if _, err := f.Write(bytes.Clone(data)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}
