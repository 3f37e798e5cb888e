package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"ringfence/internal/knob"
	"ringfence/server/s3err"
	"ringfence/server/sigv4"
)

// adminPrefix is where the administration API lives. Every path below it asks
// for the root credentials, those that don't exist included.
const adminPrefix = "/-/admin/"

const (
	adminRequests = 8                // in work at once; beyond it 503
	adminBody     = 4 << 10          // bytes of a request's body
	adminPatience = 10 * time.Second // for a request's body to arrive
)

// KnobInfo describes a live setting.
type KnobInfo struct {
	Name    string `json:"name"`
	Value   string `json:"value"`
	Default string `json:"default"`
	Allowed string `json:"allowed"`
	Help    string `json:"help"`
	Live    bool   `json:"live"` // a change takes effect without a restart
}

// EngineInfo says how a disk is read.
type EngineInfo struct {
	Disk string `json:"disk"`
	// Tier is the best one that serves: "ring", "std", or "none" without a disk.
	Tier string `json:"tier"`
	Why  string `json:"why"`
	// Setup is how its rings were set up, Mode how they treat buffers; both ""
	// without rings.
	Setup  string `json:"setup,omitempty"`
	Mode   string `json:"mode,omitempty"`
	Shards int    `json:"shards"`
	// Retiring counts sets of rings that were replaced and finish what they
	// accepted.
	Retiring int `json:"retiring"`
	// Latched lists what was found not to work and is not tried for now, with
	// the reasons.
	Latched map[string]string `json:"latched"`
	// Fallbacks counts reads that a ring should have made and std made, by
	// reason.
	Fallbacks map[string]int64 `json:"fallbacks"`
	// Compared and Mismatched count ring reads that std repeated to compare.
	Compared   int64 `json:"shadow_compared"`
	Mismatched int64 `json:"shadow_mismatched"`
}

// changed is the answer to a change of a knob.
type changed struct {
	Name  string `json:"name"`
	Old   string `json:"old"`
	Value string `json:"value"`
}

// adminError is the answer to a request that was refused.
type adminError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Request string `json:"request"` // its id, as in the log
}

// refusal is an error that the administration API tells as it is.
type refusal struct {
	status        int
	code, message string
}

func (e *refusal) Error() string { return e.code + ": " + e.message }

// adminCall is one authenticated request.
type adminCall struct {
	id, who, from string
	path          string // below /-/admin/
	method        string
	body          []byte
}

// admin answers everything below /-/admin/. It is not counted against the limit
// of requests, since an overloaded gateway is when an administrator wants in,
// but has a small one of its own.
func (s *Server) admin(rw http.ResponseWriter, hr *http.Request) {
	var id [8]byte
	s.opt.Env.Rand(id[:])
	call := adminCall{id: fmt.Sprintf("%X", id), from: hr.RemoteAddr, method: hr.Method, path: strings.TrimPrefix(hr.URL.Path, adminPrefix)}
	answer, err := s.administer(rw, hr, &call)
	status := http.StatusOK
	if err != nil {
		e := refuse(err)
		status, answer = e.status, adminError{Code: e.code, Message: e.message, Request: call.id}
		if e.status >= http.StatusInternalServerError {
			s.opt.Log.Error().Err(err).Str("request", call.id).Str("path", call.path).Msg("administration request failed")
		}
	}
	h := rw.Header()
	h["x-amz-request-id"] = []string{call.id}
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	body, err := json.MarshalIndent(answer, "", "  ")
	if err != nil { // cannot be: strings, numbers and bools
		status, body = http.StatusInternalServerError, []byte(`{"code":"InternalError"}`)
	}
	if status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1")
	}
	rw.WriteHeader(status)
	_, _ = rw.Write(append(body, '\n')) // a client that left doesn't care
}

// administer authenticates a request and does what it asks for.
func (s *Server) administer(rw http.ResponseWriter, hr *http.Request, call *adminCall) (any, error) {
	select {
	case s.adminSlots <- struct{}{}:
		defer func() { <-s.adminSlots }()
	default:
		return nil, s3err.New(s3err.SlowDown)
	}
	// A writer without deadlines is a recorder in a test.
	_ = http.NewResponseController(rw).SetReadDeadline(time.Now().Add(s.adminPatience))
	// A copy, since net/http looks at the body of its own request afterwards.
	hr = hr.WithContext(hr.Context())
	auth, err := s.opt.Auth.Authenticate(hr)
	if err != nil {
		return nil, err
	}
	if auth.Principal.Anonymous {
		return nil, s3err.New(s3err.AccessDenied)
	}
	if auth.Kind != sigv4.Header {
		// A URL can be passed on; the right to change settings must not be.
		return nil, s3err.New(s3err.AccessDenied).WithMessage("Administration takes the Authorization header only, no presigned URL.")
	}
	call.who = auth.Principal.AccessKey
	call.body, err = io.ReadAll(io.LimitReader(auth.Body, adminBody+1))
	switch {
	case len(call.body) > adminBody:
		return nil, &refusal{http.StatusRequestEntityTooLarge, "EntityTooLarge", "The body has more than " + strconv.Itoa(adminBody) + " bytes."}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, s3err.New(s3err.RequestTimeout).Wrap(err)
	case err != nil:
		return nil, err
	}
	if err := auth.Verified(); err != nil {
		return nil, err
	}
	return s.adminRoute(call)
}

