package server

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"ringfence/erasure"
	"ringfence/server/s3err"
	"ringfence/server/sigv4"
)

// Every error that the store exports has a row.
func TestTranslationIsTotal(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../erasure/errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	own, err := parser.ParseFile(token.NewFileSet(), "errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	rows := make(map[string]bool)
	ast.Inspect(own, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			rows[sel.Sel.Name] = true
		}
		return true
	})
	n := 0
	ast.Inspect(file, func(node ast.Node) bool {
		if spec, ok := node.(*ast.ValueSpec); ok && strings.HasPrefix(spec.Names[0].Name, "Err") {
			if n++; !rows[spec.Names[0].Name] {
				t.Errorf("%s has no translation", spec.Names[0].Name)
			}
		}
		return true
	})
	if n < 10 {
		t.Errorf("only %d errors found", n)
	}
}

func TestStoreErrorsOnTheWire(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt")
	for _, c := range []struct {
		err    error
		status int
		code   string
		retry  bool
	}{
		{erasure.ErrOverload, 503, "SlowDown", true},
		{erasure.ErrUnavailable, 503, "ServiceUnavailable", true},
		{erasure.ErrUnknown, 503, "ServiceUnavailable", true},
		{erasure.ErrFull, 507, "InsufficientStorage", true},
		{erasure.ErrCorrupt, 500, "InternalError", false},
		{erasure.ErrKeyTooLong, 400, "KeyTooLongError", false},
		{erasure.ErrMetaTooLarge, 400, "MetadataTooLarge", false},
		{errTest, 500, "InternalError", false},
		{s3err.New(s3err.InvalidTag), 400, "InvalidTag", false},
	} {
		h.store.fail = func(op, _ string) error {
			if op == "Put" {
				return c.err
			}
			return nil
		}
		r := h.do("PUT", "/bkt/k", nil, "x")
		h.refusal(r, c.status, c.code)
		if (r.Header.Get("Retry-After") != "") != c.retry {
			t.Errorf("%v: Retry-After %q", c.err, r.Header.Get("Retry-After"))
		}
		if c.status >= 500 && strings.Contains(string(r.body), c.err.Error()) {
			t.Errorf("%v: the client sees the cause: %s", c.err, r.body)
		}
	}
}

// A62: nothing secret in logs, whatever happens.
func TestA62NothingSecretIsLogged(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt", "k")
	var secrets []string
	for _, status := range []int{200, 500} {
		req := sign(h.request("GET", "/bkt/k", nil, nil), nil)
		auth := req.Header.Get("Authorization")
		secrets = append(secrets, auth[len(auth)-64:])
		if r := h.send(req); r.StatusCode != status {
			t.Fatal(r.Status)
		}
		pre := h.presign("GET", "/bkt/k", nil)
		secrets = append(secrets, pre.URL.Query().Get("X-Amz-Signature"))
		h.send(pre)
		h.store.fail = func(string, string) error { return errTest }
	}
	h.refused(500, "InternalError", "GET", "/bkt/injected%0A%1B%5B31m%22", nil, "") // A63
	secrets = append(secrets, testSecret)
	log := h.log.String()
	for _, s := range secrets {
		if len(s) < 16 || strings.Contains(log, s) {
			t.Errorf("%q is in the log", s)
		}
	}
	for line := range strings.Lines(log) {
		if !strings.HasPrefix(line, `{"level"`) {
			t.Errorf("injected line %q", line)
		}
	}
	if !strings.Contains(log, `"level":"error"`) || !strings.Contains(log, "fake Open: test") {
		t.Errorf("the failure isn't explained: %s", log)
	}
}

