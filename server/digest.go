package server

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"ringfence/erasure"
	"ringfence/server/checksum"
	"ringfence/server/s3err"
	"ringfence/server/sigv4"
)

// digest hashes a request body while it is read and judges it at its end
// against everything that vouches for it: the signature, Content-MD5, a
// checksum header or trailer. It belongs to one goroutine.
type digest struct {
	from   io.Reader
	auth   *sigv4.Result // nil for bytes that don't come from a client
	hasher *checksum.Hasher

	md5  []byte             // Content-MD5, nil if not given
	algo checksum.Algorithm // the client's, None if it named none
	want []byte             // value of algo, nil if it is in the trailer or unknown
}

// newDigest reads what a request says about its body. The extra algorithms are
// computed, too.
func newDigest(r *request, extra ...checksum.Algorithm) (*digest, error) {
	d := &digest{from: r.auth.Body, auth: r.auth}
	if values, ok := r.header["Content-Md5"]; ok {
		sum, err := base64.StdEncoding.Strict().DecodeString(strings.TrimSpace(values[0]))
		if err != nil || len(sum) != checksum.MD5.Size() || len(values) > 1 {
			return nil, s3err.New(s3err.InvalidDigest).With("Content-MD5", values[0])
		}
		d.md5 = sum
	}
	if err := d.declared(r.header); err != nil {
		return nil, err
	}
	d.hasher = checksum.NewHasher(append(extra, d.algo)...)
	return d, nil
}

// declared finds the one checksum that a client may declare, by header or by
// the name of a trailer.
func (d *digest) declared(h http.Header) error {
	value, err := d.header(h)
	if err != nil {
		return err
	}
	if name := d.auth.TrailerName; name != "" {
		algo, ok := checksum.ParseHeader(name)
		switch {
		case !ok:
			return s3err.New(s3err.InvalidRequest).WithMessage("The value specified in the x-amz-trailer header is not supported")
		case d.algo != checksum.None:
			return s3err.New(s3err.InvalidRequest).WithMessage("Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.")
		}
		d.algo = algo
	} else if d.algo != checksum.None {
		if d.want, err = d.algo.Decode(value); err != nil {
			return s3err.New(s3err.InvalidRequest).WithMessage("Value for " + d.algo.Header() + " header is invalid.")
		}
	}
	return d.sdkAlgorithm(h)
}

// header finds the checksum header.
func (d *digest) header(h http.Header) (value string, err error) {
	for name, values := range h {
		if len(name) <= len(checksum.HeaderPrefix) || !strings.EqualFold(name[:len(checksum.HeaderPrefix)], checksum.HeaderPrefix) {
			continue
		}
		switch name {
		case "X-Amz-Checksum-Algorithm", "X-Amz-Checksum-Mode", "X-Amz-Checksum-Type":
			continue
		}
		algo, ok := checksum.ParseHeader(name)
		switch {
		case !ok:
			return "", s3err.New(s3err.InvalidRequest).WithMessage("The algorithm type you specified in x-amz-checksum- header is invalid.")
		case d.algo != checksum.None, len(values) > 1:
			return "", s3err.New(s3err.InvalidRequest).WithMessage("Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.")
		}
		d.algo, value = algo, values[0]
	}
	return value, nil
}

// sdkAlgorithm checks the header in which SDKs announce the checksum that they
// send, if they do.
func (d *digest) sdkAlgorithm(h http.Header) error {
	name := h.Get("x-amz-sdk-checksum-algorithm")
	if name == "" {
		return nil
	}
	algo, ok := checksum.Parse(name)
	switch {
	case !ok:
		return s3err.New(s3err.InvalidRequest).WithMessage("Value for x-amz-sdk-checksum-algorithm header is invalid.")
	case d.algo == checksum.None && d.md5 == nil:
		return s3err.New(s3err.InvalidRequest).
			WithMessage("x-amz-sdk-checksum-algorithm specified, but no corresponding x-amz-checksum-* or x-amz-trailer headers were found.")
	case d.algo != checksum.None && algo != d.algo:
		return s3err.New(s3err.InvalidRequest).WithMessage("Value for x-amz-sdk-checksum-algorithm header is invalid.")
	}
	return nil
}

