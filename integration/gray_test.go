package integration

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// wantKilled waits for the end of a process by a forbidden system call.
func wantKilled(t *testing.T, g *gateway) {
	t.Helper()
	timer := time.NewTimer(30 * time.Second)
	defer timer.Stop()
	select {
	case <-g.exited:
	case <-timer.C:
		g.kill()
		t.Fatal("rings are switched on, and no call of io_uring ended the process: the test sees nothing")
	}
	if status, ok := g.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !status.Signaled() || status.Signal() != syscall.SIGSYS {
		t.Errorf("the process ended by %v, want SIGSYS", g.cmd.ProcessState)
	}
}

// TestNoRingsUnlessSwitchedOn runs the gateway where a single call of io_uring
// ends the process: there is none, from the start to the end, unless rings are
// switched on.
func TestNoRingsUnlessSwitchedOn(t *testing.T) {
	t.Parallel()
	needRings(t)
	for _, flag := range []string{"", "RINGFENCE_IO_URING_READ_ENABLE=false", "RINGFENCE_IO_URING_READ_ENABLE=perhaps"} {
		g := newGateway(t.TempDir(), 4)
		g.confine = confineKill
		if flag != "" {
			g.environ = append(g.environ, flag)
		}
		g.start(t)
		tg := g.target()
		bucket := tg.bucket(t)
		putStock(t, tg, bucket, "x").check(t, tg, bucket)
		tg.turn(t, "io-uring-inline", "off") // which has no say while rings are off
		tg.turn(t, "io-uring-shards", "2")
		putStock(t, tg, bucket, "y").check(t, tg, bucket)
		g.stop(t)
	}
	g := newGateway(t.TempDir(), 4)
	g.confine = confineKill
	g.environ = append(g.environ, ringsOn)
	if err := g.launch(); err == nil {
		wantKilled(t, g)
	} else if g.cmd == nil || g.cmd.ProcessState == nil {
		t.Fatal(err)
	} else {
		wantKilled(t, g)
	}
	off := newGateway(t.TempDir(), 4)
	off.confine = confineKill
	off.start(t)
	// The answer may not make it out before the first ring is set up.
	_, err := off.target().try(t.Context(), request{method: "PUT", bucket: "-", key: "admin/v1/knobs/io-uring-read-enable", body: []byte("on")})
	t.Logf("switched on: %v", err)
	wantKilled(t, off)
}

// TestTracedGatewayMakesNoRings looks with other eyes.
func TestTracedGatewayMakesNoRings(t *testing.T) {
	t.Parallel()
	needRings(t)
	strace := needTool(t, "strace", "strace")
	for _, on := range []bool{false, true} {
		trace := filepath.Join(t.TempDir(), "trace")
		g := newGateway(t.TempDir(), 4)
		// Detached, so that the process to signal is the gateway itself.
		g.tracer = []string{strace, "-D", "-f", "-o", trace, "-e", "trace=io_uring_setup,io_uring_enter,io_uring_register"}
		if on {
			g.environ = append(g.environ, ringsOn, inlineOff)
		}
		if err := g.launch(); err != nil {
			if text, readErr := os.ReadFile(trace); !required("strace") && (errors.Is(readErr, os.ErrNotExist) || len(text) == 0) {
				t.Skipf("strace does not run here: %v", err)
			}
			t.Fatal(err)
		}
		t.Cleanup(g.kill)
		g.waitReady(t)
		tg := g.target()
		bucket := tg.bucket(t)
		if on {
			tg.wantTier(t, "ring")
		}
		putStock(t, tg, bucket, "x").check(t, tg, bucket)
		g.stop(t)
		var text string
		eventually(t, 20*time.Second, "the trace ends", func() bool {
			b, err := os.ReadFile(trace)
			text = string(b)
			return err == nil && strings.Contains(text, "+++ exited with 0 +++")
		})
		if made := strings.Contains(text, "io_uring_"); made != on {
			t.Errorf("rings on: %t; calls of io_uring in the trace: %t\n%.2000s", on, made, text)
		}
	}
}
