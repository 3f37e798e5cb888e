package sigv4

import (
	"bytes"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"ringfence/server/s3err"
)

// maxScratch is the most that a scratch may hold and still be kept, in bytes.
const maxScratch = 64 << 10

// scratch is the working memory of one Authenticate. It is pooled, so nothing
// of it may leave Authenticate.
type scratch struct {
	buf     []byte // canonical request, then string to sign
	encoded []byte // names and values of the query in canonical encoding
	query   []parameter
}

// parameter is a query parameter: the name is encoded[name:value], the value
// encoded[value:end].
type parameter struct{ name, value, end int }

func (s *scratch) nameOf(p parameter) []byte  { return s.encoded[p.name:p.value] }
func (s *scratch) valueOf(p parameter) []byte { return s.encoded[p.value:p.end] }

// parseQuery fills in the query, in the order of the request.
func (s *scratch) parseQuery(raw string) error {
	s.encoded, s.query = s.encoded[:0], s.query[:0]
	for raw != "" {
		var name, value string
		name, value, raw = nextParameter(raw)
		if name == "" && value == "" {
			continue
		}
		p := parameter{name: len(s.encoded)}
		var ok, ok2 bool
		s.encoded, ok = appendNormal(s.encoded, name)
		p.value = len(s.encoded)
		s.encoded, ok2 = appendNormal(s.encoded, value)
		p.end = len(s.encoded)
		if !ok || !ok2 {
			return s3err.New(s3err.InvalidURI)
		}
		s.query = append(s.query, p)
	}
	return nil
}

// parameterValue gives the decoded value of the parameter of that name and how
// often the name occurs. The name must be of unreserved bytes.
func (s *scratch) parameterValue(name string) (value string, count int) {
	for _, p := range s.query {
		if string(s.nameOf(p)) == name {
			count++
			value, _ = unescape(string(s.valueOf(p))) // encoded by us: cannot fail
		}
	}
	return value, count
}

// appendQuery appends the canonical query: sorted by encoded name, then by
// encoded value, without the parameter that holds the signature itself.
func (s *scratch) appendQuery(buf []byte, presigned bool) []byte {
	slices.SortFunc(s.query, func(a, b parameter) int {
		if c := bytes.Compare(s.nameOf(a), s.nameOf(b)); c != 0 {
			return c
		}
		return bytes.Compare(s.valueOf(a), s.valueOf(b))
	})
	first := true
	for _, p := range s.query {
		if presigned && string(s.nameOf(p)) == querySignature {
			continue
		}
		if !first {
			buf = append(buf, '&')
		}
		first = false
		buf = append(buf, s.nameOf(p)...)
		buf = append(buf, '=')
		buf = append(buf, s.valueOf(p)...)
	}
	return buf
}

// appendRequest appends the canonical request. It fails if SignedHeaders leaves
// out what must be signed.
func (s *scratch) appendRequest(buf []byte, r *http.Request, c *claim) ([]byte, error) {
	buf = append(buf, r.Method...)
	buf = append(buf, '\n')
	buf = appendPath(buf, r.URL.Path)
	buf = append(buf, '\n')
	buf = s.appendQuery(buf, c.kind == Query)
	buf = append(buf, '\n')
	buf, err := appendHeaders(buf, r, c)
	if err != nil {
		return buf, err
	}
	buf = append(buf, '\n')
	buf = append(buf, c.signedHeaders...)
	buf = append(buf, '\n')
	return append(buf, c.payload...), nil
}