func TestProbes(t *testing.T) {
	state := Readiness{Ready: true}
	h := newHarness(t, func(o *Options) { o.Ready = func() Readiness { return state } })
	h.bucket("bkt", "k")
	get := func(path string) reply { t.Helper(); return h.send(h.request("GET", path, nil, nil)) }
	if r := get("/-/live"); r.StatusCode != 200 {
		t.Error(r.Status)
	}
	if r := get("/-/ready"); r.StatusCode != 200 || strings.TrimSpace(string(r.body)) != `{"ready":true,"reasons":[]}` {
		t.Errorf("%s %s", r.Status, r.body)
	}
	state = Readiness{Reasons: []string{"2 of 4 disks"}}
	if r := get("/-/ready"); r.StatusCode != 503 || strings.TrimSpace(string(r.body)) != `{"ready":false,"reasons":["2 of 4 disks"]}` {
		t.Errorf("%s %s", r.Status, r.body)
	}
	for _, path := range []string{"/-/", "/-/nothing", "/-/live/x"} {
		if r := get(path); r.StatusCode != 404 || r.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("%s: %s %v", path, r.Status, r.Header)
		}
	}
	metrics := string(get("/-/metrics").body)
	for _, want := range []string{
		`ringfence_s3_requests_total{code="200",operation="PutObject"} 1`, `ringfence_s3_request_duration_seconds_count{operation="CreateBucket"} 1`,
		"ringfence_s3_requests_in_flight 0", "ringfence_s3_received_bytes_total 1",
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %s in\n%s", want, metrics)
		}
	}
}

func TestOverload(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.Limits.Requests = 1 })
	h.bucket("bkt")
	h.ok(200, "PUT", "/bkt/k", nil, "0123456789")
	h.store.hold = make(chan struct{})
	busy := make(chan int, 1)
	go func() { busy <- h.do("GET", "/bkt/k", nil, "").StatusCode }()
	eventually(t, "a request in work", func() bool { return len(h.srv.slots) == 1 })
	r := h.do("GET", "/bkt/k", nil, "")
	h.refusal(r, 503, "SlowDown")
	if r.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	if r := h.send(h.request("GET", "/-/live", nil, nil)); r.StatusCode != 200 {
		t.Errorf("not alive: %s", r.Status)
	}
	close(h.store.hold)
	if status := <-busy; status != 200 {
		t.Errorf("the first request: %d", status)
	}
	h.ok(200, "GET", "/bkt/k", nil, "")
}

// A52: a client that stops in the middle of a body loses its connection, in
// both directions, and stores nothing.
func TestA52SlowBodies(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.Limits.BodyIdle = 200 * time.Millisecond })
	h.bucket("bkt")
	req := sign(h.request("PUT", "/bkt/k", headers("x-amz-content-sha256", "UNSIGNED-PAYLOAD"), []byte("0123456789")), nil)
	res, _ := h.raw(h.head(req) + "01234")
	if res.StatusCode != 400 {
		t.Errorf("slow body: %s", res.Status)
	}
	if h.store.buckets["bkt"].objects["k"] != nil {
		t.Error("half a body was stored")
	}
	// Strangers hold nothing either, though their body isn't read.
	anonymous := h.request("PUT", "/bkt/k", nil, []byte("0123456789"))
	if res, _ := h.raw(h.head(anonymous)); res.StatusCode != 403 {
		t.Errorf("anonymous: %s", res.Status)
	}
	// A client that doesn't read.
	if _, err := h.store.commit("bkt", "big", make([]byte, 16<<20), erasure.Digest{}, erasure.Meta{}, nil, nil); err != nil {
		t.Fatal(err)
	}
	get := h.head(sign(h.request("GET", "/bkt/big", nil, nil), nil))
	conn, err := net.Dial("tcp", h.http.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, get); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server gives up", func() bool { return strings.Contains(h.log.String(), `"op":"GetObject"`) })
	if !strings.Contains(h.log.String(), `"status":499`) {
		t.Errorf("not the client's fault: %s", h.log)
	}
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, conn); n >= 16<<20 {
		t.Errorf("everything was sent: %d, %v", n, err)
	}
}

