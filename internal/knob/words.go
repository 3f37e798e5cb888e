package knob

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
)

// Bool is a switch.
type Bool struct {
	about
	def   bool
	value atomic.Bool
}

var _ Knob = (*Bool)(nil)

// NewBool makes a switch.
func NewBool(name string, def bool, help string) *Bool {
	k := &Bool{about: about{name, help}, def: def}
	k.value.Store(def)
	return k
}

// Load returns the value.
func (k *Bool) Load() bool { return k.value.Load() }

// Store sets the value.
func (k *Bool) Store(v bool) { k.value.Store(v) }

// Default implements Knob.
func (k *Bool) Default() string { return boolText(k.def) }

// Allowed implements Knob.
func (k *Bool) Allowed() string { return "on, off" }

func (k *Bool) String() string { return boolText(k.Load()) }

// Set implements Knob.
func (k *Bool) Set(text string) error {
	v, ok := parseBool(text)
	switch {
	case ok:
		k.Store(v)
	case fold(text) == wordDefault:
		k.Store(k.def)
	default:
		return fmt.Errorf("%s: %q is neither on nor off", k.name, text)
	}
	return nil
}

// Start implements Knob.
func (k *Bool) Start(text string) (string, error) {
	if err := k.Set(text); err != nil {
		k.Store(k.def)
		return k.remarkf("%q is neither on nor off, so it is %s", text, k), nil
	}
	return "", nil
}

func boolText(v bool) string {
	if v {
		return "on"
	}
	return "off"
}

var (
	yesWords = []string{"1", "t", "true", "on", "yes", "ok", "success", "active", "enabled"}
	noWords  = []string{"0", "f", "false", "off", "no", "not_ok", "failure", "inactive", "disabled"}
)

func parseBool(text string) (v, ok bool) {
	text = fold(text)
	switch {
	case slices.Contains(yesWords, text):
		return true, true
	case slices.Contains(noWords, text):
		return false, true
	}
	return false, false
}

// Choice is one of a few words.
type Choice struct {
	about
	def     string
	choices []string
	value   atomic.Pointer[string]
}

var _ Knob = (*Choice)(nil)

// NewChoice makes a knob with the given choices, of which def must be one.
func NewChoice(name, def string, choices []string, help string) *Choice {
	k := &Choice{about: about{name, help}, def: def, choices: slices.Clone(choices)}
	k.value.Store(&k.def)
	return k
}

// Load returns the value.
func (k *Choice) Load() string { return *k.value.Load() }

// Store sets the value. What is no choice sets the default.
func (k *Choice) Store(v string) {
	if !slices.Contains(k.choices, v) {
		v = k.def
	}
	k.value.Store(&v)
}

// Default implements Knob.
func (k *Choice) Default() string { return k.def }

// Allowed implements Knob.
func (k *Choice) Allowed() string { return strings.Join(k.choices, ", ") }

func (k *Choice) String() string { return k.Load() }

// Set implements Knob.
func (k *Choice) Set(text string) error {
	word := fold(text)
	switch {
	case slices.Contains(k.choices, word):
		k.Store(word)
	case word == wordDefault:
		k.Store(k.def)
	default:
		return fmt.Errorf("%s: %q is none of %s", k.name, text, k.Allowed())
	}
	return nil
}

// Start implements Knob. A word that is no choice is refused: nobody knows
// which of them was meant.
func (k *Choice) Start(text string) (string, error) { return "", k.Set(text) }
