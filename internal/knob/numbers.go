package knob

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// number is an integer with bounds; the kinds made of it differ in their text.
type number struct {
	about
	def, low, high int64
	auto           bool // the default depends on the machine
	value          atomic.Int64
	parse          func(text string) (int64, error) // of what was written
	format         func(v int64) string
}

// begin is the rest of a constructor, which must not copy a number.
func (k *number) begin(name, help string, def, low, high int64) {
	k.about = about{name, help}
	k.low, k.high = low, max(low, high)
	k.def = k.clamp(def)
	k.value.Store(k.def)
}

func (k *number) clamp(v int64) int64 { return min(max(v, k.low), k.high) }

func (k *number) load() int64 { return k.value.Load() }

func (k *number) store(v int64) { k.value.Store(k.clamp(v)) }

// Default implements Knob.
func (k *number) Default() string {
	if k.auto {
		return wordAuto
	}
	return k.format(k.def)
}

// Allowed implements Knob.
func (k *number) Allowed() string {
	words := ""
	if k.auto {
		words = wordAuto + ", "
	}
	return words + k.format(k.low) + " to " + k.format(k.high)
}

func (k *number) String() string { return k.format(k.load()) }

// wordAuto is the default's text where the machine decides on it.
const wordAuto = "auto"

func (k *number) isDefault(text string) bool {
	word := fold(text)
	return word == wordDefault || k.auto && word == wordAuto
}

// Set implements Knob.
func (k *number) Set(text string) error {
	if k.isDefault(text) {
		k.store(k.def)
		return nil
	}
	v, err := k.parse(text)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", k.name, err)
	case v != k.clamp(v):
		return fmt.Errorf("%s: %s is not within %s", k.name, text, k.Allowed())
	}
	k.store(v)
	return nil
}

// Start implements Knob.
func (k *number) Start(text string) (string, error) {
	if k.isDefault(text) {
		k.store(k.def)
		return "", nil
	}
	v, err := k.parse(text)
	if err != nil {
		k.store(k.def)
		return k.remarkf("%v, so it is %s", err, k), nil
	}
	k.store(v)
	if v != k.clamp(v) {
		return k.remarkf("%s is not within %s, so it is %s", text, k.Allowed(), k), nil
	}
	return "", nil
}

// Int is an integer with bounds.
type Int struct{ number }

var _ Knob = (*Int)(nil)

// NewInt makes an integer from low to high; def is clamped to them.
func NewInt(name string, def, low, high int64, help string) *Int {
	k := &Int{}
	k.parse, k.format = parseInt, func(v int64) string { return strconv.FormatInt(v, 10) }
	k.begin(name, help, def, low, high)
	return k
}

// NewAutoInt is NewInt for a default that was chosen by what the machine is:
// it is shown as "auto", which is also a way to write it.
func NewAutoInt(name string, def, low, high int64, help string) *Int {
	k := NewInt(name, def, low, high, help)
	k.auto = true
	return k
}

// Load returns the value.
func (k *Int) Load() int64 { return k.load() }

// Store sets the value, clamped to the bounds.
func (k *Int) Store(v int64) { k.store(v) }

// parseInt takes plain decimal digits, without a sign or blanks around them. A
// number too large to hold is as good as the largest.
func parseInt(text string) (int64, error) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, fmt.Errorf("%q is not a number", text)
	}
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return math.MaxInt64, nil //nolint:nilerr // only digits: the range is all that can be wrong
	}
	return v, nil
}

// Size is a number of bytes with bounds.
type Size struct{ number }

var _ Knob = (*Size)(nil)

// NewSize makes a number of bytes from low to high; def is clamped to them.
func NewSize(name string, def, low, high int64, help string) *Size {
	k := &Size{}
	k.parse, k.format = ParseSize, FormatSize
	k.begin(name, help, def, low, high)
	return k
}

// Load returns the value in bytes.
func (k *Size) Load() int64 { return k.load() }

// Store sets the value in bytes, clamped to the bounds.
func (k *Size) Store(v int64) { k.store(v) }

var sizeUnits = []string{"TiB", "GiB", "MiB", "KiB"}

