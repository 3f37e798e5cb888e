// Package ringtest puts other things in the place of the kernel's io_uring, so
// that what rarely happens there can be made to happen in a test.
//
// A Script wraps real rings: they misbehave as a test says, while it says so.
// It changes what the ring under it is asked and what it answers, and holds
// completions back, which is what a hung disk looks like: the operation is
// pending, its memory and file are not to be touched, cancelling doesn't help.
//
// A Sim is no ring at all: it has files and pipes in memory and executes
// operations itself, in any order that a seed decides, with any outcome that
// the kernel might give. It writes into the memory of a read at the moment when
// the read completes, by its address, exactly as the kernel would: memory that
// was given back too early is overwritten then, and whoever checks it sees it.
package ringtest
