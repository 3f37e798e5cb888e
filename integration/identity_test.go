package integration

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// ringsPatience is how long a disk may take to be read by another tier.
const ringsPatience = 20 * time.Second

// leg is a way to read: a gateway started on the same disks as the others.
type leg struct {
	name    string
	environ []string
	confine string
	missing int                             // disks that are away
	faulty  bool                            // needs the binary with fault seams
	ready   func(t *testing.T, s *identity) // before the reads
	after   func(t *testing.T, s *identity)
}

func legs() []leg {
	ringsOnly := []string{ringsOn, inlineOff}
	mode := func(m string) []string { return append([]string{"RINGFENCE_IO_URING_BUFFER_MODE=" + m}, ringsOnly...) }
	return []leg{
		{name: "std", after: wantNoRings},
		{name: "hybrid", environ: []string{ringsOn, reclaimOn, reclaimSoon}, ready: ringTier, after: wantRings},
		{name: "rings only", environ: ringsOnly, ready: ringTier, after: wantRings},
		{name: "rings and O_DIRECT", environ: append([]string{"RINGFENCE_O_DIRECT_READ_ENABLE=on", "RINGFENCE_O_DIRECT_READ_THRESHOLD=4096"}, ringsOnly...),
			ready: ringTier, after: wantDirect},
		{name: "non-fixed", environ: mode("non-fixed"), ready: ringTier, after: wantRings},
		{name: "legacy", environ: mode("legacy"), ready: ringTier, after: wantFixed},
		{name: "dynamic", environ: mode("dynamic"), ready: ringTier, after: wantFixed},
		{name: "static", environ: mode("static"), ready: ringTier, after: wantFixed},
		{name: "shadow", environ: append([]string{"RINGFENCE_IO_URING_SHADOW_SHARE=1"}, ringsOnly...), ready: ringTier, after: wantCompared},
		{name: "one disk latched", environ: append([]string{"RINGFENCE_IO_URING_SHADOW_SHARE=1", "RINGFENCE_IO_URING_REPROBE=5m"}, ringsOnly...),
			faulty: true, ready: latchOne, after: wantLatched},
		{name: "blocked", environ: ringsOnly, confine: confineRefuse, ready: stdTier, after: wantNoRings},
		{name: "two disks missing", environ: ringsOnly, missing: 2, after: wantRings},
	}
}

func ringTier(t *testing.T, s *identity) { s.g.target().wantTier(t, "ring") }

// stdTier also wants to be told why.
func stdTier(t *testing.T, s *identity) {
	for disk, e := range s.g.target().wantTier(t, "std") {
		if !strings.Contains(e.Why, "not permitted") && !strings.Contains(e.Why, "EPERM") {
			t.Errorf("%s is read without rings because %q, which does not name the refusal", disk, e.Why)
		}
	}
}

func wantRings(t *testing.T, s *identity) {
	if sum := conserve(t, s.g.metrics(t)); sum.submitted == 0 {
		t.Error("no ring read anything")
	}
}

// wantFixed wants reads into registered memory, where some could be registered.
func wantFixed(t *testing.T, s *identity) {
	wantRings(t, s)
	page := s.g.metrics(t)
	registered, fixed := total(page, "ringfence_uring_registered_bytes"), total(page, "ringfence_uring_fixed_reads_total")
	t.Logf("%v bytes are registered, %v reads went into them", registered, fixed)
	if registered > 0 && fixed == 0 {
		t.Errorf("%v bytes are registered, and no read goes into them", registered)
	}
	if registered == 0 {
		for disk, e := range s.g.target().engines(t) {
			if e.Mode != "non-fixed" {
				t.Errorf("%s: mode %s, and nothing is registered", disk, e.Mode)
			}
		}
	}
}

// wantDirect wants reads past the page cache.
func wantDirect(t *testing.T, s *identity) {
	wantRings(t, s)
	if n := total(s.g.metrics(t), "ringfence_disk_reads_total", `tier="ring_direct"`); n == 0 {
		t.Error("no ring read past the page cache")
	}
}

func wantNoRings(t *testing.T, s *identity) {
	if sum := conserve(t, s.g.metrics(t)); sum.submitted != 0 {
		t.Errorf("rings made %v reads", sum.submitted)
	}
}

