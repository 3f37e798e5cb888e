//go:build !faultinject

package main

import (
	"context"

	"ringfence/storage"
	"ringfence/storage/uring"
)

// faultVariables are environment variables that only a binary for tests reads.
var faultVariables []string

// faults are what a binary for tests can do to its disks. This one can't.
type faults struct{}

func (p *process) newFaults() *faults { return nil }

// rings are the options of a disk's rings.
func (*faults) rings(string) uring.Options { return uring.Options{} }

// backend is what a disk reads with.
func (*faults) backend(_ string, b storage.Backend) storage.Backend { return b }

// begin starts what looks for orders, and gives what stops it.
func (*faults) begin(context.Context) (stop func()) { return func() {} }
