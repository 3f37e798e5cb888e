// Package enginetest is the contract of meta.Engine as a program: every engine
// passes Run, and what Run does not ask for, nobody may rely on.
//
// The suite works from outside, through the interface, and judges histories
// rather than states: concurrent calls are recorded with their start and end,
// and a checker decides whether some sequential order explains every answer.
// An outcome that the engine called unknown may be explained either way.
package enginetest

import (
	"testing"

	"ringfence/erasure/meta"
)

// Harness is one engine under test, empty and serving.
type Harness struct {
	Engine meta.Engine
	// Outage makes the engine unable to write until the returned function is
	// called; the engine serves again at the latest when that has returned. Nil
	// skips the tests that need it.
	Outage func() (end func())
}

// Run runs the suite. open makes a new harness that cleans up after t.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	tests := []struct {
		name string
		run  func(t *testing.T, h Harness)
	}{
		{"empty", testEmpty},
		{"set, get, delete", testBasics},
		{"order within a commit", testOpOrder},
		{"conditions", testConditions},
		{"all or nothing", testAtomic},
		{"revisions", testRevisions},
		{"limits", testLimits},
		{"binary keys", testBinaryKeys},
		{"cancelled context", testCancelled},
		{"scan", testScan},
		{"seek", testSeek},
		{"scan is one state", testScanIsOneState},
		{"scan while writing", testScanWhileWriting},
		{"create race", testCreateRace},
		{"increments", testIncrements},
		{"outage", testOutage},
		{"health", testHealth},
		{"close", testClose},
		{"histories", testHistories},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, open(t)) })
	}
}
