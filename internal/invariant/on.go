//go:build invariants || race

package invariant

// Enabled says that this build checks its invariants and poisons released
// buffers. The race detector implies it.
const Enabled = true
