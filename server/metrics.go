package server

import (
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the server's numbers. Operation names are those of the table, so
// that no client can make up labels.
type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	inflight prometheus.Gauge
	in, out  prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ringfence_s3_requests_total",
			Help: "Requests by operation and HTTP status; 499 means that the client left before the answer.",
		}, []string{"operation", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "ringfence_s3_request_duration_seconds",
			Help:    "Time from the end of a request's header to the end of its answer.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 120},
		}, []string{"operation"}),
		inflight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ringfence_s3_requests_in_flight", Help: "Requests in work.",
		}),
		in: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ringfence_s3_received_bytes_total", Help: "Bytes of request bodies, framing included.",
		}),
		out: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ringfence_s3_sent_bytes_total", Help: "Bytes of response bodies.",
		}),
	}
	for _, c := range []prometheus.Collector{m.requests, m.duration, m.inflight, m.in, m.out} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) observe(op string, status int, took time.Duration, in, out int64) {
	m.requests.WithLabelValues(op, strconv.Itoa(status)).Inc()
	m.duration.WithLabelValues(op).Observe(took.Seconds())
	m.in.Add(float64(in))
	m.out.Add(float64(out))
}
