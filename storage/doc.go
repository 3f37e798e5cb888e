// Package storage holds the contracts between redundancy and disks, and
// nothing that reads or writes a disk.
//
// Three layers meet here. A Backend turns file names and offsets into system
// calls; it is the only thing that differs between read engines. A Disk is one
// directory with an identity: immutable shard files behind a Backend, and one
// ordered key-value store (KV) whose batches are atomic and durable. Above
// both, package erasure sees only Disk and decides redundancy.
//
// The contracts are small so that a disk can be replaced: by a simulated one
// that loses what was not synced (storagetest.SimDisk), by one that fails on
// cue, and one day by one at the other end of a wire. Whoever implements a
// contract passes its suite in storagetest; the suite, not the prose, is the
// last word.
//
// Memory for block data comes from a Pool of Bufs outside the Go heap, with a
// byte budget that is reserved before work starts. Exhaustion is an error that
// callers can tell, never an allocation whose size a client chose.
//
// A Slot is the place of a disk: itself a Disk, it stays while the real one
// goes away, fails and comes back, so that nothing above ever holds a disk that
// is not there any more.
package storage
