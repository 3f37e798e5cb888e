package sigv4

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"ringfence/server/s3err"
)

const (
	stampFormat = "20060102T150405Z"
	dateFormat  = "20060102"

	// maxAccessKey is the longest access key that is looked up, in bytes.
	maxAccessKey = 128
)

// claim is what a request says of itself, in either form, before any of it is
// believed.
type claim struct {
	kind          Kind
	accessKey     string
	scope         string // date/region/service/aws4_request, as signed
	date          string // the day of the scope
	signedHeaders string
	signature     string
	stamp         string // the time that was signed, as signed
	when          time.Time
	expires       time.Duration // Query only
	payload       string        // what was signed for the body
	token         string
}

// malformed refuses the form of the claim in the words of its kind.
func (c *claim) malformed(why string) *s3err.Error {
	if c.kind == Query {
		return s3err.New(s3err.AuthorizationQueryParametersError).WithMessage("Error parsing the query parameters of the signature; " + why)
	}
	return s3err.New(s3err.AuthorizationHeaderMalformed).WithMessage("The authorization header is malformed; " + why)
}

// setCredential takes a credential apart: access key, then four elements of
// scope. The access key may itself hold slashes.
func (c *claim) setCredential(credential string, opt *Options) error {
	cut := len(credential)
	var elements [4]string
	for i := len(elements) - 1; i >= 0; i-- {
		slash := strings.LastIndexByte(credential[:cut], '/')
		if slash < 0 {
			return c.malformed(`the Credential is mal-formed; expecting "<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request".`)
		}
		elements[i], cut = credential[slash+1:cut], slash
	}
	date, region, service, last := elements[0], elements[1], elements[2], elements[3]
	c.accessKey, c.scope, c.date = credential[:cut], credential[cut+1:], date
	if _, err := time.Parse(dateFormat, date); err != nil {
		return c.malformed(`incorrect date format in the Credential; it must be "yyyyMMdd".`)
	}
	if last != terminal {
		return c.malformed(`incorrect terminal in the Credential; this endpoint uses "aws4_request".`)
	}
	if service != opt.Service {
		return c.malformed("incorrect service" + shown(service) + `; this endpoint belongs to "` + opt.Service + `".`)
	}
	if region != opt.Region {
		return c.malformed("the region"+shown(region)+" is wrong; expecting '"+opt.Region+"'").With("Region", opt.Region)
	}
	return nil
}

// shown quotes a name of the request for an error text, or leaves it out if it
// is not one.
func shown(name string) string {
	if name == "" || len(name) > 32 || !isLowerToken(name) {
		return ""
	}
	return " '" + name + "'"
}

// setTime takes the time of signing and compares it with the scope's day.
func (c *claim) setTime(stamp string) error {
	when, err := time.Parse(stampFormat, stamp)
	if err != nil || len(stamp) != len(stampFormat) {
		if c.kind == Query {
			return c.malformed(`X-Amz-Date must be in the ISO8601 Long Format "yyyyMMdd'T'HHmmss'Z'"`)
		}
		return s3err.New(s3err.AccessDenied).WithMessage("AWS authentication requires a valid Date or x-amz-date header")
	}
	c.stamp, c.when = stamp, when
	if stamp[:len(dateFormat)] != c.date {
		return c.malformed("the date of the Credential is not the day of X-Amz-Date.")
	}
	return nil
}

// checkTime refuses what is too old or too new. A presigned URL has its own
// life time and may be as old as that.
func (c *claim) checkTime(now time.Time, skew time.Duration) error {
	if c.kind == Header {
		if d := now.Sub(c.when); d > skew || d < -skew {
			return s3err.New(s3err.RequestTimeTooSkewed).
				With("RequestTime", c.stamp).
				With("ServerTime", now.UTC().Format(time.RFC3339)).
				With("MaxAllowedSkewMilliseconds", strconv.FormatInt(skew.Milliseconds(), 10))
		}
		return nil
	}
	if c.when.Sub(now) > skew {
		return s3err.New(s3err.AccessDenied).WithMessage("Request is not valid yet").
			With("X-Amz-Date", c.stamp).
			With("ServerTime", now.UTC().Format(time.RFC3339))
	}
	if end := c.when.Add(c.expires); now.After(end) {
		return s3err.New(s3err.AccessDenied).WithMessage("Request has expired").
			With("X-Amz-Expires", strconv.FormatInt(int64(c.expires/time.Second), 10)).
			With("Expires", end.UTC().Format(time.RFC3339)).
			With("ServerTime", now.UTC().Format(time.RFC3339))
	}
	return nil
}

// single gives the only value of a header, "" if it is absent, or an error if
// it is repeated: which of the two was meant is then anybody's choice.
func single(h http.Header, name string) (string, error) {
	values := h[name]
	switch len(values) {
	case 0:
		return "", nil
	case 1:
		return values[0], nil
	}
	return "", s3err.New(s3err.InvalidArgument).
		WithMessage("The header may be given only once").
		With("ArgumentName", strings.ToLower(name))
}
