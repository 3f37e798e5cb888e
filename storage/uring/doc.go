// Package uring reads files through sharded io_uring rings, on Linux: one
// Driver per disk, so that a disk that hangs uses up its own rings, threads and
// permits and nobody else's. It knows nothing of tiers and fallbacks: package
// hybrid decides what goes through a ring, and what happens when that fails.
//
// The kernel writes into memory long after a caller lost interest. So the
// driver owns buffer and descriptor of every operation from submission to its
// final completion, whatever becomes of the caller: cancelling abandons the
// result, never the memory. What can't be brought to its end is leaked on
// purpose, since everything else would hand memory to a second owner while the
// kernel still writes to it.
package uring
