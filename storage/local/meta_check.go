package local

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"ringfence/storage"
)

// Pebble takes the first invalid record of its MANIFEST or log for the end that
// a crash left, and forgets what follows; of a MANIFEST that is garbage from
// the start it makes an empty store. checkMeta looks for proof of the contrary
// before Pebble gets to see the files, because opening deletes what seems
// unused. Proof is a valid record after an invalid one
//
//   - in a MANIFEST, always: each record was synced before the next;
//   - in a log, if the later record says that the earlier place was synced;
//
// and a MANIFEST that is shorter than its witness says. What it can't see is
// damage to the last records of the last log. An owner that needs to must keep
// a witness elsewhere of how far each disk's store got.

// checkMeta fails with ErrCorrupt if the store in dir is provably damaged, and
// reports whether there is one.
func checkMeta(fs vfs.FS, dir string) (exists bool, err error) {
	names, err := fs.List(dir)
	if err != nil {
		return false, fmt.Errorf("list: %w", err)
	}
	desc, err := pebble.Peek(dir, fs)
	if err != nil {
		return false, fmt.Errorf("peek: %w", err)
	}
	return desc.Exists, checkFiles(fs, dir, names, desc)
}

func checkFiles(fs vfs.FS, dir string, names []string, desc *pebble.DBDesc) error {
	for _, name := range names {
		ext := path.Ext(name)
		if !desc.Exists && (ext == ".sst" || ext == ".log" || ext == ".blob") {
			return fmt.Errorf("%w: %s, but no MANIFEST is marked as current", storage.ErrCorrupt, name)
		}
		if !desc.Exists || ext != ".log" {
			continue
		}
		number, err := strconv.ParseUint(strings.TrimSuffix(name, ext), 10, 64)
		if err != nil {
			continue // not one of Pebble's
		}
		if err := checkRecords(fs, fs.PathJoin(dir, name), logFormat(uint32(number)), 0); err != nil {
			return err
		}
	}
	if !desc.Exists {
		return nil
	}
	number, _ := manifestNumber(fs.PathBase(desc.ManifestFilename))
	least, err := readWitness(fs, dir, number)
	if err != nil {
		return fmt.Errorf("read %s: %w", nameWitness, err)
	}
	return checkRecords(fs, desc.ManifestFilename, manifestFormat(), least)
}

// recordFormat tells the records of a MANIFEST from those of a log.
type recordFormat struct {
	header  int    // bytes before the payload
	types   [2]int // first and last valid type
	number  uint32 // of the log; records of recycled files carry another
	isLog   bool
	mustHas bool // a file without a first record is damaged
}

func manifestFormat() recordFormat {
	return recordFormat{header: 7, types: [2]int{1, 4}, mustHas: true}
}

func logFormat(number uint32) recordFormat {
	return recordFormat{header: 19, types: [2]int{9, 12}, number: number, isLog: true}
}

// recordBlock is the size of the blocks that records don't cross.
const recordBlock = 32 << 10

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checkRecords reads one file and looks for a record after the first bad place,
// which must not lie before least.
func checkRecords(fs vfs.FS, name string, f recordFormat, least uint64) error {
	data, err := readFile(fs, name)
	if err != nil {
		return err
	}
	bad := 0
	for bad+f.header <= len(data) {
		if left := recordBlock - bad%recordBlock; left < f.header {
			bad += left
			continue
		}
		n := f.parse(data, bad)
		if n == 0 {
			break
		}
		bad += n
	}
	if bad == 0 && f.mustHas {
		return fmt.Errorf("%w: %s has no valid record", storage.ErrCorrupt, name)
	}
	if uint64(bad) < least {
		return fmt.Errorf("%w: %s: damaged at %d, but was durable up to %d", storage.ErrCorrupt, name, bad, least)
	}
	// Go on where headers say that records start, or at the next block, which
	// always starts with one; never just anywhere: clients choose the bytes of
	// keys and values, and could plant what looks like a record.
	for off := bad; off+f.header <= len(data); {
		if off > bad && f.parse(data, off) > 0 && f.proves(data[off:], bad) {
			return fmt.Errorf("%w: %s: damaged at %d, a valid record follows at %d", storage.ErrCorrupt, name, bad, off)
		}
		n := f.claims(data, off)
		if left := recordBlock - off%recordBlock; n == 0 || left-n < f.header {
			n = left
		}
		off += n
	}
	return nil
}

// claims returns the length of the record whose header is at off, header
// included, or 0 if there is none.
func (f recordFormat) claims(data []byte, off int) int {
	h := data[off:]
	if len(h) < f.header {
		return 0
	}
	kind := int(h[6])
	if kind < f.types[0] || kind > f.types[1] || f.isLog && binary.LittleEndian.Uint32(h[7:]) != f.number {
		return 0
	}
	n := f.header + int(binary.LittleEndian.Uint16(h[4:]))
	if n > len(h) || n > recordBlock-off%recordBlock {
		return 0
	}
	return n
}

// parse returns the length of the valid record at off, header included, or 0.
func (f recordFormat) parse(data []byte, off int) int {
	n := f.claims(data, off)
	if n == 0 {
		return 0
	}
	h := data[off:]
	sum := crc32.Checksum(h[6:n], castagnoli)
	if binary.LittleEndian.Uint32(h) != (sum>>15|sum<<17)+0xa282ead8 { // as LevelDB masks it
		return 0
	}
	return n
}

// proves reports whether the record at the start of h was written after the
// place bad was durable.
func (f recordFormat) proves(h []byte, bad int) bool {
	return !f.isLog || binary.LittleEndian.Uint64(h[11:]) > uint64(bad)
}

// readFile reads a MANIFEST or a log whole: their sizes are bounded by ours of
// MANIFEST and memtable.
func readFile(fs vfs.FS, name string) ([]byte, error) {
	f, err := fs.Open(name)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(f)
	return data, errors.Join(err, f.Close())
}