func TestServeDrains(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt")
	h.ok(200, "PUT", "/bkt/k", nil, "0123456789")
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- h.srv.Serve(ctx, ln) }()
	h.http.URL = "http://" + ln.Addr().String()
	h.store.hold = make(chan struct{})
	got := make(chan reply, 1)
	go func() { got <- h.do("GET", "/bkt/k", nil, "") }()
	eventually(t, "a request in work", func() bool { return len(h.srv.slots) == 1 })
	stop()
	eventually(t, "no new connections", func() bool {
		conn, err := net.Dial("tcp", ln.Addr().String())
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	select {
	case err := <-served:
		t.Fatalf("Serve did not wait: %v", err)
	default:
	}
	close(h.store.hold)
	if r := <-got; r.StatusCode != 200 || string(r.body) != "0123456789" {
		t.Errorf("%s %q", r.Status, r.body)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func TestServeCutsOffAfterTheDrain(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.Limits.Drain = 20 * time.Millisecond })
	h.bucket("bkt")
	h.ok(200, "PUT", "/bkt/k", nil, "0123456789")
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- h.srv.Serve(ctx, ln) }()
	h.http.URL = "http://" + ln.Addr().String()
	h.store.hold = make(chan struct{}) // never
	got := make(chan error, 1)
	go func() {
		res, err := transport.RoundTrip(sign(h.request("GET", "/bkt/k", nil, nil), nil))
		if err == nil {
			_, err = io.ReadAll(res.Body)
			res.Body.Close()
		}
		got <- err
	}()
	eventually(t, "a request in work", func() bool { return len(h.srv.slots) == 1 })
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if err := <-got; err == nil {
		t.Error("the client got a clean end")
	}
	eventually(t, "the request ends", func() bool { return len(h.srv.slots) == 0 })
}

func TestPanicIsAnError(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt")
	h.store.fail = func(string, string) error { panic("oh") }
	h.refused(500, "InternalError", "PUT", "/bkt/k", nil, "x")
	if !strings.Contains(h.log.String(), "panic: oh") {
		t.Error("not logged")
	}
	h.store.mu.Unlock() // which the panic left locked
	h.store.fail = nil
	h.ok(200, "PUT", "/bkt/k", nil, "x")
}

// A47: hostile documents are refused. The bound on time is for a busy machine
// with the race detector; package s3xml measures the parser alone.
func TestA47HostileDocuments(t *testing.T) {
	h := newHarness(t)
	h.bucket("bkt")
	bombs := map[string]string{
		"entity":   `<!DOCTYPE d [<!ENTITY x SYSTEM "file:///etc/passwd">]><Delete><Object><Key>&x;</Key></Object></Delete>`,
		"laughs":   `<!DOCTYPE d [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><Delete>&b;</Delete>`,
		"depth":    strings.Repeat("<a>", 100000),
		"elements": "<Delete>" + strings.Repeat("<a/>", 1000000) + "</Delete>",
		"size":     "<Delete>" + strings.Repeat(" ", 6<<20) + "</Delete>",
		"utf16":    "\xfe\xff\x00<\x00D",
		"utf7":     `<?xml version="1.0" encoding="UTF-7"?><Delete/>`,
		"pi":       `<?xml-stylesheet href="x"?><Delete/>`,
	}
	for name, body := range bombs {
		start := time.Now()
		r := h.do("POST", "/bkt/k?uploadId=x", nil, body)
		if took := time.Since(start); r.StatusCode != 400 || took > 20*time.Second {
			t.Errorf("%s: %s after %v", name, r.Status, took)
		}
		h.refusal(r, 400, "MalformedXML")
	}
}

func TestNewRefusesHoles(t *testing.T) {
	if _, err := New(Options{}); err == nil {
		t.Error("New without a store")
	}
	store := newFakeStore()
	auth, err := sigv4.New(sigv4.Options{Lookup: func(context.Context, string) (sigv4.Credential, bool) { return sigv4.Credential{}, false }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(Options{Buckets: store, Objects: Adapt(store), Uploads: store, Auth: auth, Domains: []string{" "}}); err == nil {
		t.Error("New with an empty domain")
	}
}

// Documents in memory are bounded over all requests.
func TestDocumentBudget(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.Limits.DocumentBytes = 1 })
	h.bucket("bkt")
	if !h.srv.docs.TryAcquire(maxLargeDocument) {
		t.Fatal("the largest document does not fit")
	}
	h.refused(503, "SlowDown", "POST", "/bkt/k?uploadId=x", nil, manifest(1, "e"))
	h.srv.docs.Release(maxLargeDocument)
	h.refused(404, "NoSuchUpload", "POST", "/bkt/k?uploadId=x", nil, manifest(1, "e"))
	if !h.srv.docs.TryAcquire(maxLargeDocument) {
		t.Error("a request kept its share")
	}
}

func TestServeReportsABrokenListener(t *testing.T) {
	h := newHarness(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	if err := h.srv.Serve(t.Context(), ln); err == nil {
		t.Error("no error")
	}
}
