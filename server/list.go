package server

import (
	"strconv"
	"strings"

	"ringfence/erasure"
	"ringfence/server/s3err"
	"ringfence/server/s3xml"
)

// pageSize gives the size of a page that a parameter asks for; larger ones are
// cut to what a page may hold.
func pageSize(r *request, name string, limit int) (int, error) {
	values, ok := r.query[name]
	if !ok || values[0] == "" {
		return limit, nil
	}
	n, err := strconv.ParseInt(strings.TrimSpace(values[0]), 10, 32)
	if err != nil || n < 0 {
		return 0, argument(name, values[0], "Argument "+name+" must be an integer between 0 and 2147483647")
	}
	return min(int(n), limit), nil
}

// urlEncoded gives what encoding-type asks for.
func urlEncoded(r *request) (bool, error) {
	switch v := r.param("encoding-type"); {
	case v == "":
		return false, nil
	case strings.EqualFold(v, "url"):
		return true, nil
	default:
		return false, argument("encoding-type", v, "Invalid Encoding Method specified in Request")
	}
}

func (s *Server) listObjectsV1(w *response, r *request) error {
	if v := r.param("list-type"); v != "" {
		return argument("list-type", v, "Invalid List Type specified in Request")
	}
	head := s3xml.ListHead{Marker: r.param("marker")}
	page, err := s.listPage(r, &head, head.Marker)
	if err != nil {
		return err
	}
	// Without a delimiter, clients go on after the last key themselves.
	if page.Truncated && head.Delimiter != "" {
		head.NextMarker = page.Next
	}
	return s.writeList(w, &head, page, true)
}

func (s *Server) listObjectsV2(w *response, r *request) error {
	head := s3xml.ListHead{V2: true, StartAfter: r.param("start-after"), Token: r.param("continuation-token")}
	after := head.StartAfter
	if _, head.HasToken = r.query["continuation-token"]; head.Token != "" {
		var err error
		if after, err = openToken(head.Token); err != nil {
			return err
		}
	}
	page, err := s.listPage(r, &head, after)
	if err != nil {
		return err
	}
	head.KeyCount = len(page.Objects) + len(page.Prefixes)
	if page.Truncated {
		head.NextToken = sealToken(page.Next)
	}
	return s.writeList(w, &head, page, strings.EqualFold(r.param("fetch-owner"), "true"))
}

// listPage asks the store for the page that head describes.
func (s *Server) listPage(r *request, head *s3xml.ListHead, after string) (erasure.ListPage, error) {
	var err error
	if head.EncodeURL, err = urlEncoded(r); err != nil {
		return erasure.ListPage{}, err
	}
	if head.MaxKeys, err = pageSize(r, "max-keys", erasure.MaxListPage); err != nil {
		return erasure.ListPage{}, err
	}
	head.Bucket, head.Prefix, head.Delimiter = r.target.bucket, r.param("prefix"), r.param("delimiter")
	if len(head.Prefix) > erasure.MaxKeyBytes || len(head.Delimiter) > erasure.MaxKeyBytes || len(after) > erasure.MaxKeyBytes {
		return erasure.ListPage{}, s3err.New(s3err.KeyTooLongError)
	}
	if head.MaxKeys == 0 {
		// An empty page that isn't the last would send clients round in circles.
		_, err := s.opt.Buckets.HeadBucket(r.ctx, head.Bucket)
		return erasure.ListPage{}, err
	}
	page, err := s.opt.Objects.List(r.ctx, head.Bucket, erasure.ListInput{
		Prefix: head.Prefix, Delimiter: head.Delimiter, After: after, Max: head.MaxKeys,
	})
	if err != nil {
		return erasure.ListPage{}, err
	}
	head.Truncated = page.Truncated
	return page, nil
}

func (s *Server) writeList(w *response, head *s3xml.ListHead, page erasure.ListPage, owned bool) error {
	var owner *s3xml.Owner
	if owned {
		owner = &s.opt.Owner
	}
	return w.document(func(x *s3xml.Writer) {
		x.ListObjects(head)
		for i := range page.Objects {
			entry := listed(&page.Objects[i], owner)
			x.ListedObject(&entry, head.EncodeURL)
		}
		for _, p := range page.Prefixes {
			x.CommonPrefix(p, head.EncodeURL)
		}
		x.EndListObjects()
	})
}

func listed(o *erasure.ObjectInfo, owner *s3xml.Owner) s3xml.ListedObject {
	entry := s3xml.ListedObject{
		Key: o.Key, ModTime: o.ModTime, ETag: o.Digest.ETag, Size: o.Size,
		StorageClass: o.Meta.Headers[hdrClass], Owner: owner,
	}
	if c, ok := shown(o.Digest); ok {
		entry.Checksum, entry.ChecksumType = c.Algorithm, checksumType(c.Composite)
	}
	return entry
}
