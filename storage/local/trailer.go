package local

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/zeebo/xxh3"

	"ringfence/storage"
)

// A shard file ends in a trailer and a footer:
//
//	blocks, each at a multiple of BlockSize, the last padded to BlockAlign
//	trailer: header, owner, block sums, XXH3-128 of all of these
//	zeros up to the footer
//	footer: where the trailer is; the last footerSize bytes of the file
//
// The trailer starts at a multiple of BlockAlign and the file ends at one, so
// one aligned read of the tail gets everything of all but huge shards.
const (
	shardVersion  = 1
	trailerHeader = 64
	footerSize    = 64

	// maxBlocks bounds a shard to what a part of 5 GiB needs in the smallest
	// blocks, with room to spare; it bounds what a trailer can make us
	// allocate to 64 MiB, and only if the file is really that long.
	maxBlocks = 4 << 20
	// maxBlockSize keeps sizes far from any overflow.
	maxBlockSize = 64 << 20
)

var (
	trailerMagic = [8]byte{'R', 'N', 'G', 'F', 'S', 'H', 'R', 'D'}
	footerMagic  = [8]byte{'R', 'N', 'G', 'F', 'F', 'O', 'O', 'T'}
)

// trailer is what a shard file says about itself. It is immutable once made
// by decodeTrailer; Owner and sums share one allocation.
type trailer struct {
	id   storage.ShardID
	info storage.ShardInfo
	sums []byte // 16 bytes for each block
}

func (t *trailer) sum(n int) storage.Sum { return storage.Sum(t.sums[n*sumSize:]) }

// memory is roughly what keeping the trailer costs, in bytes.
func (t *trailer) memory() int64 { return int64(len(t.sums)+len(t.info.Owner)) + 256 }

func alignUp(n int64) int64 {
	return (n + storage.BlockAlign - 1) &^ (storage.BlockAlign - 1)
}

// dataEnd is where the trailer starts.
func dataEnd(info storage.ShardInfo) int64 { return alignUp(info.Size) }

func trailerLen(owner, blocks int) int64 {
	return int64(trailerHeader + owner + blocks*sumSize + sumSize)
}

// encodeTrailer appends everything from dataEnd to the end of the file to b.
func encodeTrailer(b []byte, t *trailer) []byte {
	le := binary.LittleEndian
	start := len(b)
	tlen := trailerLen(len(t.info.Owner), len(t.sums)/sumSize)
	total := alignUp(tlen + footerSize)
	b = append(b, make([]byte, total)...)
	p := b[start:]
	copy(p, trailerMagic[:])
	le.PutUint16(p[8:], shardVersion)
	le.PutUint16(p[10:], t.id.Part)
	le.PutUint32(p[12:], uint32(t.info.BlockSize))
	le.PutUint64(p[16:], uint64(t.info.Size))
	copy(p[24:], t.id.UUID[:])
	le.PutUint32(p[40:], uint32(len(t.sums)/sumSize))
	le.PutUint16(p[44:], uint16(len(t.info.Owner)))
	copy(p[trailerHeader:], t.info.Owner)
	copy(p[trailerHeader+len(t.info.Owner):], t.sums)
	sum := xxh3.Hash128(p[:tlen-sumSize]).Bytes()
	copy(p[tlen-sumSize:], sum[:])

	f := p[total-footerSize:]
	copy(f, footerMagic[:])
	le.PutUint16(f[8:], shardVersion)
	le.PutUint64(f[16:], uint64(dataEnd(t.info)))
	le.PutUint64(f[24:], uint64(tlen))
	copy(f[32:], sum[:])
	le.PutUint64(f[56:], xxh3.Hash(f[:56]))
	return b
}

// footer says where the trailer of a file is.
type footer struct {
	off, len int64
	sum      [sumSize]byte
}

