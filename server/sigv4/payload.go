package sigv4

import (
	"crypto/sha256"
	"io"
	"net/http"
	"strconv"
	"strings"

	"ringfence/server/checksum"
	"ringfence/server/s3err"
)

// Mode is what x-amz-content-sha256 says about the body.
type Mode uint8

// Modes of payload.
const (
	ModeNone            Mode = iota // anonymous, and nothing said
	ModeSigned                      // the hash of the body
	ModeUnsigned                    // UNSIGNED-PAYLOAD
	ModeStreaming                   // STREAMING-AWS4-HMAC-SHA256-PAYLOAD
	ModeStreamingTrail              // STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER
	ModeUnsignedTrailer             // STREAMING-UNSIGNED-PAYLOAD-TRAILER
	modes                           // how many there are
)

const payloadUnsigned = "UNSIGNED-PAYLOAD"

// payloads says how each mode is read; a mode that is not here is refused. It
// never changes.
var payloads = [modes]struct {
	name    string // "" where there is no fixed one
	chunked bool   // framed as aws-chunked
	signed  bool   // each chunk, and the trailer, has a signature
	trailer bool   // may end in a trailer
}{
	ModeUnsigned:        {name: payloadUnsigned},
	ModeStreaming:       {name: "STREAMING-AWS4-HMAC-SHA256-PAYLOAD", chunked: true, signed: true},
	ModeStreamingTrail:  {name: "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER", chunked: true, signed: true, trailer: true},
	ModeUnsignedTrailer: {name: "STREAMING-UNSIGNED-PAYLOAD-TRAILER", chunked: true, trailer: true},
}

// Chunked reports whether the body comes in aws-chunked framing, which
// Result.Body takes off.
func (m Mode) Chunked() bool { return m < modes && payloads[m].chunked }

// modeOf gives the mode of a value of x-amz-content-sha256.
func modeOf(text string) (Mode, error) {
	if text == "" {
		return ModeNone, nil
	}
	for m := ModeUnsigned; m < modes; m++ {
		if payloads[m].name == text {
			return m, nil
		}
	}
	if _, ok := parseHash(text); ok {
		return ModeSigned, nil
	}
	return ModeNone, s3err.New(s3err.InvalidArgument).
		WithMessage("x-amz-content-sha256 must be UNSIGNED-PAYLOAD, STREAMING-UNSIGNED-PAYLOAD-TRAILER, STREAMING-AWS4-HMAC-SHA256-PAYLOAD, STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER or a valid sha256 value.").
		With("ArgumentName", "x-amz-content-sha256")
}

// parseHash parses a SHA-256 in hex.
func parseHash(text string) (hash [sha256.Size]byte, ok bool) {
	if len(text) != 2*len(hash) {
		return hash, false
	}
	for i := range hash {
		high, low := unhex(text[2*i]), unhex(text[2*i+1])
		if high > 15 || low > 15 {
			return hash, false
		}
		hash[i] = high<<4 | low
	}
	return hash, true
}

// open makes Body. Nothing is read, but a body that is known to be empty is
// verified at once, since nobody may care to read it.
func (r *Result) open(req *http.Request, body io.ReadCloser, c *claim, key *signingKey) error {
	p := payloads[r.Mode]
	announced := value(req.Header, headerTrailer)
	if announced != "" && !p.trailer {
		return s3err.New(s3err.InvalidRequest).
			WithMessage("x-amz-trailer requires a value of x-amz-content-sha256 that allows a trailer")
	}
	if !p.chunked {
		r.DecodedLength = req.ContentLength
		r.plain = plainBody{source: body, left: req.ContentLength}
		if r.Mode == ModeSigned {
			r.plain.want, _ = parseHash(c.payload) // modeOf has parsed it
			r.plain.hash = sha256.New()
		}
		r.Body = &r.plain
		return r.plain.start()
	}
	if p.signed && c.kind == Anonymous {
		return s3err.New(s3err.AccessDenied).WithMessage("A payload of signed chunks requires a signed request")
	}
	length, err := decodedLength(req.Header)
	if err != nil {
		return err
	}
	if r.TrailerName, err = trailerName(announced); err != nil {
		return err
	}
	r.DecodedLength = length
	r.chunked = newChunkedBody(body, length, r.TrailerName, p.trailer)
	if p.signed {
		r.chunked.signer = newChunkSigner(c, key)
	}
	r.Body = r.chunked
	return nil
}

// decodedLength gives the length of the payload without framing, in bytes.
func decodedLength(h http.Header) (int64, error) {
	text := value(h, headerDecodedLength)
	if text == "" {
		return 0, s3err.New(s3err.MissingContentLength).
			WithMessage("You must provide the x-amz-decoded-content-length HTTP header.")
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || strings.Trim(text, "0123456789") != "" {
		return 0, s3err.New(s3err.InvalidArgument).
			WithMessage("x-amz-decoded-content-length is not a length").
			With("ArgumentName", "x-amz-decoded-content-length")
	}
	return n, nil
}

// trailerName gives the lower-case name of the announced trailer. Only one
// checksum may be announced, and nothing else.
func trailerName(announced string) (string, error) {
	if announced == "" {
		return "", nil
	}
	if strings.Contains(announced, ",") {
		return "", s3err.New(s3err.InvalidRequest).
			WithMessage("Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.")
	}
	algorithm, ok := checksum.ParseHeader(strings.Trim(announced, " \t"))
	if !ok {
		return "", s3err.New(s3err.InvalidRequest).
			WithMessage("The value specified in the x-amz-trailer header is not supported")
	}
	return algorithm.Header(), nil
}
