// Package invariant holds the assertions that are too dear for production.
//
// A broken invariant means that the process no longer knows what it is doing;
// going on would risk the user's bytes, so Check panics. This is the only
// package of ours that may panic. Dear checks are guarded by Enabled, which is
// a constant, so that a production build carries no trace of them.
package invariant

import "fmt"

// Check panics with the formatted message when ok is false and the build
// carries invariants. The arguments are evaluated in every build: guard dear
// ones with Enabled.
func Check(ok bool, format string, args ...any) {
	if Enabled && !ok {
		panic("invariant broken: " + fmt.Sprintf(format, args...))
	}
}
