package sigv4

import (
	"net/http"
	"strings"
	"time"

	"ringfence/server/s3err"
)

// Headers that signatures are about, in the form of http.Header's keys.
const (
	headerAuthorization = "Authorization"
	headerDate          = "X-Amz-Date"
	headerContent       = "X-Amz-Content-Sha256"
	headerToken         = "X-Amz-Security-Token"
	headerDecodedLength = "X-Amz-Decoded-Content-Length"
	headerTrailer       = "X-Amz-Trailer"
)

// once lists the headers that may not be repeated. A repeated header has two
// readings, and a signature over the joined values vouches for neither.
var once = [...]string{headerAuthorization, headerDate, headerContent, headerToken, headerDecodedLength, headerTrailer, "Content-Length", "Content-Md5"}

// errMechanism is AWS's text for signatures of version 2 and the like.
const errMechanism = "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256."

// parseAuthorization fills in c from the Authorization header.
func (c *claim) parseAuthorization(r *http.Request, opt *Options) error {
	text := r.Header[headerAuthorization][0]
	scheme, rest, _ := strings.Cut(text, " ")
	switch {
	case text == "":
		return s3err.New(s3err.AccessDenied)
	case scheme == algorithm:
	case scheme == "AWS" || strings.HasPrefix(scheme, "AWS4-"):
		return s3err.New(s3err.InvalidRequest).WithMessage(errMechanism)
	default:
		return s3err.New(s3err.InvalidArgument).WithMessage("Unsupported Authorization Type").
			With("ArgumentName", headerAuthorization)
	}
	credential, err := c.parseComponents(rest)
	if err != nil {
		return err
	}
	if err := c.setCredential(credential, opt); err != nil {
		return err
	}
	stamp, err := headerStamp(r.Header)
	if err != nil {
		return err
	}
	if err := c.setTime(stamp); err != nil {
		return err
	}
	c.payload = value(r.Header, headerContent)
	c.token = value(r.Header, headerToken)
	if c.payload == "" {
		return s3err.New(s3err.InvalidRequest).WithMessage("Missing required header for this request: x-amz-content-sha256")
	}
	return nil
}

// parseComponents takes the three components of the header apart, each of which
// must be there once, in any order.
func (c *claim) parseComponents(text string) (credential string, err error) {
	var seen int
	for rest, more := text, true; more; {
		var part string
		part, rest, more = strings.Cut(rest, ",")
		name, value, ok := strings.Cut(strings.Trim(part, " \t"), "=")
		var bit int
		switch {
		case !ok:
		case name == "Credential":
			bit, credential = 1, value
		case name == "SignedHeaders":
			bit, c.signedHeaders = 2, value
		case name == "Signature":
			bit, c.signature = 4, value
		}
		if bit == 0 || seen&bit != 0 {
			return "", c.malformed("expecting Credential, SignedHeaders and Signature, each once.")
		}
		seen |= bit
	}
	if seen != 7 || c.signedHeaders == "" {
		return "", c.malformed("the authorization header requires three components: Credential, SignedHeaders, and Signature.")
	}
	return credential, nil
}

// headerStamp gives the time of signing: x-amz-date or, without it, Date.
func headerStamp(h http.Header) (string, error) {
	if stamp := value(h, headerDate); stamp != "" {
		return stamp, nil
	}
	date, err := single(h, "Date")
	if err != nil {
		return "", err
	}
	if t, err := http.ParseTime(date); err == nil {
		return t.UTC().Format(stampFormat), nil
	}
	// With a numeric zone, as mail has it and Python's email package writes it.
	if t, err := time.Parse(time.RFC1123Z, date); err == nil {
		return t.UTC().Format(stampFormat), nil
	}
	return date, nil // in the format of x-amz-date, or refused as such
}

// value gives the first value of a header by its canonical name.
func value(h http.Header, name string) string {
	if v := h[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}
