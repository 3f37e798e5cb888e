// Package storagetest holds what every implementation of package storage is
// judged by, and the means to hurt one.
//
// TestBackend and TestDisk are the contracts as programs: whoever implements
// storage.Backend or storage.Disk passes them. They are functions and not test
// files, so that an implementation outside this module can run them too.
//
// Sim is the medium of a simulated disk and SimDisk an instance opened on it.
// The medium keeps what is durable apart from what is merely written, as a
// real disk with a volatile cache does, and a crash throws away a random part
// of the latter: whole blocks, parts of blocks, directory entries, the last
// batches of the metadata store. It runs without goroutines, timers or any
// other source of chance, so that one seed replays one run, and cheaply, since
// an engine that orders commits is only believed after many thousands of
// crashes. Persistent trees make a state that can be returned to cost a
// pointer.
//
// Faulty wraps any Backend and fails it by script; MemBackend is a Backend in
// memory that forgets what was not synced. They stand at the same seam at which
// read engines differ, so no layer above can tell an injected fault from a real
// one.
package storagetest
