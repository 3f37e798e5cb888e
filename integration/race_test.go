package integration

import (
	"bytes"
	"fmt"
	"net/http"
	"sync"
	"testing"
)

// TestOneCreatorWins: of many conditional creations of a key exactly one is
// acknowledged, and its bytes stay.
func TestOneCreatorWins(t *testing.T) {
	t.Parallel()
	tg := anyGateway(t)
	bucket := tg.bucket(t)
	const keys, creators = 200, 64
	for k := range keys {
		key := fmt.Sprintf("key-%d", k)
		statuses := make([]int, creators)
		var wg sync.WaitGroup
		for i := range creators {
			wg.Go(func() {
				a, err := tg.try(t.Context(), request{method: http.MethodPut, bucket: bucket, key: key, body: creatorBody(k, i),
					header: http.Header{"If-None-Match": {"*"}}})
				if err != nil {
					t.Error(err)
				}
				statuses[i] = a.status
			})
		}
		wg.Wait()
		winner := -1
		for i, status := range statuses {
			switch {
			case status == http.StatusOK && winner < 0:
				winner = i
			case status == http.StatusOK:
				t.Fatalf("%s: creators %d and %d both won", key, winner, i)
			case status != http.StatusPreconditionFailed:
				t.Fatalf("%s: creator %d got %d, want 200 or 412", key, i, status)
			}
		}
		if winner < 0 {
			t.Fatalf("%s: nobody won", key)
		}
		a := tg.want(t, http.StatusOK, request{method: http.MethodGet, bucket: bucket, key: key})
		if !bytes.Equal(a.body, creatorBody(k, winner)) {
			t.Fatalf("%s: creator %d won, but the bytes are others", key, winner)
		}
	}
}

// creatorBody is inline for most keys and sharded for some.
func creatorBody(key, creator int) []byte {
	line := fmt.Appendf(nil, "creator %d of key %d\n", creator, key)
	if key%20 == 0 {
		return bytes.Repeat(line, 1000)
	}
	return line
}
