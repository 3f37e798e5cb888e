package server

import (
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"ringfence/erasure"
	"ringfence/server/checksum"
	"ringfence/server/s3err"
	"ringfence/server/s3xml"
)

// source is what a copy reads.
type source struct {
	bucket, key string
	version     string
}

// parseSource reads x-amz-copy-source. The version is cut off before anything
// is decoded and the rest decoded once, so that no encoded character can move
// the border between bucket, key and version.
func parseSource(header string) (source, error) {
	bad := func() (source, error) {
		return source{}, argument("x-amz-copy-source", header, "Invalid copy source object key")
	}
	path, query, versioned := strings.Cut(header, "?")
	var src source
	if versioned {
		id, ok := strings.CutPrefix(query, "versionId=")
		if !ok || id == "" || strings.Contains(id, "&") {
			return bad()
		}
		var err error
		if src.version, err = url.PathUnescape(id); err != nil {
			return bad()
		}
	}
	path, err := url.PathUnescape(path)
	if err != nil || strings.HasPrefix(path, "arn:") {
		return bad()
	}
	var ok bool
	src.bucket, src.key, ok = strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if !ok || src.key == "" {
		return bad()
	}
	if !validBucketName(src.bucket) {
		return source{}, s3err.New(s3err.InvalidBucketName).With("BucketName", src.bucket)
	}
	if err := checkKey(src.key); err != nil {
		return source{}, err
	}
	return src, nil
}

// directive reads a header that is COPY, which is the default, or REPLACE.
func directive(h http.Header, name string) (replace bool, err error) {
	switch v := h.Get(name); v {
	case "", "COPY":
		return false, nil
	case "REPLACE":
		return true, nil
	default:
		return false, argument(name, v, "Unknown "+strings.TrimSuffix(strings.TrimPrefix(name, "x-amz-"), "-directive")+" directive.")
	}
}

func (s *Server) copyObject(w *response, r *request) error {
	in, src, err := s.newCopy(r)
	if err != nil {
		return err
	}
	var info erasure.ObjectInfo
	return s.patiently(w, r, func(h http.Header) error {
		if info, err = s.opt.Objects.Copy(r.ctx, in); err != nil {
			return sourceError(r, src, err)
		}
		setVersion(h, info.VersionID)
		src.setVersion(h)
		return nil
	}, func(x *s3xml.Writer) {
		x.Copy("CopyObjectResult", info.Digest.ETag, info.ModTime, checksumTexts(info.Digest), true)
	})
}

// setVersion says which version was copied, if the client chose one.
func (src source) setVersion(h http.Header) {
	if src.version != "" {
		h["x-amz-copy-source-version-id"] = []string{src.version}
	}
}

// newCopy reads a CopyObject request.
func (s *Server) newCopy(r *request) (erasure.CopyInput, source, error) {
	var in erasure.CopyInput
	if err := refuseUnknown(r.header); err != nil {
		return in, source{}, err
	}
	src, err := parseSource(r.header.Get("x-amz-copy-source"))
	if err != nil {
		return in, src, err
	}
	in = erasure.CopyInput{
		SourceBucket: src.bucket, SourceKey: src.key, Source: versionInput(src.version),
		Bucket: r.target.bucket, Key: r.target.key,
	}
	if in.Precond, err = writePrecond(r.header); err != nil {
		return in, src, err
	}
	judge := sourceCheck(r.header)
	in.SourceCheck = func(o *erasure.ObjectInfo) error {
		if err := copyable(o); err != nil {
			return err
		}
		return judge(o)
	}
	if err := s.copyMeta(r, &in, src); err != nil {
		return in, src, err
	}
	return in, src, rehash(r, &in)
}

