package sigv4

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
)
