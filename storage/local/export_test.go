package local

import (
	"encoding/binary"

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

// CachedShards is how many shards the disk keeps open.
func (d *Disk) CachedShards() int { return d.fds.size() }
