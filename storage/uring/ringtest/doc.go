// Package ringtest puts other things in the place of the kernel's io_uring: a
// simulated ring that answers in any order a seed says, and a ring that
// misbehaves by script.
package ringtest
