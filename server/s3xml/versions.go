package s3xml

// ListVersions begins a page of ListObjectVersions from the fields of h that it
// shares with other listings; nextVersion goes with h.NextMarker. ListedVersion
// and CommonPrefix follow, EndListVersions ends it.
func (w *Writer) ListVersions(h *ListHead, versionMarker, nextVersion string) {
	w.Root("ListVersionsResult")
	w.Text("Name", h.Bucket)
	w.Encoded("Prefix", h.Prefix, h.EncodeURL)
	w.Encoded("KeyMarker", h.Marker, h.EncodeURL)
	w.Text("VersionIdMarker", versionMarker)
	if h.NextMarker != "" {
		w.Encoded("NextKeyMarker", h.NextMarker, h.EncodeURL)
		w.Optional("NextVersionIdMarker", nextVersion)
	}
	w.Int("MaxKeys", int64(h.MaxKeys))
	if h.Delimiter != "" {
		w.Encoded("Delimiter", h.Delimiter, h.EncodeURL)
	}
	if h.EncodeURL {
		w.Text("EncodingType", "url")
	}
	w.Bool("IsTruncated", h.Truncated)
}

// ListedVersion writes one version of an object, or its delete marker.
func (w *Writer) ListedVersion(o *ListedObject, versionID string, latest, marker, encodeURL bool) {
	element := "Version"
	if marker {
		element = "DeleteMarker"
	}
	w.Open(element)
	w.Encoded("Key", o.Key, encodeURL)
	w.Text("VersionId", versionID)
	w.Bool("IsLatest", latest)
	w.Time("LastModified", o.ModTime)
	if !marker {
		w.ETag(o.ETag)
		if o.Checksum != "" {
			w.Text("ChecksumAlgorithm", o.Checksum)
			w.Text("ChecksumType", o.ChecksumType)
		}
		w.Int("Size", o.Size)
		w.storageClass(o.StorageClass)
	}
	if o.Owner != nil {
		w.owner("Owner", *o.Owner)
	}
	w.Close(element)
}

// EndListVersions ends a page.
func (w *Writer) EndListVersions() { w.Close("ListVersionsResult") }

// AttributesParts are the parts of an object for its attributes.
type AttributesParts struct {
	Total, Marker, Next, Max int
	Truncated                bool
	Sizes                    []int64 // of the parts after Marker, at most Max
}

// Attributes are what GetObjectAttributes was asked for; nil and empty fields
// are left out.
type Attributes struct {
	ETag         string
	Checksums    []Checksum
	Parts        *AttributesParts
	StorageClass string
	Size         *int64
}

// Attributes writes the answer of GetObjectAttributes.
func (w *Writer) Attributes(a *Attributes) {
	w.Root("GetObjectAttributesResponse")
	w.Optional("ETag", a.ETag) // without quotes, here alone
	if len(a.Checksums) > 0 {
		w.Open("Checksum")
		w.checksums(a.Checksums, true)
		w.Close("Checksum")
	}
	if p := a.Parts; p != nil {
		w.Open("ObjectParts")
		w.Int("PartsCount", int64(p.Total))
		w.Int("PartNumberMarker", int64(p.Marker))
		w.Int("NextPartNumberMarker", int64(p.Next))
		w.Int("MaxParts", int64(p.Max))
		w.Bool("IsTruncated", p.Truncated)
		for i, size := range p.Sizes {
			w.Open("Part")
			w.Int("PartNumber", int64(p.Marker+i+1))
			w.Int("Size", size)
			w.Close("Part")
		}
		w.Close("ObjectParts")
	}
	w.Optional("StorageClass", a.StorageClass)
	if a.Size != nil {
		w.Int("ObjectSize", *a.Size)
	}
	w.Close("GetObjectAttributesResponse")
}
