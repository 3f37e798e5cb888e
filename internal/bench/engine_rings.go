package bench

import (
	"context"

	"ringfence/storage"
)

// startRings starts the strategies that need io_uring.
func startRings(_ context.Context, leg Leg, _ *storage.Pool) (engine, error) {
	return nil, usagef("strategy %s is not in this build", leg.Engine.Strategy)
}