// adminRoute finds what an authenticated request asks for.
func (s *Server) adminRoute(call *adminCall) (any, error) {
	name, isKnob := strings.CutPrefix(call.path, "v1/knobs/")
	switch {
	case call.path == "v1/knobs" && call.method == http.MethodGet:
		return s.listKnobs(), nil
	case call.path == "v1/engines" && call.method == http.MethodGet:
		return s.opt.Engines(), nil
	case isKnob && call.method == http.MethodGet:
		k, ok := s.opt.Knobs.Lookup(name)
		if !ok {
			return nil, noKnob(name)
		}
		return knobInfo(k), nil
	case isKnob && call.method == http.MethodPut:
		return s.setKnob(call, name)
	case isKnob, call.path == "v1/knobs", call.path == "v1/engines":
		return nil, &refusal{http.StatusMethodNotAllowed, "MethodNotAllowed", "Use GET, or PUT for one knob."}
	}
	return nil, &refusal{http.StatusNotFound, "NotFound", "There are v1/knobs, v1/knobs/NAME and v1/engines."}
}

func (s *Server) listKnobs() []KnobInfo {
	all := []KnobInfo{}
	for _, k := range s.opt.Knobs.All() {
		all = append(all, knobInfo(k))
	}
	return all
}

func knobInfo(k knob.Knob) KnobInfo {
	return KnobInfo{Name: k.Name(), Value: k.String(), Default: k.Default(), Allowed: k.Allowed(), Help: k.Help(), Live: true}
}

func noKnob(name string) error {
	return &refusal{http.StatusNotFound, "NoSuchKnob", fmt.Sprintf("There is no knob %q; GET v1/knobs lists them.", name)}
}

// setKnob changes one knob and logs it at every log level: who changed what is
// asked long after the change.
func (s *Server) setKnob(call *adminCall, name string) (any, error) {
	text, err := knobText(call.body)
	if err != nil {
		return nil, err
	}
	c, err := s.opt.Knobs.Change(name, text)
	switch {
	case errors.Is(err, knob.ErrUnknown):
		return nil, noKnob(name)
	case err != nil:
		return nil, &refusal{http.StatusBadRequest, "InvalidArgument", err.Error()}
	}
	s.opt.Log.Log().Str("audit", "knob").Str("who", call.who).Str("from", call.from).Str("request", call.id).
		Str("knob", c.Name).Str("old", c.Old).Str("new", c.New).Msg("knob set")
	return changed{Name: c.Name, Old: c.Old, Value: c.New}, nil
}

// knobText takes the value out of a body: the bare text, without blanks around
// it, or a JSON object with the one member "value", a string, number or bool.
func knobText(body []byte) (string, error) {
	text := strings.TrimSpace(string(body))
	if !strings.HasPrefix(text, "{") {
		if text == "" {
			return "", &refusal{http.StatusBadRequest, "InvalidArgument", "The body is empty; it must be the value."}
		}
		return text, nil
	}
	bad := &refusal{http.StatusBadRequest, "MalformedJSON", `The body must be the value, or {"value": ...} with a string, number or bool.`}
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &members); err != nil || len(members) != 1 {
		return "", bad
	}
	raw := strings.TrimSpace(string(members["value"]))
	if raw == "" || strings.ContainsRune("{[n", rune(raw[0])) { // an object, a list or null
		return "", bad
	}
	if raw[0] == '"' {
		var value string
		if err := json.Unmarshal([]byte(raw), &value); err != nil { // cannot be: it was parsed before
			return "", bad
		}
		return value, nil
	}
	return raw, nil
}

// refuse gives the words for an error.
func refuse(err error) *refusal {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r
	}
	e := code(err)
	return &refusal{e.Status, string(e.Code), e.Message}
}

// adminRoutes puts the administration API into the routes below /-/.
func (s *Server) adminRoutes(mux *chi.Mux) {
	mux.Handle(strings.TrimSuffix(adminPrefix, "/"), http.HandlerFunc(s.admin))
	mux.Handle(adminPrefix+"*", http.HandlerFunc(s.admin))
}
