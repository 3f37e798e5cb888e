// Package hybrid is the storage.Backend that serves: it reads by tiers. What
// the page cache holds is read inline on the caller; what it does not hold goes
// through the disk's rings when they are switched on and healthy; and whatever
// a ring can't or may not do is read by the backend below, which is the
// reference for every byte and every error. Everything but reading is that
// backend's alone.
package hybrid
