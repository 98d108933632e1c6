// SPDX-License-Identifier: Apache-2.0

package nritest

import (
	"context"
	"time"
)

// TB is what the harness needs of a testing.TB, so that programs can use this
// package and leave the testing package out.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(func())
	Context() context.Context
}

// New is Start for tests and benchmarks: the runtime closes with the test.
func New(tb TB, opts Options) *Runtime {
	tb.Helper()
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

// Connect is StartPlugin and WaitPlugin for tests: the plugin goes with the test.
func (r *Runtime) Connect(tb TB, idx, name string, plugin any) (stop func()) {
	tb.Helper()
	stop, err := StartPlugin(context.WithoutCancel(tb.Context()), r.SocketPath(), idx, name, plugin)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(stop)
	ctx, cancel := context.WithTimeout(tb.Context(), 10*time.Second)
	defer cancel()
	if err := r.WaitPlugin(ctx, idx+"-"+name); err != nil {
		tb.Fatalf("%v", err)
	}
	return stop
}
