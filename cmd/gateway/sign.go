package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"time"
)

// sign puts a Signature Version 4 for S3 on a request of our own: one without a
// query, whose path needs no escapes. body is all of its body.
func sign(r *http.Request, body []byte, c credentials, region string, now time.Time) {
	sum := sha256.Sum256(body)
	payload := hex.EncodeToString(sum[:])
	stamp := now.UTC().Format("20060102T150405Z")
	r.Header.Set("X-Amz-Date", stamp)
	r.Header.Set("X-Amz-Content-Sha256", payload)
	const signed = "host;x-amz-content-sha256;x-amz-date"
	canonical := strings.Join([]string{
		r.Method, r.URL.EscapedPath(), "",
		"host:" + r.URL.Host, "x-amz-content-sha256:" + payload, "x-amz-date:" + stamp, "",
		signed, payload,
	}, "\n")
	digest := sha256.Sum256([]byte(canonical))
	scope := strings.Join([]string{stamp[:8], region, "s3", "aws4_request"}, "/")
	message := strings.Join([]string{"AWS4-HMAC-SHA256", stamp, scope, hex.EncodeToString(digest[:])}, "\n")
	key := []byte("AWS4" + c.Password)
	for part := range strings.SplitSeq(scope, "/") {
		key = mac(key, part)
	}
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+c.User+"/"+scope+
		", SignedHeaders="+signed+", Signature="+hex.EncodeToString(mac(key, message)))
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text)) // never fails
	return h.Sum(nil)
}
