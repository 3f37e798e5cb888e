// Package server is the S3 protocol over HTTP: it turns requests into calls of
// the object store and the store's answers into bytes on the wire. It knows
// nothing of disks.
//
// A request passes a fixed line of stations, and no handler can leave one out:
//
//	admit   a bounded number of requests is in work at once (serve.go)
//	locate  bucket and key from host and path, decoded once (target.go)
//	route   one table of all S3 operations (table.go, routes.go)
//	authenticate  who asks; the body changes hands here (serve.go)
//	handle  one file per verb
//	respond one place that writes errors, logs and counts (respond.go)
//
// A handler sees a *request, which has no way to the raw body, only to the one
// that authentication has put its checks into. The table names every operation
// of the protocol, those that Ringfence does not have included, and every query
// parameter that an operation may carry. What is not in it is answered with
// NotImplemented: a sub-resource that fell through to "PUT object" would
// overwrite data.
//
// Below /-/ is what isn't S3: probes and metrics for everybody, and the
// administration API (admin.go), which knows only the root user.
//
// Decisions are pure functions with table tests: ranges.go, conditional.go,
// headers.go, target.go. The server trusts nothing that it has not parsed, and
// holds no state between requests but counters.
package server
