package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"

	"ringfence/erasure"
	"ringfence/server/checksum"
	"ringfence/server/s3err"
	"ringfence/server/s3xml"
)

func (s *Server) uploadPartCopy(w *response, r *request) (err error) {
	if err := refuseUnknown(r.header); err != nil {
		return err
	}
	number, err := partNumber(r)
	if err != nil {
		return err
	}
	src, err := parseSource(r.header.Get("x-amz-copy-source"))
	if err != nil {
		return err
	}
	_, algo, err := s.upload(r)
	if err != nil {
		return err
	}
	obj, err := s.opt.Objects.Open(r.ctx, src.bucket, src.key, versionInput(src.version))
	if err != nil {
		return sourceError(r, src, err)
	}
	defer func() { err = errors.Join(err, obj.Close()) }()
	info := obj.Info()
	sp, err := copySpan(r, &info)
	if err != nil {
		return err
	}
	if err := sourceCheck(r.header)(&info); err != nil {
		return err
	}
	var part erasure.PartInfo
	return s.patiently(w, r, func(h http.Header) (err error) {
		src.setVersion(h)
		part, err = s.copyPart(r, obj, sp, number, algo)
		return err
	}, func(x *s3xml.Writer) {
		x.Copy("CopyPartResult", part.Digest.ETag, part.ModTime, checksumTexts(part.Digest), false)
	})
}

// copySpan reads which bytes of the source to copy: all, or a range that lies
// within it as a whole.
func copySpan(r *request, info *erasure.ObjectInfo) (span, error) {
	if info.DeleteMarker {
		return span{}, copyable(info)
	}
	sp := span{0, info.Size}
	if header := r.header.Get("x-amz-copy-source-range"); header != "" {
		var ok bool
		if sp, ok = parseCopyRange(header); !ok {
			return span{}, argument("x-amz-copy-source-range", header,
				"The x-amz-copy-source-range value must be of the form bytes=first-last where first and last are the zero-based offsets of the first and last bytes to copy")
		}
		if sp.off+sp.n > info.Size {
			return span{}, argument("x-amz-copy-source-range", header,
				"Range specified is not valid for source object of size: "+strconv.FormatInt(info.Size, 10))
		}
	}
	if sp.n > maxPut {
		return span{}, s3err.New(s3err.InvalidRequest).
			WithMessage("The specified copy source is larger than the maximum allowable size for a copy source: " + strconv.FormatInt(maxPut, 10))
	}
	return sp, nil
}

// copyPart stores bytes of obj as a part. One goroutine writes them into a
// pipe; it ends with copyPart.
func (s *Server) copyPart(r *request, obj Object, sp span, number int, algo checksum.Algorithm) (erasure.PartInfo, error) {
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	from, to := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := safely(func() error {
			if sp.n == 0 {
				return nil
			}
			_, err := obj.WriteTo(ctx, to, sp.off, sp.n)
			return err
		})
		// CloseWithError of a pipe never fails.
		_ = to.CloseWithError(err)
		written <- err
	}()
	d := &digest{from: from, hasher: checksum.NewHasher(algo), algo: algo}
	part, err := s.opt.Uploads.PutPart(r.ctx, r.target.bucket, r.target.key, r.param("uploadId"), number, erasure.PutInput{
		Body: d, Size: sp.n, Finish: d.finish,
	})
	// Whatever became of the part, nobody reads any more: let the writer go.
	_ = from.CloseWithError(io.ErrClosedPipe)
	cancel()
	<-written // obj must not be closed while it is read; err says what went wrong
	return part, err
}
