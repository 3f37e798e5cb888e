// Package checksum knows the checksums of the S3 protocol: names, header
// fields, encodings, which kind of checksum a multipart upload may ask for, and
// how to compute several of them in one pass over a body.
//
// A checksum of a multipart object comes in two kinds. A composite one is the
// checksum of the parts' checksums, which any algorithm can give. A full-object
// one is the checksum of the bytes; for CRCs, and only for them, it follows
// from the parts' checksums and sizes without reading a byte again, since a CRC
// is linear over GF(2). Raw values are bytes as the algorithm gives them, most
// significant first; on the wire they are standard base64 with padding.
package checksum

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"hash"
	"hash/crc32"
	"strings"

	"github.com/minio/crc64nvme"
)

// Algorithm is a checksum algorithm. The zero value is none.
type Algorithm uint8

// The algorithms of the protocol. MD5 is that of ETag and Content-MD5 and has
// no x-amz-checksum header here.
const (
	None Algorithm = iota
	CRC32
	CRC32C
	CRC64NVME
	SHA1
	SHA256
	MD5
	algorithms // how many there are, None included
)

// HeaderPrefix starts the header, lower case, that carries a checksum.
const HeaderPrefix = "x-amz-checksum-"

// ErrValue: a text is not the base64 of a value of the right length.
var ErrValue = errors.New("not a checksum value")

type property struct {
	name, header    string
	size            int
	full, composite bool // which kinds a multipart object may have
}

// properties never changes after start.
var properties = [algorithms]property{
	CRC32:     {"CRC32", HeaderPrefix + "crc32", 4, true, true},
	CRC32C:    {"CRC32C", HeaderPrefix + "crc32c", 4, true, true},
	CRC64NVME: {"CRC64NVME", HeaderPrefix + "crc64nvme", 8, true, false},
	SHA1:      {"SHA1", HeaderPrefix + "sha1", sha1.Size, false, true},
	SHA256:    {"SHA256", HeaderPrefix + "sha256", sha256.Size, false, true},
	MD5:       {"MD5", "", md5.Size, false, true},
}

// castagnoli is the polynomial table of CRC32C; it never changes.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Parse gives the algorithm that a client may name in
// x-amz-checksum-algorithm, x-amz-sdk-checksum-algorithm or an XML document,
// in any case. MD5 is not one of them.
func Parse(name string) (Algorithm, bool) {
	for a := CRC32; a < MD5; a++ {
		if strings.EqualFold(name, properties[a].name) {
			return a, true
		}
	}
	return None, false
}

// ParseHeader gives the algorithm whose value the header or trailer of that
// name carries, in any case.
func ParseHeader(header string) (Algorithm, bool) {
	for a := CRC32; a < MD5; a++ {
		if strings.EqualFold(header, properties[a].header) {
			return a, true
		}
	}
	return None, false
}

// String gives the name on the wire, upper case; "" for None.
func (a Algorithm) String() string { return a.property().name }

// Header gives the header, lower case, that carries the value; "" for None and MD5.
func (a Algorithm) Header() string { return a.property().header }

// Size is the length of a raw value in bytes.
func (a Algorithm) Size() int { return a.property().size }

// FullObject reports whether a multipart object may have a full-object
// checksum of this algorithm.
func (a Algorithm) FullObject() bool { return a.property().full }

// Composite reports whether a multipart object may have a checksum of its
// parts' checksums of this algorithm.
func (a Algorithm) Composite() bool { return a.property().composite }

// DefaultComposite reports which kind a multipart upload gets when the client
// names an algorithm and no kind: composite wherever that is allowed.
func (a Algorithm) DefaultComposite() bool { return a.property().composite }

func (a Algorithm) property() *property {
	if a >= algorithms {
		a = None
	}
	return &properties[a]
}

// New gives a running hash of a, nil for None.
func (a Algorithm) New() hash.Hash {
	switch a {
	case CRC32:
		return crc32.NewIEEE()
	case CRC32C:
		return crc32.New(castagnoli)
	case CRC64NVME:
		return crc64nvme.New()
	case SHA1:
		return sha1.New()
	case SHA256:
		return sha256.New()
	case MD5:
		return md5.New()
	}
	return nil
}

// Encode gives the text of a raw value.
func Encode(raw []byte) string { return base64.StdEncoding.EncodeToString(raw) }

// Decode gives the raw value of a text, or ErrValue unless it is strict
// standard base64 of exactly a.Size() bytes.
func (a Algorithm) Decode(text string) ([]byte, error) {
	if a.Size() == 0 || len(text) != base64.StdEncoding.EncodedLen(a.Size()) {
		return nil, ErrValue
	}
	// Line breaks, which the decoder skips, leave too few bytes.
	raw, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) != a.Size() {
		return nil, ErrValue
	}
	return raw, nil
}
