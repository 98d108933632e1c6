// SPDX-License-Identifier: Apache-2.0

package nritest

import (
	"context"
	"time"
)

// patient is the context of a request: its deadline, which the plugin is told, is
// RequestTimeout from now, and it ends after Patience.
func (r *Runtime) patient(ctx context.Context) (context.Context, context.CancelFunc) {
	told := time.Now().Add(r.opts.RequestTimeout)
	ctx, cancel := context.WithTimeout(ctx, r.opts.Patience)
	if d, ok := ctx.Deadline(); !ok || d.After(told) {
		ctx = patience{ctx, told}
	}
	return ctx, cancel
}

// patience tells of another deadline than its own.
type patience struct {
	context.Context
	told time.Time
}

func (p patience) Deadline() (time.Time, bool) { return p.told, true }
