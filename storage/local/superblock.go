package local

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/zeebo/xxh3"

	"ringfence/storage"
)

// formatVersion is the newest layout this build writes and the newest it
// reads. It only ratchets up: a disk of a later version is refused whole.
const formatVersion = 1

// superblockSize is the size of a superblock in bytes: one aligned block, so
// that any engine reads it in one piece.
const superblockSize = storage.BlockAlign

var superblockMagic = [8]byte{'R', 'N', 'G', 'F', 'D', 'I', 'S', 'K'}

const sumSize = 16

// superblock is the content of superblock.a and superblock.b.
type superblock struct {
	Version    uint32
	Generation uint64 // counts rewrites: the higher of two valid copies is current
	Identity   storage.Identity
}

// errNewer says that a later release wrote the disk. It is not damage, and
// nothing may be repaired or wiped because of it.
var errNewer = errors.New("written by a newer release")

func (s superblock) encode() []byte {
	b := make([]byte, superblockSize)
	le := binary.LittleEndian
	copy(b, superblockMagic[:])
	le.PutUint32(b[8:], s.Version)
	le.PutUint64(b[16:], s.Generation)
	copy(b[24:], s.Identity.Deployment[:])
	copy(b[40:], s.Identity.Set[:])
	copy(b[56:], s.Identity.Disk[:])
	le.PutUint16(b[72:], s.Identity.SetIndex)
	le.PutUint16(b[74:], s.Identity.SetCount)
	b[76] = s.Identity.Slot
	b[77] = s.Identity.SetSize
	b[78] = s.Identity.Parity
	sum := xxh3.Hash128(b[:superblockSize-sumSize]).Bytes()
	copy(b[superblockSize-sumSize:], sum[:])
	return b
}

// decodeSuperblock checks and reads one copy. A newer version is told apart
// from damage before anything else of the copy is interpreted; place of magic,
// version and checksum are the same in all versions.
func decodeSuperblock(b []byte) (superblock, error) {
	if len(b) != superblockSize {
		return superblock{}, fmt.Errorf("superblock of %d bytes, want %d", len(b), superblockSize)
	}
	if !bytes.Equal(b[:8], superblockMagic[:]) {
		return superblock{}, errors.New("superblock has a wrong magic")
	}
	sum := xxh3.Hash128(b[:superblockSize-sumSize]).Bytes()
	if !bytes.Equal(sum[:], b[superblockSize-sumSize:]) {
		return superblock{}, errors.New("superblock has a wrong checksum")
	}
	le := binary.LittleEndian
	s := superblock{Version: le.Uint32(b[8:]), Generation: le.Uint64(b[16:])}
	if s.Version > formatVersion {
		return superblock{}, fmt.Errorf("format version %d, this release reads up to %d: %w", s.Version, formatVersion, errNewer)
	}
	id := &s.Identity
	copy(id.Deployment[:], b[24:])
	copy(id.Set[:], b[40:])
	copy(id.Disk[:], b[56:])
	id.SetIndex, id.SetCount = le.Uint16(b[72:]), le.Uint16(b[74:])
	id.Slot, id.SetSize, id.Parity = b[76], b[77], b[78]
	if s.Version == 0 {
		return superblock{}, errors.New("superblock has version 0")
	}
	if err := checkIdentity(*id); err != nil {
		return superblock{}, err
	}
	return s, nil
}

func checkIdentity(id storage.Identity) error {
	switch {
	case id.Deployment.IsZero() || id.Set.IsZero() || id.Disk.IsZero():
		return errors.New("identity lacks an id")
	case id.SetSize < 1 || id.SetSize > 16 || id.Slot >= id.SetSize:
		return fmt.Errorf("slot %d of a set of %d disks", id.Slot, id.SetSize)
	case id.Parity >= id.SetSize:
		return fmt.Errorf("parity %d in a set of %d disks", id.Parity, id.SetSize)
	case id.SetCount < 1 || id.SetIndex >= id.SetCount:
		return fmt.Errorf("set %d of %d", id.SetIndex, id.SetCount)
	}
	return nil
}

// superblocks is what both copies say together.
type superblocks struct {
	current superblock
	bad     []string // names of copies to be rewritten
}

