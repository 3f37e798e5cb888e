package storage

import "context"

// BlockAlign is the alignment of blocks in a shard file, in bytes. With it any
// block can be read by O_DIRECT or into a registered buffer without a bounce.
const BlockAlign = 4096

// Sum is the 128-bit checksum of one block. package erasure/frame computes and
// verifies it; a Disk only keeps it.
type Sum [16]byte

// ShardInfo describes a shard file. It is fixed when the file is created,
// except Size, which counts what was appended.
type ShardInfo struct {
	BlockSize int    // bytes; a power of two, at least BlockAlign
	Size      int64  // bytes of data appended, without padding and trailer
	Owner     []byte // opaque to the disk, at most MaxOwner bytes: enough for an offline rebuild of the index
}

// MaxOwner bounds ShardInfo.Owner, in bytes. A key has at most 1,024 of them.
const MaxOwner = 4096

// Blocks is the number of blocks that hold Size bytes.
func (i ShardInfo) Blocks() int {
	return int((i.Size + int64(i.BlockSize) - 1) / int64(i.BlockSize))
}

// BlockLen is the true length of block n in bytes: BlockSize for all but the
// last.
func (i ShardInfo) BlockLen(n int) int {
	return int(min(int64(i.BlockSize), i.Size-int64(n)*int64(i.BlockSize)))
}

// Disk is one disk of a set. All methods may be called from many goroutines.
// Errors wrap the sentinels of this package. A Disk never ends the process and
// never blocks for ever on its own queue; it may block on the hardware, so
// callers that must not wait give each disk its own goroutine.
type Disk interface {
	// Identity is constant.
	Identity() Identity
	// CreateShard starts a new shard file. ErrExists if the name was used.
	// info.Size is a hint for preallocation, 0 if unknown.
	CreateShard(ctx context.Context, id ShardID, info ShardInfo) (ShardWriter, error)
	// OpenShard opens a sealed shard and checks its trailer. ErrNotFound,
	// ErrCorrupt. The reader stays usable after RemoveShard.
	OpenShard(ctx context.Context, id ShardID) (ShardReader, error)
	// RemoveShard deletes a shard; removing what is not there succeeds. It
	// need not be durable: deletion is repeated from the deletion index.
	RemoveShard(ctx context.Context, id ShardID) error
	// ListShards returns at most n ids in an order of the disk's own, after
	// the given one (zero: from the start). Unsealed files are listed too.
	ListShards(ctx context.Context, after ShardID, n int) ([]ShardID, error)
	// KV is the disk's metadata store as it is open now. Once it failed, was
	// reset, or the disk went away and came back, the value fails for ever:
	// call KV again and find out what the store holds before trusting it.
	KV() KV
	// ResetKV wipes the metadata store, shards untouched, and opens a blank
	// one, to be had from KV.
	ResetKV(ctx context.Context) error
	// Health is a cheap snapshot. It does not wait for the hardware.
	Health() Health
	// Check looks whether the disk is still there and still the one that was
	// opened. Write paths call it before they report durability.
	Check(ctx context.Context) error
	// Close releases everything. Calls after it fail with ErrOffline.
	Close() error
}

// ShardWriter writes one shard file. It belongs to one goroutine.
type ShardWriter interface {
	// Append writes the next block. Every block but the last has exactly
	// BlockSize bytes. The caller may reuse block when Append returns.
	Append(ctx context.Context, block []byte, sum Sum) error
	// Seal writes the trailer and returns when file and directory entry are
	// durable and the disk is still there. Directory syncs of concurrent seals
	// are shared. After Seal, whatever its result, the writer is spent.
	Seal(ctx context.Context) error
	// Abort closes and removes the file. Harmless after Seal.
	Abort() error
}

// ShardReader reads one sealed shard. Its methods may be called concurrently.
type ShardReader interface {
	// Info is what the trailer says.
	Info() ShardInfo
	// Sum is the checksum that was given with block n.
	Sum(n int) Sum
	// ReadBlocks fills bufs with consecutive blocks, bufs[i] with block
	// first+i, and sets their lengths. It does not verify checksums. It is one
	// submission to the read engine. When ctx ends it returns at once; the
	// buffers may still be written to until the engine drops its references,
	// so the caller may only Release them.
	ReadBlocks(ctx context.Context, first int, bufs []*Buf) error
	// Close gives the reader back. It does not wait for abandoned reads.
	Close() error
}
