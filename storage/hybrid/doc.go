// Package hybrid is the storage.Backend that serves: it reads by tiers. What
// the page cache holds is read inline on the caller; what it does not hold goes
// through the disk's rings when they are switched on and healthy; and whatever
// a ring can't or may not do is read by the backend below, which is the
// reference for every byte and every error. Everything but reading is that
// backend's alone.
//
// So an error of a ring is never an error of a read: the reference reads what
// is left, and its answer counts. What a ring says only decides on the future:
// latches, one for each thing that can be wrong and each for this disk alone,
// keep reads off a tier until there is reason to try it again. A share of what
// rings delivered can be read again by the reference and compared, off the
// response path; rings that returned one wrong byte serve nothing any more.
//
// The one thing that the reference can't help with is a disk that does not
// answer: it would wait as well, with threads. Reads of such a disk fail at
// once with storage.ErrOffline, but for a few that find out when it is back.
//
// Drivers come and go while reads run: a read takes the one that serves from an
// atomic pointer, and one that was replaced finishes what it accepted. One
// goroutine, Run, starts and ends them and decides everything that takes time.
package hybrid
