package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// Ways to run a gateway whose calls of io_uring do not reach the kernel. The
// test binary becomes the gateway after it told the kernel so.
const (
	confineVariable = "RINGFENCE_TEST_CONFINE"
	confineRefuse   = "refuse" // EPERM, as container engines do
	confineKill     = "kill"   // the process, so that not one call goes unseen
)

// Variables that switch rings on, and see to it that they get something to read
// although all of it was just written.
const (
	ringsOn   = "RINGFENCE_IO_URING_READ_ENABLE=true"
	inlineOff = "RINGFENCE_IO_URING_INLINE=off"
	// What was read has to be read again: both are needed.
	reclaimOn   = "RINGFENCE_PAGE_CACHE_RECLAIM_ENABLE=on"
	reclaimSoon = "RINGFENCE_PAGE_CACHE_RECLAIM_THRESHOLD=4096"
)

// needRings skips where the kernel makes no rings; it fails if they are
// required, and whenever the reason is no restriction.
func needRings(t *testing.T) {
	t.Helper()
	needProcess(t)
	err := ringsRefused()
	if err == nil {
		return
	}
	restricted := errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.ENOSYS) || errors.Is(err, errors.ErrUnsupported)
	if required("uring") || !restricted {
		t.Fatalf("io_uring is not to be had: %v", err)
	}
	fmt.Fprintf(os.Stderr, "SKIP %s: io_uring: %v\n", t.Name(), err)
	t.Skipf("io_uring: %v", err)
}

// startRings starts a gateway with more variables.
func startRings(t *testing.T, disks int, environ ...string) *gateway {
	t.Helper()
	needRings(t)
	g := newGateway(t.TempDir(), disks)
	g.environ = append(g.environ, environ...)
	g.start(t)
	return g
}

// ring is where one ring of one disk stands.
type ring struct{ submitted, delivered, orphans, inFlight float64 }

func (r ring) conserved() bool { return r.submitted == r.delivered+r.orphans+r.inFlight }

// rings takes them out of a page of metrics, by disk and shard.
func rings(page map[string]float64) map[string]ring {
	all := map[string]ring{}
	for series, v := range page {
		name, labels, ok := strings.Cut(series, "{")
		if !ok {
			continue
		}
		r := all[labels]
		switch name {
		case "ringfence_uring_submitted_total":
			r.submitted = v
		case "ringfence_uring_delivered_total":
			r.delivered = v
		case "ringfence_uring_orphan_reclaimed_total":
			r.orphans = v
		case "ringfence_uring_in_flight":
			r.inFlight = v
		default:
			continue
		}
		all[labels] = r
	}
	return all
}

// conserve fails for every ring of a page that lost or invented a read, and
// returns their sum.
func conserve(t *testing.T, page map[string]float64) ring {
	t.Helper()
	var sum ring
	for labels, r := range rings(page) {
		if !r.conserved() {
			t.Errorf("{%s: %v submitted, %v delivered, %v orphans, %v in flight", labels, r.submitted, r.delivered, r.orphans, r.inFlight)
		}
		sum.submitted += r.submitted
		sum.delivered += r.delivered
		sum.orphans += r.orphans
		sum.inFlight += r.inFlight
	}
	return sum
}

// total sums the series of a metric whose labels contain all of what is given.
func total(page map[string]float64, metric string, labels ...string) float64 {
	sum := 0.0
	for series, v := range page {
		if name, rest, _ := strings.Cut(series, "{"); name == metric && containsAll(rest, labels) {
			sum += v
		}
	}
	return sum
}

func containsAll(s string, parts []string) bool {
	for _, p := range parts {
		if !strings.Contains(s, p) {
			return false
		}
	}
	return true
}

// administer sends one request to the administration API.
func (tg target) administer(t *testing.T, method, path string, body string) answer {
	t.Helper()
	return tg.do(t, request{method: method, bucket: "-", key: "admin/v1/" + path, body: []byte(body)})
}

// turn sets a knob.
func (tg target) turn(t *testing.T, name, value string) {
	t.Helper()
	a := tg.administer(t, http.MethodPut, "knobs/"+name, value)
	if a.status != http.StatusOK {
		t.Errorf("set %s to %q: %d %s", name, value, a.status, a.body)
	}
}

// engine is what the administration API says of how a disk is read.
type engine struct {
	Disk, Tier, Why, Mode string
	Shards, Retired       int
	Latched               map[string]string
}

// engines are those of all disks, by disk.
func (tg target) engines(t *testing.T) map[string]engine {
	t.Helper()
	a := tg.administer(t, http.MethodGet, "engines", "")
	var all []engine
	if err := json.Unmarshal(a.body, &all); err != nil || a.status != http.StatusOK {
		t.Fatalf("engines: %d %s: %v", a.status, a.body, err)
	}
	byDisk := map[string]engine{}
	for _, e := range all {
		byDisk[e.Disk] = e
	}
	return byDisk
}

// wantTier waits until every disk is read by a tier, and returns why.
func (tg target) wantTier(t *testing.T, tier string) map[string]engine {
	t.Helper()
	var all map[string]engine
	eventually(t, ringsPatience, "every disk is read by tier "+tier, func() bool {
		all = tg.engines(t)
		for e := range maps.Values(all) {
			if e.Tier != tier {
				return false
			}
		}
		return len(all) > 0
	})
	return all
}

var requestID = regexp.MustCompile(`<(RequestId|HostId)>[^<]*</`)

// scrub takes out of an answer what is another for each request.
func scrub(a answer) string {
	body := requestID.ReplaceAll(a.body, []byte("<$1></"))
	var b bytes.Buffer
	fmt.Fprintf(&b, "%d %s\n", a.status, a.code())
	for _, name := range []string{"Content-Type", "Content-Range", "Content-Length", "Etag", "Accept-Ranges", "X-Amz-Mp-Parts-Count"} {
		if name == "Content-Length" && a.status >= 400 {
			continue // of a body with ids
		}
		fmt.Fprintf(&b, "%s: %s\n", name, a.header.Get(name))
	}
	b.Write(body)
	return b.String()
}
