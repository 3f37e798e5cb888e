package knob_test

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"ringfence/internal/knob"
)

// Every kind keeps the promises of Knob.
func TestKnobsRoundTrip(t *testing.T) {
	for _, k := range []knob.Knob{
		knob.NewBool("bool", true, "help"),
		knob.NewChoice("choice", "static", []string{"none", "static"}, "help"),
		knob.NewInt("int", 7, 1, 16, "help"),
		knob.NewSize("size", 4<<20, 0, 1<<30, "help"),
		knob.NewDuration("duration", 90*time.Second, time.Second, time.Hour, "help"),
		knob.NewShare("share", 0.015, "help"),
	} {
		before := k.String()
		if before != k.Default() {
			t.Errorf("%s: begins with %s, default is %s", k.Name(), before, k.Default())
		}
		if k.Help() != "help" || k.Allowed() == "" {
			t.Errorf("%s: help %q, allowed %q", k.Name(), k.Help(), k.Allowed())
		}
		if err := k.Set(before); err != nil || k.String() != before {
			t.Errorf("%s: set its own text %q: %v, now %s", k.Name(), before, err, k)
		}
		for _, junk := range []string{"", "junk", " ", "\x00", "NaN"} {
			err := k.Set(junk)
			if err == nil || !strings.HasPrefix(err.Error(), k.Name()+": ") {
				t.Errorf("%s: set %q: %v", k.Name(), junk, err)
			}
			if k.String() != before {
				t.Errorf("%s: refused text changed it to %s", k.Name(), k)
			}
		}
		if err := k.Set(" Default "); err != nil || k.String() != before {
			t.Errorf("%s: set default: %v, now %s", k.Name(), err, k)
		}
	}
}

func TestBoolText(t *testing.T) {
	forms := map[string]bool{
		"1": true, "t": true, "true": true, "on": true, "yes": true, "ok": true, "success": true, "active": true, "enabled": true,
		" TRUE\t": true, "On": true, "YES\n": true,
		"0": false, "f": false, "false": false, "off": false, "no": false, "not_ok": false, "failure": false, "inactive": false, "disabled": false,
		" False ": false, "OFF": false,
	}
	for text, want := range forms {
		k := knob.NewBool("b", !want, "")
		if err := k.Set(text); err != nil || k.Load() != want {
			t.Errorf("%q: %v, %v; want %v", text, k.Load(), err, want)
		}
		k.Store(!want)
		if remark, err := k.Start(text); remark != "" || err != nil || k.Load() != want {
			t.Errorf("start %q: %v, %q, %v; want %v", text, k.Load(), remark, err, want)
		}
	}
	for _, def := range []bool{false, true} {
		k := knob.NewBool("b", def, "")
		k.Store(!def)
		remark, err := k.Start("perhaps")
		if err != nil || !strings.Contains(remark, "perhaps") || k.Load() != def {
			t.Errorf("junk at start: %v, %q, %v; want the default %v and a remark", k.Load(), remark, err, def)
		}
	}
}

func TestIntText(t *testing.T) {
	for _, c := range []struct {
		text   string
		start  int64
		remark bool
		set    bool // taken while running
	}{
		{"0", 1, true, false},
		{"1", 1, false, true},
		{"8", 8, false, true},
		{"16", 16, false, true},
		{"17", 16, true, false},
		{"100000", 16, true, false},
		{"99999999999999999999999", 16, true, false},
		{"-1", 3, true, false},
		{"+8", 3, true, false},
		{" 8", 3, true, false},
		{"8 ", 3, true, false},
		{"abc", 3, true, false},
		{"8.0", 3, true, false},
		{"0x8", 3, true, false},
		{"", 3, true, false},
		{"auto", 3, false, true},
		{"default", 3, false, true},
	} {
		k := knob.NewAutoInt("shards", 3, 1, 16, "")
		k.Store(5)
		remark, err := k.Start(c.text)
		if err != nil || k.Load() != c.start || (remark != "") != c.remark {
			t.Errorf("start %q: %d, %q, %v; want %d, a remark: %v", c.text, k.Load(), remark, err, c.start, c.remark)
		}
		k.Store(5)
		err = k.Set(c.text)
		if want := map[bool]int64{true: c.start, false: 5}[c.set]; (err == nil) != c.set || k.Load() != want {
			t.Errorf("set %q: %d, %v; want %d", c.text, k.Load(), err, want)
		}
	}
	plain := knob.NewInt("n", 3, 1, 16, "")
	if err := plain.Set("auto"); err == nil {
		t.Error("auto was taken by a knob that has no such default")
	}
}

func TestBounds(t *testing.T) {
	n := knob.NewInt("n", 99, 1, 16, "")
	if n.Load() != 16 || n.Default() != "16" {
		t.Errorf("a default beyond the bounds is %d, shown as %s", n.Load(), n.Default())
	}
	n.Store(-3)
	if n.Load() != 1 {
		t.Errorf("stored -3: %d", n.Load())
	}
	auto := knob.NewAutoInt("auto", 2, 1, 16, "")
	if auto.Default() != "auto" || auto.Allowed() != "auto, 1 to 16" || auto.String() != "2" {
		t.Errorf("auto: %s, %s, %s", auto.Default(), auto.Allowed(), auto)
	}
	s := knob.NewShare("s", 7, "")
	if s.Load() != 1 {
		t.Errorf("share 7 is %v", s.Load())
	}
	s.Store(math.NaN())
	if s.Load() != 0 {
		t.Errorf("share NaN is %v", s.Load())
	}
	c := knob.NewChoice("c", "a", []string{"a", "b"}, "")
	c.Store("b")
	c.Store("z")
	if c.Load() != "a" {
		t.Errorf("choice z is %s", c.Load())
	}
	d := knob.NewDuration("d", time.Second, time.Second, time.Minute, "")
	d.Store(time.Hour)
	if d.Load() != time.Minute {
		t.Errorf("an hour is %v", d.Load())
	}
	if remark, err := d.Start("2h"); err != nil || d.Load() != time.Minute || remark == "" {
		t.Errorf("start 2h: %v, %q, %v", d.Load(), remark, err)
	}
	if err := d.Set("2h"); err == nil {
		t.Error("2h was taken")
	}
}

