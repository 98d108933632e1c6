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

// slow is how long a test waits for what is there in milliseconds on a machine that
// has nothing else to do.
const slow = 2 * time.Minute

// New is Start for tests and benchmarks: the runtime closes with the test, and no
// plugin is too late for it because the machine is busy. Plugins are given a minute
// for what opts does not tell.
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

// Connect is StartPlugin and WaitPlugin for tests: the plugin goes with the test.
func (r *Runtime) Connect(tb TB, idx, name string, plugin any) (stop func()) {
	tb.Helper()
	stop, err := StartPlugin(context.WithoutCancel(tb.Context()), r.SocketPath(), idx, name, plugin)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(stop)
	ctx, cancel := context.WithTimeout(tb.Context(), slow)
	defer cancel()
	if err := r.WaitPlugin(ctx, idx+"-"+name); err != nil {
		tb.Fatalf("%v", err)
	}
	return stop
}
