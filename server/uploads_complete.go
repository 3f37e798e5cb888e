package server

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"ringfence/erasure"
	"ringfence/server/checksum"
	"ringfence/server/s3err"
	"ringfence/server/s3xml"
)

func (s *Server) completeUpload(w *response, r *request) error {
	precond, err := writePrecond(r.header)
	if err != nil {
		return err
	}
	c, err := newCompletion(r, s.opt.Limits.MinPartSize)
	if err != nil {
		return err
	}
	doc, err := s.readCompletion(r)
	if err != nil {
		return err
	}
	if c.req, err = s3xml.ParseComplete(doc); err != nil {
		return err
	}
	numbers, err := partNumbers(c.req.Parts)
	if err != nil {
		return err
	}
	var info erasure.ObjectInfo
	return s.patiently(w, r, func(h http.Header) (err error) {
		info, err = s.opt.Uploads.CompleteUpload(r.ctx, r.target.bucket, r.target.key, c.uploadID, erasure.CompleteInput{
			Parts: numbers, Finish: c.finish, Precond: precond,
		})
		setVersion(h, info.VersionID)
		return err
	}, func(x *s3xml.Writer) {
		x.CompleteUpload(location(r), r.target.bucket, r.target.key, info.Digest.ETag, checksumTexts(info.Digest))
	})
}

// readCompletion reads the document of a completion. Its checksum headers are
// about the object, not about the document.
func (s *Server) readCompletion(r *request) ([]byte, error) {
	body := *r
	body.header = r.header.Clone()
	for name := range body.header {
		if _, ok := checksum.ParseHeader(name); ok {
			delete(body.header, name)
		}
	}
	delete(body.header, "X-Amz-Sdk-Checksum-Algorithm")
	doc, err := s.readDocument(&body, maxLargeDocument, false)
	r.held = body.held
	return doc, err
}

// partNumbers checks the list of parts that a client wants to keep.
func partNumbers(parts []s3xml.CompletePart) ([]int, error) {
	if len(parts) == 0 || len(parts) > erasure.MaxParts {
		return nil, s3err.New(s3err.MalformedXML)
	}
	numbers := make([]int, len(parts))
	for i := range parts {
		n := parts[i].Number
		if n < 1 || n > erasure.MaxParts {
			return nil, argument("PartNumber", strconv.Itoa(n), "Part number must be an integer between 1 and 10000, inclusive")
		}
		if i > 0 && n <= numbers[i-1] {
			return nil, s3err.New(s3err.InvalidPartOrder)
		}
		numbers[i] = n
	}
	return numbers, nil
}

// location is the address of the new object.
func location(r *request) string {
	scheme := "http://"
	if r.secure {
		scheme = "https://"
	}
	path := string(s3xml.AppendURL(nil, r.target.key))
	if r.target.virtual {
		return scheme + r.host + "/" + path
	}
	return scheme + r.host + "/" + r.target.bucket + "/" + path
}

// completion is what a client says about the object that its parts make, and
// what it must match.
type completion struct {
	req         s3xml.CompleteRequest
	uploadID    string
	minPartSize int64

	algo  checksum.Algorithm // of the expected object checksum, None for none
	want  []byte
	parts int // of a composite checksum, 0 if the client didn't say
	kind  string
	size  int64 // expected size of the object, -1 for any
}

func newCompletion(r *request, minPartSize int64) (*completion, error) {
	c := &completion{uploadID: r.param("uploadId"), minPartSize: minPartSize, size: -1, kind: strings.ToUpper(r.header.Get(hdrSumType))}
	var d digest
	value, err := d.header(r.header)
	if err != nil {
		return nil, err
	}
	if c.algo = d.algo; c.algo != checksum.None {
		text, count, counted := strings.Cut(value, "-")
		if counted {
			n, ok := number(count)
			if !ok || n < 1 || n > erasure.MaxParts {
				return nil, badChecksumHeader(c.algo)
			}
			c.parts = int(n)
		}
		if c.want, err = c.algo.Decode(text); err != nil {
			return nil, badChecksumHeader(c.algo)
		}
	}
	if v := r.header.Get("x-amz-mp-object-size"); v != "" {
		n, ok := number(v)
		if !ok {
			return nil, s3err.New(s3err.InvalidRequest).WithMessage("Value for x-amz-mp-object-size header is invalid.")
		}
		c.size = n
	}
	return c, nil
}

func badChecksumHeader(algo checksum.Algorithm) error {
	return s3err.New(s3err.InvalidRequest).WithMessage("Value for " + algo.Header() + " header is invalid.")
}

