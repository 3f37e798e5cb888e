package server

import (
	"net/http"
	"strconv"
	"strings"

	"ringfence/erasure"
	"ringfence/server/checksum"
	"ringfence/server/s3err"
	"ringfence/server/s3xml"
)

// uploadChecksum reads which checksum an upload's parts will have and of which
// kind the object's will be.
func uploadChecksum(h http.Header) (checksum.Algorithm, bool, error) {
	name, kind := h.Get(hdrSumAlgo), strings.ToUpper(h.Get(hdrSumType))
	if name == "" {
		if kind != "" {
			return 0, false, s3err.New(s3err.InvalidRequest).
				WithMessage("The x-amz-checksum-type header can only be used with the x-amz-checksum-algorithm header.")
		}
		return checksum.None, false, nil
	}
	algo, ok := checksum.Parse(name)
	if !ok {
		return 0, false, s3err.New(s3err.InvalidRequest).
			WithMessage("Checksum algorithm provided is unsupported. Please try again with any of the valid types: [CRC32, CRC32C, CRC64NVME, SHA1, SHA256]")
	}
	composite := algo.DefaultComposite()
	switch kind {
	case "":
	case "COMPOSITE":
		composite, ok = true, algo.Composite()
	case "FULL_OBJECT":
		composite, ok = false, algo.FullObject()
	default:
		return 0, false, s3err.New(s3err.InvalidRequest).WithMessage("Value for x-amz-checksum-type header is invalid.")
	}
	if !ok {
		return 0, false, s3err.New(s3err.InvalidRequest).
			WithMessage("The " + kind + " checksum type cannot be used with the " + strings.ToLower(algo.String()) + " checksum algorithm.")
	}
	return algo, composite, nil
}

func (s *Server) createUpload(w *response, r *request) error {
	if err := refuseUnknown(r.header); err != nil {
		return err
	}
	meta, err := newMeta(r.header)
	if err != nil {
		return err
	}
	algo, composite, err := uploadChecksum(r.header)
	if err != nil {
		return err
	}
	up, err := s.opt.Uploads.CreateUpload(r.ctx, r.target.bucket, r.target.key, erasure.CreateUploadInput{
		Meta: meta, Checksum: algo.String(), Composite: composite,
	})
	if err != nil {
		return err
	}
	if algo != checksum.None {
		w.Header()[hdrSumAlgo] = []string{algo.String()}
		w.Header()[hdrSumType] = []string{checksumType(composite)}
	}
	return w.document(func(x *s3xml.Writer) { x.CreateUpload(r.target.bucket, r.target.key, up.UploadID) })
}

// partNumber reads the number of the part that a request is about.
func partNumber(r *request) (int, error) {
	n, err := strconv.Atoi(r.param("partNumber"))
	if err != nil || n < 1 || n > erasure.MaxParts {
		return 0, argument("partNumber", r.param("partNumber"), "Part number must be an integer between 1 and 10000, inclusive")
	}
	return n, nil
}

// upload finds the upload of a request, and with it the checksum that its parts
// have. It is asked before a body is read, so that nobody sends gigabytes to an
// upload that isn't there.
func (s *Server) upload(r *request) (erasure.UploadInfo, checksum.Algorithm, error) {
	page, err := s.opt.Uploads.ListParts(r.ctx, r.target.bucket, r.target.key, r.param("uploadId"), 0, 1)
	if err != nil {
		return erasure.UploadInfo{}, 0, err
	}
	algo, _ := checksum.Parse(page.Upload.Checksum)
	return page.Upload, algo, nil
}

func (s *Server) uploadPart(w *response, r *request) error {
	if err := refuseUnknown(r.header); err != nil {
		return err
	}
	number, err := partNumber(r)
	if err != nil {
		return err
	}
	size, err := bodySize(r)
	if err != nil {
		return err
	}
	_, algo, err := s.upload(r)
	if err != nil {
		return err
	}
	d, err := newDigest(r, algo)
	if err != nil {
		return err
	}
	if algo != checksum.None && d.algo != checksum.None && d.algo != algo {
		return s3err.New(s3err.InvalidRequest).WithMessage("Checksum Type mismatch occurred, expected checksum Type: " +
			strings.ToLower(algo.String()) + ", actual checksum Type: " + strings.ToLower(d.algo.String()))
	}
	if algo == checksum.None {
		algo = d.algo
	}
	part, err := s.opt.Uploads.PutPart(r.ctx, r.target.bucket, r.target.key, r.param("uploadId"), number, erasure.PutInput{
		Body: d, Size: size,
		Finish: func(n int64) (erasure.Digest, error) {
			if _, err := d.finish(n); err != nil {
				return erasure.Digest{}, err
			}
			return d.sum(algo), nil
		},
	})
	if err != nil {
		return err
	}
	h := w.Header()
	h[hdrETag] = []string{`"` + part.Digest.ETag + `"`}
	setChecksum(h, part.Digest, false)
	setLength(h, 0)
	w.WriteHeader(http.StatusOK)
	return nil
}

func (s *Server) abortUpload(w *response, r *request) error {
	if v := r.header.Get("x-amz-if-match-initiated-time"); v != "" {
		return s3err.New(s3err.NotImplemented).With("Header", "x-amz-if-match-initiated-time")
	}
	if err := s.opt.Uploads.AbortUpload(r.ctx, r.target.bucket, r.target.key, r.param("uploadId")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// checksumTexts are the checksums of a digest for documents: the shown one.
func checksumTexts(d erasure.Digest) []s3xml.Checksum {
	c, ok := shown(d)
	if !ok {
		return nil
	}
	return []s3xml.Checksum{{Algorithm: c.Algorithm, Value: checksumText(c), Type: checksumType(c.Composite)}}
}
