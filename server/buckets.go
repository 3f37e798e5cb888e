package server

import (
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"strconv"

	"ringfence/erasure"
	"ringfence/server/s3err"
	"ringfence/server/s3xml"
)

const (
	maxDocument      = 1 << 20 // bytes of most request documents
	maxLargeDocument = 5 << 20 // of DeleteObjects and CompleteMultipartUpload
	maxListBuckets   = 10000
)

// readDocument reads and verifies a request document of at most limit bytes.
// checked demands Content-MD5 or a checksum. Memory for documents is bounded
// for all requests together, and held to the end of each; when it is used up the
// client is told to slow down.
func (s *Server) readDocument(r *request, limit int64, checked bool) ([]byte, error) {
	d, err := newDigest(r)
	if err != nil {
		return nil, err
	}
	if checked && d.md5 == nil && d.algo == 0 {
		return nil, s3err.New(s3err.InvalidRequest).
			WithMessage("Missing required header for this request: Content-MD5 OR x-amz-checksum-*")
	}
	size := r.size()
	if size > limit {
		return nil, s3err.New(s3err.MalformedXML)
	}
	if size < 0 {
		size = limit
	}
	if !s.docs.TryAcquire(size) {
		return nil, s3err.New(s3err.SlowDown)
	}
	r.held += size
	doc, err := io.ReadAll(io.LimitReader(d, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(doc)) > limit {
		return nil, s3err.New(s3err.MalformedXML)
	}
	return doc, d.verify()
}

func (s *Server) createBucket(w *response, r *request) error {
	if err := refuseUnknown(r.header); err != nil {
		return err
	}
	if r.header.Get("x-amz-bucket-object-lock-enabled") != "" && r.header.Get("x-amz-bucket-object-lock-enabled") != "false" {
		return s3err.New(s3err.NotImplemented).With("Header", "x-amz-bucket-object-lock-enabled")
	}
	doc, err := s.readDocument(r, maxDocument, false)
	if err != nil {
		return err
	}
	region := s.opt.Region
	if len(doc) > 0 {
		wanted, err := s3xml.ParseCreateBucket(doc)
		if err != nil {
			return err
		}
		if wanted != "" && wanted != region {
			return s3err.New(s3err.InvalidLocationConstraint).With("LocationConstraint", wanted)
		}
	}
	_, err = s.opt.Buckets.CreateBucket(r.ctx, r.target.bucket, region)
	// AWS answers a repeated creation with success in its first region only.
	if err != nil && (region != defaultRegion || !errors.Is(err, erasure.ErrBucketExists)) {
		return err
	}
	h := w.Header()
	h["Location"] = []string{"/" + r.target.bucket}
	setLength(h, 0)
	w.WriteHeader(http.StatusOK)
	return nil
}

func (s *Server) headBucket(w *response, r *request) error {
	info, err := s.opt.Buckets.HeadBucket(r.ctx, r.target.bucket)
	if err != nil {
		return err
	}
	h := w.Header()
	h[hdrRegion] = []string{s.region(info)}
	h["Content-Type"] = []string{"application/xml"}
	w.WriteHeader(http.StatusOK)
	return nil
}

func (s *Server) region(info erasure.BucketInfo) string {
	if info.Region == "" {
		return s.opt.Region
	}
	return info.Region
}

func (s *Server) deleteBucket(w *response, r *request) error {
	if err := s.opt.Buckets.DeleteBucket(r.ctx, r.target.bucket); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) getBucketLocation(w *response, r *request) error {
	info, err := s.opt.Buckets.HeadBucket(r.ctx, r.target.bucket)
	if err != nil {
		return err
	}
	return w.document(func(x *s3xml.Writer) { x.Location(s.region(info)) })
}

func (s *Server) listBuckets(w *response, r *request) error {
	limit := maxListBuckets
	if v := r.param("max-buckets"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > maxListBuckets {
			return argument("max-buckets", v, "Argument max-buckets must be an integer between 1 and 10000")
		}
		limit = n
	}
	after := ""
	if v := r.param("continuation-token"); v != "" {
		var err error
		if after, err = openToken(v); err != nil {
			return err
		}
	}
	prefix := r.param("prefix")
	infos, more, err := s.opt.Buckets.ListBuckets(r.ctx, prefix, after, limit)
	if err != nil {
		return err
	}
	listed := make([]s3xml.ListedBucket, 0, len(infos))
	wanted := r.param("bucket-region")
	for i := range infos {
		if region := s.region(infos[i]); wanted == "" || wanted == region {
			listed = append(listed, s3xml.ListedBucket{Name: infos[i].Name, Created: infos[i].Created, Region: region})
		}
	}
	next := ""
	if more && len(infos) > 0 {
		next = sealToken(infos[len(infos)-1].Name)
	}
	return w.document(func(x *s3xml.Writer) { x.ListBuckets(s.opt.Owner, listed, prefix, next) })
}

// tokenVersion begins every continuation token, so that a later form can be
// told from this one.
const tokenVersion = "1"

// sealToken makes a continuation token of the name to go on after. Tokens hold
// all state themselves, and none of it is secret: the listing that continues is
// authorised and filtered like every other.
func sealToken(after string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(tokenVersion + after))
}

func openToken(token string) (after string, err error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(raw) < 1 || string(raw[:1]) != tokenVersion {
		return "", argument("continuation-token", token, "The continuation token provided is incorrect")
	}
	return string(raw[1:]), nil
}
