// Package s3xml reads and writes the XML of the S3 protocol, and knows nothing
// else.
//
// Both directions are written by hand. Answers are appended to a byte slice,
// without reflection, because a page of a listing is a thousand small elements
// and its cost decides how fast a bucket can be listed. Requests are read by a
// small parser of its own, because encoding/xml is open-ended where a server
// that faces strangers must be closed: this one knows no document type, no
// entity but the five built in, no processing instruction, and has limits on
// depth and on the number of elements. In one point it is more generous than
// XML 1.0: it accepts control characters, raw or as numeric references,
// because object keys may contain them and must be deletable.
package s3xml