// ParseSize reads a number of bytes with an optional KiB, MiB, GiB or TiB.
func ParseSize(text string) (int64, error) {
	digits, unit := text, int64(1)
	for i, suffix := range sizeUnits {
		if s, ok := strings.CutSuffix(text, suffix); ok {
			digits, unit = s, int64(1)<<(10*(len(sizeUnits)-i))
		}
	}
	n, err := parseInt(digits)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is not a size such as 4MiB", text)
	case n > math.MaxInt64/unit:
		return math.MaxInt64, nil
	}
	return n * unit, nil
}

// FormatSize is the reverse of ParseSize, with the largest unit that is exact.
func FormatSize(v int64) string {
	for i, suffix := range sizeUnits {
		if unit := int64(1) << (10 * (len(sizeUnits) - i)); v != 0 && v%unit == 0 {
			return strconv.FormatInt(v/unit, 10) + suffix
		}
	}
	return strconv.FormatInt(v, 10)
}

// Duration is a time span with bounds.
type Duration struct{ number }

var _ Knob = (*Duration)(nil)

// NewDuration makes a time span from low to high; def is clamped to them.
func NewDuration(name string, def, low, high time.Duration, help string) *Duration {
	k := &Duration{}
	k.parse = func(text string) (int64, error) {
		d, err := time.ParseDuration(text)
		if err != nil {
			return 0, fmt.Errorf("%q is not a duration such as 30s", text)
		}
		return int64(d), nil
	}
	k.format = func(v int64) string { return time.Duration(v).String() }
	k.begin(name, help, int64(def), int64(low), int64(high))
	return k
}

// Load returns the value.
func (k *Duration) Load() time.Duration { return time.Duration(k.load()) }

// Store sets the value, clamped to the bounds.
func (k *Duration) Store(v time.Duration) { k.store(int64(v)) }

// Share is a part of a whole, 0 to 1.
type Share struct {
	about
	def  float64
	bits atomic.Uint64
}

var _ Knob = (*Share)(nil)

// NewShare makes a share; def is clamped to 0 and 1.
func NewShare(name string, def float64, help string) *Share {
	k := &Share{about: about{name, help}, def: clampShare(def)}
	k.Store(def)
	return k
}

// clampShare takes what is no number for none.
func clampShare(v float64) float64 {
	if math.IsNaN(v) {
		return 0
	}
	return min(max(v, 0), 1)
}

// Load returns the value, 0 to 1.
func (k *Share) Load() float64 { return math.Float64frombits(k.bits.Load()) }

// Store sets the value, clamped to 0 and 1.
func (k *Share) Store(v float64) { k.bits.Store(math.Float64bits(clampShare(v))) }

// Default implements Knob.
func (k *Share) Default() string { return formatShare(k.def) }

// Allowed implements Knob.
func (k *Share) Allowed() string { return "0 to 1, or 0% to 100%" }

func (k *Share) String() string { return formatShare(k.Load()) }

// Set implements Knob.
func (k *Share) Set(text string) error {
	if fold(text) == wordDefault {
		k.Store(k.def)
		return nil
	}
	v, err := parseShare(text)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", k.name, err)
	case v != clampShare(v):
		return fmt.Errorf("%s: %s is not within %s", k.name, text, k.Allowed())
	}
	k.Store(v)
	return nil
}

// Start implements Knob.
func (k *Share) Start(text string) (string, error) {
	if fold(text) == wordDefault {
		k.Store(k.def)
		return "", nil
	}
	v, err := parseShare(text)
	if err != nil {
		k.Store(k.def)
		return k.remarkf("%v, so it is %s", err, k), nil
	}
	k.Store(v)
	if v != clampShare(v) {
		return k.remarkf("%s is not within %s, so it is %s", text, k.Allowed(), k), nil
	}
	return "", nil
}

func parseShare(text string) (float64, error) {
	digits, percent := strings.CutSuffix(text, "%")
	v, err := strconv.ParseFloat(digits, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("%q is not a share such as 0.01 or 1%%", text)
	}
	if percent {
		v /= 100
	}
	return v, nil
}

func formatShare(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
