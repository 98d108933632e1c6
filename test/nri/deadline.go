// SPDX-License-Identifier: Apache-2.0

package nritest

import (
	"context"
	"time"
)

// requestContext returns the context of a request. The deadline that the plugin sees is
// RequestTimeout from now; the context ends after Patience.
func (r *Runtime) requestContext(ctx context.Context) (context.Context, context.CancelFunc) {
	announced := time.Now().Add(r.opts.RequestTimeout)
	ctx, cancel := context.WithTimeout(ctx, r.opts.Patience)
	if d, ok := ctx.Deadline(); !ok || d.After(announced) {
		ctx = announcedDeadline{ctx, announced}
	}
	return ctx, cancel
}

// announcedDeadline reports another deadline than that of its context.
type announcedDeadline struct {
	context.Context
	deadline time.Time
}

func (a announcedDeadline) Deadline() (time.Time, bool) { return a.deadline, true }
