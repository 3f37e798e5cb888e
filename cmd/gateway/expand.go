package main

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// maxDisks bounds the disks of one gateway.
const maxDisks = 256

// expandDisks expands {a...b} in every argument and makes the paths absolute.
// No argument means the default. Several groups in one argument multiply, the
// last running fastest. Ascending and descending ranges work; a leading zero
// pads: {01...12}.
func expandDisks(args []string) ([]string, error) {
	if len(args) == 0 {
		args = []string{defaultDisks}
	}
	var disks []string
	for _, arg := range args {
		if arg == "" {
			return nil, fmt.Errorf("an empty DISK argument")
		}
		expanded, err := expandOne(arg)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", arg, err)
		}
		disks = append(disks, expanded...)
		if len(disks) > maxDisks {
			return nil, fmt.Errorf("more than %d disks", maxDisks)
		}
	}
	for i, d := range disks {
		abs, err := filepath.Abs(d)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", d, err)
		}
		disks[i] = abs
	}
	return disks, nil
}

// expandOne expands the first group of s and goes on with the rest.
func expandOne(s string) ([]string, error) {
	before, rest, ok := strings.Cut(s, "{")
	if !ok {
		if strings.Contains(s, "}") {
			return nil, fmt.Errorf("} without {")
		}
		return []string{s}, nil
	}
	group, after, ok := strings.Cut(rest, "}")
	if !ok {
		return nil, fmt.Errorf("{ without }")
	}
	words, err := expandRange(group)
	if err != nil {
		return nil, err
	}
	tails, err := expandOne(after)
	if err != nil {
		return nil, err
	}
	if strings.Contains(before, "}") {
		return nil, fmt.Errorf("} without {")
	}
	if len(words)*len(tails) > maxDisks {
		return nil, fmt.Errorf("more than %d disks", maxDisks)
	}
	var all []string
	for _, w := range words {
		for _, t := range tails {
			all = append(all, before+w+t)
		}
	}
	return all, nil
}

// expandRange expands "first...last".
func expandRange(group string) ([]string, error) {
	first, last, ok := strings.Cut(group, "...")
	if !ok {
		return nil, fmt.Errorf("{%s} is not a range such as {1...6}", group)
	}
	from, err1 := strconv.ParseUint(first, 10, 31)
	to, err2 := strconv.ParseUint(last, 10, 31)
	if err1 != nil || err2 != nil {
		return nil, fmt.Errorf("{%s} is not a range such as {1...6}", group)
	}
	step, n := 1, int(to)-int(from)+1
	if to < from {
		step, n = -1, int(from)-int(to)+1
	}
	if n > maxDisks {
		return nil, fmt.Errorf("{%s} has more than %d elements", group, maxDisks)
	}
	width := 0
	if len(first) > 1 && first[0] == '0' || len(last) > 1 && last[0] == '0' {
		width = max(len(first), len(last))
	}
	words := make([]string, n)
	for i := range words {
		words[i] = fmt.Sprintf("%0*d", width, int(from)+i*step)
	}
	return words, nil
}
