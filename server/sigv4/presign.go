package sigv4

import (
	"strconv"
	"strings"
	"time"

	"ringfence/server/s3err"
)

// Query parameters of a presigned URL. Their names are case-sensitive.
const (
	queryAlgorithm     = "X-Amz-Algorithm"
	queryCredential    = "X-Amz-Credential"
	queryDate          = "X-Amz-Date"
	queryExpires       = "X-Amz-Expires"
	querySignedHeaders = "X-Amz-SignedHeaders"
	querySignature     = "X-Amz-Signature"
	queryToken         = "X-Amz-Security-Token"
	queryContent       = "X-Amz-Content-Sha256"
)

// maxExpires is how long a presigned URL may live.
const maxExpires = 7 * 24 * time.Hour

// queryKind says whether the query carries credentials. Any one of the
// parameters is enough: a request that has a part of a signature is refused,
// not taken for an anonymous one.
func (s *scratch) queryKind() (presigned, legacy bool) {
	for _, p := range s.query {
		name := s.nameOf(p)
		switch string(name) {
		case queryAlgorithm, queryCredential, queryDate, queryExpires, querySignedHeaders, querySignature, queryToken:
			presigned = true
		case "AWSAccessKeyId", "Signature":
			legacy = true
		}
	}
	return presigned, legacy
}

// parsePresigned fills in c from the query. content is the header
// x-amz-content-sha256, which stands in for the parameter of that name.
func (c *claim) parsePresigned(s *scratch, content string, opt *Options) error {
	var values [8]string
	for i, name := range [...]string{
		queryAlgorithm, queryCredential, queryDate, queryExpires, querySignedHeaders, querySignature, queryToken, queryContent,
	} {
		value, count := s.parameterValue(name)
		if required := i < 6; count > 1 || required && count == 0 {
			return s3err.New(s3err.AuthorizationQueryParametersError)
		}
		values[i] = value
	}
	if values[0] != algorithm {
		return s3err.New(s3err.AuthorizationQueryParametersError).WithMessage(`X-Amz-Algorithm only supports "AWS4-HMAC-SHA256"`)
	}
	if err := c.setCredential(values[1], opt); err != nil {
		return err
	}
	if err := c.setTime(values[2]); err != nil {
		return err
	}
	if err := c.setExpires(values[3]); err != nil {
		return err
	}
	c.signedHeaders, c.signature, c.token = values[4], values[5], values[6]
	if c.signedHeaders == "" {
		return notSigned("host")
	}
	switch {
	case values[7] != "" && content != "" && values[7] != content:
		return s3err.New(s3err.InvalidArgument).
			WithMessage("The header x-amz-content-sha256 and the parameter of that name differ").
			With("ArgumentName", "x-amz-content-sha256")
	case values[7] != "":
		c.payload = values[7]
	case content != "":
		c.payload = content
	default:
		c.payload = payloadUnsigned
	}
	return nil
}

// setExpires takes the life time of the URL, in seconds.
func (c *claim) setExpires(text string) error {
	refuse := func(why string) error {
		return s3err.New(s3err.AuthorizationQueryParametersError).WithMessage(why)
	}
	const tooLong = "X-Amz-Expires must be less than a week (in seconds); that is, the given X-Amz-Expires must be less than 604800 seconds"
	digits := strings.TrimPrefix(text, "-")
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return refuse("X-Amz-Expires should be a number")
	}
	if digits != text {
		return refuse("X-Amz-Expires must be non-negative")
	}
	seconds, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || seconds > int64(maxExpires/time.Second) {
		return refuse(tooLong)
	}
	if seconds == 0 {
		return refuse("X-Amz-Expires must be greater than zero")
	}
	c.expires = time.Duration(seconds) * time.Second
	return nil
}
