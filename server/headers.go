package server

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"ringfence/erasure"
	"ringfence/server/s3err"
)

// Headers of answers, in the case that AWS uses on the wire.
const (
	hdrETag      = "ETag"
	hdrRegion    = "x-amz-bucket-region"
	hdrVersion   = "x-amz-version-id"
	hdrMarker    = "x-amz-delete-marker"
	hdrSumType   = "x-amz-checksum-type"
	hdrSumAlgo   = "x-amz-checksum-algorithm"
	hdrPartCount = "x-amz-mp-parts-count"
	hdrTagCount  = "x-amz-tagging-count"
	hdrMeta      = "x-amz-meta-"
	hdrClass     = "x-amz-storage-class"
	hdrRedirect  = "x-amz-website-redirect-location"
)

const (
	maxUserMeta        = 2 << 10 // bytes of names and values
	defaultContentType = "binary/octet-stream"
	standardClass      = "STANDARD"
)

// systemHeaders are the headers that are stored beside an object and given
// back, lower case.
var systemHeaders = []string{"content-type", "cache-control", "content-disposition", "content-language", "expires"}

// storageClasses are those that AWS knows. All are stored the same way here;
// the name is given back.
var storageClasses = []string{
	standardClass, "REDUCED_REDUNDANCY", "STANDARD_IA", "ONEZONE_IA", "INTELLIGENT_TIERING",
	"GLACIER", "DEEP_ARCHIVE", "GLACIER_IR", "EXPRESS_ONEZONE", "OUTPOSTS", "SNOW",
}

// cannedACLs are accepted and change nothing: everything belongs to the owner
// and is private, as with AWS's default of "bucket owner enforced".
var cannedACLs = []string{
	"private", "public-read", "public-read-write", "authenticated-read", "aws-exec-read",
	"bucket-owner-read", "bucket-owner-full-control", "log-delivery-write",
}

// refuseUnknown refuses headers that ask for something that Ringfence would
// silently not do.
func refuseUnknown(h http.Header) error {
	for name, values := range h {
		if len(name) < 6 || name[:6] != "X-Amz-" {
			continue
		}
		switch {
		case strings.HasPrefix(name, "X-Amz-Server-Side-Encryption"), strings.HasPrefix(name, "X-Amz-Copy-Source-Server-Side-Encryption"),
			strings.HasPrefix(name, "X-Amz-Grant-"), name == "X-Amz-Write-Offset-Bytes":
			return s3err.New(s3err.NotImplemented).With("Header", strings.ToLower(name))
		case strings.HasPrefix(name, "X-Amz-Object-Lock-"):
			return s3err.New(s3err.InvalidRequest).WithMessage("Bucket is missing Object Lock Configuration")
		case name == "X-Amz-Acl" && !slices.Contains(cannedACLs, values[0]):
			return argument("x-amz-acl", values[0], "")
		}
	}
	return nil
}

// argument is an InvalidArgument that names the culprit.
func argument(name, value, message string) *s3err.Error {
	e := s3err.New(s3err.InvalidArgument).With("ArgumentName", name).With("ArgumentValue", value)
	if message != "" {
		e.Message = message
	}
	return e
}

// newMeta takes what a client wants to store beside an object.
func newMeta(h http.Header) (erasure.Meta, error) {
	m := erasure.Meta{Headers: make(map[string]string)}
	for _, name := range systemHeaders {
		if v := h.Get(name); v != "" {
			m.Headers[name] = v
		}
	}
	if m.Headers["content-type"] == "" {
		m.Headers["content-type"] = defaultContentType
	}
	if enc := storedEncoding(h); enc != "" {
		m.Headers["content-encoding"] = enc
	}
	if err := placement(h, m.Headers); err != nil {
		return m, err
	}
	var err error
	if m.User, err = userMeta(h); err != nil {
		return m, err
	}
	m.Tags, err = headerTags(h)
	return m, err
}

// placement takes storage class and redirect, which belong to one object and
// aren't copied with it.
func placement(h http.Header, into map[string]string) error {
	if class := h.Get(hdrClass); class != "" && class != standardClass {
		if !slices.Contains(storageClasses, class) {
			return s3err.New(s3err.InvalidStorageClass).With("StorageClassRequested", class)
		}
		into[hdrClass] = class
	}
	if to := h.Get(hdrRedirect); to != "" {
		if !strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "http://") && !strings.HasPrefix(to, "https://") {
			return argument(hdrRedirect, to, "The website redirect location must have a prefix of 'http://' or 'https://' or '/'.")
		}
		into[hdrRedirect] = to
	}
	return nil
}

