package sigv4

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"math/rand/v2"
	"strings"
	"testing"

	"ringfence/server/s3err"
)

// documented are the examples of the public documentation of the protocol.
var documented = []struct{ name, head, body string }{
	{"get object", `
GET /test.txt HTTP/1.1
Host: examplebucket.s3.amazonaws.com
Authorization: AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41
Range: bytes=0-9
x-amz-content-sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
x-amz-date: 20130524T000000Z`, ""},
	{"put object", `
PUT /test$file.text HTTP/1.1
Host: examplebucket.s3.amazonaws.com
Date: Fri, 24 May 2013 00:00:00 GMT
Authorization: AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,SignedHeaders=date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class,Signature=98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd
x-amz-date: 20130524T000000Z
x-amz-storage-class: REDUCED_REDUNDANCY
x-amz-content-sha256: 44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072
Content-Length: 21`, "Welcome to Amazon S3."},
	{"get lifecycle", `
GET /?lifecycle HTTP/1.1
Host: examplebucket.s3.amazonaws.com
Authorization: AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,SignedHeaders=host;x-amz-content-sha256;x-amz-date,Signature=fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543
x-amz-date: 20130524T000000Z
x-amz-content-sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855`, ""},
	{"list objects", `
GET /?max-keys=2&prefix=J HTTP/1.1
Host: examplebucket.s3.amazonaws.com
Authorization: AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,SignedHeaders=host;x-amz-content-sha256;x-amz-date,Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7
x-amz-date: 20130524T000000Z
x-amz-content-sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855`, ""},
	{"presigned get", `
GET /test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404 HTTP/1.1
Host: examplebucket.s3.amazonaws.com`, ""},
}

func TestDocumentedRequests(t *testing.T) {
	for _, d := range documented {
		t.Run(d.name, func(t *testing.T) {
			result, body, err := outcome(newDoc(t), parsed(t, d.head, d.body))
			if err != nil {
				t.Fatal(err)
			}
			if string(body) != d.body || result.Principal.AccessKey != docAccessKey || result.Principal.Anonymous {
				t.Fatalf("got %q from %+v", body, result.Principal)
			}
			if result.Presigned != strings.Contains(d.name, "presigned") {
				t.Errorf("presigned %v", result.Presigned)
			}

			// The same with another method, key, host, signature digit.
			for old, changed := range map[string]string{
				"GET /": "HEAD /", "PUT /": "POST /", "/test": "/tesT", "Host: e": "Host: f", "Signature=": "Signature=0",
			} {
				if head := strings.Replace(d.head, old, changed, 1); head != d.head {
					if _, _, err := outcome(newDoc(t), parsed(t, head, d.body)); err == nil {
						t.Errorf("%q instead of %q is accepted", changed, old)
					} else {
						refused(t, err, s3err.SignatureDoesNotMatch)
					}
				}
			}
		})
	}
}

const documentedChunks = "10000;chunk-signature=ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648\r\n<64K>\r\n" +
	"400;chunk-signature=0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497\r\n<1K>\r\n" +
	"0;chunk-signature=b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9\r\n\r\n"

const documentedTrailer = "10000;chunk-signature=b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2\r\n<64K>\r\n" +
	"400;chunk-signature=1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7\r\n<1K>\r\n" +
	"0;chunk-signature=2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992\r\n" +
	"x-amz-checksum-crc32c:sOO8/Q==\r\n" +
	"x-amz-trailer-signature:d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435\r\n"

func spell(chunks string) string {
	return strings.NewReplacer("<64K>", strings.Repeat("a", 65536), "<1K>", strings.Repeat("a", 1024)).Replace(chunks)
}

const documentedChunkedHead = `
PUT /examplebucket/chunkObject.txt HTTP/1.1
Host: s3.amazonaws.com
x-amz-date: 20130524T000000Z
x-amz-storage-class: REDUCED_REDUNDANCY
Authorization: AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,SignedHeaders=content-encoding;content-length;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;x-amz-storage-class,Signature=4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9
x-amz-content-sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD
Content-Encoding: aws-chunked
x-amz-decoded-content-length: 66560
Content-Length: 66824`

const documentedTrailerHead = `
PUT /examplebucket/chunkObject.txt HTTP/1.1
Host: s3.amazonaws.com
x-amz-date: 20130524T000000Z
x-amz-storage-class: REDUCED_REDUNDANCY
Authorization: AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,SignedHeaders=content-encoding;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;x-amz-storage-class;x-amz-trailer,Signature=106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e
x-amz-content-sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER
Content-Encoding: aws-chunked
x-amz-decoded-content-length: 66560
x-amz-trailer: x-amz-checksum-crc32c
Transfer-Encoding: chunked`

func TestDocumentedChunks(t *testing.T) {
	r := parsed(t, documentedChunkedHead, spell(documentedChunks))
	result, body, err := outcome(newDoc(t), r)
	if err != nil {
		t.Fatal(err)
	}
	if string(body) != strings.Repeat("a", 66560) || result.DecodedLength != 66560 || !result.Mode.Chunked() {
		t.Fatalf("%d bytes, length %d, mode %d", len(body), result.DecodedLength, result.Mode)
	}
	if _, _, ok := result.Trailer(); ok {
		t.Error("a trailer from nowhere")
	}
	if _, err := r.Body.Read(make([]byte, 1)); err == nil {
		t.Error("the body can still be read from the request")
	}
}

// asTransferChunks frames text as HTTP/1.1 chunks.
func asTransferChunks(text string) string {
	var out strings.Builder
	for len(text) > 0 {
		n := min(len(text), 0xfff)
		out.WriteString(strings.ToLower(hexSize(n)) + "\r\n" + text[:n] + "\r\n")
		text = text[n:]
	}
	return out.String() + "0\r\n\r\n"
}

func hexSize(n int) string {
	return strings.TrimLeft(string([]byte{upperHex[n>>8&15], upperHex[n>>4&15], upperHex[n&15]}), "0")
}

func TestDocumentedTrailer(t *testing.T) {
	for _, end := range []string{"", "\r\n", "\r\n\r\n", "\n"} {
		result, body, err := outcome(newDoc(t), parsed(t, documentedTrailerHead, asTransferChunks(spell(documentedTrailer)+end)))
		if err != nil {
			t.Fatal(err)
		}
		name, value, ok := result.Trailer()
		if len(body) != 66560 || name != "x-amz-checksum-crc32c" || value != "sOO8/Q==" || !ok {
			t.Fatalf("%d bytes, trailer %q %q %v", len(body), name, value, ok)
		}
	}
	// A trailer that the signature does not cover.
	forged := strings.Replace(spell(documentedTrailer), "sOO8/Q==", "AAAAAA==", 1)
	_, _, err := outcome(newDoc(t), parsed(t, documentedTrailerHead, asTransferChunks(forged)))
	refused(t, err, s3err.SignatureDoesNotMatch)
}

func TestMACIsHMAC(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for n := range 400 {
		key, message := make([]byte, n/3), make([]byte, n*3)
		for i := range key {
			key[i] = byte(random.Uint32())
		}
		for i := range message {
			message[i] = byte(random.Uint32())
		}
		h := hmac.New(sha256.New, key)
		h.Write(message)
		if got := mac(key, message); !bytes.Equal(got[:], h.Sum(nil)) {
			t.Fatalf("key of %d, message of %d bytes", len(key), len(message))
		}
	}
}
