//go:build !linux

package ring

import "syscall"

// New sets a ring up in the kernel. Only Linux has them: it gives ErrEntries for
// a wrong number of entries, and ENOSYS for a right one.
func New(o Options) (Ring, error) {
	if _, err := o.withDefaults(); err != nil {
		return nil, err
	}
	return nil, syscall.ENOSYS
}
