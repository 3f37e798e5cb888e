package s3xml

import (
	"strconv"
	"time"
)

// Owner is who owns an object, a bucket or an upload.
type Owner struct {
	ID   string
	Name string
}

func (w *Writer) owner(element string, o Owner) {
	w.Open(element)
	w.Text("ID", o.ID)
	w.Text("DisplayName", o.Name)
	w.Close(element)
}

// ListHead is what a page of a listing says before its keys.
type ListHead struct {
	V2        bool
	EncodeURL bool // encode keys, prefixes, delimiter and markers
	Bucket    string
	Prefix    string
	Delimiter string
	MaxKeys   int
	KeyCount  int // of V2: keys and common prefixes
	Truncated bool

	Marker     string // of V1
	NextMarker string // of V1, "" for none

	Token      string // of V2: the continuation token that was sent
	HasToken   bool
	NextToken  string
	StartAfter string
}

// ListObjects begins a page of ListObjects or ListObjectsV2. ListedObject and
// CommonPrefix follow, EndListObjects ends it.
func (w *Writer) ListObjects(h *ListHead) {
	w.Root("ListBucketResult")
	w.Text("Name", h.Bucket)
	w.Encoded("Prefix", h.Prefix, h.EncodeURL)
	if h.V2 {
		w.listV2(h)
	} else {
		w.Encoded("Marker", h.Marker, h.EncodeURL)
		if h.NextMarker != "" {
			w.Encoded("NextMarker", h.NextMarker, h.EncodeURL)
		}
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

func (w *Writer) listV2(h *ListHead) {
	if h.HasToken {
		w.Text("ContinuationToken", h.Token)
	}
	w.Optional("NextContinuationToken", h.NextToken)
	if h.StartAfter != "" {
		w.Encoded("StartAfter", h.StartAfter, h.EncodeURL)
	}
	w.Int("KeyCount", int64(h.KeyCount))
}

// ListedObject is a key of a listing.
type ListedObject struct {
	Key          string
	ModTime      time.Time
	ETag         string // without quotes
	Size         int64
	StorageClass string // "" for STANDARD
	Checksum     string // algorithm, "" for none
	ChecksumType string
	Owner        *Owner // nil for none
}

// ListedObject writes one key.
func (w *Writer) ListedObject(o *ListedObject, encodeURL bool) {
	b := append(w.buf, "<Contents><Key>"...)
	if encodeURL {
		b = AppendURL(b, o.Key)
	} else {
		b = appendEscaped(b, o.Key, numeric)
	}
	b = appendTime(append(b, "</Key><LastModified>"...), o.ModTime)
	b = AppendText(append(b, "</LastModified><ETag>&quot;"...), o.ETag)
	b = append(b, "&quot;</ETag>"...)
	if o.Checksum != "" {
		b = AppendText(append(b, "<ChecksumAlgorithm>"...), o.Checksum)
		b = AppendText(append(b, "</ChecksumAlgorithm><ChecksumType>"...), o.ChecksumType)
		b = append(b, "</ChecksumType>"...)
	}
	b = strconv.AppendInt(append(b, "<Size>"...), o.Size, 10)
	w.buf = append(b, "</Size>"...)
	if o.Owner != nil {
		w.owner("Owner", *o.Owner)
	}
	w.storageClass(o.StorageClass)
	w.buf = append(w.buf, "</Contents>"...)
}

func (w *Writer) storageClass(class string) {
	if class == "" {
		class = "STANDARD"
	}
	w.Text("StorageClass", class)
}

// CommonPrefix writes one common prefix of a listing.
func (w *Writer) CommonPrefix(prefix string, encodeURL bool) {
	w.Open("CommonPrefixes")
	w.Encoded("Prefix", prefix, encodeURL)
	w.Close("CommonPrefixes")
}

// EndListObjects ends a page.
func (w *Writer) EndListObjects() { w.Close("ListBucketResult") }

// ListedBucket is a bucket of ListBuckets.
type ListedBucket struct {
	Name    string
	Created time.Time
	Region  string
}

// ListBuckets writes the answer of ListBuckets; next is the continuation token
// or "".
func (w *Writer) ListBuckets(owner Owner, buckets []ListedBucket, prefix, next string) {
	w.Root("ListAllMyBucketsResult")
	w.owner("Owner", owner)
	w.Open("Buckets")
	for i := range buckets {
		w.Open("Bucket")
		w.Text("Name", buckets[i].Name)
		w.Time("CreationDate", buckets[i].Created)
		w.Optional("BucketRegion", buckets[i].Region)
		w.Close("Bucket")
	}
	w.Close("Buckets")
	w.Optional("ContinuationToken", next)
	w.Optional("Prefix", prefix)
	w.Close("ListAllMyBucketsResult")
}
