package server

import (
	"strconv"
	"strings"

	"ringfence/erasure"
	"ringfence/server/s3err"
	"ringfence/server/s3xml"
)

// getObjectAttributes answers with what x-amz-object-attributes names.
func (s *Server) getObjectAttributes(w *response, r *request) error {
	wanted, err := wantedAttributes(r)
	if err != nil {
		return err
	}
	info, err := s.opt.Objects.Stat(r.ctx, r.target.bucket, r.target.key, version(r))
	if err != nil {
		return err
	}
	if _, err := plan(w.Header(), r, &info); err != nil {
		return err
	}
	delete(w.Header(), hdrETag) // which AWS gives in the document only
	var a s3xml.Attributes
	if wanted["ETag"] {
		a.ETag = info.Digest.ETag
	}
	if wanted["Checksum"] {
		a.Checksums = checksumTexts(info.Digest)
	}
	if wanted["ObjectSize"] {
		a.Size = &info.Size
	}
	if wanted["StorageClass"] {
		if a.StorageClass = info.Meta.Headers[hdrClass]; a.StorageClass == "" {
			a.StorageClass = standardClass
		}
	}
	if wanted["ObjectParts"] && len(info.PartSizes) > 0 {
		if a.Parts, err = attributeParts(r, &info); err != nil {
			return err
		}
	}
	return w.document(func(x *s3xml.Writer) { x.Attributes(&a) })
}

func wantedAttributes(r *request) (map[string]bool, error) {
	list, _ := joined(r.header, "x-amz-object-attributes")
	wanted := make(map[string]bool)
	for name := range strings.SplitSeq(list, ",") {
		switch name = strings.TrimSpace(name); name {
		case "ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize":
			wanted[name] = true
		case "":
		default:
			return nil, argument("x-amz-object-attributes", name, "Invalid attribute name specified.")
		}
	}
	if len(wanted) == 0 {
		return nil, s3err.New(s3err.InvalidRequest).
			WithMessage("The x-amz-object-attributes header specifying the attributes to be retrieved is either missing or empty")
	}
	return wanted, nil
}

// attributeParts gives a page of an object's parts. Their numbers are the places
// in the object: which numbers they were uploaded under is not kept.
func attributeParts(r *request, info *erasure.ObjectInfo) (*s3xml.AttributesParts, error) {
	p := &s3xml.AttributesParts{Total: len(info.PartSizes), Max: maxListParts}
	for name, into := range map[string]*int{"x-amz-max-parts": &p.Max, "x-amz-part-number-marker": &p.Marker} {
		v := r.header.Get(name)
		if v == "" {
			continue
		}
		n, err := strconv.ParseInt(v, 10, 32)
		if err != nil || n < 0 {
			return nil, argument(name, v, "")
		}
		*into = int(n)
	}
	p.Max = min(p.Max, maxListParts)
	p.Marker = min(p.Marker, p.Total)
	p.Next = min(p.Marker+p.Max, p.Total)
	p.Sizes = info.PartSizes[p.Marker:p.Next]
	p.Truncated = p.Next < p.Total && p.Max > 0
	return p, nil
}
