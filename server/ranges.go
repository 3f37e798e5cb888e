package server

import (
	"math"
	"strconv"
	"strings"
)

// span is a range of an object's bytes.
type span struct {
	off, n int64
}

// rangeKind says what to do about a Range header.
type rangeKind uint8

const (
	rangeNone rangeKind = iota // none, several or nonsense: the whole object
	rangeOne
	rangeUnsatisfiable
)

// parseRange judges a Range header against an object of size bytes. As AWS
// does, it ignores what it doesn't understand, several ranges included, and
// refuses only a well-formed range that has no byte in common with the object.
func parseRange(header string, size int64) (span, rangeKind) {
	spec, ok := strings.CutPrefix(header, "bytes=")
	if !ok {
		return span{}, rangeNone
	}
	first, last, ok := strings.Cut(spec, "-")
	if !ok {
		return span{}, rangeNone
	}
	from, fromOK := number(first)
	to, toOK := number(last)
	switch {
	case first == "" && toOK: // the last bytes
		if to == 0 || size == 0 {
			return span{}, rangeUnsatisfiable
		}
		to = min(to, size)
		return span{size - to, to}, rangeOne
	case !fromOK, last != "" && !toOK, last != "" && to < from:
		return span{}, rangeNone
	case from >= size:
		return span{}, rangeUnsatisfiable
	case last == "":
		to = size - 1
	}
	return span{from, min(to, size-1) - from + 1}, rangeOne
}

// number parses digits and nothing else; a number too large for an offset is as
// good as the largest.
func number(text string) (int64, bool) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return math.MaxInt64, true
	}
	return n, true
}

// parseCopyRange judges x-amz-copy-source-range, which is strict: exactly
// bytes=first-last.
func parseCopyRange(header string) (span, bool) {
	spec, ok := strings.CutPrefix(header, "bytes=")
	if !ok {
		return span{}, false
	}
	first, last, _ := strings.Cut(spec, "-")
	from, fromOK := number(first)
	to, toOK := number(last)
	if !fromOK || !toOK || to < from || to == math.MaxInt64 {
		return span{}, false
	}
	return span{from, to - from + 1}, true
}

// partSpan gives the bytes of a part, counted from 1, of an object made of
// parts of these sizes; an object without parts is its own first part.
func partSpan(number int, sizes []int64, size int64) (span, bool) {
	if len(sizes) == 0 {
		return span{0, size}, number == 1
	}
	if number > len(sizes) {
		return span{}, false
	}
	var off int64
	for _, n := range sizes[:number-1] {
		off += n
	}
	return span{off, sizes[number-1]}, true
}
