package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// usage is what the process has used up so far.
type usage struct {
	cpu    time.Duration // user and system, of all threads
	device int64         // bytes that storage devices gave
}

func usageNow() (usage, error) {
	var ru unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &ru); err != nil {
		return usage{}, fmt.Errorf("processor time: %w", err)
	}
	device, err := procField("/proc/self/io", "read_bytes:")
	if err != nil {
		return usage{}, err
	}
	return usage{cpu: time.Duration(ru.Utime.Nano() + ru.Stime.Nano()), device: device}, nil
}

// procField reads the number that follows a name in a file of /proc.
func procField(path, name string) (int64, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(data) {
		fields := bytes.Fields(line)
		if len(fields) >= 2 && string(fields[0]) == name {
			return strconv.ParseInt(string(fields[1]), 10, 64)
		}
	}
	return 0, fmt.Errorf("%s: no %s", path, name)
}

func threads() (int64, error) { return procField("/proc/self/status", "Threads:") }

// residentMemory of the process, in bytes.
func residentMemory() (int64, error) {
	kib, err := procField("/proc/self/status", "VmRSS:")
	return kib << 10, err
}

// threadWatch samples the number of the process's threads.
type threadWatch struct {
	stop context.CancelFunc
	done chan struct{}
	most int64
	err  error
}

// threadInterval is long: the runtime keeps its threads, so a peak is still
// there at the last sample, and a watcher must not cost what it measures.
const threadInterval = 50 * time.Millisecond

func watchThreads(ctx context.Context) *threadWatch {
	ctx, stop := context.WithCancel(ctx)
	w := &threadWatch{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		tick := time.NewTicker(threadInterval)
		defer tick.Stop()
		for ctx.Err() == nil {
			w.sample()
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}()
	return w
}

func (w *threadWatch) sample() {
	n, err := threads()
	if err != nil {
		w.err = err
		return
	}
	w.most = max(w.most, n)
}

// end gives the most threads that were seen.
func (w *threadWatch) end() (int64, error) {
	w.stop()
	<-w.done
	w.sample()
	return w.most, w.err
}
