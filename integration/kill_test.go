package integration

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
)

// absent is the sum of an object that does not exist.
const absent = "absent"

// oracle is what one key may hold: what was acknowledged last, or what a
// request without an answer may have made of it. It belongs to one goroutine
// at a time.
type oracle struct {
	key     string
	acked   string   // sum of the bytes, or absent
	perhaps []string // outcomes of writes that were never answered
}

// allows says whether the key may hold sum now.
func (o *oracle) allows(sum string) bool {
	if sum == o.acked {
		return true
	}
	for _, p := range o.perhaps {
		if sum == p {
			return true
		}
	}
	return false
}

// load writes to keys of its own until ctx ends.
type load struct {
	tg     target
	bucket string
	client *minio.Core
	rng    *rand.Rand
	keys   []*oracle
	acks   *atomic.Int64
}

func (l *load) run(ctx context.Context) error {
	for ctx.Err() == nil {
		o := l.keys[l.rng.IntN(len(l.keys))]
		var err error
		switch n := l.rng.IntN(10); {
		case n < 4:
			err = l.put(ctx, o, 1+l.rng.Int64N(16<<10), nil)
		case n < 6:
			err = l.put(ctx, o, 16<<10+l.rng.Int64N(mib), nil)
		case n < 7:
			err = l.put(ctx, o, 1+l.rng.Int64N(200_000), http.Header{"If-None-Match": {"*"}})
		case n < 9:
			err = l.remove(ctx, o)
		default:
			err = l.multipart(ctx, o)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func sumBytes(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

func (l *load) put(ctx context.Context, o *oracle, size int64, header http.Header) error {
	body := noiseBytes(l.rng.Uint64(), size)
	a, err := l.tg.try(ctx, request{method: http.MethodPut, bucket: l.bucket, key: o.key, body: body, header: header})
	return l.settle(o, sumBytes(body), a, err)
}

func (l *load) remove(ctx context.Context, o *oracle) error {
	a, err := l.tg.try(ctx, request{method: http.MethodDelete, bucket: l.bucket, key: o.key})
	return l.settle(o, absent, a, err)
}

// settle keeps what an answer means: done, refused, or nobody knows.
func (l *load) settle(o *oracle, sum string, a answer, err error) error {
	switch {
	case err != nil || a.status >= 500:
		o.perhaps = append(o.perhaps, sum)
	case a.status < 300:
		o.acked, o.perhaps = sum, nil
		l.acks.Add(1)
	case a.status == http.StatusPreconditionFailed:
		if o.acked == absent && len(o.perhaps) == 0 {
			return fmt.Errorf("%s: 412 although it does not exist", o.key)
		}
	default:
		return fmt.Errorf("%s: %d %s", o.key, a.status, a.body)
	}
	return nil
}

func (l *load) multipart(ctx context.Context, o *oracle) error {
	whole := sha256.New()
	id, err := l.client.NewMultipartUpload(ctx, l.bucket, o.key, minio.PutObjectOptions{})
	if err != nil {
		return unlessGone(err) // nothing can have become visible
	}
	var parts []minio.CompletePart
	for n, size := range []int64{5 * mib, 1 + l.rng.Int64N(300_000)} {
		body := noiseBytes(l.rng.Uint64(), size)
		whole.Write(body)
		p, err := l.client.PutObjectPart(ctx, l.bucket, o.key, id, n+1, bytes.NewReader(body), size, minio.PutObjectPartOptions{})
		if err != nil {
			return unlessGone(err)
		}
		parts = append(parts, minio.CompletePart{PartNumber: n + 1, ETag: p.ETag})
	}
	sum := hex.EncodeToString(whole.Sum(nil))
	if _, err := l.client.CompleteMultipartUpload(ctx, l.bucket, o.key, id, parts, minio.PutObjectOptions{}); err != nil {
		o.perhaps = append(o.perhaps, sum)
		return unlessGone(err)
	}
	o.acked, o.perhaps = sum, nil
	l.acks.Add(1)
	return nil
}

// unlessGone forgives errors of a connection and of a gateway that ends, not
// refusals.
func unlessGone(err error) error {
	var refusal minio.ErrorResponse
	if errors.As(err, &refusal) && refusal.StatusCode >= 400 && refusal.StatusCode < 500 {
		return err
	}
	return nil
}

func killRounds(t *testing.T) int {
	text := os.Getenv("RINGFENCE_TEST_KILLS")
	if text == "" {
		return 3
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("RINGFENCE_TEST_KILLS: %q is not a number of rounds", text)
	}
	return n
}

// TestKilledUnderLoad kills the gateway in the middle of mixed writes, starts
// it again and compares every key with what was acknowledged.
func TestKilledUnderLoad(t *testing.T) {
	t.Parallel()
	g := startGateway(t, 6)
	tg := g.target()
	bucket := tg.bucket(t)
	rng := rand.New(rand.NewPCG(seed(t), 0))
	settled := putStock(t, tg, bucket, "settled")
	var acks atomic.Int64
	var loads []*load
	for w := range 8 {
		// One attempt each: a retry after the kill would hide what the first did.
		c := tg.clientWith(t, &minio.Options{MaxRetries: 1})
		l := &load{tg: tg, bucket: bucket, client: &minio.Core{Client: c}, rng: rand.New(rand.NewPCG(rng.Uint64(), 1)), acks: &acks}
		for k := range 5 {
			l.keys = append(l.keys, &oracle{key: fmt.Sprintf("w%d/k%d", w, k), acked: absent})
		}
		loads = append(loads, l)
	}
	rounds := killRounds(t)
	for round := range rounds {
		loadUntilKilled(t, g, loads, time.Duration(100+rng.IntN(1500))*time.Millisecond)
		g.start(t)
		verifyLoads(t, tg, bucket, loads)
		settled.check(t, tg, bucket)
		if t.Failed() {
			t.Fatalf("after kill %d of %d", round+1, rounds)
		}
	}
	if acks.Load() == 0 {
		t.Error("no write was ever acknowledged: the test tested nothing")
	}
	t.Logf("%d kills, %d acknowledged writes, none lost", rounds, acks.Load())
}

func loadUntilKilled(t *testing.T, g *gateway, loads []*load, after time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for _, l := range loads {
		wg.Go(func() {
			if err := l.run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	timer := time.NewTimer(after)
	<-timer.C
	g.kill()
	cancel()
	wg.Wait()
	rawClient.CloseIdleConnections()
}

// verifyLoads reads every key and holds it against its oracle; what it finds
// counts as acknowledged from then on.
func verifyLoads(t *testing.T, tg target, bucket string, loads []*load) {
	t.Helper()
	listed := map[string]bool{}
	for _, key := range listV2(t, tg, bucket, "w", "") {
		listed[key] = true
	}
	for _, l := range loads {
		for _, o := range l.keys {
			a := tg.do(t, request{method: http.MethodGet, bucket: bucket, key: o.key})
			got := absent
			switch a.status {
			case http.StatusOK:
				got = sumBytes(a.body)
			case http.StatusNotFound:
			default:
				t.Errorf("%s: %d %s", o.key, a.status, a.body)
				continue
			}
			if !o.allows(got) {
				t.Errorf("%s holds %.12s (%d bytes), acknowledged was %.12s, unanswered %d others", o.key, got, len(a.body), o.acked, len(o.perhaps))
			}
			if listed[o.key] != (got != absent) {
				t.Errorf("%s: listed %v, but reads %.12s", o.key, listed[o.key], got)
			}
			o.acked, o.perhaps = got, nil
		}
	}
}
