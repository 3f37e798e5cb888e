package integration

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// oddKeys are names that other stores lose, merge or refuse.
func oddKeys() []string {
	keys := []string{
		"a", "a/b", "a/b/c", "a//b", "a/", "/", "//", "/lead", "trail//", ".", "..", "./x", "../x", "x/../y", "x/./y", "x/..", "...",
		"%2F", "%2e%2e%2f", "%", "%%", "%00", "+", "a+b", "a b", " lead", "trail ", "\ttab", "line\nfeed", "\x01control", "\x7f",
		"caf\u00e9", "cafe\u0301", "\u212b", "\U0001f600/\U0001f600", "\u65e5\u672c", "x.meta", "shards/00", "superblock.a",
		"CON", "a\\b", "..\\x", strings.Repeat("k", 1024), strings.Repeat("long/", 204) + "1234", strings.Repeat("s", 300),
	}
	for c := '!'; c <= '~'; c++ {
		if c < '0' || c > '9' && c < 'A' || c > 'Z' && c < 'a' || c > 'z' {
			keys = append(keys, fmt.Sprintf("p%cq", c))
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// TestKeysAreOpaque puts every odd key with bytes of its own, lists, reads,
// copies and deletes it, and never meets another key's bytes.
func TestKeysAreOpaque(t *testing.T) {
	t.Parallel()
	tg := anyGateway(t)
	bucket := tg.bucket(t)
	keys := oddKeys()
	body := func(key string) []byte { return []byte("the bytes of " + key) }
	for _, key := range keys {
		tg.want(t, http.StatusOK, request{method: http.MethodPut, bucket: bucket, key: key, body: body(key)})
	}
	if got := listV2(t, tg, bucket, "", ""); !slices.Equal(got, keys) {
		t.Errorf("list v2 differs: %s", difference(got, keys))
	}
	if got := listV1(t, tg, bucket, 7); !slices.Equal(got, keys) {
		t.Errorf("list v1 in pages of 7 differs: %s", difference(got, keys))
	}
	for _, key := range keys {
		a := tg.want(t, http.StatusOK, request{method: http.MethodGet, bucket: bucket, key: key})
		if !bytes.Equal(a.body, body(key)) {
			t.Errorf("key %q reads %q", key, a.body)
		}
		copied := "copies/" + key
		if len(copied) > 1024 {
			continue
		}
		tg.want(t, http.StatusOK, request{method: http.MethodPut, bucket: bucket, key: copied,
			header: http.Header{"X-Amz-Copy-Source": {"/" + bucket + "/" + escapeKey(key)}}})
		a = tg.want(t, http.StatusOK, request{method: http.MethodGet, bucket: bucket, key: copied})
		if !bytes.Equal(a.body, body(key)) {
			t.Errorf("the copy of %q reads %q", key, a.body)
		}
	}
	for i, key := range keys {
		tg.want(t, http.StatusNoContent, request{method: http.MethodDelete, bucket: bucket, key: key})
		tg.want(t, http.StatusNotFound, request{method: http.MethodHead, bucket: bucket, key: key})
		if i+1 < len(keys) {
			tg.want(t, http.StatusOK, request{method: http.MethodHead, bucket: bucket, key: keys[i+1]})
		}
	}
}

func TestKeyLengthIsBounded(t *testing.T) {
	t.Parallel()
	tg := anyGateway(t)
	bucket := tg.bucket(t)
	long := strings.Repeat("k", 1025)
	if a := tg.do(t, request{method: http.MethodPut, bucket: bucket, key: long, body: []byte("x")}); a.status != http.StatusBadRequest || a.code() != "KeyTooLongError" {
		t.Errorf("1,025 bytes: %d %s", a.status, a.code())
	}
	if a := tg.do(t, request{method: http.MethodPut, bucket: bucket, key: strings.Repeat("\u00e9", 513), body: []byte("x")}); a.code() != "KeyTooLongError" {
		t.Errorf("513 characters of 2 bytes: %d %s", a.status, a.code())
	}
}

func TestDelimiters(t *testing.T) {
	t.Parallel()
	tg := anyGateway(t)
	bucket := tg.bucket(t)
	for _, key := range []string{"a", "a/b", "a/c", "a//x", "b-1", "b-2", "b.json", "c"} {
		tg.want(t, http.StatusOK, request{method: http.MethodPut, bucket: bucket, key: key, body: []byte("x")})
	}
	for _, tc := range []struct {
		prefix, delimiter string
		want              []string
	}{
		{"", "/", []string{"a", "b-1", "b-2", "b.json", "c", "prefix:a/"}},
		{"a/", "/", []string{"a/b", "a/c", "prefix:a//"}},
		{"a", "/", []string{"a", "prefix:a/"}},
		{"b", "-", []string{"b.json", "prefix:b-"}},
		{"", ".json", []string{"a", "a//x", "a/b", "a/c", "b-1", "b-2", "c", "prefix:b.json"}},
		{"a/b/", "", nil},
		{"zzz", "/", nil},
	} {
		if got := listV2(t, tg, bucket, tc.prefix, tc.delimiter); !slices.Equal(got, tc.want) {
			t.Errorf("prefix %q, delimiter %q: %q, want %q", tc.prefix, tc.delimiter, got, tc.want)
		}
	}
}

// listV1 lists everything by markers, n keys a page.
func listV1(t *testing.T, tg target, bucket string, n int) []string {
	t.Helper()
	var all []string
	query := url.Values{"max-keys": {fmt.Sprint(n)}}
	for {
		l, names := listPage(t, tg, bucket, query)
		if len(names) > n {
			t.Fatalf("a page of %d, at most %d", len(names), n)
		}
		all = append(all, names...)
		if !l.IsTruncated {
			return all
		}
		query.Set("marker", names[len(names)-1])
	}
}

// difference says where two lists part.
func difference(got, want []string) string {
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			return fmt.Sprintf("%d of %d, %q is missing", len(got), len(want), want[i])
		case i >= len(want):
			return fmt.Sprintf("%d of %d, %q is too many", len(got), len(want), got[i])
		case got[i] != want[i]:
			return fmt.Sprintf("at %d: got %q, want %q", i, got[i], want[i])
		}
	}
	return "not at all"
}
