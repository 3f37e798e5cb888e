package server

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7/pkg/signer"

	"ringfence/internal/knob"
)

// adminHarness is a harness whose server has two knobs.
func adminHarness(t *testing.T) (*harness, *knob.Bool, *knob.Int) {
	on, n := knob.NewBool("io-uring-read-enable", false, "read through rings"), knob.NewInt("shards", 2, 1, 16, "rings per disk")
	h := newHarness(t, func(o *Options) {
		o.Knobs = new(knob.Set)
		if err := o.Knobs.Add(on, n); err != nil {
			t.Fatal(err)
		}
		o.Engines = func() []EngineInfo {
			return []EngineInfo{{Disk: "/d1", Tier: "std", Why: "switched off", Latched: map[string]string{}, Fallbacks: map[string]int64{}}}
		}
	})
	return h, on, n
}

// refusedAs checks an error of the administration API.
func refusedAs(t *testing.T, r reply, status int, code string) adminError {
	t.Helper()
	var e adminError
	if err := json.Unmarshal(r.body, &e); err != nil {
		t.Fatalf("%s %s: %v in %q", r.Request.Method, r.Request.URL, err, r.body)
	}
	if r.StatusCode != status || e.Code != code || e.Message == "" || e.Request == "" || e.Request != r.Header.Get("x-amz-request-id") {
		t.Fatalf("%s %s: status %d, %+v; want %d %s", r.Request.Method, r.Request.URL, r.StatusCode, e, status, code)
	}
	return e
}

func TestAdminListsKnobs(t *testing.T) {
	h, _, n := adminHarness(t)
	n.Store(5)
	r := h.ok(200, "GET", "/-/admin/v1/knobs", nil, "")
	var all []KnobInfo
	if err := json.Unmarshal(r.body, &all); err != nil {
		t.Fatal(err)
	}
	want := KnobInfo{Name: "shards", Value: "5", Default: "2", Allowed: "1 to 16", Help: "rings per disk", Live: true}
	if len(all) != 2 || all[0].Name != "io-uring-read-enable" || all[1] != want {
		t.Errorf("got %+v", all)
	}
	if r.Header.Get("Content-Type") != "application/json" || r.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("headers %v", r.Header)
	}
	var one KnobInfo
	if err := json.Unmarshal(h.ok(200, "GET", "/-/admin/v1/knobs/shards", nil, "").body, &one); err != nil || one != want {
		t.Errorf("one knob: %+v, %v", one, err)
	}
	var engines []EngineInfo
	if err := json.Unmarshal(h.ok(200, "GET", "/-/admin/v1/engines", nil, "").body, &engines); err != nil || len(engines) != 1 || engines[0].Why != "switched off" {
		t.Errorf("engines: %+v, %v", engines, err)
	}
}

func TestAdminSetsKnobs(t *testing.T) {
	h, on, n := adminHarness(t)
	for _, c := range []struct {
		name, body string
		is         func() bool
	}{
		{"io-uring-read-enable", "on", on.Load},
		{"io-uring-read-enable", `{"value": false}`, func() bool { return !on.Load() }},
		{"io-uring-read-enable", ` {"value": "Enabled"} `, on.Load},
		{"shards", "7\n", func() bool { return n.Load() == 7 }},
		{"shards", `{"value": 8}`, func() bool { return n.Load() == 8 }},
		{"shards", "default", func() bool { return n.Load() == 2 }},
	} {
		r := h.ok(200, "PUT", "/-/admin/v1/knobs/"+c.name, nil, c.body)
		if !c.is() {
			t.Errorf("PUT %s %q changed nothing", c.name, c.body)
		}
		var done changed
		if err := json.Unmarshal(r.body, &done); err != nil || done.Name != c.name || done.Value == "" || done.Old == "" {
			t.Errorf("PUT %s %q: answer %s", c.name, c.body, r.body)
		}
	}
	log := h.log.String()
	for _, part := range []string{`"audit":"knob"`, `"who":"` + testKey + `"`, `"knob":"shards"`, `"old":"2"`, `"new":"7"`, `"from":"127.0.0.1:`} {
		if !strings.Contains(log, part) {
			t.Errorf("the audit line lacks %s: %s", part, log)
		}
	}
	if got := strings.Count(log, `"audit":"knob"`); got != 6 {
		t.Errorf("%d audit lines for 6 changes", got)
	}
}

func TestAdminRefuses(t *testing.T) {
	h, on, n := adminHarness(t)
	for _, c := range []struct {
		method, path, body string
		status             int
		code               string
	}{
		{"PUT", "knobs/shards", "17", 400, "InvalidArgument"},
		{"PUT", "knobs/shards", "many", 400, "InvalidArgument"},
		{"PUT", "knobs/shards", "", 400, "InvalidArgument"},
		{"PUT", "knobs/io-uring-read-enable", "perhaps", 400, "InvalidArgument"},
		{"PUT", "knobs/shards", `{"value": null}`, 400, "MalformedJSON"},
		{"PUT", "knobs/shards", `{"value": [3]}`, 400, "MalformedJSON"},
		{"PUT", "knobs/shards", `{"value": 3, "more": 4}`, 400, "MalformedJSON"},
		{"PUT", "knobs/shards", `{"valeu": 3}`, 400, "MalformedJSON"},
		{"PUT", "knobs/shards", `{"value": 3`, 400, "MalformedJSON"},
		{"PUT", "knobs/shards", strings.Repeat("3", adminBody+1), 413, "EntityTooLarge"},
		{"PUT", "knobs/sharts", "3", 404, "NoSuchKnob"},
		{"PUT", "knobs/", "3", 404, "NoSuchKnob"},
		{"GET", "knobs/sharts", "", 404, "NoSuchKnob"},
		{"GET", "nothing", "", 404, "NotFound"},
		{"GET", "", "", 404, "NotFound"},
		{"PUT", "knobs", "3", 405, "MethodNotAllowed"},
		{"DELETE", "knobs/shards", "", 405, "MethodNotAllowed"},
		{"POST", "engines", "", 405, "MethodNotAllowed"},
	} {
		e := refusedAs(t, h.do(c.method, "/-/admin/v1/"+c.path, nil, c.body), c.status, c.code)
		if c.body == "17" && !strings.Contains(e.Message, "1 to 16") {
			t.Errorf("the refusal of 17 gives no reason: %s", e.Message)
		}
	}
	if on.Load() || n.Load() != 2 || strings.Contains(h.log.String(), `"audit"`) {
		t.Errorf("a refused request changed something: %v, %d, %s", on, n.Load(), h.log)
	}
}

