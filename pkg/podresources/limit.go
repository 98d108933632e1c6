// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"context"
	"sync"
	"time"
)

// limiter lets through one call an interval on average, and burst calls at once
// after a rest.
type limiter struct {
	interval time.Duration
	burst    int

	mu   sync.Mutex
	full time.Time // when a burst will be possible again
}

// wait blocks until a call may go out. It reports the deadline at once when the
// turn comes only after it.
func (l *limiter) wait(ctx context.Context) error {
	l.mu.Lock()
	now := time.Now()
	if l.full.Before(now) {
		l.full = now
	}
	at := l.full.Add(-time.Duration(l.burst-1) * l.interval)
	if deadline, ok := ctx.Deadline(); ok && at.After(deadline) {
		l.mu.Unlock()
		return context.DeadlineExceeded
	}
	l.full = l.full.Add(l.interval)
	l.mu.Unlock()
	return sleep(ctx, at.Sub(now))
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