// storedEncoding is Content-Encoding without aws-chunked, which is about the
// transfer and not about the object.
func storedEncoding(h http.Header) string {
	all := strings.Join(h["Content-Encoding"], ", ")
	if !strings.Contains(strings.ToLower(all), "aws-chunked") {
		return all
	}
	var kept []string
	for enc := range strings.SplitSeq(all, ",") {
		if enc = strings.TrimSpace(enc); enc != "" && !strings.EqualFold(enc, "aws-chunked") {
			kept = append(kept, enc)
		}
	}
	return strings.Join(kept, ", ")
}

func userMeta(h http.Header) (map[string]string, error) {
	var meta map[string]string
	total := 0
	for name, values := range h {
		if len(name) <= len(hdrMeta) || !strings.EqualFold(name[:len(hdrMeta)], hdrMeta) {
			continue
		}
		if meta == nil {
			meta = make(map[string]string)
		}
		key, value := strings.ToLower(name[len(hdrMeta):]), strings.Join(values, ",")
		meta[key] = value
		total += len(key) + len(value)
	}
	if total > maxUserMeta {
		return nil, s3err.New(s3err.MetadataTooLarge).
			With("Size", strconv.Itoa(total)).With("MaxSizeAllowed", strconv.Itoa(maxUserMeta))
	}
	return meta, nil
}

// headerTags takes the tags of x-amz-tagging, which is written like a query.
func headerTags(h http.Header) (map[string]string, error) {
	raw := h.Get("x-amz-tagging")
	if raw == "" {
		return nil, nil
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, s3err.New(s3err.InvalidArgument).
			WithMessage("The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded URL query parameters without tag name duplicates.")
	}
	tags := make(map[string]string, len(values))
	for key, v := range values {
		if len(v) != 1 {
			return nil, s3err.New(s3err.InvalidTag).WithMessage("Cannot provide multiple Tags with the same key").With("TagKey", key)
		}
		if key == "" || !tagText(key, 128) || strings.HasPrefix(key, "aws:") {
			return nil, s3err.New(s3err.InvalidTag).WithMessage("The TagKey you have provided is invalid").With("TagKey", key)
		}
		if !tagText(v[0], 256) {
			return nil, s3err.New(s3err.InvalidTag).WithMessage("The TagValue you have provided is invalid").With("TagValue", v[0])
		}
		tags[key] = v[0]
	}
	if len(tags) > 10 {
		return nil, s3err.New(s3err.InvalidTag).WithMessage("Object tags cannot be greater than 10")
	}
	return tags, nil
}

func tagText(text string, maxRunes int) bool {
	if !utf8.ValidString(text) || utf8.RuneCountInString(text) > maxRunes {
		return false
	}
	return strings.IndexFunc(text, func(r rune) bool { return r < 0x20 || r == 0x7f }) < 0
}

// setObjectHeaders puts what describes an object into an answer to GET or HEAD.
func setObjectHeaders(h http.Header, info *erasure.ObjectInfo) {
	setValidators(h, info)
	h["Accept-Ranges"] = acceptRanges
	for name, value := range info.Meta.Headers {
		if name == hdrClass || name == hdrRedirect {
			h[name] = []string{value}
		} else {
			h.Set(name, value)
		}
	}
	for name, value := range info.Meta.User {
		h[hdrMeta+name] = []string{value}
	}
	if n := len(info.Meta.Tags); n > 0 {
		h[hdrTagCount] = []string{strconv.Itoa(n)}
	}
}

// acceptRanges is shared by all answers and never changed.
var acceptRanges = []string{"bytes"}

// setValidators puts what caches compare into an answer.
func setValidators(h http.Header, info *erasure.ObjectInfo) {
	h[hdrETag] = []string{`"` + info.Digest.ETag + `"`}
	h["Last-Modified"] = []string{info.ModTime.UTC().Format(http.TimeFormat)}
	setVersion(h, info.VersionID)
}

func setVersion(h http.Header, id string) {
	if id != "" {
		h[hdrVersion] = []string{id}
	}
}

// override applies the response-* parameters of a signed request.
func override(h http.Header, r *request) error {
	for _, name := range overrides {
		value, ok := r.query[name]
		if !ok {
			continue
		}
		if r.auth.Principal.Anonymous {
			return s3err.New(s3err.InvalidRequest).WithMessage("Request specific response headers cannot be used for anonymous GET requests.")
		}
		if strings.ContainsFunc(value[0], func(c rune) bool { return c < 0x20 && c != '\t' || c == 0x7f }) {
			return argument(name, "", "A response header override has an invalid character.")
		}
		h.Set(strings.TrimPrefix(name, "response-"), value[0])
	}
	return nil
}
