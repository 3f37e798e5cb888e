// Package knob holds live switches: settings that may change while the program
// runs. Whoever uses one is given it in its options and loads it once per
// request or opened file, never twice for one decision. A Set names them for
// the administrator and tells those who must act on a change.
//
// A knob is one atomic value with its name, bounds and default, so that the
// same variable makes the flag, the environment variable, the row of the manual
// and the answer of the administration API. Constructors need no Set, and a
// component that is given no knob (nil) makes one with its documented default.
//
// Text is read in two ways. Set refuses what it can't take, since somebody is
// there to read the reason. Start is for what was written before the program
// began: a switch that only makes reads faster must not keep a store from
// serving, so numbers beyond the bounds are clamped and text that means nothing
// leaves the default, both with a remark to be logged.
//
// Names are lower-case words joined by hyphens: io-uring-read-enable.
package knob
