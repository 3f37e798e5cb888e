// Package uring will be the storage.Backend whose reads go through sharded
// io_uring rings. It is empty until that engine is built: nothing selects it,
// and package std serves every read.
package uring