func TestSizeAndShareText(t *testing.T) {
	size := knob.NewSize("size", 4<<20, 0, 1<<40, "")
	for text, want := range map[string]int64{"0": 0, "4096": 4096, "4KiB": 4096, "1MiB": 1 << 20, "3GiB": 3 << 30, "1TiB": 1 << 40, "1536KiB": 1536 << 10} {
		if err := size.Set(text); err != nil || size.Load() != want {
			t.Errorf("%q: %d, %v; want %d", text, size.Load(), err, want)
		}
		if again, err := knob.ParseSize(size.String()); err != nil || again != want {
			t.Errorf("%q: its text is %s", text, size)
		}
	}
	for _, text := range []string{"4MB", "-1", "MiB", "4 MiB", "2TiB", "99999999999TiB"} {
		if err := size.Set(text); err == nil {
			t.Errorf("%q was taken as %d", text, size.Load())
		}
	}
	if remark, err := size.Start("99999999999TiB"); err != nil || remark == "" || size.Load() != 1<<40 {
		t.Errorf("start beyond the bounds: %d, %q, %v", size.Load(), remark, err)
	}
	if remark, err := size.Start("4MB"); err != nil || remark == "" || size.Load() != 4<<20 {
		t.Errorf("start with junk: %d, %q, %v", size.Load(), remark, err)
	}
	share := knob.NewShare("share", 0.01, "")
	for text, want := range map[string]float64{"0": 0, "1": 1, "100%": 1, "0.25": 0.25, "2.5%": 0.025} {
		if err := share.Set(text); err != nil || share.Load() != want {
			t.Errorf("%q: %v, %v; want %v", text, share.Load(), err, want)
		}
	}
	for _, text := range []string{"1.5", "-0.1", "101%", "half", "Inf", "NaN", "%"} {
		if err := share.Set(text); err == nil {
			t.Errorf("%q was taken as %v", text, share.Load())
		}
	}
	if remark, err := share.Start("150%"); err != nil || remark == "" || share.Load() != 1 {
		t.Errorf("start with 150%%: %v, %q, %v", share.Load(), remark, err)
	}
	if remark, err := share.Start("half"); err != nil || remark == "" || share.Load() != 0.01 {
		t.Errorf("start with junk: %v, %q, %v", share.Load(), remark, err)
	}
}

func TestChoiceIsNotGuessedAtStart(t *testing.T) {
	mode := knob.NewChoice("mode", "non-fixed", []string{"non-fixed", "static"}, "")
	if _, err := mode.Start("statik"); err == nil || mode.Load() != "non-fixed" {
		t.Errorf("a misspelt choice: %v, %s", err, mode)
	}
	if remark, err := mode.Start("Static"); err != nil || remark != "" || mode.Load() != "static" {
		t.Errorf("a choice: %q, %v, %s", remark, err, mode)
	}
}

func TestSet(t *testing.T) {
	on, n := knob.NewBool("on", false, ""), knob.NewInt("n", 1, 1, 9, "")
	var set knob.Set
	if err := set.Add(on, n, on); err != nil || len(set.All()) != 2 {
		t.Fatalf("add: %v, %d knobs", err, len(set.All()))
	}
	if err := set.Add(knob.NewBool("on", true, "")); err == nil {
		t.Error("a second knob of the same name was taken")
	}
	var seen []string
	stop := set.Watch(func() { seen = append(seen, on.String()+n.String()) })
	for _, c := range [][2]string{{"on", "true"}, {"n", "4"}, {"on", "yes"}} {
		if err := set.Apply(c[0], c[1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := set.Apply("n", "10"); err == nil || errors.Is(err, knob.ErrUnknown) {
		t.Errorf("apply 10: %v", err)
	}
	if err := set.Apply("m", "10"); !errors.Is(err, knob.ErrUnknown) {
		t.Errorf("apply to what is not there: %v", err)
	}
	if got := strings.Join(seen, " "); got != "on1 on4" {
		t.Errorf("the watcher saw %q", got)
	}
	stop()
	c, err := set.Change("n", "5")
	if err != nil || c != (knob.Changed{Name: "n", Old: "4", New: "5"}) || len(seen) != 2 {
		t.Errorf("change: %+v, %v; the watcher that left saw %q", c, err, seen)
	}
}

// Changes are told one after the other: the last watcher call sees the last
// value.
func TestSetConcurrently(t *testing.T) {
	n := knob.NewInt("n", 0, 0, 1<<20, "")
	var set knob.Set
	if err := set.Add(n); err != nil {
		t.Fatal(err)
	}
	var last int64 // not guarded: the set calls one watcher at a time
	set.Watch(func() { last = n.Load() })
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 200 {
				if err := set.Apply("n", strconv.Itoa(1+i*4+g)); err != nil {
					t.Error(err)
				}
				set.Watch(func() {})()
			}
		})
	}
	wg.Wait()
	if last != n.Load() {
		t.Errorf("the last call saw %d, the value is %d", last, n.Load())
	}
}
