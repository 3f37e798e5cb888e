package server

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"ringfence/erasure"
	"ringfence/server/s3err"
	"ringfence/server/s3xml"
)

// version is the version that a request is about. "null" is the one that an
// object has as long as its bucket was never versioned.
func version(r *request) erasure.GetInput {
	return versionInput(r.param("versionId"))
}

func versionInput(id string) erasure.GetInput {
	if id == nullVersion {
		id = ""
	}
	return erasure.GetInput{VersionID: id}
}

// reading is what a GET or HEAD will answer.
type reading struct {
	span   span
	status int
}

// plan decides the answer to a GET or HEAD of info. Headers that hold for a
// refusal, too, are set on h.
func plan(h http.Header, r *request, info *erasure.ObjectInfo) (reading, error) {
	setValidators(h, info)
	if info.DeleteMarker {
		h[hdrMarker] = []string{"true"}
		if r.param("versionId") != "" {
			return reading{}, s3err.New(s3err.MethodNotAllowed).With("Method", r.method)
		}
		return reading{}, s3err.New(s3err.NoSuchKey)
	}
	c := readConditions(r.header, "")
	switch v, header := c.judge(info.Digest.ETag, info.ModTime); v {
	case failed:
		return reading{}, notMet(header)
	case unchanged:
		return reading{}, s3err.New(s3err.NotModified)
	}
	if _, ok := r.query["partNumber"]; ok {
		return planPart(h, r, info)
	}
	return planRange(h, r, info)
}

func planRange(h http.Header, r *request, info *erasure.ObjectInfo) (reading, error) {
	whole := reading{span{0, info.Size}, http.StatusOK}
	header := r.header.Get("Range")
	if header == "" || !stillSame(r.header, info) {
		return whole, nil
	}
	sp, kind := parseRange(header, info.Size)
	switch kind {
	case rangeUnsatisfiable:
		h["Content-Range"] = []string{"bytes */" + strconv.FormatInt(info.Size, 10)}
		return reading{}, s3err.New(s3err.InvalidRange).
			With("RangeRequested", header).With("ActualObjectSize", strconv.FormatInt(info.Size, 10))
	case rangeOne:
		return partial(h, sp, info.Size), nil
	default:
		return whole, nil
	}
}

func planPart(h http.Header, r *request, info *erasure.ObjectInfo) (reading, error) {
	number, err := strconv.Atoi(r.param("partNumber"))
	switch {
	case err != nil || number < 1 || number > erasure.MaxParts:
		return reading{}, argument("partNumber", r.param("partNumber"), "Part number must be an integer between 1 and 10000, inclusive")
	case r.header.Get("Range") != "":
		return reading{}, s3err.New(s3err.InvalidRequest).WithMessage("Cannot specify both Range header and partNumber query parameter")
	}
	sp, ok := partSpan(number, info.PartSizes, info.Size)
	if !ok {
		return reading{}, s3err.New(s3err.InvalidPartNumber).
			With("PartNumberRequested", strconv.Itoa(number)).With("ActualPartCount", strconv.Itoa(max(1, len(info.PartSizes))))
	}
	if n := len(info.PartSizes); n > 0 {
		h[hdrPartCount] = []string{strconv.Itoa(n)}
	}
	if sp.n == 0 { // no Content-Range can say "nothing"
		return reading{sp, http.StatusOK}, nil
	}
	return partial(h, sp, info.Size), nil
}

func partial(h http.Header, sp span, size int64) reading {
	h["Content-Range"] = []string{fmt.Sprintf("bytes %d-%d/%d", sp.off, sp.off+sp.n-1, size)}
	return reading{sp, http.StatusPartialContent}
}

// stillSame judges If-Range: whether the client's copy is of this version, so
// that a range can complete it. Strong comparison, as RFC 9110 demands.
func stillSame(h http.Header, info *erasure.ObjectInfo) bool {
	v := strings.TrimSpace(h.Get("If-Range"))
	switch {
	case v == "":
		return true
	case strings.HasPrefix(v, "W/"):
		return false
	}
	if t, err := http.ParseTime(v); err == nil {
		return info.ModTime.Truncate(1e9).Equal(t)
	}
	return unquote(v) == info.Digest.ETag
}

// describe sets all headers of a successful GET or HEAD.
func describe(h http.Header, r *request, info *erasure.ObjectInfo, rd reading) error {
	setObjectHeaders(h, info)
	setLength(h, rd.span.n)
	if strings.EqualFold(r.header.Get("x-amz-checksum-mode"), "ENABLED") && rd.span.n == info.Size {
		setChecksum(h, info.Digest, true)
	}
	return override(h, r)
}

func (s *Server) headObject(w *response, r *request) error {
	info, err := s.opt.Objects.Stat(r.ctx, r.target.bucket, r.target.key, version(r))
	if err != nil {
		return err
	}
	rd, err := plan(w.Header(), r, &info)
	if err != nil {
		return err
	}
	if err := describe(w.Header(), r, &info, rd); err != nil {
		return err
	}
	w.WriteHeader(rd.status)
	return nil
}

func (s *Server) getObject(w *response, r *request) (err error) {
	obj, err := s.opt.Objects.Open(r.ctx, r.target.bucket, r.target.key, version(r))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, obj.Close()) }()
	info := obj.Info()
	rd, err := plan(w.Header(), r, &info)
	if err != nil {
		return err
	}
	if err := obj.Prefetch(r.ctx, rd.span.off, rd.span.n); err != nil {
		return err
	}
	if err := describe(w.Header(), r, &info, rd); err != nil {
		return err
	}
	w.WriteHeader(rd.status)
	if rd.span.n == 0 {
		return nil
	}
	n, err := obj.WriteTo(r.ctx, w, rd.span.off, rd.span.n)
	if err == nil && n != rd.span.n {
		err = fmt.Errorf("store wrote %d of %d bytes", n, rd.span.n)
	}
	return err
}

// getObjectACL answers with the one access control list that there is.
func (s *Server) getObjectACL(w *response, r *request) error {
	if _, err := s.opt.Objects.Stat(r.ctx, r.target.bucket, r.target.key, version(r)); err != nil {
		return err
	}
	return w.document(func(x *s3xml.Writer) { x.OwnerACL(s.opt.Owner) })
}

func (s *Server) getObjectTagging(w *response, r *request) error {
	info, err := s.opt.Objects.Stat(r.ctx, r.target.bucket, r.target.key, version(r))
	if err != nil {
		return err
	}
	setVersion(w.Header(), info.VersionID)
	return w.document(func(x *s3xml.Writer) { x.Tagging(info.Meta.Tags) })
}
