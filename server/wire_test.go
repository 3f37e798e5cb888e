package server

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A36: where two readers could see different requests in the same bytes, there
// is one answer, a refusal, and the connection ends. These are net/http's
// manners; the test is here so that no change of server or version loses them.
func TestA36Smuggling(t *testing.T) {
	h := newHarness(t)
	const second = "GET /-/live HTTP/1.1\r\nHost: x\r\n\r\n"
	for name, first := range map[string]string{
		"two lengths":       "PUT /bkt/k HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
		"signed length":     "PUT /bkt/k HTTP/1.1\r\nHost: x\r\nContent-Length: +5\r\n\r\nhello",
		"negative length":   "PUT /bkt/k HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\nhello",
		"chunked, identity": "PUT /bkt/k HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
		"identity":          "PUT /bkt/k HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity\r\nContent-Length: 0\r\n\r\n",
		"two encodings":     "PUT /bkt/k HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"space in name":     "PUT /bkt/k HTTP/1.1\r\nHost: x\r\nContent-Length : 0\r\n\r\n",
		"no host":           "GET /bkt/k HTTP/1.1\r\n\r\n",
		"two hosts":         "GET /bkt/k HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
		"control character": "GET /bkt/k HTTP/1.1\r\nHost: x\r\nX-Amz-Meta-A: a\x01b\r\n\r\n",
		"version":           "GET /bkt/k HTTP/0.9\r\nHost: x\r\n\r\n",
		"no version":        "GET /bkt/k\r\n\r\n",
		"bad escape":        "GET /bkt/%zz HTTP/1.1\r\nHost: x\r\n\r\n",
		"huge header":       "GET /bkt/k HTTP/1.1\r\nHost: x\r\nX-Amz-Meta-A: " + strings.Repeat("a", 2<<20) + "\r\n\r\n",
	} {
		conn, err := net.Dial("tcp", h.http.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = io.WriteString(conn, first+second) }() // ends early where the server hangs up
		in := bufio.NewReader(conn)
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			if name != "huge header" { // whose rest may be reset before the answer is read
				t.Errorf("%s: %v", name, err)
			}
			conn.Close()
			continue
		}
		if res.StatusCode < 400 || res.StatusCode == 403 {
			t.Errorf("%s: %s", name, res.Status)
		}
		if _, err := io.Copy(io.Discard, res.Body); err != nil && name != "huge header" {
			t.Errorf("%s: %v", name, err)
		}
		if again, err := http.ReadResponse(in, nil); err == nil {
			t.Errorf("%s: the second request was answered: %s", name, again.Status)
		}
		conn.Close()
	}
}

// A thousand idle connections are no load, and requests go on beside them.
func TestIdleConnections(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt", "k")
	for range 1000 {
		conn, err := net.Dial("tcp", h.http.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	if r := h.ok(200, "GET", "/bkt/k", nil, ""); string(r.body) != "k" {
		t.Errorf("%q", r.body)
	}
}
