// Package erasure is redundancy: it turns objects into shards on the disks of
// a set and back, decides with the metadata engine what an object is, and
// knows nothing of HTTP.
package erasure
