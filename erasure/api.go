package erasure

import (
	"io"
	"time"

	"ringfence/storage"
)

// This file holds the nouns of the object store that callers see. What they
// mean on the wire is the server's business: an ETag here is the text that the
// caller gave, a header is a name and a value to give back.

// Limits of the store.
const (
	MaxKeyBytes   = 1024
	MaxParts      = 10000
	MaxListPage   = 1000
	MaxMetaBytes  = 16 << 10 // all of a Meta, names and values
	MaxInlineSize = 16 << 10 // objects up to this size live in the metadata log
)

// BucketInfo describes a bucket.
type BucketInfo struct {
	Name    string
	ID      storage.UUID // never reused: a bucket made again under its name shares nothing with the old one
	Created time.Time
	Region  string
}

// Meta is what a client stores beside the bytes.
type Meta struct {
	// Headers are response headers to give back, by lower-case name:
	// content-type, content-encoding, cache-control, content-disposition,
	// content-language, expires, x-amz-storage-class,
	// x-amz-website-redirect-location.
	Headers map[string]string
	// User is user metadata by lower-case name without the x-amz-meta- prefix.
	User map[string]string
	// Tags are object tags.
	Tags map[string]string
}

// Checksum is a checksum of an object's bytes that the caller computed or
// verified.
type Checksum struct {
	Algorithm string // "CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"
	Composite bool   // a checksum of the parts' checksums
	Value     []byte // raw, not base64
	Parts     int    // of a composite checksum
}

// Digest is what is known about a body once all of it was read.
type Digest struct {
	ETag      string // without quotes
	Checksums []Checksum
}

// ObjectInfo describes one version of an object.
type ObjectInfo struct {
	Bucket       string
	Key          string
	Size         int64
	ModTime      time.Time // for display only; moves forward with every write to the key
	Digest       Digest
	Meta         Meta
	VersionID    string // "" while the bucket was never versioned
	DeleteMarker bool
	PartSizes    []int64 // sizes of the parts in order; nil for a plain PUT
	Redundancy   Redundancy
}

// Redundancy says how well a write is protected.
type Redundancy struct {
	Disks  int // disks that hold it
	Target int // disks that should
}

// Precond judges a write against the version that it would replace, nil if
// there is none. It runs at the commit, perhaps more than once, and must be
// pure. Its error refuses the write and reaches the caller as it is.
type Precond func(current *ObjectInfo) error

// PutInput is a write of one object or part.
type PutInput struct {
	// Body is read to its end by one goroutine. Its error aborts the write.
	Body io.Reader
	// Size is the exact length of Body, or -1. A Body of another length fails
	// with io.ErrUnexpectedEOF or ErrBodyTooLong and stores nothing.
	Size int64
	// Finish is called after the end of Body, before anything becomes visible.
	// Its error aborts the write and reaches the caller as it is.
	Finish  func(n int64) (Digest, error)
	Meta    Meta
	Precond Precond // nil: always
}

// GetInput chooses a version.
type GetInput struct {
	VersionID string // "" for the current one
}

// DeleteInput is a deletion of one object.
type DeleteInput struct {
	VersionID string
	Precond   Precond
}

// DeleteResult says what a deletion did.
type DeleteResult struct {
	VersionID    string
	DeleteMarker bool
}

// CopyInput is a copy within the store.
type CopyInput struct {
	SourceBucket, SourceKey string
	Source                  GetInput
	// SourceCheck judges the source before anything is read; nil: always.
	SourceCheck func(source *ObjectInfo) error
	Bucket, Key string
	// Meta replaces the source's when not nil.
	Meta *Meta
	// Rehash gives a Put-like digest for the bytes copied, when the caller wants
	// checksums other than the source's; nil keeps the source's digest. It wraps
	// the body and returns the Finish for it.
	Rehash  func(body io.Reader, source *ObjectInfo) (io.Reader, func(n int64) (Digest, error))
	Precond Precond
}

// ListInput asks for a page of keys in byte order.
type ListInput struct {
	Prefix    string
	Delimiter string // any length; "" for none
	// After: only keys and common prefixes greater than it. A common prefix
	// equal to or below it is not repeated, so a page may go on from either.
	After string
	Max   int // 0..MaxListPage
}

// ListPage is a page of a listing. Objects and Prefixes are each in byte order
// and together count at most Max.
type ListPage struct {
	Objects   []ObjectInfo // without Meta.User and part sizes
	Prefixes  []string
	Truncated bool
	Next      string // After of the next page; set when Truncated
}

// UploadInfo describes a multipart upload in progress.
type UploadInfo struct {
	Bucket    string
	Key       string
	UploadID  string
	Initiated time.Time
	Meta      Meta
	// Checksum and Composite are what the client asked for at the start.
	Checksum  string // algorithm or ""
	Composite bool
}

// CreateUploadInput starts a multipart upload.
type CreateUploadInput struct {
	Meta      Meta
	Checksum  string
	Composite bool
}

// PartInfo describes an uploaded part.
type PartInfo struct {
	Number  int // 1..MaxParts
	Size    int64
	ModTime time.Time
	Digest  Digest
}

// PartPage is a page of parts.
type PartPage struct {
	Upload    UploadInfo
	Parts     []PartInfo
	Truncated bool
	Next      int // part number to go on after
}

// UploadListInput asks for a page of uploads by (key, upload id).
type UploadListInput struct {
	Prefix, Delimiter       string
	AfterKey, AfterUploadID string // an empty upload id: all uploads of AfterKey are skipped
	Max                     int
}

// UploadPage is a page of uploads.
type UploadPage struct {
	Uploads               []UploadInfo
	Prefixes              []string
	Truncated             bool
	NextKey, NextUploadID string
}

// CompleteInput ends a multipart upload.
type CompleteInput struct {
	// Parts are the numbers of the parts to keep, ascending.
	Parts []int
	// Finish judges the parts and gives the object's digest. Its error refuses
	// the completion and leaves the upload open.
	Finish  func(upload UploadInfo, parts []PartInfo) (Digest, error)
	Precond Precond
}