func wantCompared(t *testing.T, s *identity) {
	wantRings(t, s)
	page := s.g.metrics(t)
	if n := total(page, "ringfence_uring_shadow_compared_total"); n == 0 {
		t.Error("nothing was compared")
	}
	if n := total(page, "ringfence_uring_shadow_mismatch_total"); n != 0 {
		t.Errorf("%v reads of rings and of the reference differ", n)
	}
}

// latchOne makes one disk's rings lie until they are found out, while what is
// served stays right.
func latchOne(t *testing.T, s *identity) {
	ringTier(t, s)
	disk := s.g.disks[2]
	s.fault(t, "flip "+disk)
	eventually(t, ringsPatience, "the disk whose rings lie is latched", func() bool {
		s.objects[len(s.objects)-1].read(t, s.g.target(), s.bucket)
		return total(s.g.metrics(t), "ringfence_uring_latched", `disk="`+disk+`"`) > 0
	})
	s.fault(t)
	for name, e := range s.g.target().engines(t) {
		if latched := len(e.Latched) > 0; latched != (name == disk) {
			t.Errorf("%s: latched %v", name, e.Latched)
		}
	}
	if n := total(s.g.metrics(t), "ringfence_uring_shadow_mismatch_total"); n == 0 {
		t.Error("no mismatch is counted")
	}
}

// wantLatched wants the disk to have stayed latched all the time.
func wantLatched(t *testing.T, s *identity) {
	wantRings(t, s)
	for name, e := range s.g.target().engines(t) {
		if want := name == s.g.disks[2]; want != (len(e.Latched) > 0) || want != (e.Tier == "std") {
			t.Errorf("%s: tier %s, latched %v in the end", name, e.Tier, e.Latched)
		}
	}
}

// span is a request for a part of an object, and what it has to give.
type span struct {
	header, part string
	status       int
	sum          string
}

// subject is an object with the requests that are made for it.
type subject struct {
	key   string
	spans []span
}

// read makes all requests for an object.
func (o subject) read(t *testing.T, tg target, bucket string) {
	t.Helper()
	for _, s := range o.spans {
		r := request{method: http.MethodGet, bucket: bucket, key: o.key, header: http.Header{}}
		if s.header != "" {
			r.header.Set("Range", s.header)
		}
		if s.part != "" {
			r.query = url.Values{"partNumber": {s.part}}
		}
		a, err := tg.try(context.Background(), r)
		if err != nil || a.status != s.status || sumBytes(a.body) != s.sum {
			t.Errorf("%s %s %s: %d (want %d), %d bytes of sum %.12s (want %.12s), %v", o.key, s.header, s.part, a.status, s.status, len(a.body), sumBytes(a.body), s.sum, err)
			return
		}
	}
}

// identity is the store that all legs read.
type identity struct {
	g       *gateway
	control string // file of faults
	bucket  string
	objects []subject
	refused map[string]string // answers to bad requests, by request
}

