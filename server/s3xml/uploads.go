package s3xml

import "time"

// Checksum is a checksum as it stands in documents.
type Checksum struct {
	Algorithm string // "CRC32", ...
	Value     string // base64, with -N when composite
	Type      string // FULL_OBJECT or COMPOSITE
}

// checksums writes the values, and the type of the first when typed is true.
func (w *Writer) checksums(sums []Checksum, typed bool) {
	for i := range sums {
		w.Text("Checksum"+sums[i].Algorithm, sums[i].Value)
	}
	if typed && len(sums) > 0 {
		w.Text("ChecksumType", sums[0].Type)
	}
}

// CreateUpload writes the answer of CreateMultipartUpload.
func (w *Writer) CreateUpload(bucket, key, uploadID string) {
	w.Root("InitiateMultipartUploadResult")
	w.Text("Bucket", bucket)
	w.Text("Key", key)
	w.Text("UploadId", uploadID)
	w.Close("InitiateMultipartUploadResult")
}

// CompleteUpload writes the answer of CompleteMultipartUpload.
func (w *Writer) CompleteUpload(location, bucket, key, etag string, sums []Checksum) {
	w.Root("CompleteMultipartUploadResult")
	w.Text("Location", location)
	w.Text("Bucket", bucket)
	w.Text("Key", key)
	w.ETag(etag)
	w.checksums(sums, true)
	w.Close("CompleteMultipartUploadResult")
}

// Copy writes the answer of CopyObject (result "CopyObjectResult") or
// UploadPartCopy ("CopyPartResult").
func (w *Writer) Copy(result, etag string, modTime time.Time, sums []Checksum, typed bool) {
	w.Root(result)
	w.Time("LastModified", modTime)
	w.ETag(etag)
	w.checksums(sums, typed)
	w.Close(result)
}

// ListPartsHead is what a page of parts says before them.
type ListPartsHead struct {
	Bucket, Key, UploadID string
	EncodeURL             bool
	Marker, Next          int
	MaxParts              int
	Truncated             bool
	Owner                 Owner
	StorageClass          string
	Checksum              string // algorithm of the upload, "" for none
	ChecksumType          string
}

// ListParts begins a page of parts. ListedPart follows, EndListParts ends it.
func (w *Writer) ListParts(h *ListPartsHead) {
	w.Root("ListPartsResult")
	w.Text("Bucket", h.Bucket)
	w.Encoded("Key", h.Key, h.EncodeURL)
	w.Text("UploadId", h.UploadID)
	w.owner("Initiator", h.Owner)
	w.owner("Owner", h.Owner)
	w.storageClass(h.StorageClass)
	w.Int("PartNumberMarker", int64(h.Marker))
	w.Int("NextPartNumberMarker", int64(h.Next))
	w.Int("MaxParts", int64(h.MaxParts))
	if h.EncodeURL {
		w.Text("EncodingType", "url")
	}
	w.Bool("IsTruncated", h.Truncated)
	w.Optional("ChecksumAlgorithm", h.Checksum)
	w.Optional("ChecksumType", h.ChecksumType)
}

// ListedPart writes one part.
func (w *Writer) ListedPart(number int, modTime time.Time, etag string, size int64, sums []Checksum) {
	w.Open("Part")
	w.Int("PartNumber", int64(number))
	w.Time("LastModified", modTime)
	w.ETag(etag)
	w.Int("Size", size)
	w.checksums(sums, false)
	w.Close("Part")
}

// EndListParts ends a page of parts.
func (w *Writer) EndListParts() { w.Close("ListPartsResult") }

// ListUploadsHead is what a page of uploads says before them.
type ListUploadsHead struct {
	Bucket                    string
	EncodeURL                 bool
	KeyMarker, UploadIDMarker string
	NextKey, NextUploadID     string
	Prefix, Delimiter         string
	MaxUploads                int
	Truncated                 bool
}

// ListUploads begins a page of uploads. ListedUpload and CommonPrefix follow,
// EndListUploads ends it.
func (w *Writer) ListUploads(h *ListUploadsHead) {
	w.Root("ListMultipartUploadsResult")
	w.Text("Bucket", h.Bucket)
	w.Encoded("KeyMarker", h.KeyMarker, h.EncodeURL)
	w.Text("UploadIdMarker", h.UploadIDMarker)
	w.Encoded("NextKeyMarker", h.NextKey, h.EncodeURL)
	w.Text("NextUploadIdMarker", h.NextUploadID)
	w.Encoded("Prefix", h.Prefix, h.EncodeURL)
	if h.Delimiter != "" {
		w.Encoded("Delimiter", h.Delimiter, h.EncodeURL)
	}
	if h.EncodeURL {
		w.Text("EncodingType", "url")
	}
	w.Int("MaxUploads", int64(h.MaxUploads))
	w.Bool("IsTruncated", h.Truncated)
}

// ListedUpload is an upload of a listing.
type ListedUpload struct {
	Key, UploadID string
	Initiated     time.Time
	Owner         Owner
	StorageClass  string
	Checksum      string
	ChecksumType  string
}

// ListedUpload writes one upload.
func (w *Writer) ListedUpload(u *ListedUpload, encodeURL bool) {
	w.Open("Upload")
	w.Encoded("Key", u.Key, encodeURL)
	w.Text("UploadId", u.UploadID)
	w.owner("Initiator", u.Owner)
	w.owner("Owner", u.Owner)
	w.storageClass(u.StorageClass)
	w.Time("Initiated", u.Initiated)
	w.Optional("ChecksumAlgorithm", u.Checksum)
	w.Optional("ChecksumType", u.ChecksumType)
	w.Close("Upload")
}

// EndListUploads ends a page of uploads.
func (w *Writer) EndListUploads() { w.Close("ListMultipartUploadsResult") }
