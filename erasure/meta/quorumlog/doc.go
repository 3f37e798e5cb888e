// Package quorumlog is the metadata engine of one machine: a sequenced log over
// the key-value stores of the disks of one set.
//
// One sequencer gives every commit a place (epoch, seq). Each disk applies the
// groups of commits in that order and without gaps, in the same batch as the
// group's log entry and the cell that says how far it came, so that a disk's
// state is a named prefix of the log and never a bag of records. A group is
// acknowledged when a majority of all disks of the set (quorum) has it synced.
//
// Merging records by newest stamp instead is not sound: a stepped clock loses
// acknowledged writes, and expiring tombstones bring deleted objects back. Here
// there are neither stamps nor tombstones. The price is a set of rules that are
// each needed; model_test.go removes them one at a time and finds the harm:
//
//   - Recovery promises a new epoch on a quorum before it uses it, takes the
//     longest log (by epoch, then seq) of at least N-quorum+1 voters, and
//     writes a barrier on a quorum before anything is served.
//   - Blank, corrupt and forgetful disks do not vote. Half-copied ones vote only
//     on how far the log must reach.
//   - A disk whose log left the common one is repaired (all keys that either
//     side touched) before it counts again.
//   - Reads come from a disk that has applied all that was acknowledged.
//   - Every group carries a witness: what each disk acknowledged so far. A disk
//     that reports less than a peer witnessed has forgotten synced writes. It
//     is rebuilt, and until then believed in nothing.
//   - A group that misses its quorum is neither done nor undone. The sequencer
//     stops, its commits end as unknown, and recovery decides the group once.
//
// There is no background sequencer. The commit that finds nobody leading forms
// the next group; whoever completes a group starts the one after it; what
// queues up meanwhile shares the next sync. Every disk has a lane, which
// applies its batches in order, so that a slow disk delays nobody: when it is
// too far behind it leaves the set and is caught up later, from the log if that
// still reaches back, else by a copy of everything.
//
// Nothing waits for a disk without an end (wait.go): one that hangs says neither
// yes nor no. Reads ask another disk, recoveries and catch-ups go on without it,
// and a lane that makes no progress is expelled. Slow is not stuck, though: who
// copies much is waited for as long as single reads end.
//
// At most one group is undecided at any time. A reader that meets a key of that
// group waits for the decision, since a value that a recovery may still drop
// must not be shown. When too few disks are left to decide, only those keys are
// unavailable and all others can still be read.
package quorumlog
