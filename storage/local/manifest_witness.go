package local

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/zeebo/xxh3"
)

// The last record of a MANIFEST has nothing after it that could prove it was
// ever there, and losing it is the worst: a flushed table is forgotten whose
// log is gone, while later logs are replayed. So the length up to which the
// current MANIFEST was synced is kept beside it, in meta/WITNESS, after each of
// its syncs: few, one for each flush or compaction. An old witness, or none,
// proves less; it never accuses an intact MANIFEST.
const (
	nameWitness = "WITNESS"
	witnessSize = 32
)

var witnessMagic = [8]byte{'R', 'N', 'G', 'F', 'W', 'I', 'T', 'N'}

// witness writes the file.
type witness struct {
	fs  vfs.FS
	dir string

	mu   sync.Mutex // protects the fields below
	file vfs.File   // nil until first needed
}

func encodeWitness(number, length uint64) []byte {
	b := make([]byte, witnessSize)
	copy(b, witnessMagic[:])
	binary.LittleEndian.PutUint64(b[8:], number)
	binary.LittleEndian.PutUint64(b[16:], length)
	binary.LittleEndian.PutUint64(b[24:], xxh3.Hash(b[:24]))
	return b
}

// note records that the first length bytes of MANIFEST number are durable.
func (w *witness) note(number, length uint64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file == nil {
		f, err := w.fs.OpenReadWrite(w.fs.PathJoin(w.dir, nameWitness), vfs.WriteCategoryUnspecified)
		if err != nil {
			return err
		}
		w.file = f
	}
	if _, err := w.file.WriteAt(encodeWitness(number, length), 0); err != nil {
		return err
	}
	return w.file.SyncData()
}

func (w *witness) close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file == nil {
		return nil
	}
	f := w.file
	w.file = nil
	return f.Close()
}

// readWitness returns the length of MANIFEST number that was durable for
// certain, 0 if nothing is known.
func readWitness(fsys vfs.FS, dir string, number uint64) (uint64, error) {
	f, err := fsys.Open(fsys.PathJoin(dir, nameWitness))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	b := make([]byte, witnessSize)
	_, err = io.ReadFull(f, b)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if !bytes.Equal(b[:8], witnessMagic[:]) || binary.LittleEndian.Uint64(b[24:]) != xxh3.Hash(b[:24]) ||
		binary.LittleEndian.Uint64(b[8:]) != number {
		return 0, nil
	}
	return binary.LittleEndian.Uint64(b[16:]), nil
}

// manifestNumber reads the name of a MANIFEST.
func manifestNumber(base string) (uint64, bool) {
	digits, ok := strings.CutPrefix(base, "MANIFEST-")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, err == nil
}

// manifestFile tells the witness what of a MANIFEST is durable. Pebble writes
// it from the start to the end, one edit at a time.
type manifestFile struct {
	vfs.File
	number  uint64
	written uint64
	synced  func(number, length uint64)
}

// Write implements io.Writer.
func (m *manifestFile) Write(p []byte) (int, error) {
	n, err := m.File.Write(p)
	m.written += uint64(n)
	return n, err
}

// Sync implements vfs.File.
func (m *manifestFile) Sync() error {
	err := m.File.Sync()
	if err == nil {
		m.synced(m.number, m.written)
	}
	return err
}

// SyncData implements vfs.File.
func (m *manifestFile) SyncData() error {
	err := m.File.SyncData()
	if err == nil {
		m.synced(m.number, m.written)
	}
	return err
}