// Read passes the body on.
func (d *digest) Read(p []byte) (int, error) {
	n, err := d.from.Read(p)
	if n > 0 {
		_, _ = d.hasher.Write(p[:n]) // never fails
	}
	return n, err
}

// verify judges the body, which must have been read to its end.
func (d *digest) verify() error {
	if d.auth != nil {
		if err := d.auth.Verified(); err != nil {
			return err
		}
	}
	if d.md5 != nil {
		if got := d.hasher.Sum(checksum.MD5); !bytes.Equal(got, d.md5) {
			return s3err.New(s3err.BadDigest).
				With("CalculatedDigest", checksum.Encode(got)).With("ExpectedDigest", checksum.Encode(d.md5))
		}
	}
	return d.verifyChecksum()
}

func (d *digest) verifyChecksum() error {
	if d.algo == checksum.None {
		return nil
	}
	if d.want == nil && d.auth != nil && d.auth.TrailerName != "" {
		_, value, ok := d.auth.Trailer()
		if !ok {
			return s3err.New(s3err.MalformedTrailerError)
		}
		want, err := d.algo.Decode(value)
		if err != nil {
			return s3err.New(s3err.InvalidRequest).WithMessage("Value for " + d.algo.Header() + " trailing header is invalid.")
		}
		d.want = want
	}
	if got := d.hasher.Sum(d.algo); d.want != nil && !bytes.Equal(got, d.want) {
		return wrongChecksum(d.algo, got, d.want)
	}
	return nil
}

// wrongChecksum names the checksum: users who let a signer add one without
// knowing have no other clue.
func wrongChecksum(algo checksum.Algorithm, got, want []byte) error {
	return s3err.New(s3err.BadDigest).
		WithMessage(fmt.Sprintf("The %s you specified did not match the calculated checksum.", algo)).
		With("CalculatedDigest", checksum.Encode(got)).With("ExpectedDigest", checksum.Encode(want))
}

// finish is the Finish of a write: it verifies the body and gives its digest.
func (d *digest) finish(n int64) (erasure.Digest, error) {
	if n != d.hasher.Size() {
		return erasure.Digest{}, s3err.New(s3err.InternalError).
			Wrap(fmt.Errorf("store took %d of %d bytes", n, d.hasher.Size()))
	}
	if err := d.verify(); err != nil {
		return erasure.Digest{}, err
	}
	return d.sum(d.algo), nil
}

// sum gives the digest of what was read. The first checksum is the one to show
// to clients: the one they chose, or CRC64NVME, which every object has.
func (d *digest) sum(show checksum.Algorithm) erasure.Digest {
	sums := make([]erasure.Checksum, 0, 2)
	if show != checksum.None && show != checksum.CRC64NVME {
		sums = append(sums, erasure.Checksum{Algorithm: show.String(), Value: d.hasher.Sum(show)})
	}
	sums = append(sums, erasure.Checksum{Algorithm: checksum.CRC64NVME.String(), Value: d.hasher.Sum(checksum.CRC64NVME)})
	return erasure.Digest{ETag: hex.EncodeToString(d.hasher.Sum(checksum.MD5)), Checksums: sums}
}

// shown is the checksum of a digest that clients see, false for none.
func shown(d erasure.Digest) (erasure.Checksum, bool) {
	if len(d.Checksums) == 0 {
		return erasure.Checksum{}, false
	}
	return d.Checksums[0], true
}

// checksumText is a checksum as it stands in headers and documents.
func checksumText(c erasure.Checksum) string {
	text := checksum.Encode(c.Value)
	if c.Composite {
		text += "-" + strconv.Itoa(c.Parts)
	}
	return text
}

func checksumType(composite bool) string {
	if composite {
		return "COMPOSITE"
	}
	return "FULL_OBJECT"
}

// setChecksum puts the shown checksum into an answer, and its type when typed.
func setChecksum(h http.Header, d erasure.Digest, typed bool) {
	c, ok := shown(d)
	if !ok {
		return
	}
	algo, ok := checksum.Parse(c.Algorithm)
	if !ok {
		return // written by a later version, unknown to this one's clients, too
	}
	h[algo.Header()] = []string{checksumText(c)}
	if typed {
		h[hdrSumType] = []string{checksumType(c.Composite)}
	}
}
