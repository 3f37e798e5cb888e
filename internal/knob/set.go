package knob

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// ErrUnknown: there is no knob of that name.
var ErrUnknown = errors.New("no such knob")

// Set holds knobs by name and tells of changes. The zero value is empty and
// usable. All methods may be called concurrently.
type Set struct {
	changing sync.Mutex // one change, with its watchers, after the other

	mu       sync.Mutex // protects the fields below
	knobs    []Knob     // in the order of Add
	watchers map[int]func()
	next     int // key of the next watcher
}

// Add puts knobs into the set. A knob that is in it already is passed over, so
// that components may share one; another one with the same name is refused.
func (s *Set) Add(knobs ...Knob) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range knobs {
		old, ok := s.lookupLocked(k.Name())
		switch {
		case !ok:
			s.knobs = append(s.knobs, k)
		case old != k:
			return fmt.Errorf("two knobs are named %s", k.Name())
		}
	}
	return nil
}

// Lookup finds a knob.
func (s *Set) Lookup(name string) (Knob, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lookupLocked(name)
}

func (s *Set) lookupLocked(name string) (Knob, bool) {
	for _, k := range s.knobs {
		if k.Name() == name {
			return k, true
		}
	}
	return nil, false
}

// All returns the knobs in the order of Add.
func (s *Set) All() []Knob {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.knobs)
}

// Watch has f called after every Apply that changed a value, by whoever called
// Apply and before it returns. f must be quick, must load the knobs itself, and
// must not call Apply or the function that Watch returns, which ends the watch:
// after it f is not called any more.
func (s *Set) Watch(f func()) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := s.next
	s.next++
	if s.watchers == nil {
		s.watchers = map[int]func(){}
	}
	s.watchers[key] = f
	return func() {
		s.changing.Lock()
		defer s.changing.Unlock()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, key)
	}
}

// Apply sets the knob of that name, then calls the watchers. The error is
// ErrUnknown, or says why the knob doesn't take the text.
func (s *Set) Apply(name, text string) error {
	_, err := s.Change(name, text)
	return err
}

// Changed is what a change did.
type Changed struct{ Name, Old, New string }

// Change is Apply, and says what it did. Old and New are equal if the value was
// there already; then nobody is told.
func (s *Set) Change(name, text string) (Changed, error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	k, ok := s.Lookup(name)
	if !ok {
		return Changed{}, fmt.Errorf("%w: %q", ErrUnknown, name)
	}
	c := Changed{Name: name, Old: k.String()}
	if err := k.Set(text); err != nil {
		return Changed{}, err
	}
	c.New = k.String()
	if c.New != c.Old {
		for _, f := range s.watching() {
			f()
		}
	}
	return c, nil
}

// watching returns the watchers in the order in which they came.
func (s *Set) watching() []func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	fs := make([]func(), 0, len(s.watchers))
	for _, key := range slices.Sorted(maps.Keys(s.watchers)) {
		fs = append(fs, s.watchers[key])
	}
	return fs
}
