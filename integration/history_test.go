package integration

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// What a client of the history test does to a key.
type kind uint8

const (
	kindPut kind = iota
	kindGet
	kindDelete
	kindCreate  // PUT with If-None-Match: *
	kindReplace // PUT with If-Match: the ETag of an older value
)

// call is one operation on one key. Values are small and unique; "" means that
// the key does not exist.
type call struct {
	kind     kind
	key      string
	value    string // to write
	expected string // kindReplace: the value that must be there
}

// outcome is what the client learned.
type outcome struct {
	unknown bool // no answer: it may have happened or not
	refused bool // 412, or 404 for a replace
	value   string
}

// registerModel is one S3 key as a linearizable register with conditions.
func registerModel() porcupine.Model {
	return porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			byKey := map[string][]porcupine.Operation{}
			for _, op := range history {
				key := op.Input.(call).key
				byKey[key] = append(byKey[key], op)
			}
			var parts [][]porcupine.Operation
			for _, ops := range byKey {
				parts = append(parts, ops)
			}
			return parts
		},
		Init: func() any { return "" },
		Step: func(state, input, output any) (bool, any) {
			return stepRegister(state.(string), input.(call), output.(outcome))
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
	}
}

func stepRegister(state string, c call, o outcome) (bool, any) {
	holds := c.kind == kindPut || c.kind == kindDelete ||
		c.kind == kindCreate && state == "" || c.kind == kindReplace && state == c.expected
	switch {
	case c.kind == kindGet:
		return o.unknown || o.value == state, state
	case o.refused:
		return !holds, state
	case o.unknown && !holds:
		return true, state // had it happened, it would have been refused
	case !holds:
		return false, state
	case c.kind == kindDelete:
		return true, ""
	default:
		return true, c.value
	}
}

// historian is one client.
type historian struct {
	id     int
	tg     target
	bucket string
	rng    *rand.Rand
	start  time.Time
	etags  *sync.Map // value -> ETag
	values *sync.Map // key -> a value that was there once
	ops    []porcupine.Operation
}

func (h *historian) run(ctx context.Context, keys []string) error {
	for n := 0; ctx.Err() == nil; n++ {
		c := call{kind: kind(h.rng.IntN(5)), key: keys[h.rng.IntN(len(keys))], value: fmt.Sprintf("v%d.%d", h.id, n)}
		if c.kind == kindReplace {
			old, ok := h.values.Load(c.key)
			if !ok {
				continue
			}
			c.expected = old.(string)
		}
		from := time.Since(h.start)
		o, err := h.perform(ctx, c)
		if err != nil {
			return err
		}
		op := porcupine.Operation{ClientId: h.id, Input: c, Call: int64(from), Output: o, Return: int64(time.Since(h.start))}
		if o.unknown {
			// It may take effect at any later time. Nobody else may use the
			// client's id while it is open, so this client gets a new one.
			op.Return = math.MaxInt64
			h.id += 1000
		}
		h.ops = append(h.ops, op)
	}
	return nil
}

func (h *historian) perform(ctx context.Context, c call) (outcome, error) {
	r := request{bucket: h.bucket, key: c.key, method: http.MethodPut, body: []byte(c.value), header: http.Header{}}
	switch c.kind {
	case kindGet:
		r.method, r.body = http.MethodGet, nil
	case kindDelete:
		r.method, r.body = http.MethodDelete, nil
	case kindCreate:
		r.header.Set("If-None-Match", "*")
	case kindReplace:
		etag, ok := h.etags.Load(c.expected)
		if !ok {
			return outcome{}, fmt.Errorf("no etag of %s", c.expected)
		}
		r.header.Set("If-Match", etag.(string))
	}
	a, err := h.tg.try(context.WithoutCancel(ctx), r)
	switch {
	case err != nil || a.status >= 500:
		return outcome{unknown: true}, nil
	case a.status == http.StatusPreconditionFailed, c.kind == kindReplace && a.status == http.StatusNotFound:
		return outcome{refused: true}, nil
	case c.kind == kindGet && a.status == http.StatusNotFound:
		return outcome{}, nil
	case a.status >= 300:
		return outcome{}, fmt.Errorf("%+v: %d %s", c, a.status, a.body)
	case c.kind == kindGet:
		return outcome{value: string(a.body)}, nil
	case c.kind != kindDelete:
		h.etags.Store(c.value, a.header.Get("ETag"))
		h.values.Store(c.key, c.value)
	}
	return outcome{}, nil
}

// TestHistoryIsLinearizable checks that concurrent clients saw one order of
// events, with a disk failing halfway.
func TestHistoryIsLinearizable(t *testing.T) {
	t.Parallel()
	g := startGateway(t, 6)
	tg := g.target()
	bucket := tg.bucket(t)
	rng := rand.New(rand.NewPCG(seed(t), 2))
	var keys []string
	for k := range 12 {
		keys = append(keys, fmt.Sprintf("key%d", k))
	}
	var etags, values sync.Map
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	clients := make([]*historian, 10)
	start := time.Now()
	var wg sync.WaitGroup
	for i := range clients {
		clients[i] = &historian{id: i, tg: tg, bucket: bucket, rng: rand.New(rand.NewPCG(rng.Uint64(), 3)), start: start, etags: &etags, values: &values}
		wg.Go(func() {
			if err := clients[i].run(ctx, keys); err != nil {
				t.Error(err)
			}
		})
	}
	half := time.NewTimer(2 * time.Second)
	<-half.C
	if err := emptyDir(g.disks[2]); err != nil {
		t.Error(err)
	}
	wg.Wait()
	var history []porcupine.Operation
	unknown := 0
	for _, c := range clients {
		history = append(history, c.ops...)
		for _, op := range c.ops {
			if op.Output.(outcome).unknown {
				unknown++
			}
		}
	}
	if len(history)-unknown < 100 {
		t.Fatalf("%d operations, %d without an answer: the test tested nothing", len(history), unknown)
	}
	result, info := porcupine.CheckOperationsVerbose(registerModel(), history, 60*time.Second)
	t.Logf("%d operations, %d without an answer: %s", len(history), unknown, result)
	if result != porcupine.Ok {
		path := t.ArtifactDir() + "/history.html"
		if err := porcupine.VisualizePath(registerModel(), info, path); err != nil {
			t.Log(err)
		}
		t.Fatalf("the history is %s; see %s", result, path)
	}
}
