package sigv4

import (
	"bytes"
	"errors"
	"io"
	"strings"

	"ringfence/server/checksum"
	"ringfence/server/s3err"
)

const (
	// maxBlank bounds the empty lines after the final chunk. Clients end a
	// trailer with one, two or none, and some put one before the signature. Of
	// the other lines there are two at most, each bounded by lineBytes.
	maxBlank = 4

	trailerSignature = "x-amz-trailer-signature"
)

// trailer is the header that follows a chunked body.
type trailer struct {
	name      string // announced, lower case; "" for none
	value     string
	seen      bool
	signature []byte // claimed; nil if there was none
}

// readTrailer reads the trailer to the end of the body and checks it: exactly
// what was announced, once, well-formed, and signed if the chunks are. Lines
// may end in a bare LF, as those of some clients do.
func (b *chunkedBody) readTrailer() error {
	var blank int
	for {
		line, err := b.line()
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if err != nil && len(line) == 0 {
			break
		}
		field, ended := bytes.CutSuffix(line, []byte("\n"))
		field = bytes.TrimSuffix(field, []byte("\r"))
		if !ended {
			return incomplete(err) // a trailer that was cut off
		}
		if len(field) == 0 {
			blank++
		}
		if blank > maxBlank {
			return s3err.New(s3err.MalformedTrailerError)
		}
		if len(field) > 0 {
			if err := b.addTrailer(field); err != nil {
				return err
			}
		}
	}
	return b.checkTrailer(blank)
}

// addTrailer takes a line of the trailer.
func (b *chunkedBody) addTrailer(field []byte) error {
	name, value, ok := bytes.Cut(field, []byte(":"))
	value = bytes.Trim(value, " \t")
	t := &b.trailer
	switch {
	case !ok:
		return s3err.New(s3err.MalformedTrailerError)
	case b.signer != nil && t.signature == nil && strings.EqualFold(string(name), trailerSignature):
		t.signature = bytes.Clone(value)
	case t.name != "" && !t.seen && t.signature == nil && strings.EqualFold(string(name), t.name):
		t.seen, t.value = true, string(value)
	default:
		return s3err.New(s3err.MalformedTrailerError)
	}
	return nil
}

// checkTrailer judges the complete trailer. An announced trailer that is
// missing is an error: whoever announced it relies on it.
func (b *chunkedBody) checkTrailer(blank int) error {
	t := &b.trailer
	if t.name != "" && !t.seen {
		return s3err.New(s3err.MalformedTrailerError)
	}
	if !t.seen && t.signature == nil && blank == 0 {
		return incomplete(nil) // cut off after the header of the final chunk
	}
	if b.signer != nil && (t.seen || t.signature != nil) {
		if t.seen {
			io.WriteString(b.signer.hash, t.name+":"+t.value+"\n") //nolint:errcheck // hash.Hash never fails
		}
		if err := b.signer.checkTrailer(t.signature); err != nil {
			return err
		}
	}
	if !t.seen {
		return nil
	}
	algorithm, _ := checksum.ParseHeader(t.name)
	if _, err := algorithm.Decode(t.value); err != nil {
		return s3err.New(s3err.InvalidRequest).WithMessage("Value for " + t.name + " trailing header is invalid.").Wrap(err)
	}
	return nil
}
