// Package local is one disk in one directory.
//
// # Layout
//
// Two stores share the directory and nothing else. Shard files hold what
// clients sent; they are written once, sealed by a trailer and never changed,
// so no crash can leave one half old and half new. One Pebble database under
// meta/ holds everything that changes. docs/format.md describes every byte.
//
// A shard file is trusted only as far as its trailer proves: lengths are
// checked against the file and against each other before anything is
// allocated, and the trailer names the shard, so a file that was renamed,
// misdirected or cut short is ErrCorrupt and nothing worse.
//
// # Faults
//
// One sick disk must never hurt the process. Pebble ends the process when a
// commit fails, and panics where nobody can recover when it can't replace its
// log. So a fence between Pebble and the file system keeps failed writes from
// it: the first one ends the store, and what Pebble does from then on goes
// nowhere, and succeeds. A database that failed serves nothing more, since the
// write that failed can be read in it. For what is left, its logger ends the
// goroutine rather than the process, and every write to Pebble runs in a
// goroutine that reports how it ended. The fence also makes sure that a database
// which can't be closed can't write once its folder is given to another one.
//
// A corrupt metadata store is wiped and rebuilt by those who hear of it. So it
// is called corrupt on proof only: a checksum, a size, a file that is missing
// when the store is opened. All else that goes wrong is a failure of the disk.
//
// Faults are of three kinds, and each is final for its part until the disk is
// opened again: the disk is gone (someone removed, moved or emptied the
// directory), the disk failed (a write or sync of a shard failed: the kernel
// may have dropped what was written), the metadata store alone is dead or
// corrupt (shards go on: each proves its durability by its own sync). A full disk is none of these: it
// refuses shards and recovers by itself, its metadata store too.
//
// # I/O
//
// File access is by the injected storage.Backend, so every read engine meets
// the same code here. Pebble has a file system of its own, injected as well:
// with both over one simulated file system, crashes are tested in memory.
package local
