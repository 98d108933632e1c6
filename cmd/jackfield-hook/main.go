// SPDX-License-Identifier: Apache-2.0

// Command jackfield-hook is the OCI hook.
package main

import (
	"context"
	"os"
	"runtime/debug"
	"time"

	"github.com/jackfield/jackfield/internal/adapter/hook"
)

func main() {
	// The process ends before a garbage collection would pay off. The memory limit protects against
	// huge inputs.
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(256 << 20)
	time.AfterFunc(hook.Timeout, func() { fail(hook.ErrTimeout) })
	if err := hook.Run(context.Background(), os.Args[1:],
		hook.Env{Stdin: os.Stdin, Stdout: os.Stdout, Self: os.Executable}); err != nil {
		fail(err)
	}
}

func fail(err error) {
	hook.PrintError(err)
	os.Exit(hook.ExitStatus(err))
}
