// Package integration tests the gateway as its users meet it: a process, a
// port, directories, and S3 clients. It imports nothing of the project, so
// that it can't be wrong in the same way as the code.
//
// TestMain builds the binary once; tests start it on a free port with
// directories of their own, kill it, take its disks away, and compare what
// comes back with what was acknowledged. The environment says how far to go:
//
//	RINGFENCE_TEST_REQUIRE   comma-separated: awscli, s3cmd, rclone, restic,
//	                         strace, uring, ext4 fail instead of skip when the
//	                         tool is missing, the kernel refuses io_uring, or
//	                         temporary files are on another file system; large,
//	                         memory, million, connections, leaks, identity run
//	                         what takes minutes
//	RINGFENCE_TEST_KILLS     rounds of the kill test, 3
//	RINGFENCE_TEST_SEED      seed of random load, random
//	RINGFENCE_TEST_BUILD     flags of go build, such as "-race -tags=invariants"
//	RINGFENCE_TEST_ENDPOINT  run only what needs nothing but the wire, against
//	                         this gateway, with RINGFENCE_TEST_USER and
//	                         RINGFENCE_TEST_PASSWORD
//	RINGFENCE_TEST_LEGS      std=URL,uring=URL,blocked=URL: compare gateways that
//	                         somebody else runs, with the same credentials
//
// Where a gateway has to be refused io_uring, or to die by it, the test binary
// starts itself, tells the kernel so, and becomes the gateway. Disks get sick by
// order in a binary that is built with fault seams for it.
package integration
