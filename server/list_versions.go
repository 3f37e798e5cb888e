package server

import (
	"ringfence/server/s3xml"
)

// nullVersion names the one version of an object whose bucket was never
// versioned.
const nullVersion = "null"

// listVersions answers ListObjectVersions. No bucket is versioned yet, so every
// key has one version, which is the latest.
func (s *Server) listVersions(w *response, r *request) error {
	head := s3xml.ListHead{Marker: r.param("key-marker")}
	versionMarker := r.param("version-id-marker")
	if versionMarker != "" && head.Marker == "" {
		return argument("version-id-marker", versionMarker, "A version-id marker cannot be specified without a key marker.")
	}
	page, err := s.listPage(r, &head, head.Marker)
	if err != nil {
		return err
	}
	next := ""
	if page.Truncated {
		head.NextMarker = page.Next
		if n := len(page.Objects); n > 0 && page.Objects[n-1].Key == page.Next {
			next = nullVersion
		}
	}
	return w.document(func(x *s3xml.Writer) {
		x.ListVersions(&head, versionMarker, next)
		for i := range page.Objects {
			o := &page.Objects[i]
			entry := listed(o, &s.opt.Owner)
			id := o.VersionID
			if id == "" {
				id = nullVersion
			}
			x.ListedVersion(&entry, id, true, o.DeleteMarker, head.EncodeURL)
		}
		for _, p := range page.Prefixes {
			x.CommonPrefix(p, head.EncodeURL)
		}
		x.EndListVersions()
	})
}
