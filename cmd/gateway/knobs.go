package main

import (
	"fmt"
	"strings"

	"ringfence/internal/knob"
	"ringfence/storage/hybrid"
)

// knobs are the live settings of a gateway: made with their defaults, set from
// environment and flags before anything runs, then by the administrator.
type knobs struct {
	set     knob.Set
	engines hybrid.Knobs
	fdCache *knob.Bool
}

// newKnobs makes all live settings. Two knobs of one name would be a mistake
// of this program, which TestKnobNames finds.
func newKnobs() *knobs {
	k := &knobs{
		engines: hybrid.NewKnobs(),
		fdCache: knob.NewBool("io-uring-fd-cache", true, "keep shards open between reads, up to 512 per disk; off opens a shard for every object that is read"),
	}
	for _, each := range append(k.engines.All(), k.fdCache) {
		if err := k.set.Add(each); err != nil {
			continue // the first one stands
		}
	}
	k.set.Watch(k.engines.Changed)
	return k
}

// start sets a knob from what was written before the start. What it had to put
// right becomes a warning.
func (k *knobs) start(c *Config, name, text string) error {
	each, ok := k.set.Lookup(name)
	if !ok {
		return fmt.Errorf("%w", knob.ErrUnknown)
	}
	remark, err := each.Start(text)
	if remark != "" {
		c.Warnings = append(c.Warnings, remark)
	}
	if err != nil {
		return fmt.Errorf("%s", strings.TrimPrefix(err.Error(), name+": ")) // the caller names it
	}
	return nil
}

// knobSettings are the rows of the settings table for all knobs.
func knobSettings() []setting {
	var rows []setting
	for _, k := range newKnobs().set.All() {
		name := k.Name()
		rows = append(rows, setting{
			name: name, value: knobValue(k), def: k.Default(), help: k.Help() + ": " + k.Allowed(), live: true,
			parse: func(c *Config, v string) error { return c.Knobs.start(c, name, v) },
		})
	}
	return rows
}

// knobValue is what help shows for the value of a knob.
func knobValue(k knob.Knob) string {
	switch k.(type) {
	case *knob.Bool:
		return "on|off"
	case *knob.Size:
		return "SIZE"
	case *knob.Duration:
		return "DURATION"
	case *knob.Share:
		return "SHARE"
	case *knob.Choice:
		return "WORD"
	}
	return "N"
}
