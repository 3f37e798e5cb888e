// Package ring is the io_uring interface of the kernel, without a policy: set
// up, map, push, enter, reap, register.
package ring
