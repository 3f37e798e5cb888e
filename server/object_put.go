package server

import (
	"net/http"
	"strconv"

	"ringfence/erasure"
	"ringfence/server/s3err"
)

// maxPut is the largest object or part of one request.
const maxPut = 5 << 30

// bodySize gives the size of a body that is to be stored.
func bodySize(r *request) (int64, error) {
	size := r.size()
	switch {
	case size < 0:
		return 0, s3err.New(s3err.MissingContentLength)
	case size > maxPut:
		return 0, s3err.New(s3err.EntityTooLarge).
			With("ProposedSize", strconv.FormatInt(size, 10)).With("MaxSizeAllowed", strconv.FormatInt(maxPut, 10))
	}
	return size, nil
}

func (s *Server) putObject(w *response, r *request) error {
	if err := refuseUnknown(r.header); err != nil {
		return err
	}
	size, err := bodySize(r)
	if err != nil {
		return err
	}
	meta, err := newMeta(r.header)
	if err != nil {
		return err
	}
	precond, err := writePrecond(r.header)
	if err != nil {
		return err
	}
	d, err := newDigest(r)
	if err != nil {
		return err
	}
	info, err := s.opt.Objects.Put(r.ctx, r.target.bucket, r.target.key, erasure.PutInput{
		Body: d, Size: size, Finish: d.finish, Meta: meta, Precond: precond,
	})
	if err != nil {
		return err
	}
	h := w.Header()
	h[hdrETag] = []string{`"` + info.Digest.ETag + `"`}
	setVersion(h, info.VersionID)
	setChecksum(h, info.Digest, true)
	setLength(h, 0)
	w.WriteHeader(http.StatusOK)
	return nil
}
