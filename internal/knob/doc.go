// Package knob holds live switches: settings that may change while the program
// runs. Whoever uses one is given it in its options and loads it once per
// request or opened file, never twice for one decision. A Set names them for
// the administrator and tells those who must act on a change.
package knob
