package sigv4

import (
	"net/url"
)

// SplitPath gives bucket and key of a path-style request as opaque bytes,
// decoded exactly once: "/b" and "/b/" have no key, "/b//x" has the key "/x",
// "/" has neither. For a virtual-host request the key is Key(u). An encoded
// slash may be part of a key, never of a bucket: that is InvalidBucketName.
// A NUL byte or a bad escape is InvalidURI.
func SplitPath(u *url.URL) (bucket, key string, err error) { return "", "", nil }

// Key gives the whole path without its first slash, decoded exactly once: the
// key of a virtual-host request.
func Key(u *url.URL) (string, error) { return "", nil }

// ParseQuery parses a raw query as the signature sees it: "+" is a space, ";"
// is an ordinary byte, a name without "=" has the value "". A bad escape is
// InvalidURI. Use it instead of url.URL.Query, which drops what it dislikes.
func ParseQuery(raw string) (url.Values, error) { return url.Values{}, nil }
