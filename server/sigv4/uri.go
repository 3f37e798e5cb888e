package sigv4

import (
	"net/url"
	"strings"

	"ringfence/server/s3err"
)

// SplitPath gives bucket and key of a path-style request as opaque bytes,
// decoded exactly once: "/b" and "/b/" have no key, "/b//x" has the key "/x",
// "/" has neither. For a virtual-host request the key is Key(u). An encoded
// slash may be part of a key, never of a bucket: that is InvalidBucketName.
// A NUL byte, or a path that does not start with a slash, is InvalidURI.
func SplitPath(u *url.URL) (bucket, key string, err error) {
	path, err := Key(u)
	if err != nil {
		return "", "", err
	}
	if u.RawPath != "" {
		// RawPath is set only where it differs from the plain encoding of Path,
		// so an encoded slash shows here or nowhere.
		raw, _, _ := strings.Cut(strings.TrimPrefix(u.EscapedPath(), "/"), "/")
		if strings.Contains(raw, "%2F") || strings.Contains(raw, "%2f") {
			return "", "", s3err.New(s3err.InvalidBucketName)
		}
	}
	bucket, key, _ = strings.Cut(path, "/")
	return bucket, key, nil
}

// Key gives the whole path without its first slash, decoded exactly once: the
// key of a virtual-host request. Errors are those of SplitPath.
func Key(u *url.URL) (string, error) {
	path := u.Path
	if path == "" {
		return "", nil
	}
	if path[0] != '/' || strings.IndexByte(path, 0) >= 0 {
		return "", s3err.New(s3err.InvalidURI)
	}
	return path[1:], nil
}

// ParseQuery parses a raw query as the signature sees it: "+" is a space, ";"
// is an ordinary byte, a name without "=" has the value "". A bad escape is
// InvalidURI. Use it instead of url.URL.Query, which drops what it dislikes.
func ParseQuery(raw string) (url.Values, error) {
	values := url.Values{}
	for raw != "" {
		var name, value string
		name, value, raw = nextParameter(raw)
		n, ok := unescape(name)
		v, ok2 := unescape(value)
		if !ok || !ok2 {
			return nil, s3err.New(s3err.InvalidURI)
		}
		if name != "" || value != "" {
			values[n] = append(values[n], v)
		}
	}
	return values, nil
}

// nextParameter cuts the first parameter off a raw query. Both name and value
// are empty for "", "=" and the nothing between two ampersands.
func nextParameter(raw string) (name, value, rest string) {
	raw, rest, _ = strings.Cut(raw, "&")
	name, value, _ = strings.Cut(raw, "=")
	return name, value, rest
}

// unescape decodes s once, "+" as a space.
func unescape(s string) (string, bool) {
	if strings.IndexByte(s, '%') < 0 && strings.IndexByte(s, '+') < 0 {
		return s, true
	}
	d, err := url.QueryUnescape(s)
	return d, err == nil
}

const upperHex = "0123456789ABCDEF"

// isUnreserved reports whether the canonical encoding leaves c as it is.
func isUnreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		c == '-' || c == '.' || c == '_' || c == '~'
}

// appendPath appends the canonical encoding of a decoded path: every byte but
// the unreserved ones and the slash is escaped. Nothing is cleaned away.
func appendPath(buf []byte, path string) []byte {
	if path == "" {
		return append(buf, '/')
	}
	for i := 0; i < len(path); i++ {
		c := path[i]
		if c == '/' {
			buf = append(buf, c)
			continue
		}
		buf = appendByte(buf, c)
	}
	return buf
}

// appendByte appends the canonical encoding of one byte.
func appendByte(buf []byte, c byte) []byte {
	if isUnreserved(c) {
		return append(buf, c)
	}
	return append(buf, '%', upperHex[c>>4], upperHex[c&15])
}

// appendNormal appends the canonical encoding of a raw query name or value:
// decoded once, encoded again. It reports false for a bad escape.
func appendNormal(buf []byte, raw string) ([]byte, bool) {
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		switch c {
		case '+':
			c = ' '
		case '%':
			if i+2 >= len(raw) {
				return buf, false
			}
			high, low := unhex(raw[i+1]), unhex(raw[i+2])
			if high > 15 || low > 15 {
				return buf, false
			}
			c = high<<4 | low
			i += 2
		}
		buf = appendByte(buf, c)
	}
	return buf, true
}

// unhex gives the value of a hex digit, 255 for anything else.
func unhex(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	}
	return 255
}
