// SPDX-License-Identifier: Apache-2.0

package nri

import "time"

const (
	// firstRetry and lastRetry are the shortest and the longest wait before something that
	// failed is tried again.
	firstRetry, lastRetry = time.Second, time.Minute
)

// backoff doubles the wait before each retry. The zero value is ready.
type backoff struct{ wait time.Duration }

// next returns the wait before the next retry.
func (b *backoff) next() time.Duration {
	b.wait = min(max(2*b.wait, firstRetry), lastRetry)
	return b.wait
}

// reset begins with the shortest wait again, after a success.
func (b *backoff) reset() { b.wait = 0 }
