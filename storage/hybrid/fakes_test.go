package hybrid

import (
	"context"
	"sync"
	"testing"

	"ringfence/storage"
	"ringfence/storage/uring"
)

// fakes starts fake drivers with a fault.
func fakes(fault func(ctx context.Context, r uring.Request, n int) (int, error)) starter {
	return func(context.Context, uring.Options) (driver, error) { return &fake{fault: fault}, nil }
}

// starts is a starter that counts, and that does what a test says.
type starts struct {
	fault func(ctx context.Context, r uring.Request, n int) (int, error)

	mu      sync.Mutex
	errs    []error // of the next starts; protected by mu, as are those below
	always  error
	begun   int
	options []uring.Options
	made    []*fake
}

func (s *starts) start(_ context.Context, o uring.Options) (driver, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun++
	s.options = append(s.options, o)
	if s.always != nil {
		return nil, s.always
	}
	if len(s.errs) > 0 {
		err := s.errs[0]
		s.errs = s.errs[1:]
		if err != nil {
			return nil, err
		}
	}
	d := &fake{fault: s.fault}
	s.made = append(s.made, d)
	return d, nil
}

func (s *starts) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.begun
}

func (s *starts) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.always = err
}

func (s *starts) last() *fake {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.made[len(s.made)-1]
}

// bufs gets buffers, and what gives them back.
func (r *rig) bufs(t testing.TB, count, size int) (bufs []*storage.Buf, free func()) {
	t.Helper()
	for range count {
		b, err := r.pool.Get(size)
		if err != nil {
			t.Fatal(err)
		}
		bufs = append(bufs, b)
	}
	return bufs, func() {
		for _, b := range bufs {
			b.Release()
		}
	}
}