// copyable refuses sources that aren't objects or are too large for one copy.
func copyable(o *erasure.ObjectInfo) error {
	switch {
	case o.DeleteMarker:
		return s3err.New(s3err.InvalidRequest).WithMessage("The source of a copy request may not specifically refer to a delete marker by version id.")
	case o.Size > maxPut:
		return s3err.New(s3err.InvalidRequest).
			WithMessage("The specified copy source is larger than the maximum allowable size for a copy source: " + strconv.FormatInt(maxPut, 10))
	}
	return nil
}

// copyMeta decides what is stored beside the copy. Where only a part of the
// source's metadata is replaced, the source is looked up first, and the copy
// succeeds only if it is still the same.
func (s *Server) copyMeta(r *request, in *erasure.CopyInput, src source) error {
	replaceMeta, err := directive(r.header, "x-amz-metadata-directive")
	if err != nil {
		return err
	}
	replaceTags, err := directive(r.header, "x-amz-tagging-directive")
	if err != nil {
		return err
	}
	own, err := newMeta(r.header)
	if err != nil {
		return err
	}
	placed := own.Headers[hdrClass] != "" || own.Headers[hdrRedirect] != "" || r.header.Get(hdrClass) != ""
	self := src.version == "" && src.bucket == in.Bucket && src.key == in.Key
	if self && !replaceMeta && !replaceTags && !placed && r.header.Get(hdrSumAlgo) == "" {
		return s3err.New(s3err.InvalidRequest).WithMessage("This copy request is illegal because it is trying to copy an object to itself without changing the object's metadata, storage class, website redirect location or encryption attributes.")
	}
	from, err := s.opt.Objects.Stat(r.ctx, in.SourceBucket, in.SourceKey, in.Source)
	if err != nil {
		return sourceError(r, src, err)
	}
	meta := own
	if !replaceMeta {
		meta = erasure.Meta{Headers: make(map[string]string, len(from.Meta.Headers)), User: from.Meta.User, Tags: own.Tags}
		for name, value := range from.Meta.Headers {
			if name != hdrClass && name != hdrRedirect {
				meta.Headers[name] = value
			}
		}
		if err := placement(r.header, meta.Headers); err != nil {
			return err
		}
	}
	if !replaceTags {
		meta.Tags = from.Meta.Tags
	}
	in.Meta = &meta
	if replaceMeta && replaceTags {
		return nil
	}
	check := in.SourceCheck
	in.SourceCheck = func(o *erasure.ObjectInfo) error {
		if o.Digest.ETag != from.Digest.ETag || !o.ModTime.Equal(from.ModTime) || o.VersionID != from.VersionID {
			return s3err.New(s3err.ConditionalRequestConflict).WithMessage("The source changed while it was being copied. Please try again.")
		}
		return check(o)
	}
	return nil
}

// rehash asks for another checksum if the client wants one that the source may
// not have.
func rehash(r *request, in *erasure.CopyInput) error {
	name := r.header.Get(hdrSumAlgo)
	if name == "" {
		return nil
	}
	algo, ok := checksum.Parse(name)
	if !ok {
		return s3err.New(s3err.InvalidRequest).
			WithMessage("Checksum algorithm provided is unsupported. Please try again with any of the valid types: [CRC32, CRC32C, CRC64NVME, SHA1, SHA256]")
	}
	in.Rehash = func(body io.Reader, _ *erasure.ObjectInfo) (io.Reader, func(n int64) (erasure.Digest, error)) {
		d := &digest{from: body, hasher: checksum.NewHasher(algo), algo: algo}
		return d, d.finish
	}
	return nil
}

// sourceError makes an error about the source name the source.
func sourceError(r *request, src source, err error) error {
	e := code(err)
	switch e.Code {
	case s3err.NoSuchKey, s3err.NoSuchVersion:
		if e.Field("Key") == "" {
			e.With("Key", src.key)
		}
	case s3err.NoSuchBucket:
		if e.Field("BucketName") == "" && src.bucket == r.target.bucket {
			e.With("BucketName", src.bucket)
		}
	}
	return e
}