// decodeFooter reads the last footerSize bytes of a file of the given size.
// Whatever it accepts lies inside the file and within the bounds above.
func decodeFooter(b []byte, fileSize int64) (footer, error) {
	le := binary.LittleEndian
	switch {
	case len(b) != footerSize || fileSize < footerSize:
		return footer{}, errors.New("file shorter than a footer: not sealed")
	case !bytes.Equal(b[:8], footerMagic[:]):
		return footer{}, errors.New("no footer: not sealed, or cut short")
	case le.Uint64(b[56:]) != xxh3.Hash(b[:56]):
		return footer{}, errors.New("footer has a wrong checksum")
	case le.Uint16(b[8:]) != shardVersion:
		return footer{}, fmt.Errorf("shard format version %d, this release reads %d", le.Uint16(b[8:]), shardVersion)
	}
	off, length := le.Uint64(b[16:]), le.Uint64(b[24:])
	if off > uint64(fileSize) || off%storage.BlockAlign != 0 ||
		length < uint64(trailerLen(0, 0)) || length > uint64(trailerLen(storage.MaxOwner, maxBlocks)) {
		return footer{}, fmt.Errorf("trailer of %d bytes at %d in a file of %d", length, off, fileSize)
	}
	f := footer{off: int64(off), len: int64(length)}
	if f.off+alignUp(f.len+footerSize) != fileSize {
		return footer{}, fmt.Errorf("trailer of %d bytes at %d doesn't fit a file of %d", length, off, fileSize)
	}
	copy(f.sum[:], b[32:])
	return f, nil
}

// decodeTrailer reads the bytes that f points to, as the trailer of shard id.
// The result shares no memory with b.
func decodeTrailer(b []byte, f footer, id storage.ShardID) (*trailer, error) {
	le := binary.LittleEndian
	if int64(len(b)) != f.len || f.len < trailerLen(0, 0) {
		return nil, fmt.Errorf("trailer of %d bytes, want %d", len(b), f.len)
	}
	body := b[:len(b)-sumSize]
	sum := xxh3.Hash128(body).Bytes()
	if !bytes.Equal(sum[:], b[len(body):]) || sum != f.sum {
		return nil, errors.New("trailer has a wrong checksum")
	}
	if !bytes.Equal(b[:8], trailerMagic[:]) || le.Uint16(b[8:]) != shardVersion {
		return nil, errors.New("trailer has a wrong magic or version")
	}
	t := &trailer{id: storage.ShardID{UUID: storage.UUID(b[24:40]), Part: le.Uint16(b[10:])}}
	if t.id != id {
		return nil, fmt.Errorf("trailer names shard %s", t.id)
	}
	size := le.Uint64(b[16:])
	if size > math.MaxInt64/2 {
		return nil, fmt.Errorf("size %d", size)
	}
	t.info = storage.ShardInfo{BlockSize: int(le.Uint32(b[12:])), Size: int64(size)}
	if err := checkInfo(t.info); err != nil {
		return nil, err
	}
	blocks, owner := int(le.Uint32(b[40:])), int(le.Uint16(b[44:]))
	if blocks != t.info.Blocks() || owner > storage.MaxOwner ||
		trailerLen(owner, blocks) != f.len || dataEnd(t.info) != f.off {
		return nil, fmt.Errorf("%d blocks and %d bytes of owner don't fit %d bytes of data", blocks, owner, size)
	}
	rest := bytes.Clone(body[trailerHeader:])
	t.info.Owner, t.sums = rest[:owner:owner], rest[owner:]
	return t, nil
}

// checkInfo is the contract of ShardInfo.
func checkInfo(i storage.ShardInfo) error {
	switch {
	case i.BlockSize < storage.BlockAlign || i.BlockSize > maxBlockSize || i.BlockSize&(i.BlockSize-1) != 0:
		return fmt.Errorf("block size %d", i.BlockSize)
	case i.Size < 0 || i.Size > int64(maxBlocks)*int64(i.BlockSize):
		return fmt.Errorf("size %d in blocks of %d", i.Size, i.BlockSize)
	case len(i.Owner) > storage.MaxOwner:
		return fmt.Errorf("owner of %d bytes, at most %d", len(i.Owner), storage.MaxOwner)
	}
	return nil
}
