// Command gateway is Ringfence: it turns local directories into an S3 store.
//
// It is the only package that knows concrete types, flags and the environment.
// Everything below gets what it needs in Options. What happens here is wiring
// and refusal: which settings are in force (one table, settings.go), which
// directories form which store (plan.go decides without touching a disk,
// disks.go looks and acts), whose credentials open it, and in which order the
// parts start and stop (serve.go).
//
// A gateway that is unsure refuses to start and says why in one line per
// problem: taking a foreign directory for a disk, or a forgotten mount for an
// empty one, costs somebody their data.
package main
