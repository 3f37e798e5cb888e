package storagetest

import (
	"testing"

	"ringfence/storage"
)

func TestMemBackend(t *testing.T) {
	TestBackend(t, func(*testing.T) (storage.Backend, string) { return NewMemBackend(), "" })
}

func TestFaultyPassesOn(t *testing.T) {
	TestBackend(t, func(*testing.T) (storage.Backend, string) { return NewFaulty(NewMemBackend(), nil), "" })
}
