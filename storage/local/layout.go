package local

import (
	"fmt"
	"strconv"
	"strings"

	"ringfence/storage"
)

// Names below the root. docs/format.md lists them all.
const (
	nameA      = "superblock.a"
	nameB      = "superblock.b"
	nameLock   = "LOCK"
	nameMeta   = "meta"
	nameOld    = "meta.old" // a metadata store on its way out
	nameShards = "shards"
)

// Names below the root that the program above keeps there. A disk ignores
// them, and their writers' leftovers (the name with tempSuffix).
const (
	// NameCredentials holds generated root credentials.
	NameCredentials = "root-credentials.json"
	// NamePending marks a first start that has not formatted all disks yet.
	NamePending = "format-pending.json"

	tempSuffix = ".tmp"
)

// folders is the number of folders below shards/, named by the last byte of
// the UUID: its first bytes are the epoch and would put everything into one.
const folders = 256

func folderName(n int) string { return fmt.Sprintf("%s/%02x", nameShards, n) }

func shardFolder(id storage.ShardID) string {
	return folderName(int(id.UUID[len(id.UUID)-1]))
}

func shardName(id storage.ShardID) string {
	return shardFolder(id) + "/" + id.String()
}

// parseShardName reads the base name of a shard file, and only what
// ShardID.String writes: two names must never mean one shard.
func parseShardName(base string) (storage.ShardID, bool) {
	uuid, part, ok := strings.Cut(base, ".")
	if !ok {
		return storage.ShardID{}, false
	}
	u, err := storage.ParseUUID(uuid)
	if err != nil {
		return storage.ShardID{}, false
	}
	p, err := strconv.ParseUint(part, 10, 16)
	if err != nil {
		return storage.ShardID{}, false
	}
	id := storage.ShardID{UUID: u, Part: uint16(p)}
	return id, id.String() == base
}
