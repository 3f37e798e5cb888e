package std

import "context"

// turns bounds how many large inline reads of a disk run at a time; whoever
// waits is served in order. A copy out of the page cache takes long enough for
// the runtime to give the processor to another thread, which would begin the
// next one: more threads than processors, each waiting in the middle of its
// copy.
type turns chan struct{}

// take reports whether the caller has a turn, to be given back; not if ctx
// ended first.
func (t turns) take(ctx context.Context) bool {
	select {
	case t <- struct{}{}:
		return true
	default:
	}
	select {
	case t <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (t turns) give() { <-t }