// Everything below /-/admin/ is closed to strangers, whatever it is.
func TestAdminNeedsRoot(t *testing.T) {
	h, on, _ := adminHarness(t)
	body := []byte("on")
	for _, path := range []string{"/-/admin", "/-/admin/", "/-/admin/v1/knobs", "/-/admin/v1/knobs/io-uring-read-enable", "/-/admin/v1/engines", "/-/admin/v2"} {
		for _, method := range []string{"GET", "PUT", "DELETE", "POST"} {
			refusedAs(t, h.send(h.request(method, path, nil, body)), 403, "AccessDenied")
			wrong := h.request(method, path, headers("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD"), body)
			refusedAs(t, h.send(signer.SignV4(*wrong, testKey, "another-secret", "", "us-east-1")), 403, "SignatureDoesNotMatch")
			unknown := h.request(method, path, headers("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD"), body)
			refusedAs(t, h.send(signer.SignV4(*unknown, "AKIAOTHER", testSecret, "", "us-east-1")), 403, "InvalidAccessKeyId")
		}
	}
	put := h.request("PUT", "/-/admin/v1/knobs/io-uring-read-enable", nil, body)
	refusedAs(t, h.send(signer.PreSignV4(*put, testKey, testSecret, "", "us-east-1", 600)), 403, "AccessDenied")
	// What was signed is what counts, also for the body.
	swapped := sign(h.request("PUT", "/-/admin/v1/knobs/io-uring-read-enable", nil, body), []byte("off"))
	refusedAs(t, h.send(swapped), 400, "XAmzContentSHA256Mismatch")
	other := sign(h.request("PUT", "/-/admin/v1/knobs/shards", nil, body), body)
	other.URL.Path = "/-/admin/v1/knobs/io-uring-read-enable"
	refusedAs(t, h.send(other), 403, "SignatureDoesNotMatch")
	if on.Load() {
		t.Error("a stranger turned a knob")
	}
}

// Requests for administration are bounded by themselves, and get in when the
// ordinary ones are at their limit.
func TestAdminIsBoundedByItself(t *testing.T) {
	h, _, n := adminHarness(t)
	for range cap(h.srv.slots) {
		h.srv.slots <- struct{}{}
	}
	h.refused(503, "SlowDown", "GET", "/", nil, "")
	h.ok(200, "PUT", "/-/admin/v1/knobs/shards", nil, "3")
	for range cap(h.srv.adminSlots) {
		h.srv.adminSlots <- struct{}{}
	}
	if r := h.do("PUT", "/-/admin/v1/knobs/shards", nil, "4"); r.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	} else {
		refusedAs(t, r, 503, "SlowDown")
	}
	if n.Load() != 3 {
		t.Errorf("shards %d", n.Load())
	}
}

// A change is whole: readers see a value that somebody set, and the last audit
// line is what holds.
func TestAdminConcurrently(t *testing.T) {
	h, _, n := adminHarness(t)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 10 {
				body := fmt.Sprint(1 + (g*10+i)%16)
				req := sign(h.request("PUT", "/-/admin/v1/knobs/shards", nil, []byte(body)), []byte(body))
				res, err := transport.RoundTrip(req)
				if err != nil {
					t.Error(err)
					return
				}
				_, err = io.Copy(io.Discard, res.Body)
				if err := res.Body.Close(); err != nil || res.StatusCode != http.StatusOK {
					t.Errorf("status %d, %v", res.StatusCode, err)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if v := n.Load(); v < 1 || v > 16 {
		t.Errorf("shards %d", v)
	}
	if got := strings.Count(h.log.String(), `"audit":"knob"`); got != 40 {
		t.Errorf("%d audit lines for 40 changes", got)
	}
}

// A client that sends half a body does not hold a place for ever.
func TestAdminBodyHasADeadline(t *testing.T) {
	h, _, n := adminHarness(t)
	h.srv.adminPatience = 50 * time.Millisecond
	half, end := io.Pipe()
	defer func() { _ = end.Close() }() // never fails
	req := sign(h.request("PUT", "/-/admin/v1/knobs/shards", headers("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD"), nil), nil)
	req.Body, req.ContentLength = half, 2
	go func() { _, _ = end.Write([]byte("3")) }() // ends when half is closed
	refusedAs(t, h.send(req), 400, "RequestTimeout")
	eventually(t, "the place is free", func() bool { return len(h.srv.adminSlots) == 0 })
	if n.Load() != 2 {
		t.Errorf("half a body set the knob to %d", n.Load())
	}
}
