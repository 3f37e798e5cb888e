package main

import (
	"os"
	"path/filepath"
	"testing"

	"ringfence/storage"
)

func TestCredentialsAreKept(t *testing.T) {
	store := storage.UUID{1}
	roots := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	first, from, notes, err := settleCredentials(t.Context(), rootConfig{}, store, roots)
	if err != nil || from != credentialsGenerated || len(notes) > 0 {
		t.Fatalf("%s, %q, %v", from, notes, err)
	}
	if len(first.User) != 20 || len(first.Password) != 40 {
		t.Errorf("generated %d and %d characters", len(first.User), len(first.Password))
	}
	for _, root := range roots {
		info, err := os.Stat(filepath.Join(root, credentialsFile))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v", info.Mode())
		}
	}
	// One copy lost, one damaged: the third decides and mends both.
	if err := os.Remove(filepath.Join(roots[0], credentialsFile)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(roots[1], credentialsFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	second, from, notes, err := settleCredentials(t.Context(), rootConfig{}, store, roots)
	if err != nil || from != credentialsStored || second != first || len(notes) != 1 {
		t.Errorf("%s, same %v, %q, %v", from, second == first, notes, err)
	}
	for _, root := range roots {
		if got, err := readCredentials(root, store); err != nil || got != first {
			t.Errorf("%s was not mended: %v", root, err)
		}
	}
	given, from, _, err := settleCredentials(t.Context(), rootConfig{User: "admin", Password: "longenough"}, store, roots)
	if err != nil || from != credentialsGiven || given.User != "admin" {
		t.Errorf("%s, %v", from, err)
	}
}

func TestCredentialsOfAnotherStoreAreNotUsed(t *testing.T) {
	root := t.TempDir()
	first, _, _, err := settleCredentials(t.Context(), rootConfig{}, storage.UUID{1}, []string{root})
	if err != nil {
		t.Fatal(err)
	}
	second, from, notes, err := settleCredentials(t.Context(), rootConfig{}, storage.UUID{2}, []string{root})
	if err != nil || from != credentialsGenerated || second.Password == first.Password || len(notes) != 1 {
		t.Errorf("%s, %q, %v", from, notes, err)
	}
}

func TestCredentialsNeedADisk(t *testing.T) {
	if _, _, _, err := settleCredentials(t.Context(), rootConfig{}, storage.UUID{1}, []string{"/nowhere/at/all"}); err == nil {
		t.Error("credentials that were stored nowhere were handed out")
	}
}

func TestRandomTextUsesItsAlphabet(t *testing.T) {
	seen := map[rune]int{}
	for _, r := range randomText(6200, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") {
		seen[r]++
	}
	if len(seen) != 62 {
		t.Errorf("%d of 62 letters", len(seen))
	}
	for r, n := range seen {
		if n < 40 || n > 200 { // 100 expected, 10 sigma either way
			t.Errorf("%c drawn %d times of 6200", r, n)
		}
	}
}
