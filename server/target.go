package server

import (
	"net"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"ringfence/erasure"
	"ringfence/server/s3err"
	"ringfence/server/sigv4"
)

// scope is what an operation is about.
type scope uint8

const (
	onService scope = iota
	onBucket
	onObject
)

// target is the resource of a request. Bucket and key are opaque bytes, decoded
// once from the raw path.
type target struct {
	scope   scope
	bucket  string
	key     string
	virtual bool // the bucket came from the host name
}

// locate finds the target of r. A host below one of the domains names a bucket;
// every other host, the domains themselves included, means path style.
func (s *Server) locate(r *http.Request) (target, error) {
	var t target
	var err error
	if bucket, ok := hostBucket(r.Host, s.domains); ok {
		t.virtual, t.bucket = true, bucket
		t.key, err = sigv4.Key(r.URL)
	} else {
		t.bucket, t.key, err = sigv4.SplitPath(r.URL)
	}
	switch {
	case err != nil:
		return t, err
	case t.bucket == "" && t.key == "":
		return t, nil
	}
	t.scope = onBucket
	if t.key != "" {
		t.scope = onObject
	}
	if !validBucketName(t.bucket) {
		return t, s3err.New(s3err.InvalidBucketName).With("BucketName", t.bucket)
	}
	return t, checkKey(t.key)
}

// checkKey refuses keys that the store cannot hold or the protocol cannot name:
// documents are UTF-8, so a key that isn't could be stored but never listed.
func checkKey(key string) error {
	if len(key) > erasure.MaxKeyBytes {
		return s3err.New(s3err.KeyTooLongError).
			With("Size", strconv.Itoa(len(key))).With("MaxSizeAllowed", strconv.Itoa(erasure.MaxKeyBytes))
	}
	if !utf8.ValidString(key) {
		return s3err.New(s3err.InvalidURI).WithMessage("The key is not valid UTF-8.")
	}
	return nil
}

// hostBucket gives the bucket that a Host header names below one of the
// domains, which are lower case and sorted by length, longest first.
func hostBucket(host string, domains []string) (string, bool) {
	if len(domains) == 0 {
		return "", false
	}
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	for _, d := range domains {
		if host == d {
			return "", false
		}
	}
	for _, d := range domains {
		bucket, ok := strings.CutSuffix(host, d)
		if ok && len(bucket) > 1 && bucket[len(bucket)-1] == '.' {
			return bucket[:len(bucket)-1], true
		}
	}
	return "", false
}

// validBucketName follows the rules for new buckets of AWS: 3 to 63 letters,
// digits, dots and hyphens, not like an address, without reserved affixes.
func validBucketName(name string) bool {
	if len(name) < 3 || len(name) > 63 || net.ParseIP(name) != nil {
		return false
	}
	for i := range len(name) {
		c := name[i]
		alnum := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		edge := i == 0 || i == len(name)-1
		switch {
		case alnum:
		case edge, c != '-' && c != '.':
			return false
		case c == '.' && (name[i-1] == '.' || name[i-1] == '-'), c == '-' && name[i-1] == '.':
			return false
		}
	}
	return !fourNumbers(name) && !reservedName(name)
}

// fourNumbers reports names like 1.2.3.4, also where a number is too large for
// an address.
func fourNumbers(name string) bool {
	return strings.Count(name, ".") == 3 && strings.Trim(name, "0123456789.") == ""
}

func reservedName(name string) bool {
	for _, p := range []string{"xn--", "sthree-"} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	for _, suffix := range []string{"-s3alias", "--ol-s3", ".mrap", "--x-s3"} {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	return false
}