func (s *identity) fault(t *testing.T, lines ...string) {
	t.Helper()
	if err := os.WriteFile(s.control, []byte(strings.Join(append(lines, ""), "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
}

// identitySizes are where the ways to store and to read an object meet: inline
// or not, around blocks, stripes and windows of them.
var identitySizes = []int64{0, 1, 511, 4096, 16 << 10, 16<<10 + 1, 100_003, 256 << 10, 256<<10 + 1, mib - 1, mib, mib + 1, 2*mib + 4097, 4 * mib, 4*mib + 3, 9_999_999, 20 * mib}

// fill stores the objects, by the reference engine, and decides what is asked
// for of each.
func (s *identity) fill(t *testing.T, rng *rand.Rand, objects, ranges int) {
	t.Helper()
	for i := range objects {
		size := identitySizes[i%len(identitySizes)]
		if i >= len(identitySizes) {
			size = rng.Int64N(max(1, min(20*mib, int64(1)<<rng.IntN(25))))
		}
		body := noiseBytes(rng.Uint64(), size)
		o := subject{key: fmt.Sprintf("%d/%d", i, size), spans: []span{{status: http.StatusOK, sum: sumBytes(body)}}}
		for range ranges {
			if size == 0 {
				break
			}
			o.spans = append(o.spans, pickSpan(rng, body))
		}
		s.g.target().want(t, http.StatusOK, request{method: http.MethodPut, bucket: s.bucket, key: o.key, body: body})
		s.objects = append(s.objects, o)
	}
	s.objects = append(s.objects, s.inParts(t, rng))
}

// pickSpan is one of the forms of a range, anywhere.
func pickSpan(rng *rand.Rand, body []byte) span {
	size := int64(len(body))
	off := rng.Int64N(size)
	n := 1 + rng.Int64N(size-off)
	if rng.IntN(2) == 0 {
		n = min(n, 1+rng.Int64N(70_000))
	}
	switch rng.IntN(8) {
	case 0:
		return span{header: fmt.Sprintf("bytes=%d-", off), status: http.StatusPartialContent, sum: sumBytes(body[off:])}
	case 1:
		return span{header: fmt.Sprintf("bytes=-%d", n), status: http.StatusPartialContent, sum: sumBytes(body[size-n:])}
	case 2:
		return span{header: fmt.Sprintf("bytes=%d-%d", off, size+n), status: http.StatusPartialContent, sum: sumBytes(body[off:])}
	}
	return span{header: fmt.Sprintf("bytes=%d-%d", off, off+n-1), status: http.StatusPartialContent, sum: sumBytes(body[off : off+n])}
}

// inParts stores an object of parts.
func (s *identity) inParts(t *testing.T, rng *rand.Rand) subject {
	t.Helper()
	const key = "parts"
	bodies := [][]byte{noiseBytes(rng.Uint64(), 5*mib), noiseBytes(rng.Uint64(), 5*mib+12345), noiseBytes(rng.Uint64(), 77_777)}
	tg := s.g.target()
	a := tg.want(t, http.StatusOK, request{method: http.MethodPost, bucket: s.bucket, key: key, query: url.Values{"uploads": {""}}})
	id := between(string(a.body), "<UploadId>", "</UploadId>")
	var list strings.Builder
	o := subject{key: key}
	for i, body := range bodies {
		n := strconv.Itoa(i + 1)
		a := tg.want(t, http.StatusOK, request{method: http.MethodPut, bucket: s.bucket, key: key, body: body, query: url.Values{"uploadId": {id}, "partNumber": {n}}})
		fmt.Fprintf(&list, "<Part><PartNumber>%s</PartNumber><ETag>%s</ETag></Part>", n, a.header.Get("Etag"))
		o.spans = append(o.spans, span{part: n, status: http.StatusPartialContent, sum: sumBytes(body)})
	}
	tg.want(t, http.StatusOK, request{method: http.MethodPost, bucket: s.bucket, key: key, query: url.Values{"uploadId": {id}},
		body: []byte("<CompleteMultipartUpload>" + list.String() + "</CompleteMultipartUpload>")})
	whole := bytes.Join(bodies, nil)
	edge := 5*mib - 10
	return subject{key, append(o.spans,
		span{status: http.StatusOK, sum: sumBytes(whole)},
		span{header: fmt.Sprintf("bytes=%d-%d", edge, edge+99), status: http.StatusPartialContent, sum: sumBytes(whole[edge : edge+100])})}
}

// between is what stands in s between two marks.
func between(s, open, end string) string {
	_, s, _ = strings.Cut(s, open)
	s, _, _ = strings.Cut(s, end)
	return s
}

// badRequests are refused, or nearly so, by every engine alike.
func (s *identity) badRequests() []request {
	with := func(key, name, value string) request {
		return request{method: http.MethodGet, bucket: s.bucket, key: key, header: http.Header{name: {value}}}
	}
	query := func(key, name, value string) request {
		return request{method: http.MethodGet, bucket: s.bucket, key: key, query: url.Values{name: {value}}}
	}
	small, empty := s.objects[6].key, s.objects[0].key
	all := []request{
		with("nothing", "Range", "bytes=0-1"), with("parts/", "Range", "bytes=0-1"),
		query(small, "versionId", "nonsense"), query(small, "partNumber", "2"), query("parts", "partNumber", "4"),
		query("parts", "partNumber", "0"), query("parts", "partNumber", "10001"), query("parts", "partNumber", "x"),
		with(small, "If-Match", `"other"`), with(small, "If-Modified-Since", "Fri, 01 Jan 2100 00:00:00 GMT"),
		{method: http.MethodGet, bucket: s.bucket + "-not", key: small},
		{method: http.MethodHead, bucket: s.bucket, key: "nothing"},
		{method: http.MethodGet, bucket: s.bucket, key: "parts", query: url.Values{"partNumber": {"1"}}, header: http.Header{"Range": {"bytes=0-1"}}},
	}
	for _, key := range []string{small, empty} {
		for _, r := range []string{"bytes=100003-", "bytes=999999999-", "bytes=5-2", "bytes=-0", "bytes=a-b", "chunks=0-1", "bytes=0-1,4-5", "bytes=9223372036854775807-", "bytes=18446744073709551616-"} {
			all = append(all, with(key, "Range", r))
		}
	}
	return all
}

// checkRefusals holds the answers to bad requests against those of the first
// leg.
func (s *identity) checkRefusals(t *testing.T) {
	t.Helper()
	first := s.refused == nil
	if first {
		s.refused = map[string]string{}
	}
	for _, r := range s.badRequests() {
		name := fmt.Sprintf("%s %s %v %v", r.method, r.key, r.query, r.header)
		got := scrub(s.g.target().do(t, r))
		if first {
			s.refused[name] = got
		} else if want := s.refused[name]; got != want {
			t.Errorf("%s:\n%s\nwant what the reference says:\n%s", name, got, want)
		}
	}
}

// checkObjects reads everything by several clients.
func (s *identity) checkObjects(t *testing.T) {
	t.Helper()
	work := make(chan subject)
	var clients sync.WaitGroup
	for range 6 {
		clients.Go(func() {
			for o := range work {
				o.read(t, s.g.target(), s.bucket)
			}
		})
	}
	for _, o := range s.objects {
		work <- o
	}
	close(work)
	clients.Wait()
}

// run reads the store by one leg.
func (s *identity) run(t *testing.T, l leg) {
	faulty := ""
	if l.faulty {
		faulty = faultyBinary(t)
	}
	base := s.g.environ
	defer func() { s.g.environ, s.g.confine, s.g.binary = base, "", "" }()
	s.g.environ = append(append([]string(nil), base...), l.environ...)
	s.g.confine, s.g.binary = l.confine, faulty
	if l.faulty {
		s.fault(t)
		s.g.environ = append(s.g.environ, "RINGFENCE_FAULT_FILE="+s.control)
	}
	for _, disk := range s.g.disks[:l.missing] {
		if err := os.Rename(disk, disk+".away"); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := removeAll(disk); err != nil {
				t.Error(err)
			}
			if err := os.Rename(disk+".away", disk); err != nil {
				t.Error(err)
			}
		}()
	}
	s.g.start(t)
	if l.ready != nil {
		l.ready(t, s)
	}
	s.checkObjects(t)
	s.checkRefusals(t)
	if l.after != nil {
		l.after(t, s)
	}
	s.g.stop(t)
}

// TestEveryEngineServesTheSameBytes stores objects once and reads them by every
// engine, in every mode, in health and in trouble: the same bytes, and the same
// refusals.
func TestEveryEngineServesTheSameBytes(t *testing.T) {
	t.Parallel()
	needRings(t)
	rng := rand.New(rand.NewPCG(seed(t), 7))
	objects, ranges := 30, 6
	if required("identity") {
		objects, ranges = 500, 20
	}
	dir := t.TempDir()
	s := &identity{g: newGateway(dir, 6), control: dir + "/faults"}
	s.g.start(t)
	s.bucket = s.g.target().bucket(t)
	s.fill(t, rng, objects, ranges)
	s.g.stop(t)
	for _, l := range legs() {
		if !t.Run(l.name, func(t *testing.T) { s.run(t, l) }) && s.g.cmd != nil {
			s.g.kill() // before the next leg opens the same disks
		}
	}
	requests := 0
	for _, o := range s.objects {
		requests += len(o.spans)
	}
	t.Logf("%d objects, %d requests, %d bad ones, %d legs", len(s.objects), requests, len(s.badRequests()), len(legs()))
}
