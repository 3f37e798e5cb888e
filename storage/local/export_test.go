package local

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/zeebo/xxh3"

	"ringfence/storage"
)

func hash128(b []byte) [16]byte { return xxh3.Hash128(b).Bytes() }

func leUint64(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

func putFooterSum(f []byte) { binary.LittleEndian.PutUint64(f[56:], xxh3.Hash(f[:56])) }

// EncodeSuperblock makes a superblock of any version.
func EncodeSuperblock(version uint32, generation uint64, id storage.Identity) []byte {
	return superblock{Version: version, Generation: generation, Identity: id}.encode()
}

// LogRecord makes a valid record of a log.
func LogRecord(number uint32, synced uint64, payload []byte) []byte {
	b := make([]byte, 19, 19+len(payload))
	binary.LittleEndian.PutUint16(b[4:], uint16(len(payload)))
	b[6] = 9
	binary.LittleEndian.PutUint32(b[7:], number)
	binary.LittleEndian.PutUint64(b[11:], synced)
	b = append(b, payload...)
	sum := crc32.Checksum(b[6:], castagnoli)
	binary.LittleEndian.PutUint32(b, (sum>>15|sum<<17)+0xa282ead8)
	return b
}

// SetManifestBytes makes MANIFESTs be replaced when they are that long.
func (o *Options) SetManifestBytes(n int64) { o.manifestBytes = n }

// SetOpenFilesMax pretends a limit of open files.
func (o *Options) SetOpenFilesMax(n uint64) { o.openFilesMax = func() uint64 { return n } }

// CachedShards is how many shards the disk keeps open.
func (d *Disk) CachedShards() int { return d.fds.size() }
