// Package std is the reference storage.Backend: plain system calls, on Linux.
// Every other read engine must return the same bytes and the same errors, and
// gets from its files what it needs to read by itself (storage.RawFile).
//
// A read is first tried on the calling goroutine with RWF_NOWAIT, which serves
// what is in the page cache without a hand-off and starts the readahead of what
// is not. On a stream that keeps missing the attempt is left out, but for a few
// probes. Only the missing remainder goes to a bounded number of goroutines per
// disk, since each holds an operating system thread while it waits: a disk that
// hangs uses up its own slots and nobody else's. Such a goroutine holds its own
// references to the buffers and to the descriptor, so that a cancelled caller
// leaves at once and neither memory nor descriptor number is reused under a
// read that still runs. Stats waits for nothing. Everything else blocks the
// caller; whoever must not wait for one disk gives it a goroutine of its own.
//
// Switched on, large reads go past the page cache (O_DIRECT), by a second
// descriptor and straight into the caller's buffers where their geometry allows
// it; or they drop from the page cache what they read. Both are off by default:
// the page cache is what serves hot objects. Whatever is wrong with O_DIRECT,
// the read is made without it.
//
// Names are resolved by the kernel beneath the root and never through a
// symbolic link, so that nothing planted in the folder leads out of it.
// os.Root promises the same, but hands out os.File, which costs a poller
// registration and a finalizer per open and hides RWF_NOWAIT.
package std
