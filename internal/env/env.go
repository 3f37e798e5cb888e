// Package env is what code below the server may not take from the world by
// itself: time, chance and concurrency.
//
// Everything that decides or stores gets an Env in its Options. In production
// it is System. In simulation one seed stands behind all of it, and Go runs
// its function to the end before it returns, so that the same seed gives the
// same run, step by step. Code that wants to be simulated follows two rules:
// a channel on which functions started by Go report has room for all their
// reports, and no lock that they need is held across Go.
package env

import (
	"crypto/rand"
	"time"
)

// Env is a source of time, chance and concurrency. Its functions may be called
// concurrently. Use System or a simulation; the zero value is not usable.
type Env struct {
	// Now is the wall clock, for display and expiry, never for order.
	Now func() time.Time
	// Rand fills p with random bytes.
	Rand func(p []byte)
	// Go runs f, in a goroutine or at once.
	Go func(f func())
	// After returns a channel that delivers once when d has passed, and a
	// function that gives the timer back. In simulation the channel is nil:
	// timeouts happen by script, as errors of the simulated disks.
	After func(d time.Duration) (<-chan time.Time, func())
}

// System is the real world.
func System() Env {
	return Env{
		Now: time.Now,
		Rand: func(p []byte) {
			// Read never fails: it ends the process when the kernel has no entropy.
			_, _ = rand.Read(p)
		},
		Go: func(f func()) { go f() },
		After: func(d time.Duration) (<-chan time.Time, func()) {
			t := time.NewTimer(d)
			return t.C, func() { t.Stop() }
		},
	}
}

// IsZero reports whether e was never set, so that Options can default it.
func (e Env) IsZero() bool { return e.Now == nil }
