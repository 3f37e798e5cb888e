package uring

import (
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ringfence/storage/uring/ring"
	"ringfence/storage/uring/ringtest"
)

// TestStartsOnAHungDiskAreBounded: whoever tries again and again does not gather
// threads, and nothing is left when the disk answers.
func TestStartsOnAHungDiskAreBounded(t *testing.T) {
	needRing(t)
	for _, c := range []struct {
		name string
		hang func() (ring.Setup, func())
	}{
		{"in the probe's read", func() (ring.Setup, func()) {
			script := &ringtest.Script{}
			return ringtest.Wrap(ring.New, script), script.Stall(ringtest.AnyFD)
		}},
		{"in a system call", func() (ring.Setup, func()) {
			held := make(chan struct{})
			return func(ring.Options) (ring.Ring, error) { <-held; return nil, unix.EMFILE }, func() { close(held) }
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			setup, release := c.hang()
			o := Options{Dir: t.TempDir(), Setup: setup, ProbeTimeout: 10 * time.Millisecond}
			before, leaks := measure(t), leakedShards()
			refused := 0
			for range 5 * startsMax {
				_, err := Start(t.Context(), o)
				var p *ProbeError
				if !errors.As(err, &p) || p.Restricted {
					t.Fatal(err)
				}
				if strings.Contains(err.Error(), "former starts") {
					refused++
				}
			}
			if refused != 4*startsMax {
				t.Errorf("%d of %d starts were refused", refused, 5*startsMax)
			}
			if n := measure(t).goroutines - before.goroutines; n > startsMax+2 {
				t.Errorf("%d goroutines more", n)
			}
			// Another disk's rings start.
			other, err := Start(t.Context(), Options{Dir: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := other.Close(t.Context()); err != nil {
				t.Error(err)
			}
			release()
			eventually(t, "all is given back", func() bool {
				now := measure(t)
				return now.fds <= before.fds && now.goroutines <= before.goroutines && leakedShards() == leaks
			})
			o.Setup, o.ProbeTimeout = nil, 0
			start(t, o)
		})
	}
}
