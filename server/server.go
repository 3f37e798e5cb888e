package server

import (
	"context"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"golang.org/x/sync/semaphore"

	"ringfence/internal/env"
	"ringfence/internal/knob"
	"ringfence/server/s3xml"
	"ringfence/server/sigv4"
)

// Authenticator decides who sent a request and takes its body out of it.
// *sigv4.Authenticator is one.
type Authenticator interface {
	Authenticate(r *http.Request) (*sigv4.Result, error)
}

// Readiness says whether the gateway can serve, and why not.
type Readiness struct {
	Ready   bool     `json:"ready"`
	Reasons []string `json:"reasons"`
	// Degraded names what is broken, also while the rest still serves.
	Degraded []string `json:"degraded,omitempty"`
}

// Limits bound what one gateway does at once. Zero means the default.
type Limits struct {
	Requests       int           // in work at once; beyond it 503 SlowDown (1024)
	HeaderBytes    int           // of a request (32 KiB)
	HeaderTimeout  time.Duration // to read a request's header (30 s)
	KeepAlive      time.Duration // of an idle connection (3 min)
	BodyIdle       time.Duration // without progress on a body, either way (60 s)
	Drain          time.Duration // for requests in work when Serve ends (30 s)
	DocumentBytes  int64         // of request documents in memory at once (64 MiB)
	DeleteWorkers  int           // deletions at once in one DeleteObjects (32)
	MinPartSize    int64         // of all parts but the last (5 MiB)
	KeepAliveAfter time.Duration // silence before a long copy starts its answer (10 s)
}

// Options of New. Buckets, Objects, Uploads and Auth are required.
type Options struct {
	Buckets Buckets
	Objects Objects
	Uploads Uploads
	Auth    Authenticator
	Region  string      // default "us-east-1"
	Domains []string    // names under which buckets are host names; none: path style only
	Owner   s3xml.Owner // who owns everything; default "ringfence"
	Log     zerolog.Logger
	// Metrics gets the server's metrics and is what /-/metrics shows; nil: a
	// registry of its own.
	Metrics *prometheus.Registry
	// Ready is asked by /-/ready; nil: always ready. It must not block.
	Ready func() Readiness
	// Knobs are the live settings that /-/admin/v1/knobs shows and changes; nil:
	// there are none.
	Knobs *knob.Set
	// Engines is asked by /-/admin/v1/engines; nil: there are none. It must not
	// block.
	Engines func() []EngineInfo
	Env     env.Env
	Limits  Limits
}

func (o Options) withDefaults() Options {
	if o.Region == "" {
		o.Region = defaultRegion
	}
	if o.Owner.ID == "" {
		o.Owner = s3xml.Owner{ID: defaultOwnerID, Name: "ringfence"}
	}
	if o.Metrics == nil {
		o.Metrics = prometheus.NewRegistry()
	}
	if o.Ready == nil {
		o.Ready = func() Readiness { return Readiness{Ready: true} }
	}
	if o.Knobs == nil {
		o.Knobs = new(knob.Set)
	}
	if o.Engines == nil {
		o.Engines = func() []EngineInfo { return []EngineInfo{} }
	}
	if o.Env.IsZero() {
		o.Env = env.System()
	}
	o.Limits = o.Limits.withDefaults()
	return o
}

func (l Limits) withDefaults() Limits {
	def(&l.Requests, 1024)
	def(&l.HeaderBytes, 32<<10)
	def(&l.HeaderTimeout, 30*time.Second)
	def(&l.KeepAlive, 3*time.Minute)
	def(&l.BodyIdle, time.Minute)
	def(&l.Drain, 30*time.Second)
	def(&l.DocumentBytes, 64<<20)
	l.DocumentBytes = max(l.DocumentBytes, maxLargeDocument) // or the largest could never be read
	def(&l.DeleteWorkers, 32)
	def(&l.MinPartSize, 5<<20)
	def(&l.KeepAliveAfter, 10*time.Second)
	return l
}

func def[T int | int64 | time.Duration](v *T, value T) {
	if *v <= 0 {
		*v = value
	}
}

const (
	defaultRegion = "us-east-1"
	// defaultOwnerID is the SHA-256 of "ringfence", in the form of AWS's
	// canonical user ids.
	defaultOwnerID = "8b4f1012aa092b2919dffd6eb5eb2f552c3211d89e7ddd04e824dee03dbda637"
)

// Server serves S3. It is safe for concurrent use; it has no goroutine of its
// own outside Serve.
type Server struct {
	opt     Options
	domains []string // lower case, longest first
	node    string   // x-amz-id-2 of this process
	routes  routes
	metrics *metrics
	slots   chan struct{}       // one token per request in work
	docs    *semaphore.Weighted // bytes of request documents in memory
	drain   atomic.Bool
	probes  http.Handler

	adminSlots    chan struct{} // one token per administration request in work
	adminPatience time.Duration
}

// New makes a Server. It fails if something required is missing.
func New(opt Options) (*Server, error) {
	if opt.Buckets == nil || opt.Objects == nil || opt.Uploads == nil || opt.Auth == nil {
		return nil, errors.New("server: Options lack Buckets, Objects, Uploads or Auth")
	}
	opt = opt.withDefaults()
	s := &Server{
		opt:   opt,
		node:  nodeID(opt.Env.Rand),
		slots: make(chan struct{}, opt.Limits.Requests),
		docs:  semaphore.NewWeighted(opt.Limits.DocumentBytes),

		adminSlots:    make(chan struct{}, adminRequests),
		adminPatience: adminPatience,
	}
	for _, d := range opt.Domains {
		d = strings.ToLower(strings.Trim(strings.TrimSpace(d), "."))
		if d == "" {
			return nil, errors.New("server: empty domain")
		}
		s.domains = append(s.domains, d)
	}
	slices.SortFunc(s.domains, func(a, b string) int { return len(b) - len(a) })
	s.routes = newRoutes(operations())
	m, err := newMetrics(opt.Metrics)
	if err != nil {
		return nil, fmt.Errorf("server: register metrics: %w", err)
	}
	s.metrics = m
	s.probes = s.newProbes()
	return s, nil
}

// Handler serves S3 and everything below /-/. Whoever uses it without Serve
// sets timeouts for headers and idle connections himself.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serve) }

// Serve answers the connections of ln until ctx ends, then stops accepting,
// lets requests in work finish for at most Limits.Drain and closes what is
// left. It closes ln and returns nil after a drain, or why ln failed.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	srv := &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: s.opt.Limits.HeaderTimeout,
		IdleTimeout:       s.opt.Limits.KeepAlive,
		MaxHeaderBytes:    s.opt.Limits.HeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return base },
		ErrorLog:          stdlog.New(logWriter{s.opt.Log}, "", 0),
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(ln) }()
	select {
	case err := <-failed:
		cancel()
		return errors.Join(fmt.Errorf("serve: %w", err), srv.Close())
	case <-ctx.Done():
	}
	s.drain.Store(true)
	bound, stop := context.WithTimeout(base, s.opt.Limits.Drain)
	defer stop()
	err := srv.Shutdown(bound) // closes ln first, then waits for requests
	if err != nil {
		s.opt.Log.Warn().Err(err).Msg("requests cut off at the end of the drain")
		cancel()
		err = srv.Close()
	}
	<-failed // http.ErrServerClosed, always
	if err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return nil
}

// logWriter passes net/http's own complaints on, one line each.
type logWriter struct{ log zerolog.Logger }

func (l logWriter) Write(p []byte) (int, error) {
	l.log.Debug().Str("from", "net/http").Msg(strings.TrimSpace(string(p)))
	return len(p), nil
}