// finish judges the parts, in the order of the request, and gives the object's
// digest. It is a pure function of its arguments.
func (c *completion) finish(upload erasure.UploadInfo, parts []erasure.PartInfo) (erasure.Digest, error) {
	if len(parts) != len(c.req.Parts) {
		return erasure.Digest{}, s3err.New(s3err.InternalError).
			Wrap(fmt.Errorf("store gave %d of %d parts", len(parts), len(c.req.Parts)))
	}
	var size int64
	for i := range parts {
		if err := c.checkPart(&c.req.Parts[i], &parts[i]); err != nil {
			return erasure.Digest{}, err
		}
		size += parts[i].Size
	}
	for i := range parts[:len(parts)-1] {
		if p := &parts[i]; p.Size < c.minPartSize {
			return erasure.Digest{}, s3err.New(s3err.EntityTooSmall).
				With("ProposedSize", strconv.FormatInt(p.Size, 10)).With("MinSizeAllowed", strconv.FormatInt(c.minPartSize, 10)).
				With("PartNumber", strconv.Itoa(p.Number)).With("ETag", p.Digest.ETag)
		}
	}
	if c.size >= 0 && c.size != size {
		return erasure.Digest{}, s3err.New(s3err.InvalidRequest).
			WithMessage(fmt.Sprintf("The provided 'x-amz-mp-object-size' header value %d does not match what was computed: %d", c.size, size))
	}
	d, err := objectDigest(upload, parts)
	if err != nil {
		return erasure.Digest{}, err
	}
	return d, c.checkObject(upload, d, len(parts))
}

// checkPart compares a part with what the client says about it.
func (c *completion) checkPart(want *s3xml.CompletePart, got *erasure.PartInfo) error {
	bad := want.Number != got.Number || unquote(want.ETag) != got.Digest.ETag
	for _, sum := range want.Checksums {
		found := false
		for _, have := range got.Digest.Checksums {
			found = found || have.Algorithm == sum.Algorithm && checksum.Encode(have.Value) == sum.Value
		}
		bad = bad || !found
	}
	if !bad {
		return nil
	}
	return s3err.New(s3err.InvalidPart).
		With("UploadId", c.uploadID).With("PartNumber", strconv.Itoa(want.Number)).With("ETag", unquote(want.ETag))
}

// checkObject compares the object's checksum with what the client expects.
func (c *completion) checkObject(upload erasure.UploadInfo, d erasure.Digest, parts int) error {
	got, _ := shown(d)
	if c.kind != "" && c.kind != checksumType(got.Composite) {
		return s3err.New(s3err.InvalidRequest).WithMessage(fmt.Sprintf(
			"The upload was created using the %s checksum mode. The complete request must use the same checksum mode.", checksumType(got.Composite)))
	}
	if c.algo == checksum.None {
		return nil
	}
	for _, have := range d.Checksums {
		if have.Algorithm != c.algo.String() {
			continue
		}
		if !bytes.Equal(have.Value, c.want) || c.parts != 0 && (!have.Composite || c.parts != parts) {
			return wrongChecksum(c.algo, have.Value, c.want)
		}
		return nil
	}
	return s3err.New(s3err.InvalidRequest).WithMessage(fmt.Sprintf(
		"Checksum Type mismatch occurred, expected checksum Type: %s, actual checksum Type: %s",
		strings.ToLower(upload.Checksum), strings.ToLower(c.algo.String())))
}

// objectDigest computes an object's digest from those of its parts, without a
// look at the bytes.
func objectDigest(upload erasure.UploadInfo, parts []erasure.PartInfo) (erasure.Digest, error) {
	sums := make([][]byte, len(parts))
	for i := range parts {
		sum, err := hex.DecodeString(parts[i].Digest.ETag)
		if err != nil {
			return erasure.Digest{}, s3err.New(s3err.InternalError).Wrap(fmt.Errorf("etag of part %d: %w", parts[i].Number, err))
		}
		sums[i] = sum
	}
	d := erasure.Digest{ETag: hex.EncodeToString(checksum.Composite(checksum.MD5, sums)) + "-" + strconv.Itoa(len(parts))}
	if algo, ok := checksum.Parse(upload.Checksum); ok && algo != checksum.CRC64NVME {
		c, ok := partsChecksum(algo, upload.Composite, parts)
		if !ok {
			return erasure.Digest{}, s3err.New(s3err.InternalError).Wrap(fmt.Errorf("a part has no %s", algo))
		}
		d.Checksums = append(d.Checksums, c)
	}
	// Every part has a CRC64NVME, so every object has one.
	if c, ok := partsChecksum(checksum.CRC64NVME, false, parts); ok {
		d.Checksums = append(d.Checksums, c)
	}
	return d, nil
}

func partsChecksum(algo checksum.Algorithm, composite bool, parts []erasure.PartInfo) (erasure.Checksum, bool) {
	name := algo.String()
	sums := make([][]byte, 0, len(parts))
	sized := make([]checksum.Part, 0, len(parts))
	for i := range parts {
		for _, c := range parts[i].Digest.Checksums {
			if c.Algorithm == name {
				sums = append(sums, c.Value)
				sized = append(sized, checksum.Part{Sum: c.Value, Size: parts[i].Size})
				break
			}
		}
	}
	if len(sums) != len(parts) {
		return erasure.Checksum{}, false
	}
	if composite {
		return erasure.Checksum{Algorithm: name, Composite: true, Value: checksum.Composite(algo, sums), Parts: len(parts)}, true
	}
	value, ok := checksum.Combine(algo, sized)
	return erasure.Checksum{Algorithm: name, Value: value}, ok
}
