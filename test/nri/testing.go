// SPDX-License-Identifier: Apache-2.0

package nritest

import (
	"context"
	"time"
)

// TB is what the harness uses of testing.TB, so that programs can use this package without
// package testing.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(func())
	Context() context.Context
}

// maxWait is how long a test waits on a busy machine for what takes milliseconds on an idle one.
const maxWait = 2 * time.Minute

// New is Start for tests and benchmarks: the runtime is closed with the test, and a time limit
// that opts does not have is a minute, so that no plugin times out on a busy machine.
func New(tb TB, opts Options) *Runtime {
	tb.Helper()
	for _, t := range []*time.Duration{&opts.RequestTimeout, &opts.RegistrationTimeout, &opts.Patience} {
		if *t == 0 {
			*t = time.Minute
		}
	}
	r, err := Start(opts)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(func() {
		if err := r.Close(); err != nil {
			tb.Fatalf("close NRI runtime: %v", err)
		}
	})
	return r
}

// Connect is StartPlugin and WaitPlugin for tests: the plugin ends with the test.
func (r *Runtime) Connect(tb TB, idx, name string, plugin any) (stop func()) {
	tb.Helper()
	stop, err := StartPlugin(context.WithoutCancel(tb.Context()), r.SocketPath(), idx, name, plugin)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(stop)
	ctx, cancel := context.WithTimeout(tb.Context(), maxWait)
	defer cancel()
	if err := r.WaitPlugin(ctx, idx+"-"+name); err != nil {
		tb.Fatalf("%v", err)
	}
	return stop
}
