// Package erasure is redundancy: it turns objects into shards on the disks of
// a set and back, decides with the metadata engine what an object is, and
// knows nothing of HTTP.
//
// It has two halves. The namespace (Store) says what exists: buckets, objects,
// uploads, their order and their records. The data path (data) stores runs of
// bytes as shards and reads them back, whatever disks are slow, away or wrong.
// They meet in a blob, the name and layout of one run of bytes.
//
// # What decides
//
// The order of commits of the metadata engine, and nothing else. A write first
// makes its bytes durable under a name that nothing refers to, then commits a
// record that does, under the condition that the version it was decided against
// is still the current one; the same commit gives up the bytes of that version.
// So a crash at any point leaves the old version or the new one, and bytes that
// nobody refers to. No lock is held while a client sends. The locks there are
// (keyLock) only put writers of one key in a row.
//
// A commit has three outcomes. When it is unknown, the bytes stay: the record
// may yet turn up, and must find them.
//
// # What is deleted
//
// Readers don't lock either. They pin the bytes of the record they read, and
// the collector (gc.go), which works through the entries that commits left,
// passes over what is pinned. Deletion is a queue in the metadata because the
// disks that hold the shards may be away for weeks.
//
// # What is bounded
//
// Bodies are streams: a request holds a window of stripes, taken from a pool
// with a budget before the body is read. Small bodies are the exception: up to
// MaxInlineSize they are held whole, and live in the metadata. Records are at
// most 64 KiB, commits at most 100 operations, listings at most a page.
//
// The formats are described in docs/format.md, the flows in
// docs/architecture.md.
package erasure
