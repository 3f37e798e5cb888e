// Package bench measures read engines on the machine at hand, without the store
// around them. Every row says what it measured: bytes that the device gave,
// what was in the page cache, processor time, threads, system calls; a figure
// without them proves nothing, since a page cache makes any engine look fast.
package bench
