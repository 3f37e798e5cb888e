package knob

import (
	"fmt"
	"strings"
)

// Knob is what all kinds have in common. Its methods may be called
// concurrently.
type Knob interface {
	// Name is fixed, and unique in a Set.
	Name() string
	// Help is one line for people.
	Help() string
	// Default is the text of the value that the knob began with.
	Default() string
	// Allowed says in words which values there are.
	Allowed() string
	// String is the value as text that Set takes.
	String() string
	// Set changes the value, or says why text is none and changes nothing. The
	// word "default" sets the default.
	Set(text string) error
	// Start is Set for a text from before the program began. What it can put
	// right it does, and says so in the remark; the error is for what must not
	// be guessed. Either way the value is one that is allowed.
	Start(text string) (remark string, err error)
}

// wordDefault as the text of a value means the default.
const wordDefault = "default"

// about is what kinds of knobs share.
type about struct {
	name, help string
}

func (a about) Name() string { return a.name }

func (a about) Help() string { return a.help }

// remarkf begins a remark with the knob's name.
func (a about) remarkf(format string, args ...any) string {
	return a.name + ": " + fmt.Sprintf(format, args...)
}

// fold is how words are compared.
func fold(text string) string { return strings.ToLower(strings.TrimSpace(text)) }
