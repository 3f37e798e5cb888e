package sigv4

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// typical gives the median time of f among n runs, interleaved with the others
// so that all see the same weather.
func typical(n int, fs ...func()) []time.Duration {
	samples := make([][]time.Duration, len(fs))
	for range n {
		for i, f := range fs {
			start := time.Now()
			f()
			samples[i] = append(samples[i], time.Since(start))
		}
	}
	medians := make([]time.Duration, len(fs))
	for i, s := range samples {
		slices.Sort(s)
		medians[i] = s[len(s)/2]
	}
	return medians
}

// TestA20A21Timing: time tells neither whether a name is known nor how much of
// a signature is right.
func TestA20A21Timing(t *testing.T) {
	if testing.Short() {
		t.Skip("measures time")
	}
	a := newDoc(t)
	r := newRequest(t, http.MethodGet, target, nil)
	right := docSigner().header(r)
	good := r.Header.Get("Authorization")
	attempt := func(old, changed string) func() {
		again := r.Clone(t.Context())
		again.Header.Set("Authorization", strings.Replace(good, old, changed, 1))
		return func() {
			again.Body = http.NoBody
			if _, err := a.Authenticate(again); err == nil {
				t.Error("accepted")
			}
		}
	}
	digit := func(i int) string { // the right signature up to digit i
		return right[:i] + strings.Repeat("x", len(right)-i)
	}
	var medians []time.Duration
	for range 12 { // other work on the machine may spoil a try
		medians = typical(4000,
			attempt(docAccessKey, "AKIAIOSFODNN7EXAMPLF"), attempt(right, digit(0)), attempt(right, digit(32)), attempt(right, digit(63)))
		if low, high := slices.Min(medians), slices.Max(medians); float64(high) <= 1.05*float64(low) {
			return
		}
	}
	t.Errorf("unknown name, and 0, 32, 63 digits right: %v", medians)
}