// appendHeaders appends the signed headers and refuses a list that is not
// sorted, leaves out host, or leaves out an x-amz-* header of the request:
// such a header could have been added by anybody on the way.
func appendHeaders(buf []byte, r *http.Request, c *claim) ([]byte, error) {
	var previous string
	var amz int
	var host bool
	for rest := c.signedHeaders; rest != ""; {
		var name string
		var more bool
		name, rest, more = strings.Cut(rest, ";")
		// Strictly ascending: names are unique, so that amz below counts headers.
		if name <= previous || !isLowerToken(name) || more && rest == "" {
			return buf, c.malformed("the SignedHeaders are not a sorted list of lower-case header names")
		}
		previous = name
		values := headerValues(r, name)
		switch {
		case name == "host":
			host = true
		case strings.HasPrefix(name, amzPrefix) && len(values) > 0:
			amz++
		}
		buf = append(buf, name...)
		buf = append(buf, ':')
		buf = appendValues(buf, r, name, values)
		buf = append(buf, '\n')
	}
	if !host {
		return buf, notSigned("host")
	}
	if amz != countAmz(r.Header) {
		return buf, notSigned(unsignedAmz(r.Header, c.signedHeaders))
	}
	return buf, nil
}

// amzPrefix starts the names of headers that must be signed, lower case.
const amzPrefix = "x-amz-"

// appendValues appends the canonical value of a header. Some headers are taken
// out of the map by net/http, or off the request by proxies.
func appendValues(buf []byte, r *http.Request, name string, values []string) []byte {
	switch {
	case name == "host":
		return appendFolded(buf, r.Host)
	case len(values) > 0:
	case name == "content-length" && r.ContentLength >= 0:
		return strconv.AppendInt(buf, r.ContentLength, 10)
	case name == "transfer-encoding":
		values = r.TransferEncoding
	case name == "expect":
		// The header is about one hop, and nobody signs it except to send this.
		return append(buf, "100-continue"...)
	}
	for i, v := range values {
		if i > 0 {
			buf = append(buf, ',')
		}
		buf = appendFolded(buf, v)
	}
	return buf
}

// appendFolded appends v without white space at its ends and with one space for
// each run of it inside.
func appendFolded(buf []byte, v string) []byte {
	start, space := len(buf), false
	for i := 0; i < len(v); i++ {
		if v[i] == ' ' || v[i] == '\t' {
			space = true
			continue
		}
		if space && len(buf) > start {
			buf = append(buf, ' ')
		}
		space = false
		buf = append(buf, v[i])
	}
	return buf
}

// headerValues looks up a lower-case name without allocating.
func headerValues(r *http.Request, name string) []string {
	var key [64]byte
	if len(name) > len(key) {
		return r.Header[http.CanonicalHeaderKey(name)]
	}
	upper := true
	for i := 0; i < len(name); i++ {
		c := name[i]
		if upper && 'a' <= c && c <= 'z' {
			c -= 'a' - 'A'
		}
		key[i] = c
		upper = c == '-'
	}
	return r.Header[string(key[:len(name)])]
}

// isLowerToken reports whether name is a header name in lower case.
func isLowerToken(name string) bool {
	for i := 0; i < len(name); i++ {
		c := name[i]
		if 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("-_!#$%&'*+.^`|~", c) >= 0 {
			continue
		}
		return false
	}
	return name != ""
}

func isAmz(name string) bool {
	return len(name) > len(amzPrefix) && strings.EqualFold(name[:len(amzPrefix)], amzPrefix)
}

// countAmz counts the x-amz-* headers of a request.
func countAmz(h http.Header) (n int) {
	for name := range h {
		if isAmz(name) {
			n++
		}
	}
	return n
}

// unsignedAmz lists the x-amz-* headers that signed leaves out.
func unsignedAmz(h http.Header, signed string) string {
	list := strings.Split(signed, ";")
	var missing []string
	for name := range h {
		if lower := strings.ToLower(name); isAmz(name) && !slices.Contains(list, lower) {
			missing = append(missing, lower)
		}
	}
	slices.Sort(missing)
	return strings.Join(missing, ", ")
}

func notSigned(headers string) error {
	return s3err.New(s3err.AccessDenied).
		WithMessage("There were headers present in the request which were not signed").
		With("HeadersNotSigned", headers)
}
