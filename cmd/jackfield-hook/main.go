// SPDX-License-Identifier: Apache-2.0

// Command jackfield-hook is the OCI hook.
package main

import (
	"context"
	"os"
	"runtime/debug"

	"github.com/jackfield/jackfield/pkg/hook"
)

func main() {
	// It ends before there is anything worth collecting.
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(256 << 20)
	go watch()
	widen()
	if err := hook.Run(context.Background(), os.Args[1:], hook.Env{Stdin: os.Stdin, Stdout: os.Stdout, Self: os.Executable, Stranded: fail}); err != nil {
		fail(err)
	}
}

func fail(err error) {
	hook.Fail(err)
	os.Exit(1)
}

// widen has the stack as wide at once as the hook needs it. Otherwise it is copied to
// one of twice the size again and again, the more the deeper the calls. What is made
// room for is not written to, which would have the kernel find pages for all of it.
//
//go:noinline
func widen() byte {
	if len(os.Args) > 0 {
		return 0
	}
	var room [24 << 10]byte
	return room[len(os.Environ())]
}
