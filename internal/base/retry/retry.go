// SPDX-License-Identifier: Apache-2.0

// Package retry repeats work that fails, with growing waits in between.
package retry

import (
	"context"
	"time"

	"github.com/jackfield/jackfield/internal/base/deadline"
)

// Backoff is the wait before the next attempt. It doubles from First to Last with each failure.
type Backoff struct {
	First, Last time.Duration

	wait time.Duration
}

// Every returns a Backoff that does not grow.
func Every(wait time.Duration) *Backoff { return &Backoff{First: wait, Last: wait} }

// NextWait returns the wait after one more failure.
func (b *Backoff) NextWait() time.Duration {
	b.wait = min(max(2*b.wait, b.First), b.Last)
	return b.wait
}

// Reset makes the next wait the first one again.
func (b *Backoff) Reset() { b.wait = 0 }

// Retry calls attempt until it succeeds, until it fails with an error that is not transient, or until ctx ends. It
// returns the last error of attempt. After the end of ctx there is no further attempt.
func (b *Backoff) Retry(ctx context.Context, isTransient func(error) bool, attempt func() error) error {
	for {
		err := attempt()
		if err == nil || !isTransient(err) {
			return err
		}
		if deadline.Sleep(ctx, b.NextWait()); ctx.Err() != nil {
			return err
		}
	}
}
