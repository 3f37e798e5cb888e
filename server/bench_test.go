package server

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"ringfence/erasure"
	"ringfence/server/sigv4"
)

// sink is a ResponseWriter that keeps nothing.
type sink struct{ header http.Header }

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) Write(p []byte) (int, error) { return len(p), nil }
func (s *sink) WriteHeader(int)             {}

func benchServer(b *testing.B) (*Server, *fakeStore) {
	b.Helper()
	store := newFakeStore()
	auth, err := sigv4.New(sigv4.Options{Lookup: func(context.Context, string) (sigv4.Credential, bool) {
		return sigv4.Credential{SecretKey: testSecret}, true
	}})
	if err != nil {
		b.Fatal(err)
	}
	s, err := New(Options{Buckets: store, Objects: Adapt(store), Uploads: store, Auth: auth, Log: zerolog.Nop()})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := store.CreateBucket(b.Context(), "bkt", ""); err != nil {
		b.Fatal(err)
	}
	return s, store
}

// BenchmarkRequest is what a signed request costs above net/http and the store.
func BenchmarkRequest(b *testing.B) {
	s, store := benchServer(b)
	meta := erasure.Meta{Headers: map[string]string{"content-type": "text/plain"}}
	digest := erasure.Digest{ETag: strings.Repeat("a", 32), Checksums: []erasure.Checksum{{Algorithm: "CRC64NVME", Value: make([]byte, 8)}}}
	for i := range 1000 {
		if _, err := store.commit("bkt", fmt.Sprintf("folder/object-%04d", i), make([]byte, 4096), digest, meta, nil, nil); err != nil {
			b.Fatal(err)
		}
	}
	for name, target := range map[string]string{"GET": "/bkt/folder/object-0500", "HEAD": "/bkt/folder/object-0500", "LIST": "/bkt?list-type=2&prefix=folder%2F&encoding-type=url"} {
		b.Run("op="+name, func(b *testing.B) {
			method := name
			if name == "LIST" {
				method = http.MethodGet
			}
			req := sign(httptest.NewRequest(method, "http://localhost:9000"+target, nil), nil)
			b.ReportAllocs()
			for b.Loop() {
				s.serve(&sink{make(http.Header)}, req)
			}
		})
	}
}
