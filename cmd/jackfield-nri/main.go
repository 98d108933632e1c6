// SPDX-License-Identifier: Apache-2.0

// Command jackfield-nri is the NRI plugin daemon.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackfield/jackfield/nri"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := nri.Command(os.Getenv, os.Stderr).ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "jackfield-nri:", err)
		return exitStatus(err)
	}
	return 0
}

// exitStatus returns 2 for an error in the command line and 3 for any other error, like the
// jackfield command.
func exitStatus(err error) int {
	var usage *nri.UsageError
	if errors.As(err, &usage) {
		return 2
	}
	return 3
}