// readSuperblocks reads both copies. ErrNotFound: there is none. ErrCorrupt:
// none can be read, or they contradict each other.
func readSuperblocks(ctx context.Context, b storage.Backend, pool *storage.Pool) (superblocks, error) {
	names := []string{nameA, nameB}
	var copies [2]superblock
	var errs [2]error
	for i, name := range names {
		copies[i], errs[i] = readSuperblock(ctx, b, pool, name)
		if errors.Is(errs[i], errNewer) || isContext(errs[i]) {
			return superblocks{}, fmt.Errorf("%s: %w", name, errs[i])
		}
	}
	switch {
	case errs[0] == nil && errs[1] == nil:
		return choose(copies)
	case errs[0] == nil:
		return superblocks{current: copies[0], bad: []string{nameB}}, nil
	case errs[1] == nil:
		return superblocks{current: copies[1], bad: []string{nameA}}, nil
	case errors.Is(errs[0], storage.ErrNotFound) && errors.Is(errs[1], storage.ErrNotFound):
		return superblocks{}, fmt.Errorf("superblocks: %w", storage.ErrNotFound)
	}
	for _, err := range errs {
		if !errors.Is(err, storage.ErrNotFound) && !errors.Is(err, storage.ErrCorrupt) {
			return superblocks{}, err // unreadable is not damaged
		}
	}
	return superblocks{}, mark(storage.ErrCorrupt, fmt.Errorf("%s: %w; %s: %w", nameA, errs[0], nameB, errs[1]))
}

// choose takes the later of two valid copies.
func choose(c [2]superblock) (superblocks, error) {
	switch {
	case c[0].Identity != c[1].Identity:
		return superblocks{}, mark(storage.ErrCorrupt, fmt.Errorf("superblocks disagree: disk %s and disk %s", c[0].Identity.Disk, c[1].Identity.Disk))
	case c[0].Generation > c[1].Generation:
		return superblocks{current: c[0], bad: []string{nameB}}, nil
	case c[1].Generation > c[0].Generation:
		return superblocks{current: c[1], bad: []string{nameA}}, nil
	case c[0].Version != c[1].Version:
		return superblocks{}, mark(storage.ErrCorrupt, errors.New("superblocks of one generation disagree on the version"))
	}
	return superblocks{current: c[0]}, nil
}

func readSuperblock(ctx context.Context, b storage.Backend, pool *storage.Pool, name string) (superblock, error) {
	f, err := b.Open(ctx, name)
	if err != nil {
		return superblock{}, classify(err)
	}
	data, err := readAll(ctx, f, pool)
	if cerr := f.Close(); err == nil && cerr != nil {
		err = classify(cerr)
	}
	if err != nil {
		return superblock{}, err
	}
	s, err := decodeSuperblock(data)
	if err != nil && !errors.Is(err, errNewer) {
		err = mark(storage.ErrCorrupt, err)
	}
	return s, err
}

// readAll reads a file of superblockSize bytes; a larger one is cut, a smaller
// one returned as it is.
func readAll(ctx context.Context, f storage.File, pool *storage.Pool) ([]byte, error) {
	size, err := f.Size()
	if err != nil {
		return nil, classify(err)
	}
	if size != superblockSize {
		return nil, mark(storage.ErrCorrupt, fmt.Errorf("%d bytes long, want %d", size, superblockSize))
	}
	buf, err := pool.Get(superblockSize)
	if err != nil {
		return nil, err
	}
	defer buf.Release()
	n, err := f.ReadAt(ctx, buf, 0)
	if err != nil {
		return nil, classify(err)
	}
	return bytes.Clone(buf.Bytes()[:n]), nil
}

// writeSuperblock replaces one copy atomically and durably.
func writeSuperblock(ctx context.Context, b storage.Backend, name string, s superblock) error {
	temp := name + ".tmp"
	if err := b.Remove(ctx, temp); err != nil && !errors.Is(classify(err), storage.ErrNotFound) {
		return err
	}
	f, err := b.Create(ctx, temp, superblockSize)
	if err != nil {
		return err
	}
	err = f.WriteAt(ctx, s.encode(), 0)
	if err == nil {
		err = f.Sync(ctx)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return errors.Join(err, b.Remove(ctx, temp))
	}
	if err := b.Rename(ctx, temp, name); err != nil {
		return err
	}
	return b.SyncDir(ctx, ".")
}
