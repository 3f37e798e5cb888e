package main

import (
	"fmt"
	"strings"
)

// parseArgs splits args into flags by name and the rest. Flags may stand
// before, between and after other arguments, with one dash or two, as
// --name=value or --name value; -- ends them. Problems go to bad.
func parseArgs(table []setting, args []string, bad *configError) (flags map[string]string, rest []string, err error) {
	flags = map[string]string{}
	var names []string
	known := map[string]bool{}
	for _, s := range table {
		names = append(names, s.name)
		known[s.name] = true
	}
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			return flags, append(rest, args[i+1:]...), nil
		}
		if len(arg) < 2 || arg[0] != '-' {
			rest = append(rest, arg)
			continue
		}
		name, value, hasValue := strings.Cut(strings.TrimPrefix(arg[1:], "-"), "=")
		if name == "h" || name == "help" {
			return nil, nil, errHelp
		}
		if !known[name] {
			bad.problems = append(bad.problems, fmt.Sprintf("unknown flag --%s%s", name, didYouMean(name, names)))
			continue
		}
		if !hasValue {
			if i+1 == len(args) {
				bad.problems = append(bad.problems, fmt.Sprintf("--%s: needs a value", name))
				continue
			}
			i++
			value = args[i]
		}
		if _, twice := flags[name]; twice {
			bad.problems = append(bad.problems, fmt.Sprintf("--%s: given twice", name))
		}
		flags[name] = value
	}
	return flags, rest, nil
}

// didYouMean gives " (did you mean x?)" for the known word nearest to word, if
// one is near.
func didYouMean(word string, known []string) string {
	best, bestDistance := "", max(2, len(word)/4)+1
	for _, k := range known {
		if d := editDistance(word, k); d < bestDistance {
			best, bestDistance = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %s?)", best)
}

// editDistance counts the single-byte edits between a and b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next := min(row[j+1]+1, row[j]+1, diagonal+cost)
			diagonal, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}
