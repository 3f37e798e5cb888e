package server

import (
	"net/http"
	"strings"
	"time"

	"ringfence/erasure"
	"ringfence/server/s3err"
)

// conditions are the four conditional headers of a read, or of the source of a
// copy.
type conditions struct {
	ifMatch, ifNoneMatch    string
	modified, unmodified    time.Time // zero for none
	hasMatch, hasNoneMatch  bool
	hasModified, hasUnmodif bool
}

// readConditions takes the conditional headers whose names begin with prefix,
// "" or "x-amz-copy-". A date that isn't one is no condition (RFC 9110).
func readConditions(h http.Header, prefix string) conditions {
	var c conditions
	c.ifMatch, c.hasMatch = joined(h, prefix+"if-match")
	c.ifNoneMatch, c.hasNoneMatch = joined(h, prefix+"if-none-match")
	c.modified, c.hasModified = date(h, prefix+"if-modified-since")
	c.unmodified, c.hasUnmodif = date(h, prefix+"if-unmodified-since")
	return c
}

func joined(h http.Header, name string) (string, bool) {
	values, ok := h[http.CanonicalHeaderKey(name)]
	return strings.Join(values, ","), ok
}

func date(h http.Header, name string) (time.Time, bool) {
	values := h[http.CanonicalHeaderKey(name)]
	if len(values) != 1 {
		return time.Time{}, false
	}
	t, err := http.ParseTime(values[0])
	return t, err == nil
}

// verdict is what conditions say.
type verdict uint8

const (
	proceed verdict = iota
	failed
	unchanged
)

// judge evaluates c in the order of RFC 9110, 13.2.2, and names the header that
// decided. Times count in whole seconds, as in headers.
func (c *conditions) judge(etag string, modTime time.Time) (verdict, string) {
	modTime = modTime.Truncate(time.Second)
	switch {
	case c.hasMatch && !etagListed(c.ifMatch, etag):
		return failed, "If-Match"
	case !c.hasMatch && c.hasUnmodif && modTime.After(c.unmodified):
		return failed, "If-Unmodified-Since"
	case c.hasNoneMatch && etagListed(c.ifNoneMatch, etag):
		return unchanged, "If-None-Match"
	case !c.hasNoneMatch && c.hasModified && !modTime.After(c.modified):
		return unchanged, "If-Modified-Since"
	}
	return proceed, ""
}

// etagListed reports whether a list of entity tags, or *, covers etag. Tags
// without quotes are accepted: many clients strip them.
func etagListed(list, etag string) bool {
	for tag := range strings.SplitSeq(list, ",") {
		if tag = strings.TrimSpace(tag); tag == "*" || unquote(tag) == etag {
			return true
		}
	}
	return false
}

// unquote takes the weak mark and the quotes off an entity tag.
func unquote(tag string) string {
	tag = strings.TrimPrefix(tag, "W/")
	if len(tag) >= 2 && tag[0] == '"' && tag[len(tag)-1] == '"' {
		return tag[1 : len(tag)-1]
	}
	return tag
}

func notMet(condition string) error {
	return s3err.New(s3err.PreconditionFailed).With("Condition", condition)
}

// sourceCheck judges the source of a copy by its conditional headers; there, an
// unchanged source is a failed condition.
func sourceCheck(h http.Header) func(source *erasure.ObjectInfo) error {
	c := readConditions(h, "x-amz-copy-source-")
	return func(source *erasure.ObjectInfo) error {
		if v, header := c.judge(source.Digest.ETag, source.ModTime); v != proceed {
			return notMet("x-amz-copy-source-" + header)
		}
		return nil
	}
}

// writePrecond gives the condition that a write's headers put on the version
// that it would replace, nil for none. It runs at the commit.
func writePrecond(h http.Header) (erasure.Precond, error) {
	for _, name := range []string{"If-Modified-Since", "If-Unmodified-Since"} {
		if _, ok := h[name]; ok {
			return nil, s3err.New(s3err.NotImplemented).With("Header", name)
		}
	}
	match, hasMatch := joined(h, "if-match")
	none, hasNone := joined(h, "if-none-match")
	if !hasMatch && !hasNone {
		return nil, nil
	}
	return func(current *erasure.ObjectInfo) error {
		exists := current != nil && !current.DeleteMarker
		switch {
		case hasMatch && !exists:
			return s3err.New(s3err.NoSuchKey)
		case hasMatch && !etagListed(match, current.Digest.ETag):
			return notMet("If-Match")
		case hasNone && exists && etagListed(none, current.Digest.ETag):
			return notMet("If-None-Match")
		}
		return nil
	}, nil
}

// deleteConditions are what a deletion may demand of the object; an object that
// isn't there is gone already, whatever was demanded.
type deleteConditions struct {
	etag    string // "" for none
	modTime string
	size    string
}

// precond turns c into a condition at the commit, nil for none.
func (c deleteConditions) precond() (erasure.Precond, error) {
	if c == (deleteConditions{}) {
		return nil, nil
	}
	var modTime time.Time
	if c.modTime != "" {
		var err error
		if modTime, err = anyTime(c.modTime); err != nil {
			return nil, s3err.New(s3err.InvalidArgument).WithMessage("The last modified time is not valid.").Wrap(err)
		}
	}
	size, sizeOK := number(c.size)
	if c.size != "" && !sizeOK {
		return nil, s3err.New(s3err.InvalidArgument).WithMessage("The size is not valid.")
	}
	return func(current *erasure.ObjectInfo) error {
		switch {
		case current == nil:
			return nil
		case c.etag != "" && c.etag != "*" && (current.DeleteMarker || !etagListed(c.etag, current.Digest.ETag)):
			return notMet("If-Match")
		case c.modTime != "" && !current.ModTime.Truncate(time.Second).Equal(modTime.Truncate(time.Second)):
			return notMet("x-amz-if-match-last-modified-time")
		case c.size != "" && current.Size != size:
			return notMet("x-amz-if-match-size")
		}
		return nil
	}, nil
}

// anyTime parses the formats that clients send in headers and documents.
func anyTime(text string) (time.Time, error) {
	if t, err := http.ParseTime(text); err == nil {
		return t, nil
	}
	return time.Parse(time.RFC3339Nano, text)
}
