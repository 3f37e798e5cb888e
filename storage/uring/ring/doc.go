// Package ring speaks the kernel's io_uring interface: pure Go on system calls,
// no policy. What is read, for whom, and who owns the memory, is the driver's
// affair; this package is the one place that knows structure layouts, offsets,
// flags and barriers.
//
// # Set-up
//
// A ring belongs to one thread, and New asks for what that allows, newest
// first: completions run only when the thread asks for them (DEFER_TASKRUN,
// Linux 6.1), or at its next system call (COOP_TASKRUN, 5.19), or by
// interrupting it. Only EINVAL, the answer to a flag that the kernel doesn't
// know, leads to the next choice: any other error would meet them all. A kernel
// that drops completions (before 5.5) or can't wait with a timeout (before
// 5.11) is refused like one without io_uring, because a driver could neither
// trust nor bound it.
//
// # Memory
//
// The queues are mapped, never on a stack. What the kernel reads only during a
// call (timeouts, tables to register) lies in the ring's own heap object, whose
// address goes through a function value and so can't be on a stack either. What
// it uses beyond a call, the memory of a read above all, is known to this
// package as a number only: the caller keeps it alive, in place, and its file
// open, until the completion.
//
// # System calls
//
// They go through a small table, so that tests can play kernels that refuse,
// that are old, or that lay the queues out differently. They are ordinary ones
// that let the scheduler move on: a deep batch of cached reads runs for
// milliseconds inside one enter.
package ring
