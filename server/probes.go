package server

import (
	"encoding/json"
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// probePrefix is where everything lives that isn't S3. No bucket name can begin
// with a hyphen.
const probePrefix = "/-/"

// newProbes makes the routes below /-/. They are not counted against the limit
// of requests: an overloaded gateway is still alive and must say so.
func (s *Server) newProbes() http.Handler {
	mux := chi.NewRouter()
	live := func(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "ok\n") }
	mux.Get("/-/live", live)
	mux.Head("/-/live", live)
	mux.Get("/-/ready", s.ready)
	mux.Head("/-/ready", s.ready)
	mux.Method(http.MethodGet, "/-/metrics", promhttp.HandlerFor(s.opt.Metrics, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	s.adminRoutes(mux)
	mux.NotFound(func(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusNotFound, "not found\n") })
	mux.MethodNotAllowed(func(w http.ResponseWriter, _ *http.Request) {
		plain(w, http.StatusMethodNotAllowed, "method not allowed\n")
	})
	return mux
}

// ready answers 200 when the gateway can serve, 503 with the reasons when not.
func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	state := s.opt.Ready()
	if s.drain.Load() {
		state.Ready = false
		state.Reasons = append([]string{"draining"}, state.Reasons...)
	}
	if state.Reasons == nil {
		state.Reasons = []string{}
	}
	body, err := json.Marshal(state)
	status := http.StatusOK
	switch {
	case err != nil: // cannot be: strings and a bool
		status, body = http.StatusInternalServerError, []byte(`{"ready":false,"reasons":["internal"]}`)
	case !state.Ready:
		status = http.StatusServiceUnavailable
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // a prober that left doesn't care
}

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) // a prober that left doesn't care
}
