package server

import (
	"strconv"

	"ringfence/erasure"
	"ringfence/server/s3err"
	"ringfence/server/s3xml"
)

const (
	maxListParts   = 1000
	maxListUploads = 1000
)

func (s *Server) listParts(w *response, r *request) error {
	limit, err := pageSize(r, "max-parts", maxListParts)
	if err != nil {
		return err
	}
	after := 0
	if v := r.param("part-number-marker"); v != "" {
		if after, err = strconv.Atoi(v); err != nil || after < 0 {
			return argument("part-number-marker", v, "Argument part-number-marker must be an integer between 0 and 2147483647")
		}
	}
	encode, err := urlEncoded(r)
	if err != nil {
		return err
	}
	// An empty page is no reason not to look whether there is such an upload.
	page, err := s.opt.Uploads.ListParts(r.ctx, r.target.bucket, r.target.key, r.param("uploadId"), min(after, erasure.MaxParts), max(limit, 1))
	if err != nil {
		return err
	}
	if limit == 0 {
		page.Parts, page.Truncated, page.Next = nil, false, 0
	}
	next := page.Next
	if n := len(page.Parts); n > 0 && next == 0 {
		next = page.Parts[n-1].Number
	}
	head := s3xml.ListPartsHead{
		Bucket: r.target.bucket, Key: r.target.key, UploadID: r.param("uploadId"), EncodeURL: encode,
		Marker: after, Next: next, MaxParts: limit, Truncated: page.Truncated,
		Owner: s.opt.Owner, StorageClass: page.Upload.Meta.Headers[hdrClass],
	}
	if page.Upload.Checksum != "" {
		head.Checksum, head.ChecksumType = page.Upload.Checksum, checksumType(page.Upload.Composite)
	}
	return w.document(func(x *s3xml.Writer) {
		x.ListParts(&head)
		for i := range page.Parts {
			p := &page.Parts[i]
			x.ListedPart(p.Number, p.ModTime, p.Digest.ETag, p.Size, checksumTexts(p.Digest))
		}
		x.EndListParts()
	})
}

func (s *Server) listUploads(w *response, r *request) error {
	limit, err := pageSize(r, "max-uploads", maxListUploads)
	if err != nil {
		return err
	}
	encode, err := urlEncoded(r)
	if err != nil {
		return err
	}
	in := erasure.UploadListInput{
		Prefix: r.param("prefix"), Delimiter: r.param("delimiter"),
		AfterKey: r.param("key-marker"), AfterUploadID: r.param("upload-id-marker"), Max: limit,
	}
	if len(in.Prefix) > erasure.MaxKeyBytes || len(in.Delimiter) > erasure.MaxKeyBytes || len(in.AfterKey) > erasure.MaxKeyBytes {
		return s3err.New(s3err.KeyTooLongError)
	}
	if in.AfterKey == "" {
		in.AfterUploadID = "" // which AWS ignores without a key
	}
	var page erasure.UploadPage
	if limit == 0 {
		_, err = s.opt.Buckets.HeadBucket(r.ctx, r.target.bucket)
	} else {
		page, err = s.opt.Uploads.ListUploads(r.ctx, r.target.bucket, in)
	}
	if err != nil {
		return err
	}
	head := s3xml.ListUploadsHead{
		Bucket: r.target.bucket, EncodeURL: encode, KeyMarker: in.AfterKey, UploadIDMarker: r.param("upload-id-marker"),
		Prefix: in.Prefix, Delimiter: in.Delimiter, MaxUploads: limit, Truncated: page.Truncated,
	}
	if page.Truncated {
		head.NextKey, head.NextUploadID = page.NextKey, page.NextUploadID
	}
	return w.document(func(x *s3xml.Writer) {
		x.ListUploads(&head)
		for i := range page.Uploads {
			u := &page.Uploads[i]
			entry := s3xml.ListedUpload{
				Key: u.Key, UploadID: u.UploadID, Initiated: u.Initiated, Owner: s.opt.Owner,
				StorageClass: u.Meta.Headers[hdrClass], Checksum: u.Checksum,
			}
			if u.Checksum != "" {
				entry.ChecksumType = checksumType(u.Composite)
			}
			x.ListedUpload(&entry, encode)
		}
		for _, p := range page.Prefixes {
			x.CommonPrefix(p, encode)
		}
		x.EndListUploads()
	})
}
